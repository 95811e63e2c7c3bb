"""A producer for programs without asyncio."""

import threading
from types import TracebackType
from typing import Self

from live.client.background import Background, result_of
from live.client.events import Event
from live.client.producer import EventResult, Producer, Totals


class SyncProducer:
    """A `Producer` for threads, as `SyncLiveBoard.producer` makes it. Use it as a context manager once.

    Any thread may call its methods. `on_rejected` is called from the thread of the client, so it must not call them.
    """

    def __init__(self, producer: Producer, background: Background) -> None:
        self._producer = producer
        self._background = background
        self._lock = threading.Lock()
        self._sent = 0  # bytes

    def __enter__(self) -> Self:
        self._background.run(self._producer.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._background.run(self._producer.__aexit__(kind, error, traceback))

    @property
    def totals(self) -> Totals:
        """The results of the events that have a response."""
        return self._producer.totals

    def unsent(self) -> list[Event]:
        """Return the events without a response, once the producer has failed or is closed. See `Producer.unsent`."""
        return self._producer.unsent()

    def send(self, event: Event) -> None:
        """Queue an event. Waits while the events without a response would take more than `max_bytes`.

        Raises:
            ValueError: the event is longer than 64 KiB of JSON.
            TypeError: a value can't be encoded as JSON.
            LiveBoardError: the producer has failed, for a reason that `LiveBoard` lists.
        """
        # Before the lock, because waiting for the lock may also block the caller's loop.
        self._background.check_caller()
        line = self._producer.encode(event)
        with self._lock:
            self._make_room(line)
            self._background.call(self._producer.put, line)

    def post(self, event: Event) -> EventResult:
        """Send an event, and return what became of it. Events of several threads share a batch.

        Raises:
            ValueError: the event is longer than 64 KiB of JSON.
            TypeError: a value can't be encoded as JSON.
            LiveBoardError: the producer has failed, for a reason that `LiveBoard` lists.
        """
        # Before the lock, because waiting for the lock may also block the caller's loop.
        self._background.check_caller()
        line = self._producer.encode(event)
        with self._lock:
            self._make_room(line)
            result = self._background.begin(self._producer.result_of(line))
        return result_of(result)

    def flush(self) -> Totals:
        """Wait until every queued event has a response.

        Raises:
            LiveBoardError: the producer has failed.
        """
        return self._background.run(self._producer.flush())

    def _make_room(self, line: bytes) -> None:
        """Wait until one more event may have no response."""
        self._producer.check()
        least = self._producer.least_settled(self._sent, line)
        if self._producer.settled_bytes < least:
            self._background.run(self._producer.await_settled(least))
        self._sent += len(line)
