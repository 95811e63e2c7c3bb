"""The baseline of a board: the ranking at the start of the hour, the same for everyone."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import pytest

from live.boards.definition import read_board
from live.domain.board import Board
from live.domain.event import make_entry
from live.errors import EpochLostError, SetupError, StoreUnavailableError
from live.store.board.ledger import Ledger
from live.store.board.manage.lifecycle import renew
from live.store.board.read.baseline import Baseline, BaselineKeeper, Baselines, BoardBaseline
from live.store.board.state import SCRIPTS
from live.store.connection.client import connect
from tests.harness.boards import open_ledger, rolling_board
from tests.harness.clock import set_clock, with_clock
from tests.harness.mutation import replaced
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.tasks import stop
from tests.harness.waiting import eventually

MINUTE: Final = 60_000
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
        return dict((await self.read()).ranks)

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


async def test_a_baseline_has_the_ranks_of_the_start_of_the_hour(valkey_url: str) -> None:
    """Later changes do not affect the ranks in the baseline. At the next hour, a new baseline replaces it."""
    async with simulation(valkey_url) as made:
        await made.add(a=3, b=2, c=1)
        assert await made.at(T0 + 5000) == HOUR / 1000 - 5
        await made.add(c=9, d=1)
        assert await made.at(T0 + HOUR - 1) == 0.001
        found = await made.read()
        assert (found.ranks, found.time, found.slot) == ({"a": 1, "b": 2, "c": 3}, T0 + 5000, None)
        await made.at(T0 + HOUR)
        found = await made.read()
        assert (found.ranks, found.time) == ({"c": 1, "a": 2, "b": 3, "d": 4}, T0 + HOUR)
        assert found.epoch == made.ledger.state.epoch


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
    """The first hour of a board may begin a minute before the next hour. No rate comes from this minute."""
    async with simulation(valkey_url) as made:
        for time, wanted in ((T0 + HOUR - MINUTE, None), (T0 + HOUR, None), (T0 + 2 * HOUR, 2)):
            await made.add(a=120)
            await made.at(time)
            assert (await made.read()).per_minute == made.ledger.baseline.per_minute == wanted


async def test_a_baseline_does_not_change_the_offset(valkey_url: str) -> None:
    """Keeping a baseline is not a change of the board."""
    async with simulation(valkey_url) as made:
        await made.add(a=3)
        before = await made.ledger.reader.read(10)
        await made.at(T0 + HOUR)
        assert await made.ledger.reader.read(10) == before


async def test_an_empty_baseline_is_replaced_within_a_minute(valkey_url: str) -> None:
    """A new board shows movement soon."""
    async with simulation(valkey_url) as made:
        assert await made.at(T0 + 20_000) == 40
        await made.add(a=3)
        assert await made.at(T0 + 59_999) == 0.001
        assert await made.ranks() == {}
        assert await made.at(T0 + MINUTE) == HOUR / 1000 - 60
        assert await made.ranks() == {"a": 1}


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

        async def kept_at(time: int) -> bool:
            return board.time == time

        await eventually(partial(kept_at, T0 + MINUTE - 1))
        await set_clock(made.client, made.settings, T0 + MINUTE)
        await made.add(a=3)
        await eventually(partial(kept_at, T0 + MINUTE))
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
        assert wait() == pytest.approx(3540, abs=9)
        await made.add(a=3)
        assert wait() == pytest.approx(3540, abs=9), (
            "an event made a board due that is neither empty nor in a new period"
        )
        board.due -= 3000
        keeper._expect(board, moved=True)
        assert wait() == pytest.approx(540, abs=9)
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
        second = await made.read()
        assert second.ranks == {}
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
        await set_clock(made.client, made.settings, T0 + HOUR)
        assert await baselines.of(board) is first, "the process asks for a new baseline too soon"
        board.checked_at -= 60
        second = await baselines.of(board)
        assert second is not None
        assert second.time == T0 + HOUR


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
            return ledger.baseline.time is not None

        await eventually(kept)
        await stop(keeping)
