"""What a server remembers of its store: all processes share it, and only an operator resets it."""

import asyncio
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from live.errors import EpochLostError, SetupError
from live.store.connection.high_water import Facts, HighWater
from live.system.processes import CHILDREN
from tests.harness.mutation import must_be_caught, replaced


def high_water(folder: Path) -> HighWater:
    """High-water marks, as in a server process."""
    made = HighWater(folder, "live")
    made.active = True
    return made


def test_a_later_process_reads_everything(tmp_path: Path) -> None:
    """Only the owner can read the files."""
    one = high_water(tmp_path / "d")
    one.remember_store("abc")
    one.require_keys()
    one.check_version("definitions", "7", 0)
    one.note("posts", "e1", 5)
    two = high_water(tmp_path / "d")
    assert two.facts == Facts(store="abc", keys_required=True)
    assert (two.version_of("definitions"), two.version_of("producers")) == (7, 0)
    assert two.offset_of("posts", "e1") == 5
    assert two.board_positions == {"posts": ("e1", 5)}
    assert (two.offset_of("posts", "e2"), two.offset_of("other", "e1")) == (-1, -1)
    assert (tmp_path / "d").stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "d").rglob("*"))


def test_the_first_store_is_kept(tmp_path: Path) -> None:
    """The identity of another store does not replace the recorded identity."""
    one = high_water(tmp_path)
    for identity in ("abc", "def"):
        one.remember_store(identity)
    assert one.facts.store == "abc"


def test_the_loss_of_a_board_found_by_one_process_stops_it_in_all(tmp_path: Path) -> None:
    """The board also stops in processes that start later. Other boards go on, and keep everything that they knew."""
    one, two = high_water(tmp_path), high_water(tmp_path)
    one.remember_store("abc")
    two.refresh()
    one.check_offset("posts", "e1", 3, 5)
    two.require_keys()
    for process in (one, two, high_water(tmp_path)):
        with pytest.raises(EpochLostError, match="went back from offset 5 to 3"):
            process.require_no_loss("posts")
        process.require_no_loss("other")
        process.require_no_loss()
        assert process.facts.keys_required or process is one


def test_a_loss_of_the_whole_store_stops_every_board(tmp_path: Path) -> None:
    """Every process stops, even if it knew the loss of a board before."""
    one, two = high_water(tmp_path), high_water(tmp_path)
    one.lose_boards({"posts": "posts is gone"})
    one.lose("it was emptied")
    two.refresh()
    for process in (one, two):
        for board in ("posts", "other", ""):
            assert process.loss_of(board) == "it was emptied"


def test_the_accepted_loss_of_a_board_ends_no_other_loss(tmp_path: Path) -> None:
    """The other boards keep their positions and versions. Processes that knew the board must be restarted."""
    one, other = high_water(tmp_path), high_water(tmp_path)
    one.remember_store("abc")
    for board in ("posts", "hot", "quiet"):
        one.check_offset(board, "e1", 7, -1)
    one.check_version("definitions", "4", 0)
    other.refresh()
    one.lose_boards({"posts": "posts is gone"})
    one.lose_boards({"hot": "hot is gone"})
    with one.accepting("posts is gone", ["posts"]):
        pass
    other.refresh()
    for process in (one, high_water(tmp_path)):
        assert process.lost_boards == {"hot": "hot is gone"}
        assert process.board_positions == {"hot": ("e1", 7), "quiet": ("e1", 7)}
        assert (process.version_of("definitions"), process.lost, process.facts.store) == (4, "", "abc")
    (accepted,) = one.facts.accepted
    assert (accepted.boards, accepted.lost) == (("posts",), "posts is gone")
    assert "start this one again" in other.loss_of("posts")
    assert (other.loss_of("hot"), other.loss_of("quiet"), other.lost) == ("hot is gone", "", "")


def accept_while_another_is_recorded(folder: Path) -> None:
    """Accept a loss while another process records another loss, which must stay."""
    one, other = high_water(folder), high_water(folder)
    one.lose_boards({"posts": "posts is gone"})
    with one.accepting("posts is gone", ["posts"]):
        other.lose_boards({"hot": "hot is gone"})
        one.refresh()
    for process in (one, high_water(folder)):
        assert process.lost_boards == {"hot": "hot is gone"}
    with one.accepting("hot is gone", ["hot"]):
        other.lose("it was emptied")
    for process in (one, high_water(folder)):
        assert (process.lost_boards, process.loss_of("posts")) == ({}, "it was emptied")


def test_a_loss_that_another_process_records_meanwhile_stays(tmp_path: Path) -> None:
    """No process acknowledges anything on the other board, or in the whole store, until an operator decides."""
    accept_while_another_is_recorded(tmp_path)


@pytest.mark.mutant
def test_an_acceptance_that_does_not_read_the_file_is_detected(tmp_path: Path) -> None:
    """The mutant writes the facts that it knew before."""
    stored = HighWater._stored

    def known(one: HighWater) -> Facts:
        return stored(one) if one._accepting is None else one.facts

    with must_be_caught("the other loss is forgotten"), replaced(HighWater, "_stored", known):
        accept_while_another_is_recorded(tmp_path)


def test_a_held_lock_keeps_changes_from_the_file(tmp_path: Path) -> None:
    """A change applies in this process at once. It applies in other processes when the file can be written."""
    one, two = high_water(tmp_path), high_water(tmp_path)
    one.remember_store("abc")
    with held(tmp_path):
        for board in range(50):
            one.lose_boards({f"b{board}": "it is gone"})
        one.lose("it is gone")
        with capture_logs() as logs:
            for count in (0, 0, 1, 2):
                one.refresh()
                assert len(logs) == count, "another worker that writes for a moment is no reason for an alarm"
        with pytest.raises(EpochLostError, match="it is gone"):
            one.require_no_loss()
        with pytest.raises(SetupError, match="another process holds"), one.accepting("it is gone"):
            pass
        assert (one.lost, len(one.facts.lost_boards)) == ("it is gone", 50)
    two.require_keys()
    one.refresh()
    two.refresh()
    assert (
        two.facts
        == one.facts
        == Facts(
            store="abc",
            keys_required=True,
            lost="it is gone",
            lost_boards={f"b{board}": "it is gone" for board in range(50)},
        )
    )


@pytest.mark.parametrize("by_itself", [True, False])
def test_a_late_write_does_not_undo_an_acceptance(tmp_path: Path, *, by_itself: bool) -> None:
    """A loss that was found before, but is not in the file yet, says nothing about the accepted store.

    API keys are still required.
    """
    one, other = high_water(tmp_path), high_water(tmp_path)
    one.remember_store("abc")
    other.refresh()
    with held(tmp_path):
        one.require_keys()
        one.lose("it was emptied")
    accepting = one if by_itself else other
    with accepting.accepting("it was emptied"):
        accepting.remember_store("def")
    one.refresh()
    found = high_water(tmp_path).facts
    assert (found.store, found.lost, found.keys_required, len(found.accepted)) == ("def", "", True, 1)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the lock of the facts."""
    with (folder / "witness-live.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_an_operator_accepts_a_loss(tmp_path: Path) -> None:
    """The loss is recorded, and API keys are still required. A process that knew the old store must be restarted."""
    one, other = high_water(tmp_path), high_water(tmp_path)
    one.remember_store("abc")
    one.require_keys()
    one.lose("it was emptied")
    other.refresh()
    with one.accepting("it was emptied"):
        one.remember_store("def")
    assert one.lost == ""
    assert (one.facts.store, one.facts.keys_required) == ("def", True)
    assert [(deed.lost, deed.store) for deed in one.facts.accepted] == [("it was emptied", "abc")]
    other.refresh()
    assert "start this one again" in other.lost
    assert high_water(tmp_path).lost == ""


def test_versions_start_again_when_a_loss_is_accepted(tmp_path: Path) -> None:
    """The higher version in the file of another process, which still runs, is not a loss."""
    one, other = high_water(tmp_path), high_water(tmp_path)
    for process in (one, other):
        process.check_version("definitions", "7", 0)
    one.lose("it was emptied")
    with one.accepting("it was emptied"):
        one.check_version("definitions", "3", one.version_of("definitions"))
    for process in (one, high_water(tmp_path)):
        process.offsets.refresh()
        process.check_version("definitions", "3", process.version_of("definitions"))
        assert (process.version_of("definitions"), process.lost) == (3, "")


def test_an_interrupted_acceptance_accepts_nothing(tmp_path: Path) -> None:
    """The loss stays in memory and in the file."""
    one = high_water(tmp_path)
    one.remember_store("abc")
    one.lose("it was emptied")

    def fail() -> None:
        with one.accepting("it was emptied"):
            one.remember_store("def")
            raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="disk"):
        fail()
    for process in (one, high_water(tmp_path)):
        assert (process.facts.store, process.lost) == ("abc", "it was emptied")


def test_a_command_that_only_reads_changes_nothing(tmp_path: Path) -> None:
    """Whatever the command finds, it stops no server, and creates no file."""
    look = HighWater(tmp_path / "d", "live")
    look.remember_store("abc")
    look.require_keys()
    look.lose("another store")
    look.check_offset("posts", "e1", 1, 5)
    look.check_version("producers", "1", 5)
    look.require_no_loss()
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("content", [b"", b"{", b'{"store": 5}', b"\xff"])
def test_an_unreadable_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    """The process does not treat it like an empty file."""
    (tmp_path / "witness-live.json").write_bytes(content)
    with pytest.raises(SetupError, match="which tells whether the store lost data"):
        HighWater(tmp_path, "live")


def work(folder: Path, number: int) -> None:
    """Record losses and offsets, as a process does."""
    mine = high_water(folder)
    for turn in range(20):
        mine.lose_boards({f"b{number}-{turn}": "it is gone"})
        mine.note(f"b{number}", "e", turn)
    asyncio.run(mine.close())


@pytest.mark.slow
def test_concurrent_processes_lose_nothing(tmp_path: Path) -> None:
    """Everything that a process records is kept."""
    processes = [CHILDREN.Process(target=work, args=(tmp_path, number)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    found = msgspec.json.decode((tmp_path / "witness-live.json").read_bytes(), type=Facts)
    assert set(found.lost_boards) == {f"b{number}-{turn}" for number in range(3) for turn in range(20)}
    assert high_water(tmp_path).offsets.known == {f"b{number}": ("e", 19) for number in range(3)}
