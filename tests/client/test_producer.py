"""Producers: batches in which each event counts once, whatever fails."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from live.client import (
    AccessRefusedError,
    Event,
    LiveBoard,
    OutcomeUnknownError,
    Producer,
    Rejection,
    ServerUnavailableError,
    SyncLiveBoard,
    SyncProducer,
    Totals,
    sender,
)
from live.client.events import encode_event
from live.client.sync import Background
from live.domain.board_file import make_board
from live.domain.choices import Choices
from tests.client.support import scores, sums
from tests.harness.boards import rolling_board
from tests.harness.mutation import replaced
from tests.harness.network import free_port
from tests.harness.proxy import lossy
from tests.harness.server import ServerProcess, run_server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually


@pytest.fixture
async def url(valkey_url: str) -> AsyncIterator[str]:
    """The address of a server with one board."""
    async with run_server(fresh_settings(valkey_url), [rolling_board()]) as address:
        yield address


def many(count: int) -> list[Event]:
    """Events with a source and an id, with only a source, and with neither."""
    events = []
    for number in range(count):
        source = None if number % 3 == 0 else "shop"
        own = str(number) if number % 3 == 1 else None
        events.append(Event(f"m{number % 7}", 1 + number % 5, source=source, id=own))
    return events


async def test_events_are_sent_in_batches_and_in_order(valkey_url: str) -> None:
    """The board keeps the last amount of each member, which must be the amount of the last event sent."""
    boards = [make_board(Choices(id="last", types=("like",), operator="set", window_choice="forever"))]
    settled: set[int] = set()
    async with run_server(fresh_settings(valkey_url), boards) as url, LiveBoard(url) as live:
        async with live.producer(max_bytes=175_000) as producer:
            for number in range(1, 5001):
                await producer.send(Event(f"m{number % 3}", number))
                assert producer.pending_bytes <= 175_000
                settled.add(producer.totals.accepted)
            assert await producer.flush() == Totals(accepted=5000)
            assert (producer.pending, producer.pending_bytes) == (0, 0)
        async for top in LiveBoard(url).watch("last"):
            assert {record.member: record.score for record in top.records} == {"m0": 4998, "m1": 4999, "m2": 5000}
            break
    assert settled <= {0, 1000, 2000, 3000, 4000}


async def test_events_of_several_tasks_keep_their_order(url: str) -> None:
    """While a large event waits for room, later small events do not overtake it."""
    queued: list[int] = []
    async with LiveBoard(url) as live, live.producer(max_bytes=1000) as producer, asyncio.TaskGroup() as tasks:

        async def send(number: int) -> None:
            event = Event("a" * (900 if number == 25 else 1))
            await (producer.post(event) if number == 30 else producer.send(event))
            queued.append(number)

        for number in range(60):
            tasks.create_task(send(number))
    queued.remove(30)  # event 30 comes late, because `post` also waits for the response
    assert queued == [number for number in range(60) if number != 30]


async def test_a_single_event_does_not_wait_for_others(url: str) -> None:
    """The producer sends a single event after `linger` at the latest, and at once on `flush`."""
    async with LiveBoard(url) as live, live.producer(linger=0.01) as quick, live.producer(linger=1000) as slow:
        await quick.send(Event("a"))

        async def counted() -> bool:
            return quick.totals.accepted == 1

        await eventually(counted)
        await slow.send(Event("b"))
        assert (await slow.flush()).accepted == 1
        await slow.send(Event("b"))
    assert await scores(url) == {"a": 1, "b": 2}


@pytest.mark.slow
async def test_each_event_counts_once_over_a_lossy_connection(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The producer makes the ids of the events that have none."""
    monkeypatch.setattr(sender, "_LONGEST_PAUSE", 0.02)
    events = many(20_000)
    async with lossy(url, share=0.3) as proxy, LiveBoard(proxy.url) as live:
        async with live.producer() as producer:
            for event in events:
                await producer.send(event)
        totals = producer.totals
    assert proxy.lost_answers > 2
    assert proxy.lost_requests > 2
    assert totals.accepted + totals.duplicate == 20_000
    assert totals.duplicate >= 1000
    assert 0 < totals.lost <= proxy.lost_requests + proxy.lost_answers
    assert await scores(url) == sums(events)


@pytest.mark.fault
async def test_each_event_counts_once_if_server_and_store_are_killed(
    own_store: StoreProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Server and store are killed in turn.

    A small `max_bytes` makes the producer wait for responses, so that events are still sent during each kill.
    """
    monkeypatch.setattr(sender, "_LONGEST_PAUSE", 0.1)
    server = ServerProcess(fresh_settings(own_store.url, port=free_port(), rate=0), tmp_path)
    server.start()
    events = many(30_000)
    kills = 0
    all_sent = asyncio.Event()

    async def disturb() -> None:
        """Kill and restart them until all events are sent. Both run at the end: a thread can't be cancelled."""
        nonlocal kills
        while not all_sent.is_set():
            before = producer.totals.accepted

            async def moved(before: int = before) -> bool:
                return all_sent.is_set() or producer.totals.accepted > before + 2000

            await eventually(moved)
            if kills % 2:
                server.kill()
                await asyncio.to_thread(server.start)
            else:
                own_store.kill()
                await asyncio.to_thread(own_store.start)
            kills += 1

    async with LiveBoard(server.url) as live, live.producer(max_bytes=200_000) as producer:
        disturbing = asyncio.create_task(disturb())
        for event in events:
            await producer.send(event)
            assert not disturbing.done(), disturbing
        all_sent.set()
        await disturbing
        await producer.flush()
    assert kills >= 4
    assert producer.totals.accepted + producer.totals.duplicate == 30_000
    assert await scores(server.url) == sums(events)
    assert server.stop() == 0


@pytest.mark.slow
async def test_a_rate_limit_is_obeyed(valkey_url: str) -> None:
    """The producer waits as long as the server asks, whatever the patience is."""
    settings = fresh_settings(valkey_url, rate=1000)
    async with run_server(settings, [rolling_board()]) as url, LiveBoard(url, patience=0.1) as live:
        async with live.producer() as producer:
            for _ in range(3500):
                await producer.send(Event("a"))
        assert producer.totals == Totals(accepted=3500)


async def test_rejected_events_are_reported(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """The callback receives the rejected events, or they are logged. All other events count."""
    rejected: list[tuple[Event, Rejection]] = []
    async with LiveBoard(url) as live:
        async with live.producer(on_rejected=lambda *pair: rejected.append(pair)) as producer:
            for event in (Event("a"), Event("b", type="none"), Event(""), Event("a")):
                await producer.send(event)
        assert producer.totals == Totals(accepted=2, rejected={"type_unknown": 1, "key_invalid": 1})
        assert sorted((event.member, rejection.code) for event, rejection in rejected) == [
            ("", "key_invalid"), ("b", "type_unknown")
        ]  # fmt: skip
        assert not caplog.records
        async with live.producer() as producer:
            await producer.send(Event("b", type="none"))
    (line,) = caplog.records
    assert "type_unknown" in line.getMessage()
    assert "'b'" in line.getMessage()


async def test_an_error_of_the_callback_is_raised(url: str) -> None:
    """The code that uses the producer receives the error."""

    def fail(event: Event, _rejection: Rejection) -> None:
        raise LookupError(event.member)

    async with LiveBoard(url) as live:
        with pytest.raises(LookupError, match=r"^b$"):
            async with live.producer(on_rejected=fail) as producer:
                await producer.send(Event("b", type="none"))


async def send_all(producer: Producer, events: list[Event]) -> None:
    """Open a producer, send events, and close it."""
    async with producer:
        for event in events:
            await producer.send(event)


@pytest.mark.slow
async def test_a_failed_producer_returns_unsent_events(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another producer sends the unsent events with the same ids.

    They count once, even if the first producer already sent them.
    """
    monkeypatch.setattr(sender, "_TIMEOUT", 0.5)
    events = many(2500)
    async with lossy(url) as proxy:
        proxy.silent = True
        async with LiveBoard(proxy.url, patience=0) as live:
            producer = live.producer(max_bytes=90_000)
            with pytest.raises(ServerUnavailableError) as raised:
                await send_all(producer, events)
            assert raised.value.in_doubt
            with pytest.raises(ServerUnavailableError):
                await producer.send(Event("late"))
    unsent = producer.unsent()
    assert 1000 < len(unsent) < 2000
    assert all(event.id for event in unsent)
    assert await scores(url) == sums(events[:1000])
    async with LiveBoard(url) as live:
        another = live.producer()
        await send_all(another, [*unsent, *events[len(unsent) :]])
    assert another.totals == Totals(accepted=1500, duplicate=1000)
    assert await scores(url) == sums(events)


async def test_a_cancelled_task_leaves_its_producer_immediately() -> None:
    """The task does not wait for a server that is away."""
    entered = asyncio.Event()

    async def produce() -> None:
        async with LiveBoard("http://127.0.0.1:9") as live, live.producer() as producer:
            await producer.send(Event("a"))
            entered.set()
            await producer.flush()

    task = asyncio.create_task(produce())
    await entered.wait()
    task.cancel()
    async with asyncio.timeout(60):
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_closing_a_producer_ends_the_wait_for_a_result() -> None:
    """The error says that the event may have been counted. `unsent` has the event with its id."""
    async with LiveBoard("http://127.0.0.1:9") as live, asyncio.timeout(60):
        producer = live.producer()
        producer.start()
        posting = asyncio.create_task(producer.post(Event("a")))
        await asyncio.sleep(0)
        await producer.stop()
        with pytest.raises(OutcomeUnknownError, match="closed; the event may have been counted"):
            await posting
        assert producer.unsent()[0].id


async def test_a_producer_must_be_open(url: str) -> None:
    """Before and after its context, the producer raises a clear error."""
    async with LiveBoard(url) as live:
        producer = live.producer()
        with pytest.raises(RuntimeError, match="not entered"):
            await producer.send(Event("a"))
        async with producer:
            pass
        with pytest.raises(RuntimeError, match="closed"):
            await producer.send(Event("a"))


def produce(url: str, events: list[Event], threads: int) -> Totals:
    """Send events with one producer from some threads, as a program without asyncio does."""
    with SyncLiveBoard(url) as live, live.producer(max_bytes=200_000) as producer:

        def send(share: list[Event]) -> None:
            for event in share:
                producer.send(event)

        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(send, events[number::threads]) for number in range(threads)]:
                done.result()
        assert producer.flush().accepted == producer.totals.accepted
    assert producer.unsent() == []
    assert threading.active_count() < 50
    return producer.totals


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 4])
async def test_threads_send_events_once(url: str, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    """The connection loses messages at random."""
    monkeypatch.setattr(sender, "_LONGEST_PAUSE", 0.02)
    events = many(10_000)
    async with lossy(url, share=0.2) as proxy:
        totals = await asyncio.to_thread(produce, proxy.url, events, threads)
    assert totals.accepted + totals.duplicate == 10_000
    assert await scores(url) == sums(events)


@pytest.mark.slow
async def test_a_thread_keeps_the_order(valkey_url: str) -> None:
    """The board keeps the last amount of each member, which must be the amount of the last event sent."""
    boards = [make_board(Choices(id="last", types=("like",), operator="set", window_choice="forever"))]
    events = [Event(f"m{number % 3}", number) for number in range(1, 5001)]
    async with run_server(fresh_settings(valkey_url), boards) as url:
        assert (await asyncio.to_thread(produce, url, events, 1)).accepted == 5000
        async with LiveBoard(url) as live:
            async for top in live.watch("last"):
                assert {record.member: record.score for record in top.records} == {"m0": 4998, "m1": 4999, "m2": 5000}
                break


async def test_errors_are_raised_in_threads(url: str) -> None:
    """A malformed event raises an error at once. A failure of the producer is raised by later calls, and at its end."""

    def send_with(producer: SyncProducer) -> None:
        with producer:
            with pytest.raises(ValueError, match="bytes of JSON"):
                producer.send(Event("a" * 70_000))
            for _ in range(100):
                producer.send(event)

    event = Event("a", source="s", id="1")

    def fail() -> int:
        with SyncLiveBoard(url, "shop.sesame") as live:
            producer = live.producer(max_bytes=10 * len(encode_event(event)))
            with pytest.raises(AccessRefusedError):
                send_with(producer)
            for use in (partial(producer.send, Event("a")), partial(producer.post, Event("a")), producer.flush):
                with pytest.raises(AccessRefusedError):
                    use()
            return len(producer.unsent())

    assert await asyncio.to_thread(fail) == 10


async def test_an_interrupted_thread_ends_immediately() -> None:
    """KeyboardInterrupt ends the producer even if the server is away."""
    made: list[SyncProducer] = []

    def interrupt(live: SyncLiveBoard) -> None:
        with live, live.producer() as producer:
            made.append(producer)
            producer.send(Event("a"))
            raise KeyboardInterrupt

    def interrupted() -> int:
        live = SyncLiveBoard("http://127.0.0.1:9", patience=60)
        for use in (live.boards, live.producer):
            with pytest.raises(RuntimeError, match="not entered"):
                use()
        with pytest.raises(KeyboardInterrupt):
            interrupt(live)
        with pytest.raises(RuntimeError, match="closed"):
            made[0].send(Event("a"))
        return len(made[0].unsent())

    async with asyncio.timeout(60):
        assert await asyncio.to_thread(interrupted) == 1


def test_an_interrupted_post_takes_no_room() -> None:
    """The interrupt comes before the event is queued. If the event kept its room, the next event would wait forever."""
    event = Event("a", source="shop", id="1")

    def interrupt(_background: Background, work: Coroutine[None, None, None]) -> None:
        work.close()
        raise KeyboardInterrupt

    with (
        suppress(ServerUnavailableError),  # raised when the context of the producer ends
        SyncLiveBoard("http://127.0.0.1:9", patience=0) as live,
        live.producer(max_bytes=len(encode_event(event))) as producer,
    ):
        with replaced(Background, "begin", interrupt), pytest.raises(KeyboardInterrupt):
            producer.post(event)
        producer.send(event)
    assert producer.unsent() == [event]
