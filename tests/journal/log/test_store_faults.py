"""A store that goes back, is full, or has its clock set back: SQL and the store stay equal."""

import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

import live.journal.log.drainer
import live.store.board.journal_stream
from live.domain.board import Board
from live.domain.board_file import make_board, parse_boards
from live.domain.choices import Choices
from live.domain.window import WindowChoice
from live.errors import SetupError, StoreUnavailableError
from live.journal.log.entries import parse_head
from live.journal.log.timelines import Timeline, find_lost
from live.journal.state.ranking import ranked_at
from live.store.board.journal_stream import TRIM, Entry
from live.store.board.ledger import Ledger
from live.store.board.manage.lifecycle import renew
from live.store.board.requests import SCRIPTS, Scripts
from tests.harness.boards import rolling_board
from tests.harness.clock import set_clock, with_clock
from tests.harness.journaled import Journaled, backed_up, journaled
from tests.harness.mutation import compiled, must_be_caught, mutated, replaced
from tests.harness.store import Copy, StoreProcess
from tests.harness.waiting import eventually

pytestmark = pytest.mark.fault

NOON = 4_000_017_600  # a full hour
SAFE_WHEN_FULL = {"#!lua flags=allow-oom": "#!lua"}


async def works(step: Callable[[], Awaitable[Any]]) -> bool:
    """Take a step; returns whether the store accepted it."""
    with suppress(StoreUnavailableError):
        await step()
        return True
    return False


async def go_back_and_grow(board: Journaled, store: StoreProcess, folder: Path) -> None:
    """Restore an older copy of the store, count until the board is beyond the offset in SQL, and accept the loss."""
    drainer = await board.drainer()
    await board.like("a", "b")
    await drainer.sweep()
    copy = Copy(store, folder)
    for _ in range(3):
        await board.like("a", "b")
    await drainer.sweep()
    copy.restore()
    await eventually(partial(works, board.rows))
    # The new `Ledger` is like a new process: it does not know the earlier state.
    board.ledger = Ledger(board.client, board.board, board.settings)
    board.counted = 2
    for _ in range(8):
        await board.like("c")
    before, rows = await board.rows_in_sql(), await board.rows()
    for _ in range(3):
        await drainer.sweep()
        assert await board.rows_in_sql() == before, "entries moved to SQL"
        assert await board.waiting() == 8, "the drainer has trimmed entries"
    database = board.databases[0]
    (loss,) = await find_lost(board.client, database)
    assert "went back, and counted again" in str(loss)
    with pytest.raises(SetupError, match="went back, and counted again"):
        await backed_up(board, folder / "backup")
    await renew(board.client, board.ledger.state.keys, "accepted")
    board.ledger = Ledger(board.client, board.board, board.settings)
    await board.like("d")
    assert await board.rows() == [*rows, ("d", 1)]
    await drainer.sweep()
    await board.must_agree()


async def test_a_store_that_went_back_and_grew_stops_its_board(own_store: StoreProcess, tmp_path: Path) -> None:
    """The store gives old offsets to new events.

    SQL has more entries, so no entry moves until an operator accepts the loss.
    """
    async with journaled(own_store.url, tmp_path) as board:
        await go_back_and_grow(board, own_store, tmp_path)


@pytest.mark.mutant
async def test_a_link_of_only_an_offset_is_detected(own_store: StoreProcess, tmp_path: Path) -> None:
    """With links of only an offset, the drainer takes the entries of other events for the next entries."""

    def by_offset(timeline: Timeline, entries: list[Entry]) -> tuple[list[Entry], str | None]:
        found, last = list[Entry](), timeline.drained
        for entry in entries:
            before = parse_head(entry.head).before
            if before.partition(" ")[0] != last and last != "0":
                return found, before
            found.append(entry)
            last = entry.id
        return found, None

    async with journaled(own_store.url, tmp_path) as board:
        with (
            must_be_caught("an entry is known by its offset alone"),
            replaced(live.journal.log.drainer, "following", by_offset),
        ):
            await go_back_and_grow(board, own_store, tmp_path)


async def fill_the_store(board: Journaled) -> None:
    """Reach `maxmemory`. The journal is still drained and slots still expire, so that events count again."""
    drainer = await board.drainer()
    await board.like("first")
    await drainer.sweep()
    held = int((await board.client.info("memory"))["used_memory"])
    await board.client.config_set("maxmemory", held + (2 << 20))

    numbers = itertools.count()

    async def fill() -> None:
        with suppress(StoreUnavailableError):
            while True:
                number = next(numbers)
                await board.like(*(f"{number}-{index}-{'x' * 300}" for index in range(200)))
        # The refused batch itself takes memory, so without it the store may have some left.
        left = int((await board.client.info("memory"))["used_memory"]) - (64 << 10)
        await board.client.config_set("maxmemory", left)
        assert not await works(partial(board.like, "a"))

    await fill()
    assert await works(drainer.sweep), "the drainer makes no room"
    await fill()

    async def is_empty() -> bool:
        # Rotation adds no entries to the journal, so nothing needs to be drained.
        await works(board.ledger.rotator.rotate)
        return not await board.rows()

    await eventually(is_empty)
    board.counted = 0
    await eventually(partial(works, partial(board.like, "a", "b")))
    await drainer.sweep()
    await board.must_agree()
    assert await board.begun_again() == 0


@pytest.mark.alone
async def test_a_full_store_is_drained_and_rotated(own_store: StoreProcess, tmp_path: Path) -> None:
    """Draining and rotating both free memory."""
    async with journaled(own_store.url, tmp_path, rolling_board("1s", "1s"), write_deadline=0.3) as board:
        await fill_the_store(board)


@pytest.mark.mutant
@pytest.mark.alone
@pytest.mark.parametrize("script", ["rotate", "trim"])
async def test_scripts_without_their_flag_are_detected(own_store: StoreProcess, tmp_path: Path, script: str) -> None:
    """Without the flag, the store refuses scripts that would free memory."""
    async with journaled(own_store.url, tmp_path, rolling_board("1s", "1s"), write_deadline=0.3) as board:
        if script == "rotate":
            wrong = compiled(own_store.url, SCRIPTS.rotate.changed(mutated(SCRIPTS.rotate.source, SAFE_WHEN_FULL)))
            board.ledger = Ledger(board.client, board.board, board.settings, Scripts(rotate=wrong))
            with must_be_caught("rotation is refused when memory is full"):
                await fill_the_store(board)
        else:
            wrong_trim = compiled(own_store.url, TRIM.changed(mutated(TRIM.source, SAFE_WHEN_FULL)))
            with (
                must_be_caught("the drainer is refused when memory is full"),
                replaced(live.store.board.journal_stream, "TRIM", wrong_trim),
            ):
                await fill_the_store(board)


async def set_back(board: Journaled, scripts: Scripts = SCRIPTS) -> None:
    """Count, set the store's clock back by hours and by seconds, and count again: the board's clock stands still."""
    board.ledger = Ledger(board.client, board.board, board.settings, with_clock(scripts, board.settings))
    drainer, latest = await board.drainer(), 0
    for hours in (0, 2, 1, 3, -1, 0):
        for seconds in (0, 45, 5):
            now = NOON + 3600 * hours + seconds
            latest = max(latest, now)
            await set_clock(board.client, board.settings, now * 1000)
            await board.like("a", f"h{hours}")
            await board.like(f"s{seconds}")
            while await board.ledger.rotator.rotate() is None:
                pass
            await drainer.sweep()
            rows = await board.rows()
            assert rows
            found = ranked_at(board.board, await board.contents(), latest * 1000)
            assert [(member, found.scores[member]) for member in found.members] == rows
    assert await board.begun_again() == 0


(SLIDING,) = parse_boards('[[board]]\nid = "posts"\nwindow = { sliding = "40s" }\nties = "first"')
BOARDS = {
    "sliding": SLIDING,
    "rolling": rolling_board("40s", "10s", ties="first"),
    "hours": make_board(Choices(id="posts", window_choice=WindowChoice(calendar="hour", keep=2))),
}


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS.keys())
async def test_a_clock_that_is_set_back_changes_nothing(valkey_url: str, tmp_path: Path, board: Board) -> None:
    """SQL has the ranking of the store at any time."""
    async with journaled(valkey_url, tmp_path, board) as made:
        await set_back(made)


@pytest.mark.mutant
@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS.keys())
async def test_a_clock_that_goes_back_is_detected(volatile_store: Any, tmp_path: Path, board: Board) -> None:
    """The mutant counts events by the clock of the store, even if the board has seen a later time."""
    source = mutated(SCRIPTS.add.source, {"if held and held > micros then": "if false then"})
    wrong = msgspec.structs.replace(SCRIPTS, add=compiled(volatile_store.url, SCRIPTS.add.changed(source)))
    async with journaled(volatile_store.url, tmp_path, board) as made:
        with must_be_caught("the clock of a board goes back"):
            await set_back(made, wrong)
