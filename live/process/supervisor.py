"""The parent of the workers: it holds the listening sockets, and starts, watches and ends the workers.

Each worker has a listening socket of its own, and the kernel spreads connections evenly over all sockets. The parent
keeps every socket open, so connections wait in the queue of the socket while no worker accepts them. If the worker of
a socket has ended, another worker accepts its connections until the next worker of that socket is ready.
"""

import asyncio
import os
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.context import ForkServerProcess
from typing import Final

import structlog

from live.process.worker import LEAVE, READY, STOPPING, TAKE, run_worker
from live.settings import Settings
from live.system.processes import CHILDREN
from live.system.service_manager import ServiceManager
from live.system.shared_metrics import SharedMetrics

log = structlog.get_logger()

# Seconds in which only a socket's own worker accepts its connections, so that they spread evenly after a start.
_FIRST_START: Final = 5.0
_SERVED_WELL: Final = 10.0  # seconds; if a worker has served for so long before it ends, the next worker starts at once
_SHORTEST_PAUSE: Final = 0.5  # seconds before a worker starts again; each further pause is twice as long
_LONGEST_PAUSE: Final = 30.0


class Worker:
    """A worker, as its parent sees it."""

    def __init__(self, place: int, metrics: str, settings: Settings) -> None:
        """Start a worker for the listening socket with the number `place`."""
        self.place = place
        self.is_ready = False  # whether the worker can accept connections
        self.ready_at: float | None = None
        self.cause = ""  # why the parent ended the worker
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel.settimeout(0)
        with theirs:
            given = place + 1, theirs, metrics, settings
            self._process: ForkServerProcess = CHILDREN.Process(target=run_worker, args=given)
            self._process.start()
        assert self._process.pid is not None  # noqa: S101 - it was started
        self.pid: int = self._process.pid

    def send(self, word: str, listener: socket.socket | None = None) -> None:
        """Send an order. One to a worker that has just ended is lost, but then the parent starts another worker."""
        with suppress(OSError):
            descriptors = [] if listener is None else [listener.fileno()]
            socket.send_fds(self.channel, [word.encode()], descriptors)

    def signal(self, number: signal.Signals, cause: str) -> None:
        """End the worker. The log line about its end names the cause."""
        self.cause = cause
        with suppress(ProcessLookupError):  # the worker has just ended, and so has its fork server
            os.kill(self.pid, number)

    def reap(self) -> str:
        """Return how the worker ended."""
        self._process.join()
        status = self._process.exitcode or 0
        self._process.close()
        self.channel.close()
        return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


class Supervisor:
    """All workers. `_current` has the worker of each socket, or None while the next worker waits to be started."""

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        metrics: SharedMetrics,
        settings: Settings,
        manager: ServiceManager,
    ) -> None:
        self._manager = manager
        self._telling: asyncio.Task[None] | None = None  # tells the manager, once each socket has a ready worker
        self._listeners = listeners
        self._metrics = metrics
        self._settings = settings
        self._current: list[Worker | None] = [None] * len(listeners)
        self._accepts: list[Worker | None] = [None] * len(listeners)  # the worker that accepts from each socket
        self._failures = [0] * len(listeners)  # for each socket, how many workers in a row did not serve well
        self._first_until = 0.0
        self._is_stopping = False
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Run the workers until SIGTERM or SIGINT."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        self._first_until = time.monotonic() + _FIRST_START
        loop.call_later(_FIRST_START, self._assign)
        for place in range(len(self._listeners)):
            self._start(place)
        while any(self._current) or not self._is_stopping:
            self._changed.clear()
            await self._changed.wait()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    def stop(self) -> None:
        """End all workers."""
        if not self._is_stopping:
            log.info("stopping all workers")
        self._is_stopping = True
        if self._telling is not None:
            self._telling.cancel()
        self._changed.set()
        for worker in filter(None, self._current):
            worker.signal(signal.SIGTERM, "the server stops")

    # One worker

    def _start(self, place: int) -> None:
        if self._is_stopping or self._current[place] is not None:
            return
        worker = self._current[place] = Worker(place, str(self._metrics.folder), self._settings)
        loop = asyncio.get_running_loop()
        ended = os.pidfd_open(worker.pid)

        def end() -> None:
            loop.remove_reader(ended)
            os.close(ended)
            loop.remove_reader(worker.channel)
            self._has_ended(worker)

        loop.add_reader(ended, end)
        loop.add_reader(worker.channel, self._receive, worker)
        log.info("worker started", worker=place + 1, pid=worker.pid)

    def _receive(self, worker: Worker) -> None:
        word = ""
        with suppress(OSError):
            word = worker.channel.recv(64).decode()
        if word == READY:
            worker.is_ready, worker.ready_at = True, time.monotonic()
            log.info("worker serves", worker=worker.place + 1, pid=worker.pid)
            if self._telling is None and all(each is not None and each.is_ready for each in self._current):
                self._telling = asyncio.create_task(self._manager.run())
        else:
            worker.is_ready = False
            if word != STOPPING:  # the word is empty: the worker has closed the channel
                asyncio.get_running_loop().remove_reader(worker.channel)
        self._assign()

    def _has_ended(self, worker: Worker) -> None:
        how = worker.reap()
        self._metrics.forget(worker.pid)
        worker.is_ready = False
        place, served = worker.place, 0.0 if worker.ready_at is None else time.monotonic() - worker.ready_at
        if worker.cause:
            log.info("worker ended", worker=place + 1, pid=worker.pid, reason=worker.cause, status=how)
        else:
            # The log drops repeated lines. The process id makes each of these lines different.
            text = f"worker {worker.pid} ended by itself"
            log.error(text, worker=place + 1, pid=worker.pid, status=how, served=round(served, 1))
        self._current[place] = None
        self._start_again(place, served)
        self._assign()
        self._changed.set()

    def _start_again(self, place: int, served: float) -> None:
        if self._is_stopping:
            return
        failures = self._failures[place] = 0 if served >= _SERVED_WELL else self._failures[place] + 1
        pause = pause_after(failures, has_served=served > 0)
        if pause:
            log.info("worker starts again after a pause", worker=place + 1, seconds=pause, failures=failures)
        asyncio.get_running_loop().call_later(pause, self._start, place)

    # Sockets

    def _assign(self) -> None:
        """Choose the socket's own worker if it is ready, else another worker."""
        ready = [worker for worker in self._current if worker is not None and worker.is_ready]
        if not ready or self._is_stopping:
            return
        for place, listener in enumerate(self._listeners):
            before, own = self._accepts[place], self._current[place]
            if own is not None and own.is_ready:
                wanted = own
            elif before is None and time.monotonic() < self._first_until:
                continue
            elif before is not None and before.is_ready:
                wanted = before
            else:
                wanted = ready[place % len(ready)]
            if wanted is not before:
                wanted.send(f"{TAKE} {place}", listener)
                if before is not None and before.is_ready:
                    before.send(f"{LEAVE} {place}")
                self._accepts[place] = wanted


def pause_after(failures: int, *, has_served: bool) -> float:
    """Return how many seconds to wait after `failures` workers in a row have ended early.

    After the first failure, do not wait if the worker has served before it ended.
    """
    steps = failures - 1 if has_served else failures
    return 0.0 if steps <= 0 else min(_LONGEST_PAUSE, _SHORTEST_PAUSE * 2 ** min(steps - 1, 10))
