"""A producer for programs without asyncio."""

import asyncio
import threading
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from live.client.board import LiveBoard
from live.client.events import Event
from live.client.producer import LINGER, MAX_PENDING, OnRejected, Producer, Totals


class SyncProducer:
    """A `Producer` for threads. It sends events from its own thread. Use each producer as a context manager once.

    You can call `send`, `flush` and `totals` from any thread. `on_rejected` is called from the thread of the producer.
    `LiveBoard` describes `url`, `api_key` and `patience`. `LiveBoard.producer` describes the other arguments.

    Raises:
        ValueError: the URL or the API key is malformed.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        patience: float | None = None,
        linger: float = LINGER,
        max_pending: int = MAX_PENDING,
        on_rejected: OnRejected | None = None,
    ) -> None:
        self._live = LiveBoard(url, api_key, patience=patience)
        self._linger = linger
        self._max_pending = max_pending
        self._on_rejected = on_rejected
        self._lock = threading.Lock()
        self._sent = 0
        self._started: Future[_Running] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._produce()), name="live-producer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        running = self._running()
        try:
            if kind is None or issubclass(kind, Exception):  # otherwise the program is exiting and should not wait
                self.flush()
        finally:
            running.loop.call_soon_threadsafe(running.ending.set)
            self._thread.join()

    @property
    def totals(self) -> Totals:
        """The results of the events that have a response."""
        return self._running().producer.totals

    def unsent(self) -> list[Event]:
        """Return the events without a response, once the producer has failed or is closed. See `Producer.unsent`."""
        return self._running().producer.unsent()

    def send(self, event: Event) -> None:
        """Queue an event. Waits while `max_pending` events have no response.

        Raises:
            ValueError: the event is longer than 64 KiB of JSON.
            TypeError: a value can't be encoded as JSON.
            LiveBoardError: the producer has failed, for a reason that `LiveBoard.post` lists.
        """
        producer, loop = self._running().producer, self._running().loop
        with self._lock:
            line = producer.encode(event)
            producer.check()
            if self._sent - producer.settled >= self._max_pending:
                room = producer.await_settled(self._sent - self._max_pending + 1)
                asyncio.run_coroutine_threadsafe(room, loop).result()
            self._sent += 1
            loop.call_soon_threadsafe(producer.put, line)

    def flush(self) -> Totals:
        """Wait until every queued event has a response.

        Raises:
            LiveBoardError: the producer has failed.
        """
        running = self._running()
        running.producer.check()
        return asyncio.run_coroutine_threadsafe(running.producer.flush(), running.loop).result()

    def _running(self) -> "_Running":
        if not self._started.done():
            raise RuntimeError("the producer was not entered with `with`")
        return self._started.result()

    async def _produce(self) -> None:
        async with self._live as live:
            producer = live.producer(linger=self._linger, max_pending=self._max_pending, on_rejected=self._on_rejected)
            producer.start()
            running = _Running(producer)
            self._started.set_result(running)
            await running.ending.wait()
            await producer.stop()


class _Running:
    """A running producer and its event loop."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.loop = asyncio.get_running_loop()
        self.ending = asyncio.Event()
