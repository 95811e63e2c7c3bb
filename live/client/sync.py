"""`SyncLiveBoard` and `SyncProducer`: the client of one server, for programs without asyncio."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import update_wrapper
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from live.client.background import Background, result_of
from live.client.board import LiveBoard
from live.client.events import Event
from live.client.producer import LINGER, MAX_BUFFER, EventResult, OnRejected, Producer, Totals
from live.client.watching import AskToken, Top

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _blocking(
    method: Callable[Concatenate[LiveBoard, _P], Coroutine[Any, Any, _T]],
) -> "Callable[Concatenate[SyncLiveBoard, _P], _T]":
    """Make a method that waits for the result of an asynchronous one."""

    def wait(self: "SyncLiveBoard", /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return self.background.run(method(self.live, *args, **kwargs))

    update_wrapper(wait, method)
    return wait


class SyncProducer:
    """A `Producer` for threads, as `SyncLiveBoard.producer` makes it. Use it as a context manager once.

    Any thread may call its methods. `on_rejected` is called from the thread of the client, so it must not call them.
    """

    def __init__(self, producer: Producer, background: Background) -> None:
        self._producer = producer
        self._background = background
        self._lock = threading.Lock()
        self._sent = 0  # bytes; an interrupt can leave it too high, and then `_make_room` asks the loop

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
        """Queue an event. Wait while the events without a response would take more than `max_bytes`.

        Raises:
            ValueError: the event is longer than 64 KiB of JSON.
            TypeError: a value can't be encoded as JSON.
            LiveBoardError: the producer has failed, for a reason that `LiveBoard` lists.
        """
        with self._room_for(event) as line:
            self._background.call(self._producer.put, line)

    def post(self, event: Event) -> EventResult:
        """Send an event, and return what became of it. Events of several threads share a batch.

        Raises:
            ValueError: the event is longer than 64 KiB of JSON.
            TypeError: a value can't be encoded as JSON.
            LiveBoardError: the producer has failed, for a reason that `LiveBoard` lists.
        """
        with self._room_for(event) as line:
            result = self._background.begin(self._producer.result_of(line))
        return result_of(result)

    def flush(self) -> Totals:
        """Wait until every queued event has a response.

        Raises:
            LiveBoardError: the producer has failed.
        """
        return self._background.run(self._producer.flush())

    @contextmanager
    def _room_for(self, event: Event) -> Iterator[bytes]:
        """Encode an event, and wait until the producer has room for it. Other threads wait until it is queued."""
        # Check this before the lock, because waiting for the lock may also block the caller's loop.
        self._background.check_caller()
        line = self._producer.encode(event)
        with self._lock:
            self._make_room(line)
            yield line

    def _make_room(self, line: bytes) -> None:
        """Wait until the producer has room for an encoded event."""
        self._producer.check()
        if self._producer.settled_bytes < self._producer.least_settled(self._sent, line):
            # The loop queues events in the order of these calls, so its count includes all earlier events.
            self._sent = self._background.run(self._producer.await_room(line))
        self._sent += len(line)


class SyncLiveBoard:
    """A `LiveBoard` for threads, with the same arguments and methods. Use it as a context manager once.

    Any thread may call its methods. `live` is the asynchronous client, which works in the thread of `background`.
    """

    def __init__(self, url: str, api_key: str | None = None, *, patience: float | None = None) -> None:
        self.live = LiveBoard(url, api_key, patience=patience)
        self.background = Background()

    def __enter__(self) -> Self:
        self.background.start()
        self.background.run(self.live.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.background.run(self.live.__aexit__(kind, error, traceback))
        finally:
            self.background.stop()

    post = _blocking(LiveBoard.post)
    boards = _blocking(LiveBoard.boards)
    page = _blocking(LiveBoard.page)
    record = _blocking(LiveBoard.record)
    records = _blocking(LiveBoard.records)
    history = _blocking(LiveBoard.history)
    titles = _blocking(LiveBoard.titles)
    set_titles = _blocking(LiveBoard.set_titles)
    remove_title = _blocking(LiveBoard.remove_title)
    entrants = _blocking(LiveBoard.entrants)
    register = _blocking(LiveBoard.register)
    withdraw = _blocking(LiveBoard.withdraw)

    def producer(
        self,
        *,
        linger: float = LINGER,
        max_bytes: int = MAX_BUFFER,
        on_rejected: OnRejected | None = None,
        rank: bool = False,
    ) -> SyncProducer:
        """Make a producer for threads. `LiveBoard.producer` describes the arguments."""
        producer = self.live.producer(linger=linger, max_bytes=max_bytes, on_rejected=on_rejected, rank=rank)
        return SyncProducer(producer, self.background)

    def watch(
        self,
        board: str,
        *,
        limit: int | None = None,
        interval: str | timedelta | None = None,
        token: AskToken | None = None,
    ) -> Generator[Top]:
        """Yield the top of a board, and wait for changes in between. See `LiveBoard.watch`.

        `token` is an `async` function, which runs in the thread of the client.
        """
        tops = self.live.watch(board, limit=limit, interval=interval, token=token)
        turn = asyncio.Lock()  # after an interrupt, `anext` may still run in the other thread

        async def following() -> Top | None:
            async with turn:
                return await anext(tops, None)

        async def closing() -> None:
            async with turn:
                await tops.aclose()

        try:
            while (top := self.background.run(following())) is not None:
                yield top
        finally:
            # Do not wait for this, because Python may delete a generator on any thread.
            with suppress(RuntimeError):  # the client is closed, and has closed the connection
                self.background.begin(closing())
