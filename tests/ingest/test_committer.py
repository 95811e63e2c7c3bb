"""Group commit on a real ledger: requests share script calls, and each gets the result of its own events."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from unittest.mock import patch

import pytest
from structlog.testing import capture_logs

from live.domain.board import Board
from live.domain.event import MAX_SCORE, Entry, make_entry
from live.errors import EpochLostError, ProblemError, StoreUnavailableError
from live.ingest import committer
from live.ingest.committer import Committed, Committer, Wants, _AwaitedShare
from live.metrics import REGISTRY
from live.store.board.ledger import Ledger
from live.store.board.state import BoardState
from live.store.connection.client import connect
from tests.harness.boards import rolling_board
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.tasks import stop
from tests.harness.waiting import DEADLINE, eventually

HOUR = 3600


def likes(*keys: str) -> list[Entry]:
    """A like of each member."""
    return [make_entry(member, 1, None) for member in keys]


PATCHES = pytest.MonkeyPatch()


@pytest.fixture(autouse=True)
def _own_limits() -> Iterator[None]:
    """Give the committer its limits back."""
    yield
    PATCHES.undo()


class Bench:
    """A committer on a ledger."""

    def __init__(
        self, store: str, board: Board | None = None, own: Mapping[str, float] | None = None, **changes: object
    ) -> None:
        """Make a committer. `own` are limits of it, until the test ends."""
        self.settings = fresh_settings(store, **changes)
        self.client = connect(store, self.settings)
        self.ledger = Ledger(self.client, board or rolling_board(), self.settings)
        self.committer = Committer(self.ledger.writer, self.ledger.rotator)
        PATCHES.undo()  # of an earlier committer of the test
        for name, value in (own or {}).items():
            PATCHES.setattr(committer, name, value)

    def send(self, *requests: Sequence[Entry]) -> list[asyncio.Task[Committed]]:
        """Submit requests in order, without waiting."""
        return [asyncio.create_task(self.committer.commit(request)) for request in requests]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the committer while in the context."""
        running = asyncio.create_task(self.committer.run())
        try:
            yield
        finally:
            await stop(running)
            await self.client.aclose()

    async def scores(self) -> dict[str, int]:
        """The scores of the whole board."""
        return {record.member: record.score for record in (await self.ledger.reader.read(3000)).records}


async def waiting(*requests: asyncio.Task[Committed]) -> None:
    """Let the requests reach the queue of a committer that does not run yet."""
    for _ in requests:
        await asyncio.sleep(0)


async def test_waiting_requests_share_a_call(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred requests that wait for the store increase the offset by one, and all count."""
    bench, spans = Bench(valkey_url), []
    monkeypatch.setattr(committer, "record_span", lambda name, _, **named: spans.append((name, named)))
    before = commits()
    requests = bench.send(*[likes("a", f"k{i}") for i in range(100)])
    await waiting(*requests)
    async with bench.running():
        assert [(await request).offset for request in requests] == [1] * 100
        scores = await bench.scores()
    assert scores == {"a": 100, **{f"k{i}": 1 for i in range(100)}}
    assert [after - earlier for after, earlier in zip(commits(), before, strict=True)] == [1, 200]
    assert spans == [("commit", {"board": "posts", "events": 200})]


def commits() -> list[float]:
    """The number of commits and the number of committed events, from the metrics."""
    return [REGISTRY.get_sample_value(f"live_commit_{name}") or 0 for name in ("seconds_count", "events_sum")]


async def test_only_large_batches_wait_for_company(valkey_url: str) -> None:
    """After a batch of one request, the next request is committed at once.

    After a batch of several requests, the next batch waits until as many requests are there, or the delay is over.
    """
    bench = Bench(valkey_url, own={"COMMIT_DELAY": 60, "BATCH_SIZE": 2})
    async with asyncio.timeout(60), bench.running():
        for _ in range(2):
            await bench.committer.commit(likes("a"))
        early = bench.send(likes("a"))
        await waiting(*early * 3)  # the store has the request of `early`
        late = bench.send(*[likes("a", "b")] * 3)
        assert [(await request).offset for request in (*early, *late)] == [3, 4, 5, 6]
        assert bench.committer._wanted == 1
    bench = Bench(valkey_url, own={"COMMIT_DELAY": 0.05})
    requests = bench.send(*[likes("a")] * 5)
    await waiting(*requests)
    async with asyncio.timeout(60), bench.running():
        await asyncio.gather(*requests)
        await eventually(lambda: waits_for(bench, 5))
        assert (await bench.committer.commit(likes("a"))).offset == 2


async def test_a_batch_has_whole_requests(valkey_url: str) -> None:
    """A batch has as many requests as fit into the batch size, in order, and never a part of a request."""
    bench = Bench(valkey_url, own={"BATCH_SIZE": 10})
    requests = bench.send(*[likes(*"abcd")] * 2, likes(*"ab"), *[likes(*"abcd")] * 3, likes("e"), likes("f"))
    await waiting(*requests)
    async with bench.running():
        offsets = [(await request).offset for request in requests]
    assert offsets == [1, 1, 1, 2, 2, 3, 3, 3]


async def test_a_request_larger_than_a_batch_is_committed_alone(valkey_url: str) -> None:
    """No other request shares the call of such a request."""
    bench = Bench(valkey_url, own={"BATCH_SIZE": 2})
    requests = bench.send(likes("a"), likes(*"bcde"), likes("f"))
    await waiting(*requests)
    async with bench.running():
        assert [(await request).offset for request in requests] == [1, 2, 3]


async def test_the_largest_batch_is_one_call(valkey_url: str) -> None:
    """The request has as many events as settings allow, each for a different member.

    The committer adds them with a single script call.
    """
    bench = Bench(valkey_url, own={"BATCH_SIZE": 3000})
    async with bench.running():
        committed = await bench.committer.commit(likes(*(f"k{i}" for i in range(3000))))
        assert committed == Committed(1, {})
        assert len(await bench.scores()) == 3000


async def test_each_request_gets_its_own_refusals(valkey_url: str) -> None:
    """The index of a refusal counts within the request of the event. A request that counted nothing has no offset."""
    bench = Bench(valkey_url, rolling_board(clock="event"))
    day = 24 * HOUR * 1000
    requests = bench.send(
        [make_entry("a", 1, 9 * day), make_entry("b", 1, None)],
        [make_entry("c", 1, day), make_entry("d", 1, None)],
        [make_entry("e", 1, 9 * day)],
    )
    await waiting(*requests)
    async with bench.running():
        answers = [await request for request in requests]
    assert answers == [
        Committed(1, {1: "time_required"}),
        Committed(None, {0: "late", 1: "time_required"}),
        Committed(1, {}),
    ]


async def test_a_score_out_of_range_affects_only_its_own_request(valkey_url: str) -> None:
    """Other requests of the batch count."""
    bench = Bench(valkey_url)
    requests = bench.send(likes("a"), [make_entry("b", MAX_SCORE, None), make_entry("c", 2, None)], likes("d"))
    await waiting(*requests)
    async with bench.running():
        answers = [await request for request in requests]
        scores = await bench.scores()
    assert [dict(answer.refused) for answer in answers] == [{}, {0: "score_out_of_range"}, {}]
    assert scores == {"c": 2, "a": 1, "d": 1}


async def test_a_score_near_the_end_of_its_range_is_logged_once(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A metric has the share of the range that is left. A batch that counts nothing does not change it."""
    bench = Bench(valkey_url, rolling_board(board="range"))
    low = 1 - bench.ledger.state.board.most // 2 / bench.ledger.state.board.most
    monkeypatch.setattr(committer, "_LOW_RANGE", low)

    async def left_after(*amounts: float) -> float | None:
        """Count amounts, given as shares of the largest score, in one batch. Return the metric."""
        most = bench.ledger.state.board.most
        await bench.committer.commit([make_entry("a", int(most * amount), None) for amount in amounts])
        return left()

    def left() -> float | None:
        return REGISTRY.get_sample_value("live_score_range_left", {"board": "range"})

    assert left() == 1
    async with bench.running():
        with capture_logs() as logs:
            assert await left_after(0.5) == low
            assert logs == []
            assert await left_after(0.05) == pytest.approx(0.45)
            assert await left_after(0.9) == pytest.approx(0.45)
            assert await left_after(0.01) == pytest.approx(0.44)
        assert [line["log_level"] for line in logs] == ["warning"]


async def test_empty_requests_are_answered(valkey_url: str) -> None:
    """Empty requests do not delay other requests."""
    bench = Bench(valkey_url)
    requests = bench.send([], likes("a"))
    await waiting(*requests)
    async with bench.running():
        assert (await requests[1]).offset == 1
        assert (await requests[0]).refused == {}


async def test_a_cancelled_request_does_not_affect_others(valkey_url: str) -> None:
    """The batch goes on, and the other requests get their results."""
    bench = Bench(valkey_url)
    requests = bench.send(likes("a"), likes("gone"), likes("b"))
    await waiting(*requests)
    requests[1].cancel()
    async with bench.running():
        assert [(await request).offset for request in (requests[0], requests[2])] == [1, 1]
        (late,) = bench.send(likes("c"))
        assert (await late).offset == 2


async def test_too_many_waiting_events_are_refused(valkey_url: str) -> None:
    """Refused events are not queued. Queued events are counted, and then there is room again."""
    bench = Bench(valkey_url, own={"MOST_WAITING": 5})
    requests = bench.send(likes(*"abc"), likes("d"))
    await waiting(*requests)
    with pytest.raises(ProblemError, match="4 events of the board wait; at most 5 may") as caught:
        await bench.committer.commit(likes("x", "y"))
    assert (caught.value.code, caught.value.retry_after) == ("overloaded", 1)
    async with bench.running():
        await asyncio.gather(*requests)
        await bench.committer.commit(likes(*"efghi"))
        assert set(await bench.scores()) == set("abcdefghi")


async def test_an_unavailable_store_rejects_all_waiting_requests() -> None:
    """Later requests are rejected too, while the store is unavailable."""
    bench = Bench("unix:///nowhere/valkey.sock", write_deadline=0.1)
    requests = bench.send(*[likes("a")] * 20)
    await waiting(*requests)
    bench.committer.submit(_AwaitedShare([]), Wants(records=True))
    async with bench.running():
        for request in [*requests, *bench.send(likes("b"))]:
            with pytest.raises(StoreUnavailableError):
                await request
    assert not bench.committer._wants


@pytest.mark.parametrize("setting", ["maxmemory 1", "min-replicas-to-write 1"])
async def test_a_store_that_can_not_write_does_not_stop_the_committer(own_store: StoreProcess, setting: str) -> None:
    """A store without free memory or without replicas is unavailable. Once it can write again, commits continue."""
    bench = Bench(own_store.url, write_deadline=1)
    name, value = setting.split()
    async with bench.running():
        await bench.committer.commit(likes("a"))
        await bench.client.config_set(name, value)
        with pytest.raises(StoreUnavailableError):
            await bench.committer.commit(likes("a"))
        await bench.client.config_set(name, "0")
        await bench.committer.commit(likes("a"))
        assert await bench.scores() == {"a": 2}


async def test_commits_continue_after_a_crash_of_the_store(own_store: StoreProcess) -> None:
    """Acknowledged events are still there, and new events are counted."""
    bench = Bench(own_store.url)
    async with bench.running():
        await bench.committer.commit(likes("a"))
        own_store.kill()
        with pytest.raises(StoreUnavailableError):
            await bench.committer.commit(likes("a"))
        own_store.start()
        await bench.committer.commit(likes("a"))
        assert await bench.scores() == {"a": 2}


async def test_a_lost_board_rejects_all_requests(valkey_url: str) -> None:
    """Once the store has no data of a board, nothing is acknowledged (I8), and the board is lost.

    A board that was deleted is not lost.
    """
    bench = Bench(valkey_url)
    asked: list[str] = []

    async def ask() -> None:
        asked.append("")

    bench.committer._on_missing = ask
    state = bench.ledger.state
    with patch.object(BoardState, "lose") as lose:
        async with bench.running():
            await bench.committer.commit(likes("a"))
            await bench.client.delete(state.keys.meta)
            for request in bench.send(likes("a"), likes("b")):
                with pytest.raises(EpochLostError):
                    await request
            assert asked
            lose.assert_called()
            lose.reset_mock()
            # This marks the board as deleted, so it is not lost.
            await bench.client.hset(state.keys.gone, "epoch", state.epoch)
            with pytest.raises(EpochLostError):
                await bench.committer.commit(likes("a"))
        lose.assert_not_called()


async def test_a_batch_for_a_board_that_turns_out_to_be_deleted_is_refused(valkey_url: str) -> None:
    """The committer is retired when it asks about the board, and the board does not count as lost."""
    bench = Bench(valkey_url)

    async def ask() -> None:
        bench.committer.retire()

    bench.committer._on_missing = ask
    with patch.object(BoardState, "lose") as lose:
        async with bench.running():
            await bench.committer.commit(likes("a"))
            await bench.client.delete(bench.ledger.state.keys.meta)
            assert await bench.committer.commit(likes("a")) == Committed(None, {0: "board_unknown"})
        lose.assert_not_called()


async def test_the_window_is_up_to_date_after_an_event_clock_moved(valkey_url: str) -> None:
    """Slots that left the window are gone when the answer arrives."""
    bench = Bench(valkey_url, rolling_board(clock="event"), rotation_step=1)
    async with bench.running():
        await bench.committer.commit([make_entry(f"old{i}", 1, 0) for i in range(20)])
        await bench.committer.commit([make_entry("new", 1, 48 * HOUR * 1000)])
        assert await bench.scores() == {"new": 1}


async def test_a_committer_can_be_cancelled_under_load(valkey_url: str) -> None:
    """The committer ends while some requests are done and others wait."""
    for _ in range(10):
        bench = Bench(valkey_url)
        storm: list[asyncio.Task[Committed]] = []

        async def blow(bench: Bench = bench, storm: list[asyncio.Task[Committed]] = storm) -> bool:
            storm += bench.send(*[likes("a")] * 5)
            return any(request.done() for request in storm)

        async with asyncio.timeout(60), bench.running():
            await eventually(blow)
        await asyncio.sleep(0)
        for request in storm:
            request.cancel()
        await asyncio.gather(*storm, return_exceptions=True)


async def test_a_retired_committer_refuses_its_requests(valkey_url: str) -> None:
    """Waiting and new requests get `board_unknown`, and `run` ends."""
    bench = Bench(valkey_url)
    requests = bench.send(likes("a", "b"), likes("c"))
    await waiting(*requests)
    bench.committer.submit(_AwaitedShare(likes("d")), Wants(strict=True))
    bench.committer.retire()
    assert not bench.committer._wants
    assert [await request for request in requests] == [
        Committed(None, {0: "board_unknown", 1: "board_unknown"}), Committed(None, {0: "board_unknown"}),
    ]  # fmt: skip
    assert await bench.committer.commit(likes("a")) == Committed(None, {0: "board_unknown"})
    await asyncio.wait_for(bench.committer.run(), DEADLINE)
    assert await bench.scores() == {}
    await bench.client.aclose()


@pytest.mark.alone
@pytest.mark.slow
async def test_a_group_commit_delay_ends_with_its_batch(valkey_url: str) -> None:
    """The timer of one delay must not end the next delay early."""
    bench = Bench(valkey_url, own={"COMMIT_DELAY": 1.5})
    async with bench.running():

        async def five() -> set[int | None]:
            return {(await request).offset for request in bench.send(*[likes("a")] * 5)}

        loop = asyncio.get_running_loop()
        requests = bench.send(*[likes("a")] * 5)
        await waiting(*requests)
        assert len({(await request).offset for request in requests}) <= 2
        first = loop.time()
        await eventually(lambda: waits_for(bench, 5))
        await asyncio.sleep(first + 0.9 - loop.time())
        assert len(await five()) == 1
        (early,) = bench.send(likes("b"))
        # Wait until the delay after the first commit would have ended. The delay after the second commit goes on.
        await asyncio.sleep(first + 1.9 - loop.time())
        assert not early.done()
        late = bench.send(*[likes("c")] * 4)
        assert {(await request).offset for request in (early, *late)} == {(await bench.ledger.reader.read(1)).offset}


async def waits_for(bench: Bench, wanted: int) -> bool:
    """Return whether the next batch starts once `wanted` shares of requests wait."""
    return bench.committer._wanted == wanted


async def test_a_retired_committer_leaves_no_timer(valkey_url: str) -> None:
    """The committer may be retired during a group-commit delay."""
    bench = Bench(valkey_url, own={"COMMIT_DELAY": 60})
    async with bench.running():
        requests = bench.send(*[likes("a")] * 5)
        await asyncio.gather(*requests)
        timer = bench.committer._delay
        assert timer is not None
        bench.committer.retire()
        assert timer.cancelled()
        assert bench.committer._delay is None
