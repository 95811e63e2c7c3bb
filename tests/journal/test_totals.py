"""Hourly totals give the exact ranking at the beginning of any hour, even if events arrive late."""

import random
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Connection, Table, func, select

import live.journal.checkpoints
import live.journal.totals_retention
from live.domain.board import Boards
from live.domain.board_file import parse_boards
from live.journal import totals
from live.journal.cells import HOUR, Cell, has_totals, unpack_cell
from live.journal.checkpoints import due, forget, keep, make
from live.journal.keeper import Keeper
from live.journal.lives import ConflictError, Life
from live.journal.moments import Moment, NoPastError, UnsupportedPastError
from live.journal.past_reading import explain_record, read_history, read_ranking
from live.journal.schema import CELL, SEGMENT
from live.journal.totals import NewTotals, add_totals, add_up, folded
from live.journal.totals_reading import totals_since
from live.journal.totals_retention import apply_change, old_totals
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.timeline import BEGIN, FAR, KINDS, Timeline, board_of, live_through, past_is_exact, timeline


@pytest.mark.parametrize("kind", KINDS)
async def test_totals_are_exact_at_every_hour(valkey_url: str, tmp_path: Path, kind: str) -> None:
    """There are late and early events, hidden members and ties."""
    await past_is_exact(valkey_url, tmp_path, kind, random.SystemRandom().randrange(2**32))


async def late_event(line: Timeline) -> None:
    """Two hours after an event, another one with the same time arrives."""
    drainer = await line.drainer()
    first = line.now
    await line.count(("a", 1, None))
    await line.go(2 * HOUR)
    await line.count(("b", 5, first))
    await drainer.sweep()
    await line.fold()
    assert await line.from_totals(BEGIN + 2 * HOUR) == [("a", 1)]
    assert await line.from_totals(BEGIN + 3 * HOUR) == [("b", 5), ("a", 1)]


async def test_a_late_event_counts_in_the_hour_of_its_arrival(valkey_url: str, tmp_path: Path) -> None:
    """The hours in between do not change."""
    async with timeline(valkey_url, tmp_path, board_of("rolling")) as line:
        await late_event(line)


@pytest.mark.mutant
async def test_missing_cells_are_detected(valkey_url: str, tmp_path: Path) -> None:
    """Slots alone do not show when an event arrived."""
    async with timeline(valkey_url, tmp_path, board_of("rolling")) as line:
        with replaced(totals, "add_totals", _without_cell), must_be_caught("totals without cell"):
            await late_event(line)


def _without_cell(connection: Connection, new: NewTotals) -> None:
    """Count each event in the hour of its slot."""
    cells: dict[int, Cell] = {}
    for cell, sums in new.cells:
        for (start, member), (value, reached) in unpack_cell(sums.crc, sums.data).items():
            found = cells.setdefault(start, Cell(start=start, newest=cell.newest, offset=cell.offset, whole=cell.whole))
            found.add(start, member, value, reached)
    add_totals(connection, msgspec.structs.replace(new, cells=totals.packed(list(cells.values()))))


async def added_twice(line: Timeline) -> None:
    """A keeper is killed after its commit, and another one repeats its work; a third one is killed before."""
    drainer = await line.drainer()
    for _ in range(3):
        await line.count(("a", 1, None), ("b", 2, None))
        await line.go(HOUR)
        await drainer.sweep()

    def work(connection: Connection, life: Life) -> NewTotals | None:
        return add_up(connection, line.settings.key_prefix, life, line.board, FAR)

    def killed(connection: Connection, life: Life) -> None:
        new = work(connection, life)
        assert new is not None
        add_totals(connection, new)
        raise _KilledError

    await line.fold((BEGIN + HOUR) * 1_000_000)
    with pytest.raises(_KilledError):
        await line.read(killed)
    new = await line.read(work)
    for _ in range(2):
        with suppress(ConflictError):
            await line.read(lambda connection, _: add_totals(connection, new))
    await line.fold()
    for hour in range(1, 4):
        assert await line.from_totals(BEGIN + hour * HOUR) == [("b", 2 * hour), ("a", hour)]


async def forget_events(line: Timeline) -> None:
    """Keep the last checkpoint, and delete all events before it."""

    def work(connection: Connection, life: Life) -> None:
        wanted = due(connection, life, FAR)
        assert wanted is not None
        keep(connection, wanted, *make(connection, line.settings.key_prefix, wanted, 86_400.0))
        assert forget(connection, life, FAR, folded=has_totals(line.board))

    await line.read(work)


@pytest.mark.parametrize("kind", ["rolling", "its own clock", "forever"])
async def test_the_past_beyond_the_events_comes_from_totals(valkey_url: str, tmp_path: Path, kind: str) -> None:
    """The answer is for the beginning of the hour, and says so."""
    async with timeline(valkey_url, tmp_path, board_of(kind)) as line:
        await live_through(line, 7)
        hour = sorted(line.said)[5]
        expected = await line.from_events(hour)
        await forget_events(line)
        moment = Moment(line.board, (hour + 1234) * 1000, None, frozenset("e"))
        found = read_ranking(line.settings, moment, 0, 100).ranking
        assert list(zip(found.members, found.scores, strict=True)) == expected
        assert found.hour == hour * 1000
        times = [(at + 1) * 1000 for at in sorted(line.said)[1:]]
        (steps,) = read_history(line.settings, line.board, frozenset("e"), ["a"], times)
        assert [step.score for step in steps] == [line.said[at].get("a") for at in sorted(line.said)[1:]]
        assert [step.hour for step in steps] == [at * 1000 for at in sorted(line.said)[1:]]
        with pytest.raises(UnsupportedPastError):
            explain_record(line.settings, moment, "a")
        with pytest.raises(NoPastError):
            read_ranking(line.settings, msgspec.structs.replace(moment, at=(BEGIN - HOUR) * 1000), 0, 100)


@pytest.mark.parametrize("choices", ['window = { sliding = "2h" }', 'window = "forever"\noperator = "best"'])
async def test_questions_that_totals_can_not_answer_are_refused(valkey_url: str, tmp_path: Path, choices: str) -> None:
    """Once the events are deleted, there is never a wrong answer."""
    (board,) = parse_boards(f'[[board]]\nid = "posts"\n{choices}')
    async with timeline(valkey_url, tmp_path, board) as line:
        await live_through(line, 7)
        moment = Moment(board, (BEGIN + 3 * HOUR) * 1000, None, frozenset())
        assert read_ranking(line.settings, moment, 0, 100).ranking.hour is None
        await forget_events(line)
        with pytest.raises(UnsupportedPastError):
            read_ranking(line.settings, msgspec.structs.replace(moment, at=moment.at + 1), 0, 100)


async def count_of(line: Timeline, table: Table) -> int:
    """The rows of a table."""
    asked = select(func.count()).select_from(table)
    return await line.databases[0].run(lambda connection: connection.scalar(asked) or 0)


async def forget_before(line: Timeline, hour: int) -> None:
    """Forget what is not needed to tell that hour and those after it."""

    def work(connection: Connection, life: Life) -> None:
        change = old_totals(connection, life, line.board, hour + HOUR, HOUR)
        if change is not None:
            apply_change(connection, change)

    await line.read(work)


@pytest.mark.parametrize("kind", ["rolling", "forever", "calendar", "two days"])
async def test_deleting_old_totals_keeps_the_others_exact(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Boards whose scores never expire keep the sum of the deleted ones."""
    monkeypatch.setattr(live.journal.totals_retention, "LEAST", 8)
    seed = random.SystemRandom().randrange(2**32)
    async with timeline(valkey_url, tmp_path, board_of(kind)) as line:
        await live_through(line, seed)
        since = await line.read(totals_since)
        hours = [hour for hour in sorted(line.said) if hour >= since]
        expected = [await line.from_events(hour) for hour in hours]
        assert await line.in_one_pass(hours) == expected, f"seed {seed}"
        await forget_events(line)
        kept = len(hours) // 2
        await forget_before(line, hours[-kept])
        left = await count_of(line, CELL)
        await forget_before(line, hours[-kept])
        assert await count_of(line, CELL) == left < len(hours)
        assert await line.in_one_pass(hours[-kept:]) == expected[-kept:], f"seed {seed}"
        assert [await line.from_totals(hour) for hour in hours[-kept:]] == expected[-kept:], f"seed {seed}"
        moment = Moment(line.board, (hours[-kept] - 1) * 1000, None, frozenset())
        with pytest.raises(NoPastError) as refused:
            read_ranking(line.settings, moment, 0, 100)
        assert refused.value.since == hours[-kept] * 1000


async def test_a_board_that_keeps_totals_keeps_no_old_events(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest can rebuild the board exactly, and has its past by the hour."""
    monkeypatch.setattr(live.journal.checkpoints, "LEAST", 0)
    (board,) = parse_boards('[[board]]\nid = "posts"\njournal = "totals"\nties = "first"')
    async with timeline(valkey_url, tmp_path, board) as line:
        await live_through(line, 7)
        hour = sorted(line.said)[5]
        expected, segments = await line.from_events(hour), await count_of(line, SEGMENT)
        await Keeper(line.settings, line.databases[0], lambda: Boards([board])).step(line.now * 1000 + 1)
        assert await count_of(line, SEGMENT) == 0 < segments
        assert await line.rows_in_sql() == await line.rows()
        assert await line.from_totals(hour) == expected


class _KilledError(Exception):
    """The process is killed here."""


async def test_totals_are_neither_doubled_nor_skipped(valkey_url: str, tmp_path: Path) -> None:
    """The process may be killed anywhere."""
    async with timeline(valkey_url, tmp_path, board_of("rolling")) as line:
        await added_twice(line)


@pytest.mark.mutant
async def test_progress_that_is_not_compared_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The effect is the same as with progress outside of the transaction."""

    def blind(connection: Connection, new: NewTotals) -> None:
        held = folded(connection, new.life)
        right(connection, msgspec.structs.replace(new, before=held))

    right = totals._advance
    async with timeline(valkey_url, tmp_path, board_of("rolling")) as line:
        with replaced(totals, "_advance", blind), must_be_caught("totals of a segment are added twice"):
            await added_twice(line)
