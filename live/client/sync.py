"""`SyncLiveBoard` and `SyncProducer`: the client of one server, for programs without asyncio."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from functools import update_wrapper
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from live.client.board import LiveBoard
from live.client.events import Event
from live.client.producer import EventResult, Producer, Totals
from live.client.watching import Top

_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")


class Background:
    """Runs coroutines for other threads in a daemon thread, so a program can end without `stop`."""

    def __init__(self) -> None:
        self._begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), name="live-client", daemon=True)
        # Reentrant: `begin` may trigger a garbage collection, which may delete a generator, which calls `begin`.
        self._lock = threading.RLock()
        self._is_ended = False
        self._process = 0  # the process in which the thread runs; a fork copies no threads

    def start(self) -> None:
        """Start the thread."""
        self._process = os.getpid()
        self._thread.start()
        self._begun.result()

    def stop(self) -> None:
        """Cancel everything that still runs, and end the thread."""
        self._check_process()
        loop, ending = self._begun.result()
        with self._lock:
            self._is_ended = True  # afterwards `begin` refuses work, so the loop can cancel all work that has begun
        loop.call_soon_threadsafe(ending.set)
        self._thread.join()

    def begin(self, work: Coroutine[Any, Any, _T]) -> "Future[_T]":
        """Start a coroutine, and return the future of its result."""
        try:
            self._check_process()
        except RuntimeError:
            work.close()
            raise
        with self._lock:
            if self._begun.done() and not self._is_ended:
                return asyncio.run_coroutine_threadsafe(work, self._begun.result()[0])
        work.close()
        raise RuntimeError("the client is closed, or was not entered with `with`")

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine, and wait for its result. An interrupt of the program cancels the coroutine."""
        try:
            self.check_caller()
        except RuntimeError:
            work.close()
            raise
        return result_of(self.begin(work))

    def check_caller(self) -> None:
        """Refuse a call from the thread itself, which would wait for its own work, and from a forked process."""
        self._check_process()
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "`on_rejected` and `token` run on the thread of the client, which can't wait for itself: call the "
                "client from another thread"
            )

    def _check_process(self) -> None:
        """Refuse work in a forked process, where it would wait for ever, perhaps for a lock of another thread."""
        if self._process not in {0, os.getpid()}:
            raise RuntimeError(
                "the client was entered before this process was forked, and works only in the process that entered it: "
                "enter a client in each process, for example in `post_fork` of gunicorn"
            )

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function soon in the thread, in the order of the calls of this method and of `begin`."""
        self._begun.result()[0].call_soon_threadsafe(function, *arguments)

    async def _live(self) -> None:
        ending = asyncio.Event()
        self._begun.set_result((asyncio.get_running_loop(), ending))
        await ending.wait()


def result_of(future: "Future[_T]") -> _T:
    """Wait for a result. An interrupt of the program cancels the work."""
    try:
        return future.result()
    except CancelledError:
        raise RuntimeError("the client was closed before the result was there") from None
    except BaseException:
        future.cancel()
        raise


def _through(
    convert: Callable[[Background, _T], _R], method: Callable[Concatenate[LiveBoard, _P], _T]
) -> "Callable[Concatenate[SyncLiveBoard, _P], _R]":
    """Make a method for threads of an asynchronous one, whose result is converted."""

    def call(self: "SyncLiveBoard", /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return convert(self.background, method(self.live, *args, **kwargs))

    update_wrapper(call, method)
    return call


def _following(background: Background, tops: AsyncGenerator[Top]) -> Generator[Top]:
    turn = asyncio.Lock()  # after an interrupt, `anext` may still run in the other thread

    async def following() -> Top | None:
        async with turn:
            return await anext(tops, None)

    async def closing() -> None:
        async with turn:
            await tops.aclose()

    try:
        while (top := background.run(following())) is not None:
            yield top
    finally:
        # Do not wait for `closing`, because Python may delete a generator on any thread.
        with suppress(RuntimeError):  # the client is closed, and has closed the connection
            background.begin(closing())


class SyncProducer:
    """A `Producer` for threads, as `SyncLiveBoard.producer` makes it. Use it as a context manager once.

    Any thread may call its methods. `on_rejected` is called from the thread of the client, so it must not call these
    methods.
    """

    def __init__(self, background: Background, producer: Producer) -> None:
        self._background = background
        self._producer = producer
        self._lock = threading.Lock()
        self._sent = 0  # bytes that were queued; if an interrupt leaves it too high, `_room_for` asks the loop

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
        """Queue an event. Wait while the events without a response would take more than `max_bytes`."""
        with self._room_for(event) as line:
            self._background.call(self._producer.put, line)

    def post(self, event: Event) -> EventResult:
        """Send an event, and return what became of it. Events of several threads share a batch."""
        with self._room_for(event) as line:
            result = self._background.begin(self._producer.result_of(line))
        return result_of(result)

    def flush(self) -> Totals:
        """Wait until every queued event has a response."""
        return self._background.run(self._producer.flush())

    @contextmanager
    def _room_for(self, event: Event) -> Iterator[bytes]:
        """Encode an event, and wait until the producer has room for it.

        Other threads wait until the event is queued.
        """
        # Check this before the lock, because waiting for the lock may also block the caller's loop.
        self._background.check_caller()
        line = self._producer.encode(event)
        with self._lock:
            self._producer.check()
            if self._producer.settled_bytes < self._producer.least_settled(self._sent, line):
                # The loop queues events in the order of these calls, so `await_room` counts all earlier events.
                self._sent = self._background.run(self._producer.await_room(line))
            self._sent += len(line)
            yield line


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

    post = _through(Background.run, LiveBoard.post)
    boards = _through(Background.run, LiveBoard.boards)
    page = _through(Background.run, LiveBoard.page)
    record = _through(Background.run, LiveBoard.record)
    records = _through(Background.run, LiveBoard.records)
    history = _through(Background.run, LiveBoard.history)
    titles = _through(Background.run, LiveBoard.titles)
    set_titles = _through(Background.run, LiveBoard.set_titles)
    remove_title = _through(Background.run, LiveBoard.remove_title)
    entrants = _through(Background.run, LiveBoard.entrants)
    register = _through(Background.run, LiveBoard.register)
    withdraw = _through(Background.run, LiveBoard.withdraw)
    producer = _through(SyncProducer, LiveBoard.producer)
    watch = _through(_following, LiveBoard.watch)
