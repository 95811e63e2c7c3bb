"""Real servers: in the event loop of a test, or as a process."""

import asyncio
import os
import secrets
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import msgspec
import uvicorn
from starlette.types import ASGIApp

from live.boards.admin import BoardAdmin
from live.domain.board import Board, Boards
from live.process.serve import bound_socket
from live.process.worker import server_config
from live.settings import Settings
from live.store.board.keys import SystemKeys
from live.store.connection.client import connect
from live.store.connection.embedded import answers
from live.web.app import make_app
from tests.harness.boards import rolling_board
from tests.harness.forked import ForkedProcess, run_live
from tests.harness.settings import as_environment, fresh_settings
from tests.harness.waiting import DEADLINE, eventually


def plain_config(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """The application under plain uvicorn, where every read takes a route of the application."""
    return uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        server_header=False,
        access_log=False,
        log_config=None,
        proxy_headers=False,
        timeout_keep_alive=max(1, round(settings.idle_timeout)),
        timeout_graceful_shutdown=1,
    )


async def define(settings: Settings, boards: Iterable[Board], store: str | None = None) -> None:
    """Define boards in a store, as a boards file does. `store` is its address if a proxy before it loses answers."""
    client = connect(store or settings.store, msgspec.structs.replace(settings, store_timeout=DEADLINE))
    try:
        file = boards if isinstance(boards, Boards) else Boards(boards)
        if (await BoardAdmin(client, settings).apply(file)).created:  # no test did this, so the audit log begins empty
            await client.delete(SystemKeys(settings.key_prefix).trail)
    finally:
        await client.aclose()


@asynccontextmanager
async def run_server(
    settings: Settings, boards: Iterable[Board] | None, *, plain: bool = False, certificate: Path | None = None
) -> AsyncIterator[str]:
    """A real server on a free port in this event loop, with some boards; yields its URL.

    Without `boards`, it has the boards of the store. If `boards` is a `Boards`, the limits of its boards file apply.
    With `plain`, it runs without our protocols, and takes no events.
    With a certificate (and its key, in the same file) it uses TLS.
    """
    if boards is not None:
        await define(settings, boards)
    config = (plain_config if plain else server_config)(make_app(settings), settings)
    config.ssl_certfile = config.ssl_keyfile = certificate
    server = _QuickServer(config)
    with bound_socket(settings) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))

        async def started() -> bool:
            assert not serving.done(), "the server ended"
            return server.started

        try:
            await eventually(started)
            yield f"{'https' if certificate else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.ending.set()
            await serving
            assert not server.server_state.connections, "these connections outlived the server"


@asynccontextmanager
async def serving(settings: Settings, *boards: Board, key: str | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server with some boards, by default `posts`. The client sends `key` if that is not None."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    async with (
        run_server(settings, boards or [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url, headers=headers, timeout=180) as client,
    ):
        yield client


def server(store: str, *boards: Board, **changes: Any) -> AbstractAsyncContextManager[httpx.AsyncClient]:
    """Yield a client of a new server; `changes` replace settings."""
    return serving(fresh_settings(store, **changes), *boards)


async def until_ready(client: httpx.AsyncClient) -> None:
    """Wait until the server is ready."""

    async def ready() -> bool:
        return (await client.get("/readyz")).status_code == 200

    await eventually(ready)


class _QuickServer(uvicorn.Server):
    """A uvicorn server that ends at once. The usual 0.2 seconds are too long: thousands of tests start a server."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ending = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the test run."""
        yield

    async def main_loop(self) -> None:
        ticks = 0
        while not (self.ending.is_set() or await self.on_tick(ticks)):
            ticks += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(self.ending.wait(), 0.1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End connections, requests and the application in the same order as uvicorn does."""
        for server in self.servers:
            server.close()
        for listener in sockets or ():
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                await asyncio.sleep(0.001)
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(0.005)
                for server in self.servers:
                    await server.wait_closed()
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel()
        await self.lifespan.shutdown()


class ServerProcess:
    """`live serve` as its own process on a free port. If `python` is a path, this interpreter starts it."""

    def __init__(self, settings: Settings, folder: Path, python: str | None = None) -> None:
        self.python = python
        self.environment = {**os.environ, **as_environment(settings)}
        self._folder = folder
        self._log = folder
        self.process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self.url = ""

    def start(self, *flags: str) -> None:
        """Start the server and wait for the URL that it prints."""
        self.spawn(*flags)
        end = time.monotonic() + DEADLINE
        while "Live Board is at " not in (text := self.log()):
            assert self.process is not None
            assert self.process.poll() is None, text
            assert time.monotonic() < end, text
            time.sleep(0.02)
        self.url = text.split("Live Board is at ")[-1].split("/  ")[0]

    def recover_from_store(self) -> None:
        """Go on with what the store has, while the server is stopped."""
        ended = run_live("recover", "--from", "store", environment=self.environment, timeout=120)
        assert ended.returncode == 0, ended.stdout + ended.stderr

    def spawn(self, *flags: str) -> None:
        """Start the server without waiting."""
        self._log = self._folder / f"server-{secrets.token_hex(3)}.log"
        self._log.touch()
        # In the folder of the checkout, the process would import the package from there, and not the installed one.
        if self.python is None:
            self.process = ForkedProcess(["serve", *flags], self.environment, self._folder, self._log, self._log)
            return
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [self.python, "-m", "live", "serve", *flags],
                env=self.environment,
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )

    def stop(self) -> int:
        """End the server with SIGTERM; returns its exit status."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(DEADLINE)

    def kill(self) -> None:
        """End the server as `kill -9` does. Wait for the end of its embedded store, which a command would still use."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        store = self._folder / self.environment.get("LIVE_DATA_DIR", "live-data") / "valkey.sock"
        end = time.monotonic() + DEADLINE
        while answers(store):
            assert time.monotonic() < end, "the embedded store has not ended"
            time.sleep(0.02)

    def log(self) -> str:
        """Everything that the server has printed since it was started."""
        return self._log.read_text(encoding="utf-8")
