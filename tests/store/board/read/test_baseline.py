"""The baseline of a board: the ranking of an hour ago, or of the start of a day or week, the same for everyone."""

import asyncio
import itertools
import math
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import pytest

from live.boards.definitions import read_board
from live.domain.board import Board
from live.domain.event import make_entry
from live.errors import EpochLostError, SetupError, StoreUnavailableError
from live.store.board.ledger import Ledger
from live.store.board.manage.lifecycle import renew
from live.store.board.read.baseline import MOST, Baseline, BaselineKeeper, Baselines, BoardBaseline
from live.store.board.requests import SCRIPTS
from live.store.connection.client import connect
from tests.harness.boards import open_ledger, rolling_board
from tests.harness.clock import set_clock, with_clock
from tests.harness.mutation import replaced
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.tasks import stop
from tests.harness.waiting import eventually

MINUTE: Final = 60_000
STEP: Final = 5 * MINUTE
HOUR: Final = 60 * MINUTE
T0: Final = 1_700_000_000_000 // HOUR * HOUR  # the start of an hour, and of a slot
KINDS: Final[list[dict[str, Any]]] = [
    {"ties": "key", "ranks": "ordinal"},
    {"ties": "first", "ranks": "dense"},
    {"ties": "last", "ranks": "competition"},
    {"sort_order": "asc", "ranks": "competition"},
    {"operator": "best", "window": "forever", "ranks": "dense"},
    {"window": {"calendar": "day"}, "ranks": "competition"},
]


class Simulation:
    """A ledger whose store has a clock that the test sets."""

    def __init__(self, client: Any, board: Board, settings: Any) -> None:
        self.client = client
        self.settings = settings
        self.ledger = Ledger(client, board, settings, with_clock(SCRIPTS, settings))

    async def at(self, time: int) -> float:
        """Set the clock, and keep the baseline that is due; returns the seconds until the next baseline is due."""
        await set_clock(self.client, self.settings, time)
        return await self.ledger.baseline.keep()

    async def add(self, **amounts: int) -> None:
        """Count one event for each member."""
        await self.ledger.writer.add([make_entry(member, amount) for member, amount in amounts.items()])

    async def ranks(self) -> dict[str, int]:
        """The ranks in the baseline."""
        return {member: rank for member, rank in (await self.read()).ranks.items() if rank}

    async def read(self) -> Baseline:
        """The baseline."""
        found = await self.ledger.baseline.read()
        assert found is not None
        return found


@asynccontextmanager
async def simulation(store: str, board: Board | None = None) -> AsyncIterator[Simulation]:
    """A simulation with its own board."""
    settings = fresh_settings(store)
    client = connect(store, settings)
    await set_clock(client, settings, T0)
    try:
        yield Simulation(client, board or rolling_board(), settings)
    finally:
        await client.aclose()


async def test_the_baseline_is_an_hour_old(valkey_url: str) -> None:
    """Every five minutes, the store takes a mark. Until the first one is an hour old, it is the baseline."""
    async with simulation(valkey_url) as made:
        await made.add(a=3, b=2, c=1)
        assert await made.at(T0 + 5000) == 295
        for step in range(1, 14):
            await made.add(c=1)
            assert await made.at(T0 + step * STEP) == 300
            found = await made.read()
            number = max(0, step - 12)
            assert (found.time, found.scores["c"]) == (T0 + max(5000, number * STEP), 1 + number), step
        assert (found.ranks, found.slot, found.epoch) == ({"a": 1, "b": 2, "c": 3}, None, made.ledger.state.epoch)
        names = await made.client.hkeys(made.ledger.state.keys.baseline)
        assert sum(name.startswith(b"rows:") for name in names) == 13, "the store keeps marks that nobody needs"


async def test_a_mark_stands_for_the_time_until_the_ranking_changes(valkey_url: str) -> None:
    """No further marks are taken of a quiet board. A mark of before a pause of the server keeps its own time."""
    async with simulation(valkey_url) as made:
        await made.add(a=3, b=2)
        for step in range(20):
            await made.at(T0 + step * STEP)
        found = await made.read()
        assert (found.time, found.ranks) == (T0 + 7 * STEP, {"a": 1, "b": 2})
        assert len([name for name in await made.client.hkeys(made.ledger.state.keys.baseline) if b":" in name]) == 1
        await made.add(b=2)
        await made.at(T0 + 50 * STEP)
        found = await made.read()
        assert (found.time, found.ranks) == (T0 + 19 * STEP, {"a": 1, "b": 2})


@pytest.mark.parametrize("fault", ["", "a mark for each hour"])
async def test_no_movement_vanishes_at_a_full_hour(valkey_url: str, fault: str) -> None:
    """While a board of 50 members counts an event a second, about as many rows have moved after as before any time."""
    async with simulation(valkey_url, read_board("b", {"window": "forever"})) as made:
        if fault:
            source = made.ledger.state.scripts.baseline.source
            faulty = source.replace("= 5 * MINUTE, 60 * MINUTE", "= 60 * MINUTE, 0")
            assert faulty != source
            scripts = msgspec.structs.replace(
                made.ledger.state.scripts, baseline=made.ledger.state.scripts.baseline.changed(faulty)
            )
            made.ledger = Ledger(made.client, made.ledger.state.board, made.settings, scripts)
        chance = random.Random(5)
        moved: list[int] = []
        for second in range(0, 2 * HOUR // 1000 + 601, 20):
            await set_clock(made.client, made.settings, T0 + second * 1000)
            names = [f"m{chance.randrange(50):02}" for _ in range(20)]
            await made.ledger.writer.add([make_entry(name, chance.randrange(1, 10)) for name in names])
            await made.ledger.baseline.keep()
            if second * 1000 < HOUR - 10 * MINUTE:
                continue  # nothing much has moved yet
            before, page = await made.read(), await made.ledger.reader.read(50)
            moved.append(sum(before.rank_of(one.member, one.rank) != one.rank for one in page.records))
        falls = [1 - after / max(before, 1) for before, after in itertools.pairwise(moved)]
        assert (max(falls) <= 0.2) == (not fault), (max(falls), moved)


async def test_members_far_below_have_ranks_too(valkey_url: str) -> None:
    """The rank of a member that comes from far below is known. Only a member without a record was not there."""
    for kind in KINDS[:4]:
        async with simulation(valkey_url, read_board("b", kind)) as made:
            amounts = {f"m{number:04}": 1 + number % 1700 for number in range(2500)}
            await made.add(**amounts)
            await made.at(T0 + 1)
            pages = [await made.ledger.reader.read(1000, start=start) for start in (0, 1000, 2000)]
            wanted = {record.member: record.rank for page in pages for record in page.records}
            found = await made.read()
            assert {member: found.rank_of(member, -1) for member in amounts} == wanted, kind
            assert found.is_complete
            assert found.rank_of("none", -1) is None
            assert found.rank_count == 2500


async def test_of_more_members_than_a_mark_has_no_movement_is_known(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can say that a member is new if its record may have been further down."""
    async with simulation(valkey_url) as made:
        for start in range(0, MOST + 10, 1000):
            await made.add(**{f"m{n:05}": 20_000 - n for n in range(start, min(start + 1000, MOST + 10))})
        await made.at(T0 + 1)
        found = await made.read()
        assert not found.is_complete
        assert [found.rank_of(f"m{number:05}", 7) for number in (0, MOST - 1, MOST)] == [1, MOST, 7]
        fields = await made.client.hgetall(made.ledger.state.keys.baseline)
        assert sum(map(len, fields.values())) < 100_000
        await made.add(m10005=30_000, new=40_000)
        baselines, ledger = Baselines(), made.ledger
        top = await baselines.with_top(ledger.baseline, ledger.reader)
        assert top is not None
        assert len(top.ranks) == 1000
        await made.add(m01500=50_000)
        monkeypatch.setattr("live.store.board.read.baseline._TOP_SERVES", 1e-9)
        top = await baselines.with_top(ledger.baseline, ledger.reader)
        assert top is not None
        assert top.ranks["m01500"] == 1501
        assert len(top.ranks) == 1001


async def test_the_baseline_of_a_day_is_its_start(valkey_url: str) -> None:
    """Days and weeks begin in the time zone of the board."""
    zone = {"calendar": "month", "timezone": "Asia/Kolkata"}
    for choices, start, length in (
        ({"window": "forever", "baseline": "day"}, 0, 24 * HOUR),
        ({"window": zone, "baseline": "day"}, -5 * HOUR - HOUR // 2, 24 * HOUR),
        ({"window": "forever", "baseline": "week"}, 4 * 24 * HOUR, 7 * 24 * HOUR),
    ):
        async with simulation(valkey_url, read_board("b", choices)) as made:
            begin = (T0 - start) // length * length + start
            await made.at(T0)
            await made.add(a=2, b=1)
            await made.at(T0 + MINUTE)
            await made.add(b=5)
            await made.at(begin + length - 1)
            assert (await made.read()).time == T0 + MINUTE
            assert await made.ranks() == {"a": 1, "b": 2}, choices
            await made.at(begin + length + 7)
            await made.add(a=9)
            await made.at(begin + length + HOUR)
            found = await made.read()
            assert (found.ranks, found.time) == ({"b": 1, "a": 2}, begin + length + 7)
            assert found.per_minute == round(9 / (60 - 7 / MINUTE)) == made.ledger.baseline.per_minute
            await made.at(begin + 2 * length + 5)
            assert await made.ranks() == {"a": 1, "b": 2}


async def test_marks_of_a_wrong_clock_are_dropped(valkey_url: str) -> None:
    """If the store's clock is set back by more than an hour before the board changes, movement begins again."""
    async with simulation(valkey_url) as made:
        await made.add(a=2, b=1)
        await made.at(T0 + 3 * HOUR)
        await made.at(T0 + 3 * HOUR - STEP)
        assert await made.ranks() == {"a": 1, "b": 2}
        await set_clock(made.client, made.settings, T0)
        await made.add(b=5)
        await made.at(T0 + HOUR)
        found = await made.read()
        assert (found.ranks, found.time) == ({"b": 1, "a": 2}, T0 + HOUR)


async def test_movement_stands_still_with_the_clock_of_the_board(valkey_url: str) -> None:
    """The board changed while the store's clock was ahead. The next look is due by the store's clock."""
    async with simulation(valkey_url) as made:
        await made.add(a=2, b=1)
        await made.at(T0 + 3 * HOUR)
        await made.add(b=5)
        assert await made.at(T0 + HOUR + 5000) == 295
        assert await made.ranks() == {"a": 1, "b": 2}


@pytest.mark.parametrize("kind", range(len(KINDS)))
async def test_a_baseline_has_what_readers_saw(valkey_url: str, kind: int) -> None:
    """The board may have any sort order, rule for ties and kind of ranks."""
    async with simulation(valkey_url, read_board("b", KINDS[kind])) as made:
        await made.add(**{f"m{number:04}": 1 + number % 700 for number in range(1500)})
        page = await made.ledger.reader.read(1000)
        await made.at(T0 + 1)
        found = await made.read()
        assert found.ranks == {record.member: record.rank for record in page.records}
        assert found.scores == {record.member: record.score for record in page.records}


async def test_a_rate_is_measured_over_five_minutes_or_more(valkey_url: str) -> None:
    """No rate comes from the first minutes of a board."""
    async with simulation(valkey_url) as made:
        await made.add(a=120)
        for time, wanted in ((T0 + MINUTE, None), (T0 + STEP, None), (T0 + 2 * STEP, 120 / 9)):
            await made.at(time)
            rate = None if wanted is None else round(wanted)
            assert (await made.read()).per_minute == made.ledger.baseline.per_minute == rate
            if time == T0 + MINUTE:
                await made.add(b=120)


async def test_a_mark_does_not_change_the_offset(valkey_url: str) -> None:
    """Taking a mark is not a change of the board."""
    async with simulation(valkey_url) as made:
        await made.add(a=3)
        before = await made.ledger.reader.read(10)
        await made.at(T0 + HOUR)
        assert await made.ledger.reader.read(10) == before


async def test_an_empty_board_has_no_baseline(valkey_url: str) -> None:
    """A new board, and a board that had no records, show movement within a minute of the first records."""
    async with simulation(valkey_url) as made:
        assert await made.at(T0 + 20_000) == 40
        await made.add(a=3)
        assert await made.ledger.baseline.read() is None
        assert await made.at(T0 + MINUTE) == 240
        assert await made.ranks() == {"a": 1}
        await made.add(a=-3)
        await made.at(T0 + STEP)
        assert await made.ledger.baseline.read() is None
        assert made.ledger.baseline.is_empty


async def test_a_board_that_was_empty_is_looked_at_once_it_counts(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process looks again at the next full minute, not hours later."""
    monkeypatch.setattr("live.store.board.read.baseline._MINUTE", 0.01)
    async with simulation(valkey_url) as made:
        await set_clock(made.client, made.settings, T0 + MINUTE - 1)
        board, keeper = made.ledger.baseline, BaselineKeeper()
        keeper.add(board)
        keeping = asyncio.create_task(keeper.run())

        async def is_checked() -> bool:
            return math.isfinite(board.checked_at)

        async def is_kept() -> bool:
            return not board.is_empty

        await eventually(is_checked)
        await set_clock(made.client, made.settings, T0 + MINUTE)
        await made.add(a=3)
        await eventually(is_kept)
        assert await made.ranks() == {"a": 1}
        await stop(keeping)


async def test_a_keeper_knows_when_a_board_is_due(valkey_url: str) -> None:
    """An empty board that gets an event is due at the next full minute. So is a board that may have a new period."""
    async with simulation(valkey_url) as made:
        board, keeper = made.ledger.baseline, BaselineKeeper()

        def wait() -> float | None:
            return keeper._timetable._times[board][0] - time.monotonic() if board in keeper._timetable else None

        def fail(error: Exception) -> Callable[..., Any]:
            async def keep(_board: BoardBaseline) -> float:
                raise error

            return keep

        async def left(*errors: Exception) -> list[float]:
            waits = []
            for error in errors:
                with replaced(BoardBaseline, "keep", fail(error)):
                    await keeper._keep(board)
                waits.append(wait() or 0)
            return waits

        await set_clock(made.client, made.settings, T0 + 20_000)
        keeper.add(board)
        await keeper._keep(board)
        assert wait() == pytest.approx(3600, abs=9), "an empty board is due before the next hour, or never"
        board.due -= 100
        await made.add(a=3)
        assert wait() == pytest.approx(60, abs=9), "a board that became due before the event is not due a minute later"
        board.due += 90
        await made.add(a=3)
        assert wait() == pytest.approx(30, abs=9), "the board is not due at the next full minute, in half a minute"
        await made.at(T0 + MINUTE)
        await keeper._keep(board)
        assert wait() == pytest.approx(240, abs=9)
        await made.add(a=3)
        assert wait() == pytest.approx(240, abs=9), (
            "an event made a board due that is neither empty nor in a new period"
        )
        board.due -= 180
        keeper._expect(board, moved=True)
        assert wait() == pytest.approx(60, abs=9)
        keeper.recheck()
        assert wait() == pytest.approx(0, abs=9)
        errors = (StoreUnavailableError("away"), EpochLostError("lost"), SetupError("others"))
        assert await left(*errors) == pytest.approx([5, 5, 3600], abs=2)
        keeper.remove(board)
        await keeper._keep(board)
        assert wait() is None


async def test_a_new_period_has_a_new_baseline(valkey_url: str) -> None:
    """Ranks of the new period are not compared with ranks of the previous period."""
    # In UTC, days of this zone begin at half past.
    board = read_board("b", {"window": {"calendar": "day", "timezone": "Asia/Kolkata"}})
    midnight = (T0 // (24 * HOUR) + 1) * 24 * HOUR - 5 * HOUR - HOUR // 2
    async with simulation(valkey_url, board) as made:
        await set_clock(made.client, made.settings, midnight - HOUR)
        await made.add(a=3)
        await made.at(midnight - 1)
        first = await made.read()
        assert first.ranks == {"a": 1}
        assert await made.at(midnight) == 60
        await made.add(b=1)
        await made.at(midnight + MINUTE)
        second = await made.read()
        assert second.ranks == {"b": 1}
        assert first.slot is not None
        assert second.slot == first.slot + 24 * HOUR // 1000


async def test_a_baseline_has_no_hidden_members(valkey_url: str) -> None:
    """Members may be hidden before or after the baseline is kept."""
    async with simulation(valkey_url) as made:
        await made.add(a=3, b=2, c=1)
        await made.ledger.moderation.hide("a", hidden=True)
        await made.at(T0 + HOUR)
        await made.ledger.moderation.hide("b", hidden=True)
        found = await made.read()
        assert (found.ranks, found.scores) == ({"c": 2}, {"c": 1})


async def test_a_new_epoch_drops_the_baseline(valkey_url: str) -> None:
    """The data of the board may be different in the new epoch."""
    async with simulation(valkey_url) as made:
        await made.add(a=3)
        await made.at(T0 + 1)
        assert await renew(made.client, made.ledger.state.keys, "feedface")
        with pytest.raises(EpochLostError):
            await made.ledger.baseline.keep()
        other = Ledger(made.client, made.ledger.state.board, made.settings, made.ledger.state.scripts, born="feedface")
        assert await other.baseline.read() is None
        await other.baseline.keep()
        found = await other.baseline.read()
        assert found is not None
        assert (found.epoch, found.ranks) == ("feedface", {"a": 1})


async def test_a_process_learns_of_a_new_period(valkey_url: str) -> None:
    """On an event clock, another process may have begun a period."""
    board = read_board("b", {"window": {"calendar": "day"}, "clock": "event"})
    async with open_ledger(valkey_url, board) as one:
        await one.writer.add([make_entry("a", 1, T0)])
        async with open_ledger(valkey_url, board, key_prefix=one.state.settings.key_prefix) as other:
            await other.writer.add([make_entry("b", 1, T0 + 24 * HOUR)])
        await one.baseline.keep()
        found = await one.baseline.read()
        assert found is not None
        assert found.ranks == {"b": 1}


async def test_a_baseline_is_read_once_for_all_requests(valkey_url: str) -> None:
    """The process reads again only when there is a new baseline.

    A process that shows a baseline also keeps the next baseline, at most a minute late.
    """
    async with simulation(valkey_url) as made:
        baselines, board = Baselines(), made.ledger.baseline
        await made.add(a=3)
        await made.at(T0 + 1)
        first, *others = await asyncio.gather(*(baselines.of(board) for _ in range(5)))
        assert all(other is first for other in others)
        await made.at(T0 + 2)
        assert await baselines.of(board) is first
        await set_clock(made.client, made.settings, T0 + HOUR + STEP)
        assert await baselines.of(board) is first, "the process asks for a new baseline too soon"
        board.checked_at -= 60
        second = await baselines.of(board)
        assert second is not None
        assert second.time == T0 + STEP


@pytest.mark.fault
async def test_baselines_continue_after_an_outage_of_the_store(
    own_store: StoreProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full store keeps no baseline, but rotation still works. Later, the keeper tries again."""
    monkeypatch.setattr("live.store.board.read.baseline._RETRY", 0.01)
    async with open_ledger(own_store.url, rolling_board()) as ledger:
        await ledger.writer.add([make_entry("a", 1)])
        await ledger.state.call("CONFIG", "SET", "maxmemory", "1")
        keeper = BaselineKeeper()
        keeper.add(ledger.baseline)
        keeping = asyncio.create_task(keeper.run())
        with pytest.raises(StoreUnavailableError):
            await BoardBaseline(ledger.state).keep()
        await ledger.rotator.rotate()
        await ledger.state.call("CONFIG", "SET", "maxmemory", "0")

        async def kept() -> bool:
            return not ledger.baseline.is_empty

        await eventually(kept)
        await stop(keeping)
