"""An event loop in a thread of its own, on which programs without asyncio use the asynchronous client."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

class Background:
    """Runs coroutines for other threads, from `start` to `stop`. A program can end without `stop`."""

    def __init__(self) -> None:
        self._begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), name="live-client", daemon=True)
        # Reentrant: `begin` may trigger a garbage collection, which may delete a generator, which calls `begin`.
        self._lock = threading.RLock()
        self._is_ended = False

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()
        self._begun.result()

    def stop(self) -> None:
        """Cancel everything that still runs, and end the thread."""
        loop, ending = self._begun.result()
        with self._lock:
            self._is_ended = True  # afterwards `begin` refuses work, so the loop can cancel all work that has begun
        loop.call_soon_threadsafe(ending.set)
        self._thread.join()

    def begin(self, work: Coroutine[Any, Any, _T]) -> "Future[_T]":
        """Start a coroutine, and return the future of its result.

        Raises:
            RuntimeError: the thread does not run.
        """
        with self._lock:
            if self._begun.done() and not self._is_ended:
                return asyncio.run_coroutine_threadsafe(work, self._begun.result()[0])
        work.close()
        raise RuntimeError("the client is closed, or was not entered with `with`")

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine, and wait for its result. An interrupt of the program cancels the coroutine.

        Raises:
            RuntimeError: the thread does not run, or it is the caller.
        """
        try:
            self.check_caller()
        except RuntimeError:
            work.close()
            raise
        return result_of(self.begin(work))

    def check_caller(self) -> None:
        """Refuse a call from the thread itself, which would wait for its own work.

        Raises:
            RuntimeError: the thread is the caller.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "`on_rejected` and `token` run on the thread of the client, which can't wait for itself: call the "
                "client from another thread"
            )

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function soon in the thread, in the order of the calls of this method and of `begin`."""
        self._begun.result()[0].call_soon_threadsafe(function, *arguments)

    async def _live(self) -> None:
        ending = asyncio.Event()
        self._begun.set_result((asyncio.get_running_loop(), ending))
        await ending.wait()


def result_of(future: "Future[_T]") -> _T:
    """Wait for a result. An interrupt of the program cancels the work.

    Raises:
        RuntimeError: the client was closed before the result was there.
    """
    try:
        return future.result()
    except CancelledError:
        raise RuntimeError("the client was closed before the result was there") from None
    except BaseException:
        future.cancel()
        raise
