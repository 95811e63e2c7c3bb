"""A backup that is made while events are counted holds everything that was acknowledged before."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import live.journal.log.drainer
import live.maintenance.backup
from live.domain.board import Journaling
from live.domain.event import make_entry
from live.errors import SetupError
from live.journal.database import Database
from live.journal.log.reader import contents_of
from live.journal.log.timelines import open_timelines
from live.journal.state.ranking import ranked_at
from live.maintenance.backup import back_up, check_files, read_manifest
from live.maintenance.status import verify
from live.store.board.journal_stream import begin_journal
from live.store.board.keys import SystemKeys
from live.store.board.ledger import Ledger
from live.store.board.manage.lifecycle import delete_keys
from live.store.registry.journals import is_trimming_paused, paused_trimming
from tests.harness.journaled import Journaled, Rows, backed_up, journaled
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.waiting import eventually

copy_database = live.maintenance.backup.copy_database


def rows_in(board: Journaled, folder: Path) -> Rows:
    """The ranking in a backup, or in another data directory."""
    prefix = board.settings.key_prefix
    with Database("sqlite", folder, prefix, writes=False) as copy:
        assert verify(copy, prefix, lambda *_: None).sound
        (timeline,) = copy.work(lambda sql: open_timelines(sql, prefix))
        data = copy.work(lambda sql: contents_of(sql, prefix, timeline))
    found = ranked_at(board.board, data, data.time // 1000)
    return [(member, found.scores[member]) for member in found.members]


def after_the_copy(board: Journaled, work: Callable[[], Awaitable[object]]) -> Any:
    """Let a test do other work after a backup has copied the database, and before it continues."""
    loop = asyncio.get_running_loop()

    def copy(*arguments: Any) -> None:
        copy_database(*arguments)
        asyncio.run_coroutine_threadsafe(_awaited(work), loop).result(10)

    assert board.databases, "the board has no database to copy"
    return replaced(live.maintenance.backup, "copy_database", copy)


async def _awaited(work: Callable[[], Awaitable[object]]) -> None:
    await work()


async def back_up_while_drained(board: Journaled, folder: Path) -> None:
    """Back up while some likes are in SQL, some wait in the store, and some reach SQL after the copy."""
    drainer = await board.drainer()
    await board.like("a", "b")
    await drainer.sweep()
    await board.like("a")

    async def drain() -> None:
        await drainer.sweep()

    refused = ""
    with after_the_copy(board, drain):
        try:
            await backed_up(board, folder)
        except SetupError as error:
            refused = str(error)
    assert not refused
    assert rows_in(board, folder) == await board.rows()


async def test_entries_that_are_drained_after_the_copy_are_in_the_backup(valkey_url: str, tmp_path: Path) -> None:
    """The store still has the entries. After the backup, the drainer drops them from the store."""
    async with journaled(valkey_url, tmp_path) as board:
        await back_up_while_drained(board, tmp_path / "backup")
        drainer = await board.drainer()
        assert await board.waiting() == 1
        await drainer.sweep()
        await drainer._trim_left()
        assert await board.waiting() == 0


@asynccontextmanager
async def no_pause(*_: Any) -> AsyncIterator[Any]:
    """Replace the pause of a backup: this mutant pauses nothing."""

    async def require() -> None:
        pass

    yield require


async def never(*_: Any) -> bool:
    """Replace `is_trimming_paused`: with this mutant, the drainer ignores pauses."""
    return False


async def test_a_missing_pause_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The backup must set the pause, and the drainer must respect it."""
    for name, (module, what, mistake) in {
        "no pause": (live.maintenance.backup, "paused_trimming", no_pause),
        "the drainer ignores the pause": (live.journal.log.drainer, "is_trimming_paused", never),
    }.items():
        (tmp_path / name).mkdir()
        async with journaled(valkey_url, tmp_path / name) as board:
            with must_be_caught(name), replaced(module, what, mistake):
                await back_up_while_drained(board, tmp_path / name / "backup")


async def test_a_drainer_that_commits_as_the_pause_begins_leaves_no_hole(valkey_url: str, tmp_path: Path) -> None:
    """The drainer checks for a pause after its commit, so a later copy has all entries that the drainer trims."""
    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        await drainer.sweep()
        await board.like("a", "b")
        folder = tmp_path / "backup"

        async def asked_before(*arguments: Any) -> bool:
            answer = await is_trimming_paused(*arguments)
            await backed_up(board, folder)
            return answer

        with replaced(live.journal.log.drainer, "is_trimming_paused", asked_before):
            await drainer.drain(["posts"])
        assert rows_in(board, folder) == await board.rows()


async def test_a_backup_that_lost_its_pause_fails_and_leaves_nothing(valkey_url: str, tmp_path: Path) -> None:
    """A backup loses its pause if it is frozen for longer than the lease of the pause."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a")
        await (await board.drainer()).sweep()
        key = SystemKeys(board.settings.key_prefix).pause
        folder = tmp_path / "backup"
        with after_the_copy(board, lambda: board.client.delete(key)), pytest.raises(SetupError, match="run it again"):
            await backed_up(board, folder)
        assert list(folder.iterdir()) == []
        await backed_up(board, folder)


async def test_the_pause_of_a_killed_backup_ends(valkey_url: str, tmp_path: Path) -> None:
    """Another backup is refused only until the pause ends."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a")
        drainer = await board.drainer()
        await drainer.sweep()
        key = SystemKeys(board.settings.key_prefix).pause
        await board.client.set(key, "killed", px=400)
        with pytest.raises(SetupError, match="another backup"):
            await backed_up(board, tmp_path / "backup")
        await board.like("a")
        await drainer.drain(["posts"])
        assert await board.waiting() == 1

        async def trimmed() -> bool:
            await drainer._trim_left()
            return await board.waiting() == 0

        await eventually(trimmed)
        await backed_up(board, tmp_path / "backup")


async def test_a_pause_is_renewed_while_it_lasts(valkey_url: str, tmp_path: Path) -> None:
    """The copy may take longer than the lease. Meanwhile, events that wait for SQL are still acknowledged."""
    async with journaled(valkey_url, tmp_path, journal_ack=True) as board:
        running = asyncio.create_task((await board.drainer()).run())
        try:
            async with paused_trimming(board.client, board.settings.key_prefix, lease=0.3) as require:
                for _ in range(5):
                    await board.like("a")
                    await asyncio.sleep(0.12)
                    await require()
                assert await board.waiting() == 6
        finally:
            running.cancel()


async def test_boards_that_are_not_in_sql_yet_are_in_the_backup(valkey_url: str, tmp_path: Path) -> None:
    """The whole journal of such boards waits in the store. In the backup, the timeline of a deleted board ends."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a")
        await board.drainer()
        state = board.ledger.state
        await delete_keys(board.client, state.keys, state.epoch or "")
        again = Ledger(board.client, board.board, board.settings)
        await again.writer.add([make_entry("new", 1, None, None)])
        folder = tmp_path / "backup"
        manifest = await backed_up(board, folder)
        assert [(one.board, one.epoch) for one in manifest.boards] == [("posts", again.state.epoch)]
        assert rows_in(board, folder) == [("new", 1)]


async def test_a_gap_and_the_content_after_it_are_in_the_backup(valkey_url: str, tmp_path: Path) -> None:
    """Until the journal has the whole content of the board after the gap, a backup fails."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a", "b")
        drainer = await board.drainer()
        await drainer.sweep()
        await board.like("a")
        await board.like("b")
        state = board.ledger.state
        await board.client.xtrim(state.journal, maxlen=1, approximate=False)
        with pytest.raises(SetupError, match="are missing"):
            await backed_up(board, tmp_path / "backup")
        await begin_journal(board.client, state.keys, state.epoch or "", again=True)
        await board.like("a")
        await backed_up(board, tmp_path / "backup")
        assert rows_in(board, tmp_path / "backup") == await board.rows()
        await board.like("a")
        await board.client.xtrim(state.journal, maxlen=0, approximate=False)
        with pytest.raises(SetupError, match="are missing"):
            await backed_up(board, tmp_path / "another")


async def test_a_store_that_lost_data_is_not_backed_up(valkey_url: str, tmp_path: Path) -> None:
    """In such a backup, the lost boards would look deleted."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a")
        await (await board.drainer()).sweep()
        async for name in board.client.names(f"{board.settings.key_prefix}:*"):
            await board.client.delete(name)
        with pytest.raises(SetupError, match="live rebuild"):
            await backed_up(board, tmp_path / "backup")


async def test_a_board_without_a_definition_is_not_backed_up(valkey_url: str, tmp_path: Path) -> None:
    """Such a board could not be rebuilt."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a")
        await board.drainer()
        source = Database("sqlite", tmp_path, board.settings.key_prefix, writes=False)
        with pytest.raises(SetupError, match="--boards"):
            await back_up(
                board.client, board.settings, {"other": board.board}, source, tmp_path / "backup", lambda *_: None
            )


async def test_a_backup_names_the_boards_without_a_journal(valkey_url: str, tmp_path: Path) -> None:
    """The backup has no data of these boards."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a")
        await board.drainer()
        off = msgspec.structs.replace(board.board, id="off", journal=Journaling(level="off"))
        source = Database("sqlite", tmp_path, board.settings.key_prefix, writes=False)
        boards = {"posts": board.board, "off": off}
        made = await back_up(board.client, board.settings, boards, source, tmp_path / "backup", lambda *_: None)
        assert made.left_out == ["off"]


async def test_files_are_private_and_damage_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """Each file has a checksum, and no other user can read it. A directory that has files is refused."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a")
        await (await board.drainer()).sweep()
        folder = tmp_path / "backup"
        made = await backed_up(board, folder)
        with pytest.raises(SetupError, match="not empty"):
            await backed_up(board, folder)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())}
    assert modes == {"backup": 0o700, made.files[0].name: 0o600, "manifest.json": 0o600}
    assert read_manifest(folder) == made
    check_files(folder, made, lambda *_: None)
    path = folder / made.files[0].name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(SetupError, match="damaged"):
        check_files(folder, made, lambda *_: None)
    (folder / "manifest.json").unlink()
    with pytest.raises(SetupError, match="interrupted"):
        read_manifest(folder)


async def test_the_copy_is_of_one_instant_while_another_process_writes(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write between two steps does not restart the copy."""
    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        for _ in range(20):
            await board.like(*(f"m{number}" for number in range(200)))
            await drainer.sweep()
        before = await board.rows_in_sql()
        steps: list[tuple[int, int]] = []
        target = tmp_path / "copy" / board.databases[0].path.name
        target.parent.mkdir()
        loop = asyncio.get_running_loop()

        async def write() -> None:
            await board.like("new")
            await drainer.sweep()

        def show(done: int, total: int) -> None:
            steps.append((done, total))
            assert len(steps) < 100, "writes made the copy begin again"
            asyncio.run_coroutine_threadsafe(write(), loop).result(10)

        monkeypatch.setattr(live.maintenance.backup, "_PAGES", 4)
        await asyncio.to_thread(copy_database, board.databases[0].path, target, show)
        assert len(steps) > 3
        assert [done for done, _ in steps] == sorted(done for done, _ in steps)
        assert before != await board.rows()
        assert rows_in(board, target.parent) == before


async def keeps_what_stopped(board: Journaled) -> None:
    """Let the drainer stop at a board while a backup has paused trimming, and check that the entries stay."""
    drainer = await board.drainer()
    async with paused_trimming(board.client, board.settings.key_prefix):
        await board.like("a")
        await drainer.sweep()
    drainer._behind.update(drainer._timelines)
    await drainer._trim_left()
    assert await board.waiting() > 0
    drainer._behind.clear()
    await drainer._trim_left()
    assert await board.waiting() == 0


async def test_a_board_that_stopped_is_not_trimmed_after_a_backup(valkey_url: str, tmp_path: Path) -> None:
    """The entries of the board wait for an operator."""
    async with journaled(valkey_url, tmp_path) as board:
        await keeps_what_stopped(board)


@pytest.mark.mutant
async def test_a_stopped_board_that_is_trimmed_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant trims all timelines that were kept for a backup, also the timelines of stopped boards."""

    async def trim_all(drainer: live.journal.log.drainer.Drainer) -> None:
        await drainer._trim([drainer._timelines[name] for name in drainer._untrimmed])

    async with journaled(valkey_url, tmp_path) as board:
        with must_be_caught("too much is trimmed"), replaced(live.journal.log.drainer.Drainer, "_trim_left", trim_all):
            await keeps_what_stopped(board)
