"""Hourly totals tell how a board stood at the beginning of any hour, exactly, whatever came late."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from sqlalchemy import Connection

from live.domain.board import Board
from live.domain.board_file import parse_boards
from live.domain.event import make_entry
from live.journal import totals
from live.journal.cells import HOUR, Cell, has_totals
from live.journal.checkpoints import due, forget, keep, make
from live.journal.lives import ConflictError, Life, open_lives
from live.journal.moments import Moment, NoPastError, UnsupportedPastError
from live.journal.past_reading import explain_record, read_history, read_ranking
from live.journal.reading import before, contents_of
from live.journal.standing import standing
from live.journal.totals import NewTotals, add_totals, add_up, folded
from live.journal.totals_reading import contents_by_hour, contents_from_totals, totals_since
from live.store.board.ledger import Ledger
from live.store.board.state import SCRIPTS
from tests.harness.board_model import Reference
from tests.harness.clock import set_clock, with_clock
from tests.harness.journaled import Journaled
from tests.harness.mutation import must_be_caught, replaced

BEGIN: Final = 1_900_000_800  # seconds; the beginning of an hour
HOURS: Final = 14
FUTURE: Final = 60.0
FAR: Final = 2**60  # microseconds

KINDS: Final = {
    "rolling": 'window = { rolling = "6h", slot = "1h" }\nties = "first"',
    "rolling by name": 'window = { rolling = "3h", slot = "1h" }\nties = "key"',
    "small slots": 'window = { rolling = "2h", slot = "10m" }\nties = "last"',
    "large slots": 'window = { rolling = "8h", slot = "4h" }\nties = "first"\nsort_order = "asc"',
    "its own clock": 'window = { rolling = "4h", slot = "1h" }\nclock = "event"\nties = "first"',
    "forever": 'window = "forever"\nties = "last"',
    "calendar": 'window = { calendar = "hour", keep = 2, grace = "2h" }\nties = "first"',
    "days": 'window = { calendar = "day", grace = "1h" }\nties = "key"',
    "two days": 'window = { calendar = "day", last = 2 }\nties = "first"',
}

Row = tuple[str, int]


def board_of(kind: str) -> Board:
    """A board from its choices."""
    (board,) = parse_boards(f'[[board]]\nid = "posts"\n{KINDS[kind]}')
    return board


class Timeline(Journaled):
    """A board with a journal, and a clock that the test sets; with what a plain count said at each hour."""

    def __init__(self, store: str, folder: Path, board: Board) -> None:
        super().__init__(store, folder, board, max_future=FUTURE)
        self.ledger = Ledger(self.client, board, self.settings, with_clock(SCRIPTS, self.settings))
        self.model = Reference(board, round(FUTURE * 1000))
        self.now = BEGIN * 1000
        self.said: dict[int, dict[str, int]] = {}  # the scores at the beginning of each hour

    async def go(self, seconds: float) -> None:
        """Let time pass."""
        later = self.now + round(seconds * 1000)
        for hour in range(self.now // 1000 // HOUR * HOUR + HOUR, later // 1000 + 1, HOUR):
            if self.board.clock == "server":
                self.said[hour] = {key: score for key, score, _ in self.model.ranking(hour * 1000)}
        self.now = later
        await set_clock(self.client, self.settings, later)

    async def count(self, *events: tuple[str, int, int | None]) -> None:
        """Count a batch of members, amounts and times (milliseconds)."""
        batch = [make_entry(key, amount, time, None) for key, amount, time in events]
        stood, scores = self.model.newest, {key: score for key, score, _ in self.model.ranking(self.now)}
        added = await self.ledger.writer.add(batch)
        assert dict(added.refused) == self.model.add(batch, self.now)
        if stood is not None and self.model.newest is not None:  # on an event clock
            hours = range(stood // 1000 // HOUR * HOUR + HOUR, self.model.newest // 1000 + 1, HOUR)
            self.said |= dict.fromkeys(hours, scores)
        while self.board.clock == "server" and await self.ledger.rotator.rotate() is None:
            pass

    async def fold(self, until: int = FAR) -> None:
        """Bring the totals up to date."""

        def work(connection: Connection) -> bool:
            for life in open_lives(connection, self.settings.key_prefix):
                new = add_up(connection, self.settings.key_prefix, life, self.board, until)
                if new is not None:
                    totals.add_totals(connection, new)
                    return True
            return False

        while await self.databases[0].run(work):
            pass

    async def read(self, work: Callable[[Connection, Life], Any]) -> Any:
        """Read from SQL."""

        def reading(connection: Connection) -> Any:
            (life,) = open_lives(connection, self.settings.key_prefix)
            return work(connection, life)

        return await self.databases[0].run(reading)

    async def from_events(self, hour: int) -> list[Row]:
        """The ranking at an hour by the entries."""

        def work(connection: Connection, life: Life) -> list[Row]:
            stop = before(hour * 1000, self.board.clock)
            data = contents_of(connection, self.settings.key_prefix, life, stop)
            return self._rows(data, hour)

        found: list[Row] = await self.read(work)
        return found

    async def from_totals(self, hour: int) -> list[Row]:
        """The ranking at an hour by the totals."""
        found: list[Row] = await self.read(
            lambda connection, life: self._rows(contents_from_totals(connection, life, self.board, hour), hour)
        )
        return found

    async def in_one_pass(self, hours: list[int]) -> list[list[Row]]:
        """The rankings at hours by the totals."""

        def work(connection: Connection, life: Life) -> list[list[Row]]:
            return [self._rows(data, hour) for hour, data in contents_by_hour(connection, life, self.board, hours)]

        found: list[list[Row]] = await self.read(work)
        return found

    def _rows(self, data: Any, hour: int) -> list[Row]:
        found = standing(self.board, data, hour * 1000, hidden=self.model.hidden)
        return [(member, found.scores[member]) for member in found.members]


@asynccontextmanager
async def timeline(store: str, folder: Path, board: Board) -> AsyncIterator[Timeline]:
    """A board at the beginning of time."""
    line = Timeline(store, folder, board)
    try:
        await line.go(0)
        yield line
    finally:
        for database in line.databases:
            await database.aclose()
        await line.client.aclose()


async def live_through(line: Timeline, seed: int) -> None:
    """Hours with events, also late and early ones, and amounts that cancel; drained and added up in between."""
    chance = random.Random(seed)
    drainer = await line.drainer()
    while line.now < (BEGIN + HOURS * HOUR) * 1000:
        await line.go(chance.choice([1, 300, 900, 2000, 2 * HOUR]))
        events = []
        for _ in range(chance.randint(1, 4)):
            late = chance.choice([0, 0, 0, 600, HOUR, 3 * HOUR, -30])
            time = line.now - late * 1000 + chance.randint(0, 999)
            timed = line.board.clock == "event" or chance.random() < 0.7
            events.append((chance.choice("abcde"), chance.choice([1, 1, 1, 2, -1]), time if timed else None))
        await line.count(*events)
        if chance.random() < 0.4:
            await drainer.sweep()
        if chance.random() < 0.2:
            await line.fold(chance.choice([FAR, line.now * 1000]))
    await drainer.sweep()
    await line.fold()
    line.model.hidden = {"e"}


async def past_is_exact(store: str, folder: Path, kind: str, seed: int) -> None:
    """At each hour, the totals say what the entries say, and what a plain count said then."""
    async with timeline(store, folder, board_of(kind)) as line:
        await live_through(line, seed)
        since = await line.read(totals_since)
        hours = [hour for hour in sorted(line.said) if hour >= since]
        assert len(hours) > HOURS // 2
        passed = await line.in_one_pass(hours)
        for hour, rows in zip(hours, passed, strict=True):
            then = {key: score for key, score in line.said[hour].items() if key != "e"}
            assert dict(await line.from_events(hour)) == then, f"the model, seed {seed}"
            assert dict(rows) == then, f"seed {seed}"
            assert rows == await line.from_totals(hour) == await line.from_events(hour), f"seed {seed}"


@pytest.mark.parametrize("kind", KINDS)
async def test_totals_tell_the_past_at_every_hour(valkey_url: str, tmp_path: Path, kind: str) -> None:
    """With late events, events that are ahead, hidden members and ties."""
    await past_is_exact(valkey_url, tmp_path, kind, random.SystemRandom().randrange(2**32))


async def late_event(line: Timeline) -> None:
    """Two hours after an event, one comes that is as old."""
    drainer = await line.drainer()
    first = line.now
    await line.count(("a", 1, None))
    await line.go(2 * HOUR)
    await line.count(("b", 5, first))
    await drainer.sweep()
    await line.fold()
    assert await line.from_totals(BEGIN + 2 * HOUR) == [("a", 1)]
    assert await line.from_totals(BEGIN + 3 * HOUR) == [("b", 5), ("a", 1)]


async def test_a_late_event_counts_in_the_hour_in_which_it_came(valkey_url: str, tmp_path: Path) -> None:
    """The hours between its own and that one stay as they were."""
    async with timeline(valkey_url, tmp_path, board_of("rolling")) as line:
        await late_event(line)


@pytest.mark.mutant
async def test_without_cells_a_late_event_changes_the_past(valkey_url: str, tmp_path: Path) -> None:
    """Slots alone don't tell when an event came."""
    async with timeline(valkey_url, tmp_path, board_of("rolling")) as line:
        with replaced(totals, "add_totals", _without_cell), must_be_caught("totals without cell"):
            await late_event(line)


def _without_cell(connection: Connection, new: NewTotals) -> None:
    """Count each event in the hour of its slot."""
    cells: dict[int, Cell] = {}
    for cell in new.cells:
        for (start, member), (value, reached) in cell.totals.items():
            found = cells.setdefault(start, Cell(start=start, newest=cell.newest, offset=cell.offset, whole=cell.whole))
            found.add(start, member, value, reached)
    add_totals(connection, msgspec.structs.replace(new, cells=list(cells.values())))


async def added_twice(line: Timeline) -> None:
    """A keeper is killed after its commit, and another one repeats what it had in hand; a third is killed before."""
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
    """Keep the last checkpoint, and no event before it."""

    def work(connection: Connection, life: Life) -> None:
        wanted = due(connection, life, FAR)
        assert wanted is not None
        keep(connection, wanted, *make(connection, line.settings.key_prefix, wanted, 86_400.0))
        assert forget(connection, life, FAR, folded=has_totals(line.board))

    await line.read(work)


@pytest.mark.parametrize("kind", ["rolling", "its own clock", "forever"])
async def test_the_past_beyond_the_events_comes_from_totals(valkey_url: str, tmp_path: Path, kind: str) -> None:
    """For the beginning of the hour of a time, and says so."""
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
async def test_what_sums_can_not_tell_is_refused(valkey_url: str, tmp_path: Path, choices: str) -> None:
    """Once the events are forgotten: never a wrong answer."""
    (board,) = parse_boards(f'[[board]]\nid = "posts"\n{choices}')
    async with timeline(valkey_url, tmp_path, board) as line:
        await live_through(line, 7)
        moment = Moment(board, (BEGIN + 3 * HOUR) * 1000, None, frozenset())
        assert read_ranking(line.settings, moment, 0, 100).ranking.hour is None
        await forget_events(line)
        with pytest.raises(UnsupportedPastError):
            read_ranking(line.settings, msgspec.structs.replace(moment, at=moment.at + 1), 0, 100)


class _KilledError(Exception):
    """The process ends here."""


async def test_totals_are_neither_doubled_nor_skipped(valkey_url: str, tmp_path: Path) -> None:
    """Wherever the process ends."""
    async with timeline(valkey_url, tmp_path, board_of("rolling")) as line:
        await added_twice(line)


@pytest.mark.mutant
async def test_progress_that_is_not_compared_doubles_totals(valkey_url: str, tmp_path: Path) -> None:
    """As with a progress that is kept outside of the transaction."""

    def blind(connection: Connection, new: NewTotals) -> None:
        held = folded(connection, new.life)
        right(connection, msgspec.structs.replace(new, before=held))

    right = totals._advance
    async with timeline(valkey_url, tmp_path, board_of("rolling")) as line:
        with replaced(totals, "_advance", blind), must_be_caught("totals of a segment are added twice"):
            await added_twice(line)
