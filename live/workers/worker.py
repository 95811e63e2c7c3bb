"""A worker: one of several server processes. Its parent tells it from which listening sockets to accept connections."""

import asyncio
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

import structlog
import uvicorn
from starlette.types import ASGIApp

from live.domain.board import Boards
from live.domain.board_file import load_boards
from live.errors import SetupError
from live.logs import configure_logs
from live.metrics import CONNECTIONS
from live.protocols.http.connection import HttpProtocol
from live.protocols.http.shared import SharedParts
from live.settings import Settings
from live.system.processes import follow_parent, relax_collector
from live.system.shared_metrics import SharedMetrics
from live.web.app import make_app

# The messages between a parent and its worker, each in one packet.
TAKE: Final = "take"  # with a number and a descriptor: accept connections from this listening socket
LEAVE: Final = "leave"  # with the number: stop accepting connections from this socket
HIDE: Final = "hide"  # hide the boards that the boards file now makes private
RETIRE: Final = "retire"  # answer begun requests and one more request of each connection, with `Connection: close`
END: Final = "end"  # disconnect the viewers, and end when no connection is left
READY: Final = "ready"  # the worker can accept connections
STOPPING: Final = "stopping"  # the worker ends, and accepts no more connections

_LARGEST: Final = 64  # bytes of a packet
_SHUTDOWN: Final = 5  # seconds that open requests have to finish: longer than a write is retried on one store
_CLOSING: Final = 10.0  # seconds that viewers have to answer the close frame

log = structlog.get_logger()


def run_worker(number: int, channel: socket.socket, metrics: str, settings: Settings) -> None:
    """Serve until the parent says otherwise.

    Args:
        number: the name of the worker in metrics.
        channel: the connection to the parent.
        metrics: the folder in which the workers combine their metrics.
        settings: the settings of the parent.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # only the parent acts on this signal
    # uvicorn sends SIGTERM to its own process again after it has stopped. The process should then exit normally.
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(0))
    follow_parent()
    configure_logs(settings.log_level)
    with SharedMetrics(Path(metrics)):
        try:
            app = make_app(settings, load_boards(settings.boards))
        except SetupError as error:
            log.error("a worker can't start", reason=str(error))  # noqa: TRY400 - a mistake of the user, not ours
            raise SystemExit(2) from None
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


class ReplaceableServer(uvicorn.Server):
    """A server that a successor can replace: it then retires, and ends without cutting off a request."""

    def __init__(self, app: ASGIApp, settings: Settings, number: int) -> None:
        """Serve an application. `number` is the name of the server in metrics."""
        super().__init__(server_config(app, settings))
        self._settings = settings
        self._gauge = CONNECTIONS.labels(str(number))
        self._counted = 0  # connections that this server added to the gauge; a successor adds its own connections
        self._idle_until = 0.0  # until when idle connections may stay after the server has retired
        self._ends_at: float | None = None  # when the server ends, even if connections are left

    async def on_tick(self, counter: int) -> bool:
        """Count the connections, and tell uvicorn whether to stop."""
        held = len(self.server_state.connections)
        self._gauge.inc(held - self._counted)
        self._counted = held
        if self._ends_at is not None:
            is_idle = not (held or self.server_state.tasks)
            if is_idle or asyncio.get_running_loop().time() > self._ends_at:
                return True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop as uvicorn does, and subtract the connections of this server from the gauge."""
        await super().shutdown(sockets)
        self._gauge.dec(self._counted)

    def hide(self, boards: Boards) -> None:
        """Hide what is private in a newer boards file. Its viewers who may not read it are disconnected."""
        self._parts.hide(boards)

    def retire(self) -> None:
        """Answer requests that have begun, and one more request of each connection.

        Another server accepts new connections.
        """
        self._idle_until = asyncio.get_running_loop().time() + self._settings.idle_timeout
        self._parts.intake.is_retiring = True
        for connection in list(cast("set[object]", self.server_state.connections)):
            if isinstance(connection, HttpProtocol):
                connection.retire()

    def end(self) -> None:
        """Disconnect the viewers. The server ends when no connection is left, or at the latest at `_ends_at`."""
        self._parts.reaper.hub.drain()
        self._ends_at = max(self._idle_until, asyncio.get_running_loop().time() + _CLOSING)

    @property
    def _parts(self) -> SharedParts:
        parts: SharedParts = self.lifespan.state["parts"]
        return parts


class _WorkerServer(ReplaceableServer):
    """A server that accepts connections from the listening sockets that its parent names."""

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
        """Carry out the orders of the parent, one after another."""
        while True:
            word, place, descriptors = await self._orders.get()
            if word == TAKE:
                await self._take(place, socket.socket(fileno=descriptors[0]))
            elif word == LEAVE:
                self._leave(place)
            elif word == HIDE:
                with suppress(SetupError):  # the file has changed again since the parent has read it
                    self.hide(load_boards(self._settings.boards))
            elif word == RETIRE:
                self.retire()
            elif word == END:
                self.end()

    async def _take(self, place: int, listener: socket.socket) -> None:
        def connect() -> asyncio.Protocol:
            return HttpProtocol(self.config, self.server_state, self.lifespan.state)

        loop = asyncio.get_running_loop()
        self._accepting[place] = await loop.create_server(connect, sock=listener, backlog=self.config.backlog)

    def _leave(self, place: int) -> None:
        """Stop accepting connections from a socket. The connections in its queue wait for the next worker."""
        self._accepting.pop(place).close()
