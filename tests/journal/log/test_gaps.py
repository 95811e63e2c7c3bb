"""Faults between store and SQL: a backlog under load, boards that are created again, and a second database."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

import live.journal.log.drainer
import live.store.board.journal_stream
from live.domain.event import make_entry
from live.errors import JournalBehindError, JournalError, SetupError
from live.journal.log.timelines import ConflictError, begin_again, find_timeline
from live.journal.schema import LIFE, SEGMENT
from live.maintenance.journal import verify
from live.store.board.journal_stream import TRIM, read_streams, trim
from live.store.board.ledger import Ledger
from live.store.board.manage.lifecycle import delete_keys
from live.store.board.requests import SCRIPTS, Scripts
from live.store.connection.client import required
from live.store.connection.scripts import Script
from tests.harness.journaled import Journaled, journaled
from tests.harness.mutation import compiled, must_be_caught, mutated, replaced

pytestmark = pytest.mark.fault

BACKLOG = 20_000  # bytes


class KilledError(Exception):
    """The drainer is killed here."""


async def press(board: Journaled, add: Script[Any], rounds: int) -> None:
    """Eight producers post until each is refused. The backlog never exceeds its limit."""
    ledgers = [Ledger(board.client, board.board, board.settings, Scripts(add=add)) for _ in range(8)]
    board.ledger = ledgers[0]
    await board.like("a")
    drainer = await board.drainer()
    state = ledgers[0].state

    async def waiting() -> int:
        (stream,) = required(await read_streams(board.client, [("posts", state.epoch or "")]))
        return stream.waiting

    async def produce(ledger: Ledger) -> None:
        while True:
            try:
                await ledger.writer.add([make_entry(member, 1, None, None) for member in ("a", "b")])
            except JournalBehindError:
                return
            board.counted += 2
            assert await waiting() <= BACKLOG

    for _ in range(rounds):
        await asyncio.gather(*map(produce, ledgers))
        assert await board.total() == board.counted, "a refused event has counted"
        await drainer.sweep()
        await board.must_agree()


async def test_two_processes_begin_one_timeline(valkey_url: str, tmp_path: Path) -> None:
    """The second one fails, also where both take the place of a timeline after which entries are missing."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a")
        await (await board.drainer()).sweep()
        prefix, epoch = board.settings.key_prefix, board.ledger.state.epoch or ""
        row = {"prefix": prefix, "board": "posts", "epoch": epoch, "began": 0, "drained": "0-0", "link": "", "size": 0}
        with pytest.raises(JournalError):
            await board.databases[0].run(lambda connection: connection.execute(insert(LIFE), row))
        timeline = await board.databases[0].run(partial(find_timeline, board="posts", epoch=epoch))
        assert timeline is not None
        await board.databases[0].run(partial(begin_again, timeline=timeline))
        with pytest.raises(ConflictError):
            await board.databases[0].run(partial(begin_again, timeline=timeline))


async def test_the_backlog_is_bounded_under_load(valkey_url: str, tmp_path: Path, effort: int) -> None:
    """The script decides whether to refuse a batch before its first write, in whatever order the producers call it."""
    async with journaled(valkey_url, tmp_path, journal_backlog=BACKLOG) as board:
        await press(board, SCRIPTS.add, 3 * effort)


@pytest.mark.mutant
async def test_a_limit_after_a_write_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """In the mutant, an event counts although it is refused, and counts again when the producer sends it again."""
    check = "if waiting + #packed > request.backlog then return {'backlog', digits(waiting)} end"
    end = "return {'ok', offset, digits(widest), beaten or nil}"
    late = "if full then return {'backlog', full} end\n"
    wrong = mutated(
        SCRIPTS.add.source, {check: "if waiting + #packed > request.backlog then full = digits(waiting) end"}
    )
    wrong = mutated(wrong, {end: late + end, "packed = request.batch": "local full\npacked = request.batch"})
    async with journaled(valkey_url, tmp_path, journal_backlog=BACKLOG) as board:
        with must_be_caught("the limit is checked after a write"):
            await press(board, compiled(valkey_url, SCRIPTS.add.changed(wrong)), 1)


async def create_again(board: Journaled, *, wipe: bool = False) -> None:
    """Delete a board with a backlog, create it again, and drain the entries of both epochs.

    The late trim of a drainer that was paused must take no entry of the new board.
    """
    await board.like("a", "b")
    drainer = await board.drainer()
    await drainer.sweep()
    await board.like("a", "b")
    old = board.ledger.state
    await delete_keys(board.client, old.keys, old.epoch or "")
    if wipe:
        await board.client.delete(old.journal)
    board.ledger = again = Ledger(board.client, board.board, board.settings)
    board.counted = 0
    for _ in range(5):
        await board.like("new")

    epoch = again.state.epoch or ""
    (before,) = required(await read_streams(board.client, [("posts", epoch)]))
    await trim(board.client, old.keys, old.epoch or "", "1-0", 100_000)
    (stream,) = required(await read_streams(board.client, [("posts", epoch)]))
    assert stream == before, "a trim of the first life removed entries of the second one"

    await drainer.sweep()
    await board.must_agree()
    board.ledger = Ledger(board.client, board.board, board.settings)
    board.ledger.state.epoch = old.epoch
    assert await board.rows_in_sql() == [("a", 2), ("b", 2)], "SQL lacks the end of the first life"


async def test_a_board_can_be_created_again_under_its_id(valkey_url: str, tmp_path: Path) -> None:
    """The entries of the first epoch still move to SQL, and the second epoch has its own entries."""
    async with journaled(valkey_url, tmp_path) as board:
        await create_again(board)


@pytest.mark.mutant
async def test_deleting_the_backlog_with_its_board_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant deletes entries that no drainer has moved to SQL."""
    async with journaled(valkey_url, tmp_path) as board:
        with must_be_caught("the backlog is deleted before it is drained"):
            await create_again(board, wipe=True)


@pytest.mark.mutant
async def test_a_trim_without_an_epoch_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant trims entries of the new board that are not in SQL."""
    check = {"local here = epoch == request.epoch": "local here = true"}
    wrong = compiled(valkey_url, TRIM.changed(mutated(TRIM.source, check)))
    async with journaled(valkey_url, tmp_path) as board:
        with must_be_caught("a trim ignores the epoch"), replaced(live.store.board.journal_stream, "TRIM", wrong):
            await create_again(board)


async def drain_into_two(board: Journaled, folder: Path) -> None:
    """Drain into two databases in turn, as far as the store allows it."""
    first, second = await board.drainer(), await board.drainer(folder)
    for _ in range(3):
        for drainer in (first, second):
            await board.like("a", "b")
            with suppress(SetupError):
                await drainer.claim()
                await drainer.sweep()
    await first.sweep()
    await board.must_agree()
    assert await board.begun_again() == 0


async def test_one_of_two_databases_has_everything(valkey_url: str, tmp_path: Path) -> None:
    """The drainer of the other database is refused."""
    (tmp_path / "other").mkdir()
    async with journaled(valkey_url, tmp_path) as board:
        await drain_into_two(board, tmp_path / "other")


@pytest.mark.mutant
async def test_a_missing_claim_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """In the mutant, each database trims entries that the other database needs."""

    async def anyone(_client: Any, database: str) -> str:
        return database

    (tmp_path / "other").mkdir()
    async with journaled(valkey_url, tmp_path) as board:
        with must_be_caught("no claim"), replaced(live.journal.log.drainer, "claim_sink", anyone):
            await drain_into_two(board, tmp_path / "other")


async def die_after_the_commit(board: Journaled) -> None:
    """Kill the drainer between its commit and the trim.

    SQL must have each entry once, even an entry that a fold would ignore the second time.
    """
    for _ in range(3):
        await board.like("a", "b")
        with suppress(KilledError), dying():
            await (await board.drainer()).sweep()
    await (await board.drainer()).sweep()
    await board.must_agree()
    found = await asyncio.to_thread(verify, board.databases[0], lambda *_: None)
    assert found.sound, found.boards


@contextmanager
def dying() -> Iterator[None]:
    """Kill the drainer when it begins to trim."""

    async def die(*_: Any) -> None:
        raise KilledError

    with replaced(live.journal.log.drainer, "trim", die):
        yield


@pytest.mark.mutant
@pytest.mark.parametrize("begun", [False, True], ids=["first entries", "later entries"])
async def test_a_watermark_outside_the_transaction_is_detected(valkey_url: str, tmp_path: Path, *, begun: bool) -> None:
    """A drainer that is killed between its two commits does not know of the first commit.

    Its entries are then in SQL twice. A fold begins again with the first entry of the board, so this entry does not
    count twice. Later entries count twice.
    """

    def segments_only(connection: Any, pieces: Any) -> None:
        for piece in pieces:
            timeline = find_timeline(connection, piece.timeline.board, piece.timeline.epoch)
            assert timeline is not None
            row = {
                "life": timeline.id, "first": piece.first.offset, "last": piece.last.offset, "began": piece.first.time,
                "ended": piece.last.time, "entries": piece.entries, "swapped": False,
                "crc": piece.packed.crc, "data": piece.packed.data,
            }  # fmt: skip
            connection.execute(insert(SEGMENT).values(row))

    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a")
        if begun:
            await (await board.drainer()).sweep()
            await board.must_agree()
            await board.like("a")
        with must_be_caught("the watermark has its own transaction"):
            with replaced(live.journal.log.drainer, "add_segments", segments_only), suppress(KilledError), dying():
                await (await board.drainer()).sweep()
            await die_after_the_commit(board)


async def test_a_watermark_inside_the_transaction_counts_once(valkey_url: str, tmp_path: Path) -> None:
    """A commit has both the entries and the watermark, or neither."""
    async with journaled(valkey_url, tmp_path) as board:
        await die_after_the_commit(board)
