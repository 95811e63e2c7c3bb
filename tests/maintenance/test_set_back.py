"""`live recover --at` sets a board back to a time while it is in use."""

import asyncio
import time
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest

import live.journal.state.fold
import live.maintenance.set_back
from live.domain.board import Board
from live.domain.event import Entry, Extra, Identities, IncomingEvent, make_entry
from live.domain.window import Rolling, Sliding
from live.errors import SetupError
from live.journal.log.reader import before
from live.journal.state.taken import Taken
from live.maintenance.journal import compact
from live.maintenance.recover import Recovered
from live.maintenance.set_back import set_back
from live.store.board.rotation import catch_up
from live.store.board.write.correction import Correction, correct
from live.store.board.write.merging import put_move, read_move
from tests.harness.boards import built
from tests.harness.checked import checked
from tests.harness.compared import Compared, compared
from tests.harness.drift import fill
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.waiting import eventually, until_early
from tests.maintenance.test_swap import HOUR, KINDS, MOVING, busy, is_whole
from tests.maintenance.test_void import void

NOON: Final = 1_700_000_000_000 // 86_400_000 * 86_400_000 + 43_200_000


async def moment() -> int:
    """The time between two entries, in milliseconds since 1970."""
    await asyncio.sleep(0.002)
    now = time.time_ns() // 1_000_000
    await asyncio.sleep(0.002)
    return now


async def back(board: Compared, at: int, *, dry: bool = False) -> Recovered:
    """Set a board back."""
    epoch, database = board.ledger.state.epoch or "", board.databases[0]
    return await set_back(board.client, board.settings, database, board.board, epoch, at, lambda *_: None, dry=dry)


def event(name: str, member: str = "ann") -> Entry:
    """An event with an id."""
    return make_entry(
        member, 1, None, Identities("p").of(IncomingEvent(member=member, id=name)), Extra(f"voter of {name}")
    )


async def change_everything(board: Compared) -> None:
    """Count events, hide and show members, correct a score, and merge members or register others."""
    ledger = board.ledger
    assert not (await ledger.writer.add([event("later"), event("last", "bob")])).refused
    await ledger.moderation.hide("cat", hidden=False)
    await ledger.moderation.hide("ann", hidden=True)
    if board.board.votes is not None:
        await ledger.moderation.enter("eve", b'{"n":2}')
        await ledger.moderation.withdraw("dan")
        return
    assert not (await ledger.writer.add([make_entry("new", 9), make_entry("ann", 8)])).refused
    await correct(
        ledger.writer, [Correction(member="bob", reason="fraud", add=-3), Correction(member="x", reason="", add=4)]
    )
    state = ledger.state
    await put_move(ledger.writer, lambda: read_move(state, ("new", "bob"), "merge"))


async def restores(board: Compared) -> None:
    """The board holds what it held. The past shows what it had in between."""
    await fill(board)
    await board.ledger.writer.add([event("before")])
    held, rows, at = await board.held(), await board.rows(), await moment()
    await change_everything(board)
    between, changed = await moment(), await board.rows()
    assert changed != rows
    assert (await back(board, at, dry=True)).members == len(rows)
    assert await board.rows() == changed, "a dry run has changed something"
    found = await back(board, at)
    assert (await board.held(), await board.rows()) == (held, rows)
    page = await board.ledger.reader.read(9)
    assert (found.offset, found.members, page.epoch) == (page.offset, len(rows), f"{found.epoch}e1")
    await is_whole(board)
    await board.is_drained()
    assert await board.rows_in_sql() == rows
    assert await board.rows_in_sql(stop=before(between)) == changed


@pytest.mark.parametrize("name", KINDS)
async def test_every_kind_of_board_gets_what_it_had(valkey_url: str, tmp_path: Path, name: str) -> None:
    """Later events, corrections, merges, registrations and hidden members are undone, and may come again."""
    async with compared(valkey_url, tmp_path, KINDS[name]) as board:
        await until_early("hour")
        await restores(board)
        added = await board.ledger.writer.add([event("before"), event("later")])
        assert added.refused == {0: "duplicate"}, "only the first was counted before that time"
        await is_whole(board)
        for hidden in (False, True):
            await board.ledger.moderation.hide("cat", hidden=hidden)
            await is_whole(board)
        await board.stop_draining()
        assert (await checked(board.client, board.settings, board.board)).clean


@pytest.mark.mutant
@pytest.mark.parametrize("mistake", ["hide", "identities"])
async def test_what_is_not_undone_is_detected(valkey_url: str, tmp_path: Path, mistake: str) -> None:
    """The mutants leave later hidden members as they are, or the identities of later events."""

    async def nothing(*_: Any) -> None:
        pass

    async with compared(valkey_url, tmp_path, KINDS["first"]) as board:
        await until_early("hour")
        with must_be_caught("the board has something of later"):
            if mistake == "hide":
                undoes = Taken.undoes
                with replaced(Taken, "undoes", lambda self, head: head.kind != "hide" and undoes(self, head)):
                    await restores(board)
            else:
                with replaced(live.maintenance.set_back, "_forget", nothing):
                    await restores(board)


@pytest.mark.slow
@pytest.mark.parametrize("name", MOVING)
async def test_a_busy_board_goes_back(valkey_url: str, tmp_path: Path, name: str) -> None:
    """Producers, administrators and rotation go on, and so do voids. No position has two contents."""
    async with compared(valkey_url, tmp_path, MOVING[name], rotation_step=70, write_deadline=30.0) as board:
        async with busy(board):
            await eventually(board.offset)
            at = await moment()
            await asyncio.sleep(0.2)
            await back(board, at)
            await void(board, producer="ann")
            at = await moment()
            await asyncio.sleep(0.2)
            await back(board, at)
        await is_whole(board)
        await back(board, at)
        await is_whole(board)
        for member in range(9):
            await board.ledger.moderation.hide(f"m{member}", hidden=False)
        await is_whole(board)
        await void(board, producer="ann")
        await is_whole(board)


async def returns_to_its_place(board: Compared) -> None:
    """A member has lost its score when a slot left the window because of an event that was taken back."""

    async def add(member: str, amount: int, minutes: int) -> None:
        assert not (await board.ledger.writer.add([make_entry(member, amount, NOON + 60_000 * minutes)])).refused
        await catch_up(board.ledger.rotator)

    for member, amount, minutes in (("ann", 5, 50), ("ann", -3, 70), ("ann", 3, 150), ("bob", 1, 130)):
        await add(member, amount, minutes)
    at = await moment()
    await add("zed", 1, 181)
    await back(board, at)
    await is_whole(board)
    await add("ann", 1, 80)
    await is_whole(board)
    await board.is_drained()
    assert await board.rows() == await board.rows_in_sql()


ROLLING: Final = built(id="first", title="f", window=Rolling(2 * HOUR, HOUR), clock="event", ties="first")
SLIDING: Final = built(id="slide", title="s", window=Sliding(2 * HOUR), clock="event", ties="first")


@pytest.mark.parametrize("kind", [ROLLING, SLIDING], ids=["rolling", "sliding"])
async def test_a_member_without_a_score_loses_its_place(valkey_url: str, tmp_path: Path, kind: Board) -> None:
    """A late event gives it a place among ties, in the store as in the journal."""
    async with compared(valkey_url, tmp_path, kind) as board:
        await returns_to_its_place(board)


@pytest.mark.mutant
@pytest.mark.parametrize("kind", [ROLLING, SLIDING], ids=["rolling", "sliding"])
async def test_a_place_that_stays_is_detected(valkey_url: str, tmp_path: Path, kind: Board) -> None:
    """The mutant keeps all tags in the contents of the journal."""
    async with compared(valkey_url, tmp_path, kind) as board:
        with replaced(live.journal.state.fold, "_retag", lambda *_: None), must_be_caught("the place stays"):
            await returns_to_its_place(board)


async def test_a_void_after_it_takes_back_nothing_twice(valkey_url: str, tmp_path: Path) -> None:
    """Events that are undone already are not found. A void before it stays."""
    async with compared(valkey_url, tmp_path, KINDS["first"]) as board:
        for member, producer in (("a", "bad"), ("b", "good")):
            assert not (await board.ledger.writer.add([make_entry(member)], [(producer, 1)])).refused
        at = await moment()
        assert (await void(board, producer="bad")).events == 1
        assert not (await board.ledger.writer.add([make_entry("c")], [("good", 1)])).refused
        await back(board, at)
        assert await board.rows() == [("b", 1)]
        assert (await void(board, producer="good")).events == 1
        assert await board.rows() == []
        await is_whole(board)


@pytest.mark.parametrize("step", ["swap", "_forget"])
async def test_an_interrupted_command_can_be_run_again(valkey_url: str, tmp_path: Path, step: str) -> None:
    """Until it is done, an event that comes again is a duplicate. What came after the swap stays."""
    async with compared(valkey_url, tmp_path, KINDS["key"]) as board:
        at = await moment()
        await board.ledger.writer.add([event("a")])
        with (
            patch(f"live.maintenance.set_back.{step}", side_effect=ConnectionResetError),
            pytest.raises(ConnectionResetError),
        ):
            await back(board, at)
        assert (await board.ledger.writer.add([event("a"), event("b", "bob")])).refused == {0: "duplicate"}
        await back(board, at)
        left = [] if step == "swap" else [("bob", 1)]
        assert await board.rows() == left
        assert not (await board.ledger.writer.add([event("a")])).refused
        for _ in range(2):
            await back(board, at)
            assert (await board.ledger.writer.add([event("a")])).refused == {0: "duplicate"}
        assert sorted(await board.rows()) == sorted([*left, ("ann", 1)])
        await is_whole(board)


async def test_a_command_that_another_one_has_stopped_changes_nothing(valkey_url: str, tmp_path: Path) -> None:
    """Two run at once. The events that the other one has undone may come again. The others are duplicates."""
    async with compared(valkey_url, tmp_path, KINDS["key"]) as board:
        first = await moment()
        await board.ledger.writer.add([event("a")])
        second = await moment()
        await board.ledger.writer.add([event("b", "bob")])
        ended = await asyncio.gather(back(board, first), back(board, second), return_exceptions=True)
        assert [one for one in ended if not isinstance(one, (Recovered, SetupError))] == []
        kept = await board.rows()
        refused = (await board.ledger.writer.add([event("a"), event("b", "bob")])).refused
        assert len(refused) == len(kept)
        assert sorted(await board.rows()) == [("ann", 1), ("bob", 1)]
        await is_whole(board)


async def test_a_board_that_went_too_far_back_does_not_go_forward(valkey_url: str, tmp_path: Path) -> None:
    """What was undone stays undone. The refusal names the way that is left."""
    async with compared(valkey_url, tmp_path, KINDS["key"]) as board:
        first = await moment()
        await board.ledger.writer.add([event("a")])
        second = await moment()
        await back(board, first)
        with pytest.raises(SetupError, match="stays undone: recover it under another id with --as"):
            await back(board, second)


async def test_a_time_since_the_last_checkpoint_is_enough(valkey_url: str, tmp_path: Path) -> None:
    """The journal has deleted earlier entries. A time before the checkpoint is refused."""
    async with compared(valkey_url, tmp_path, KINDS["key"]) as board:
        too_early = await moment()
        await board.ledger.writer.add([event("a")])
        await board.is_drained()
        await asyncio.to_thread(compact, board.databases[0], [], lambda *_: None)
        held, at = await board.rows(), await moment()
        with pytest.raises(SetupError, match="give a later --at"):
            await back(board, too_early)
        await board.ledger.writer.add([event("b", "bob")])
        await back(board, at)
        assert await board.rows() == held
        await is_whole(board)


async def test_a_time_before_the_journal_is_refused(valkey_url: str, tmp_path: Path) -> None:
    """It began again later, so it does not have everything since then."""
    async with compared(valkey_url, tmp_path, KINDS["first"]) as board:
        await fill(board)
        at, rows = await moment(), await board.rows()
        await board.begin_again()
        await board.is_drained()
        with pytest.raises(SetupError, match="give a later --at, or recover the board under another id with --as"):
            await back(board, at)
        assert await board.rows() == rows
