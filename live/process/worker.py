"""A worker: one of several server processes. Its parent tells it from which listening sockets to accept connections."""

import asyncio
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final, cast

import uvicorn
from starlette.types import ASGIApp

from live.logs import configure_logs
from live.metrics import CONNECTIONS
from live.protocols.connection import HttpProtocol
from live.protocols.shared import SharedParts
from live.settings import Settings
from live.system.processes import follow_parent, relax_collector
from live.system.service_manager import ServiceManager
from live.system.shared_metrics import SharedMetrics
from live.web.app import make_app

# The messages between a parent and its worker, each in one packet.
TAKE: Final = "take"  # with a number and a descriptor: accept connections from this listening socket
LEAVE: Final = "leave"  # with the number: stop accepting connections from this socket
READY: Final = "ready"  # the worker can accept connections
STOPPING: Final = "stopping"  # the worker ends, and accepts no more connections

_LARGEST: Final = 64  # bytes of a packet
_SHUTDOWN: Final = 5  # seconds that open requests have to finish: longer than a write is retried on one store
_ENDING: Final = (signal.SIGINT, signal.SIGTERM)


def run_worker(number: int, channel: socket.socket, metrics: str, settings: Settings) -> None:
    """Serve until the parent says otherwise over `channel`. `number` is the name of the worker in metrics.

    `metrics` is the folder in which the workers combine their metrics.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # only the parent acts on this signal
    # uvicorn sends SIGTERM to its own process again after it has stopped. The process should then exit normally.
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(0))
    follow_parent()
    configure_logs(settings.log_level)
    with SharedMetrics(Path(metrics)):
        app = make_app(settings)
        relax_collector()
        _WorkerServer(app, settings, channel, number).run()


def server_config(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """Configure how uvicorn serves an application."""
    return uvicorn.Config(
        app,
        http=HttpProtocol,
        ws="none",  # `HttpProtocol` takes WebSockets itself
        server_header=False,
        access_log=False,
        log_config=None,
        timeout_keep_alive=max(1, round(settings.idle_timeout)),
        proxy_headers=False,
        timeout_graceful_shutdown=_SHUTDOWN,
    )


class _Server(uvicorn.Server):
    def __init__(self, app: ASGIApp, settings: Settings, number: int) -> None:
        """Serve an application. `number` is the name of the server in metrics."""
        super().__init__(server_config(app, settings))
        self._gauge = CONNECTIONS.labels(str(number))

    async def on_tick(self, counter: int) -> bool:
        """Count the connections, and tell uvicorn whether to stop."""
        self._gauge.set(len(self.server_state.connections))
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop, and tell connections that are accepted in the same moment."""
        cast("SharedParts", self.lifespan.state["parts"]).stopping = True
        await super().shutdown(sockets)


class OnlyServer(_Server):
    """The server of a process that has no workers. It stops on SIGTERM and SIGINT."""

    def __init__(self, settings: Settings, manager: ServiceManager) -> None:
        """Tell the service manager about the start and the end."""
        super().__init__(make_app(settings), settings, 0)
        self._manager = manager
        self._telling: asyncio.Task[None] | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on signals. Don't raise them again after the end, as uvicorn does."""
        for number in _ENDING:
            asyncio.get_running_loop().add_signal_handler(number, self.handle_exit, number, None)
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop."""
        if self._telling is not None:
            self._telling.cancel()
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, and accept connections."""
        await super().startup(sockets)
        if self.started:
            self._telling = asyncio.create_task(self._manager.run())


class _WorkerServer(_Server):
    def __init__(self, app: ASGIApp, settings: Settings, channel: socket.socket, number: int) -> None:
        super().__init__(app, settings, number)
        self._channel = channel
        self._accepting: dict[int, asyncio.Server] = {}
        self._orders: asyncio.Queue[tuple[str, int, list[int]]] = asyncio.Queue()
        self._obeying: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 - uvicorn's signature
        """Start the application, and tell the parent."""
        await super().startup(sockets=[])
        asyncio.get_running_loop().add_reader(self._channel, self._receive)
        self._obeying = asyncio.create_task(self._obey())
        self._send(READY)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let other workers accept connections, and stop."""
        self._send(STOPPING)
        asyncio.get_running_loop().remove_reader(self._channel)
        if self._obeying is not None:
            self._obeying.cancel()
        for place in list(self._accepting):
            self._leave(place)
        await super().shutdown(sockets)

    def _send(self, word: str) -> None:
        with suppress(OSError):  # the parent has ended, so this process ends too
            self._channel.send(word.encode())

    def _receive(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._channel, _LARGEST, 1)
        if not data:  # the parent has ended
            asyncio.get_running_loop().remove_reader(self._channel)
            self.should_exit = True
            return
        word, _, place = data.decode().partition(" ")
        self._orders.put_nowait((word, int(place or 0), descriptors))

    async def _obey(self) -> None:
        while True:
            word, place, descriptors = await self._orders.get()
            if word == TAKE:
                await self._take(place, socket.socket(fileno=descriptors[0]))
            elif word == LEAVE:
                self._leave(place)

    async def _take(self, place: int, listener: socket.socket) -> None:
        def connect() -> asyncio.Protocol:
            return HttpProtocol(self.config, self.server_state, self.lifespan.state)

        loop = asyncio.get_running_loop()
        self._accepting[place] = await loop.create_server(connect, sock=listener, backlog=self.config.backlog)

    def _leave(self, place: int) -> None:
        """Leave the connections in the queue of the socket to the next worker."""
        self._accepting.pop(place).close()
