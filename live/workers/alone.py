"""The only process of a server. On SIGHUP it replaces its application, as a supervisor replaces its workers."""

import asyncio
import signal
import socket
from functools import partial
from typing import Final

import structlog

from live.domain.board import Boards
from live.errors import SetupError
from live.metrics import forget_board
from live.settings import Settings
from live.system.service_manager import ServiceManager
from live.web.app import make_app
from live.workers.reload import READY_WITHIN, Reload
from live.workers.worker import ReplaceableServer

log = structlog.get_logger()

_MOST_RETIRED: Final = 2  # old applications that may still answer their last connections
_ENDING: Final = (signal.SIGINT, signal.SIGTERM)


class _Server(ReplaceableServer):
    """A server with its own application, which serves `boards`: the boards file as it was read for this application."""

    def __init__(self, settings: Settings, boards: Boards) -> None:
        super().__init__(make_app(settings, boards), settings, 0)
        self.boards = boards
        self.has_started = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, and accept connections."""
        await super().startup(sockets)
        self.has_started.set()

    def leave(self) -> None:
        """Accept no more connections."""
        for accepting in self.servers:
            accepting.close()


class LoneProcess:
    """The server that accepts connections, and the earlier servers that it has replaced and that have not ended yet."""

    def __init__(
        self, listener: socket.socket, settings: Settings, manager: ServiceManager, boards: Boards, reload: Reload
    ) -> None:
        self._listener = listener
        self._settings = settings
        self._manager = manager
        self._current = _Server(settings, boards)
        self._serving: dict[_Server, asyncio.Task[None]] = {}
        self._reload = reload
        self._telling: asyncio.Task[None] | None = None

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT. SIGHUP reads the boards file again."""
        with asyncio.Runner(loop_factory=self._current.config.get_loop_factory()) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        self._reload.listen()
        for number in _ENDING:
            loop.add_signal_handler(number, self._stop, number)
        await self._start(self._current, None)
        self._telling = asyncio.create_task(self._manager.run())
        reloading = asyncio.create_task(self._reload.run(self._replace))
        while self._serving:
            tasks = {reloading, *self._serving.values()}
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        self._telling.cancel()
        reloading.cancel()

    def _stop(self, number: signal.Signals) -> None:
        if self._telling is not None:
            self._telling.cancel()
        for server in self._serving:
            server.handle_exit(number, None)

    async def _start(self, server: _Server, within: float | None) -> bool:
        """Start a server that accepts connections. Return whether it has started before `within` seconds are over."""
        serving = self._serving[server] = asyncio.create_task(self._serve(server))
        started = asyncio.create_task(server.has_started.wait())
        await asyncio.wait({serving, started}, timeout=within, return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        return server.has_started.is_set()

    async def _serve(self, server: _Server) -> None:
        try:
            await server._serve([self._listener.dup()])  # noqa: SLF001 - `serve` would take the signals
        except SystemExit:  # the application did not start, and uvicorn has logged why
            if server is self._current:
                raise
        except Exception:
            if server is self._current:
                raise
            log.exception("an application failed while another one serves")
        finally:
            del self._serving[server]

    async def _replace(self, boards: Boards) -> None:
        """Let a new application take the place of the old application, which disconnects its viewers and ends."""
        old = self._current
        for server in self._serving:
            if server.has_started.is_set():
                server.hide(boards)
        while len(self._serving) > _MOST_RETIRED:
            log.info("waiting for the end of an application that an earlier reload has replaced")
            retired = [serving for server, serving in self._serving.items() if server is not old]
            await asyncio.wait(retired, return_when=asyncio.FIRST_COMPLETED)
        if old.should_exit:
            return
        new = _Server(self._settings, boards)
        has_started = await self._start(new, READY_WITHIN)
        if new.should_exit:  # the server stops
            return
        if not has_started:
            new.handle_exit(signal.SIGTERM, None)
            raise SetupError("the application did not start in time")
        self._current = new
        self._serving[old].add_done_callback(partial(self._forget, old))
        old.leave()
        old.retire()
        old.end()
        log.info("the boards of the file are served", boards=len(boards.by_id))

    def _forget(self, old: _Server, _ended: asyncio.Task[None]) -> None:
        """Drop the metrics of boards that the `old` application served and the current application does not serve."""
        for board in old.boards.by_id.keys() - self._current.boards.by_id.keys():
            forget_board(board)
