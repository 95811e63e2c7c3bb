"""A board with a journal, on a clock that the test sets, compared with a plain count at each hour."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection

from live.domain.board import Board
from live.domain.board_file import parse_boards
from live.domain.event import make_entry
from live.journal.log.drainer import Drainer
from live.journal.log.reader import contents_at
from live.journal.log.timelines import Timeline, open_timelines
from live.journal.past.coverage import reaches_of, since_of
from live.journal.past.history import scores_at_all
from live.journal.state.ranking import ranked_at
from live.store.board.journal_stream import begin_journal
from live.store.board.ledger import Ledger
from live.store.board.requests import SCRIPTS
from tests.harness.board_model import Reference
from tests.harness.clock import set_clock, with_clock
from tests.harness.journaled import Journaled

BEGIN: Final = 1_900_000_800  # seconds; the beginning of an hour
HOUR: Final = 3600
HOURS: Final = 14
FUTURE: Final = 60.0

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
    """A board of a kind from `KINDS`."""
    (board,) = parse_boards(f'[[board]]\nid = "posts"\n{KINDS[kind]}')
    return board


class RecordedBoard(Journaled):
    """A board with a journal and a clock that the test sets, and the scores at each hour by a plain count."""

    def __init__(self, store: str, folder: Path, board: Board, url: str) -> None:
        super().__init__(store, folder, board, url)
        self.ledger = self.another()
        self.model = Reference(board, round(FUTURE * 1000))
        self.now = BEGIN * 1000
        self.drainers: list[Drainer] = []
        self.said: dict[int, dict[str, int]] = {}  # by hour, the scores at its beginning

    def another(self) -> Ledger:
        """Return another ledger of the board, as another process would have it."""
        return Ledger(self.client, self.board, self.settings, with_clock(SCRIPTS, self.settings))

    async def drainer(self, folder: Path | None = None) -> Drainer:
        """Make another drainer of the same journal."""
        found = await super().drainer(folder)
        self.drainers.append(found)
        return found

    async def go(self, seconds: float) -> None:
        """Let time pass. On a board with the server's clock, note the model's scores at each full hour on the way."""
        later = self.now + round(seconds * 1000)
        for hour in range(self.now // 1000 // HOUR * HOUR + HOUR, later // 1000 + 1, HOUR):
            if self.board.clock == "server":
                self.said[hour] = {member: score for member, score, _ in self.model.ranking(hour * 1000)}
        self.now = later
        await set_clock(self.client, self.settings, later)

    async def count(self, *events: tuple[str, int, int | None]) -> None:
        """Count a batch of events, each with its member, amount and time (milliseconds)."""
        batch = [make_entry(member, amount, time, None) for member, amount, time in events]
        stood, before = self.model.newest, deepcopy(self.model)
        added = await self.ledger.writer.add(batch)
        refused = self.model.add(batch, self.now)
        assert dict(added.refused) == refused
        if stood is not None and self.model.newest is not None:  # the board has `clock = "event"`
            for hour in range(stood // 1000 // HOUR * HOUR + HOUR, self.model.newest // 1000 + 1, HOUR):
                then, counted = deepcopy(before), [one for index, one in enumerate(batch) if index not in refused]
                then.add([one for one in counted if one[2] is not None and one[2] < hour * 1000], self.now)
                self.said[hour] = {member: score for member, score, _ in then.ranking(self.now)}
        while self.board.clock == "server" and await self.ledger.rotator.rotate() is None:
            pass

    async def adopt(self) -> None:
        """Let the journal begin again with everything that the board holds, as after a gap."""
        state = self.ledger.state
        await begin_journal(self.client, state.keys, state.epoch or "", again=True, adopt=state.scripts.adopt)

    async def read(self, work: Callable[[Connection, Timeline], Any]) -> Any:
        """Run `work` on the timeline of the board in SQL."""

        def reading(connection: Connection) -> Any:
            (timeline,) = open_timelines(connection)
            return work(connection, timeline)

        return await self.databases[0].run(reading)

    async def from_events(self, hour: int) -> list[Row]:
        """The ranking at an hour, computed from the entries in SQL."""

        def work(connection: Connection, timeline: Timeline) -> list[Row]:
            clock = self.board.clock
            _, data = next(contents_at(connection, timeline, [hour * 1000], clock))
            return self._rows(data, hour)

        found: list[Row] = await self.read(work)
        return found

    async def in_one_pass(self, hours: list[int]) -> list[list[Row]]:
        """Return the rankings at several hours, read in one pass. Check also that `ranks` gives the same places."""

        def work(connection: Connection, _timeline: Timeline) -> list[list[Row]]:
            found = []
            times = [hour * 1000 for hour in hours]
            for _, scores in scores_at_all(connection, self.board, None, times):
                ranking = scores.ranked(self.board, self.model.hidden).members
                ranks = scores.ranks(self.board, self.model.hidden, [*ranking, "e", "nobody"])
                assert ranks == {member: place for place, member in enumerate(ranking, 1)}
                found.append([(member, scores.scores[member]) for member in ranking])
            return found

        rows: list[list[Row]] = await self.read(work)
        return rows

    def _rows(self, data: Any, hour: int) -> list[Row]:
        found = ranked_at(self.board, data, hour * 1000, hidden=self.model.hidden)
        return [(member, found.scores[member]) for member in found.members]


@asynccontextmanager
async def timeline(store: str, folder: Path, board: Board, url: str = "sqlite") -> AsyncIterator[RecordedBoard]:
    """Yield a board whose clock is at `BEGIN`."""
    line = RecordedBoard(store, folder, board, url)
    try:
        await line.go(0)
        yield line
    finally:
        for database in line.databases:
            await database.aclose()
        await line.client.aclose()


async def live_through(line: RecordedBoard, seed: int) -> None:
    """Let hours pass with events, some of them late or early, and amounts that cancel out.

    Sometimes, the drainer moves entries to SQL meanwhile, or the journal begins again.
    """
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
        if line.board.clock == "server" and chance.random() < 0.05:
            await line.adopt()
        if chance.random() < 0.4:
            await drainer.sweep()
    await drainer.sweep()
    line.model.hidden = {"e"}


async def past_is_exact(store: str, folder: Path, kind: str, seed: int, url: str = "sqlite") -> None:
    """Check that the journal has the counted ranking at each hour, both in one pass over all hours and hour by hour."""
    async with timeline(store, folder, board_of(kind), url) as line:
        await live_through(line, seed)
        since = since_of(await line.read(lambda sql, _: reaches_of(sql, line.board, None)))
        assert since is not None
        hours = [hour for hour in sorted(line.said) if hour * 1000 >= since]
        assert len(hours) > HOURS // 2
        passed = await line.in_one_pass(hours)
        for hour, rows in zip(hours, passed, strict=True):
            then = {member: score for member, score in line.said[hour].items() if member != "e"}
            assert dict(rows) == then, f"seed {seed}"
            assert rows == await line.from_events(hour), f"seed {seed}"
