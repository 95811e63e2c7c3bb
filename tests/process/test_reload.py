"""SIGHUP: every process takes over the boards file, no request fails, and nobody is disconnected who may still read."""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias
from unittest.mock import AsyncMock

import httpx
import pytest
from structlog.testing import capture_logs
from websockets.asyncio.client import ClientConnection, connect

from live.boards.registry import BoardRegistry
from live.errors import BOARD_DELETED
from live.maintenance.recover import recover_from_store
from live.process.checks import find_losses
from live.process.serve import check_store
from live.process.worker import run_worker
from live.settings import Settings
from live.store.board.keys import Keys
from live.store.connection.client import connect as connect_store
from live.store.registry.definitions import DefinitionStore
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.server import ServerProcess
from tests.harness.settings import fresh_settings
from tests.harness.waiting import DEADLINE, eventually
from tests.harness.workers import children, running_workers, until_ready

JUNE: Final = '[[board]]\nid = "june"\n'
FILE: Final = '[[board]]\nid = "posts"\n' + JUNE
PRIVATE: Final = 'visibility = "private"\n'
WITHIN: Final = 2.0  # seconds in which a reload takes effect in every process
MISTAKES: Final = {
    "[[board]]\nid = 5\n": "expected a text, got 5",
    "max_members = " + "9" * 5000: "not TOML: Exceeds the limit",
    '[[board]]\nid = "posts"\nwindow = "forever"\n[[board]]\nid = "june"\nclock = "event"\n[[board]]\nid = "new"\n': (
        "board 'posts': `window` can't change: the data is stored in its slots; only `keep` and `grace` of a window "
        "can change; `PATCH` it, and the server counts the events again\\nboard 'june': `clock` can't change"
    ),
    "".join(f'[[board]]\nid = "b{number}"\n' for number in range(2)): "there would be 4 boards",
}

HangUp: TypeAlias = Callable[[], None]
# Python drops an exception that is raised while it runs a callback of a weak reference.
SIGTERM_IN_CALLBACK: Final = """
import asyncio, signal, weakref
from live.process import serve
from live.cli.main import main

class Dropped:
    pass

async def wait(*_, **__):
    dropped = Dropped()
    reference = weakref.ref(dropped, lambda _: signal.raise_signal(signal.SIGTERM))
    del dropped
    await asyncio.sleep(5)

signal.signal(signal.SIGINT, signal.SIG_IGN)
serve.check_store = wait
main()
"""


class Load:
    """Producers that post as fast as they can. An error fails the test."""

    def __init__(self, url: str) -> None:
        self.accepted = 0
        self._url = url

    async def produce(self) -> None:
        """Post until canceled."""
        async with httpx.AsyncClient(base_url=self._url, timeout=180) as client:
            while True:
                response = await client.post("/v1/events", json=[{"key": "a", "board": "posts"}] * 5)
                assert response.status_code == 200, response.text
                self.accepted += response.json()["accepted"]


def write(file: Path, text: str) -> None:
    """Write a boards file."""
    file.write_text(text, encoding="utf-8")


async def watch(stack: AsyncExitStack, url: str, board: str, count: int) -> list[ClientConnection]:
    """Let viewers watch a board."""
    address = f"{url.replace('http', 'ws')}/v1/boards/{board}/live"
    found: list[ClientConnection] = []
    while len(found) < count:
        piece = min(100, count - len(found))
        # A client with a full queue reads no more, and the server disconnects it as too slow.
        opened = (connect(address, open_timeout=180, ping_interval=None, max_queue=None) for _ in range(piece))
        found += await asyncio.gather(*map(stack.enter_async_context, opened))
    return found


async def statuses(url: str, board: str, count: int = 40) -> set[int]:
    """The statuses of some requests over new connections, which several workers accept."""

    async def ask() -> int:
        async with httpx.AsyncClient(base_url=url, timeout=180) as client:
            return (await client.get(f"/v1/boards/{board}")).status_code

    return set(await asyncio.gather(*(ask() for _ in range(count))))


async def hides_within_two_seconds(url: str, file: Path, hang_up: HangUp, others: Sequence[ClientConnection]) -> None:
    """Make the board `june` private. Its viewers are disconnected in time, in every process, and nobody else."""
    async with AsyncExitStack() as stack:
        viewers = await watch(stack, url, "june", 16)
        write(file, FILE + PRIVATE)
        hang_up()
        await asyncio.wait([asyncio.ensure_future(viewer.wait_closed()) for viewer in viewers], timeout=WITHIN)
        assert {viewer.close_code for viewer in viewers} == {BOARD_DELETED}, "a viewer still watches a private board"
        assert await statuses(url, "june") == {404}
        closed = [viewer.close_code for viewer in others if viewer.close_code is not None]
        assert not closed, f"other viewers were disconnected, with the codes {closed}"


async def reloads_cut_nothing(server: ServerProcess, file: Path, *, reloads: int, viewers: int, producers: int) -> None:
    """Reload under load. Each reload sets another title, and in the end a board becomes private."""
    assert server.process is not None
    hang_up, load = partial(server.process.send_signal, signal.SIGHUP), Load(server.url)
    async with AsyncExitStack() as stack, httpx.AsyncClient(base_url=server.url, timeout=180) as client:
        watching = await watch(stack, server.url, "posts", viewers)
        pids = children(server.process.pid)
        tasks = [asyncio.create_task(load.produce()) for _ in range(producers)]
        try:
            for number in range(reloads):
                title = f"Reload {number}"
                write(file, FILE.replace('"posts"\n', f'"posts"\ntitle = "{title}"\n'))
                hang_up()

                async def is_shown(title: str = title) -> bool:
                    return bool((await client.get("/v1/boards/posts/definition")).json().get("title") == title)

                await eventually(is_shown)
            await hides_within_two_seconds(server.url, file, hang_up, watching)
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        faults = [error for error in ended if not isinstance(error, asyncio.CancelledError)]
        assert not faults, faults
        assert {*pids} <= {*children(server.process.pid)}, "a worker was replaced"
        assert load.accepted > 0
        page = (await client.get("/v1/boards/posts")).json()
        assert page["total_score"] >= load.accepted  # the last answers did not arrive


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("workers", [1, 4])
async def test_reloads_disconnect_nobody_and_lose_no_request(
    valkey_url: str, tmp_path: Path, effort: int, workers: int
) -> None:
    """Twenty reloads under viewers and producers. A board that becomes private is hidden everywhere in two seconds."""
    file = tmp_path / "boards.toml"
    file.write_text(FILE, encoding="utf-8")
    settings = fresh_settings(
        valkey_url, boards=file, open=True, workers=workers, max_viewers=4000, max_connections=4000
    )
    server = ServerProcess(settings, tmp_path, sys.executable)
    server.start()
    try:
        many = effort > 1
        await reloads_cut_nothing(server, file, reloads=20, viewers=1000 if many else 100, producers=16 if many else 4)
        assert server.stop() == 0
        assert "Traceback" not in server.log()
    finally:
        server.kill()


async def never(_registry: BoardRegistry) -> None:
    """Follow no definitions."""
    await asyncio.Event().wait()


def deaf_worker(number: int, channel: socket.socket, metrics: str, settings: Settings) -> None:
    """Run a worker that does not follow the definitions of boards."""
    with replaced(BoardRegistry, "run", never):
        run_worker(number, channel, metrics, settings)


@pytest.mark.mutant
async def test_a_worker_that_does_not_follow_is_noticed(valkey_url: str, tmp_path: Path) -> None:
    """In the mutant, workers keep the boards that they have at their start."""
    file = tmp_path / "boards.toml"
    file.write_text(FILE, encoding="utf-8")
    with must_be_caught("the workers keep their boards"):
        async with running_workers(valkey_url, 2, target=deaf_worker, boards=file) as workers:
            await until_ready(workers)
            await hides_within_two_seconds(workers.url, file, partial(signal.raise_signal, signal.SIGHUP), [])


@pytest.mark.slow
async def test_a_file_with_a_mistake_changes_nothing(valkey_url: str, tmp_path: Path) -> None:
    """The log has all mistakes that the definitions can't take, and names boards that are no longer in the file."""
    file = tmp_path / "boards.toml"
    file.write_text(FILE, encoding="utf-8")
    server = ServerProcess(fresh_settings(valkey_url, boards=file, max_boards=3), tmp_path)
    server.start()
    try:
        async with httpx.AsyncClient(base_url=server.url, timeout=180) as client:
            before = [(await client.get(f"/v1/boards/{board}/definition")).json() for board in ("posts", "june")]

            async def reloaded(text: str, line: str) -> None:
                assert server.process is not None
                known = server.log().count(line)
                file.write_text(text, encoding="utf-8")
                server.process.send_signal(signal.SIGHUP)

                async def is_logged() -> bool:
                    return server.log().count(line) > known

                await eventually(is_logged)

            for text, reason in MISTAKES.items():
                await reloaded(text, "so the boards stay as they are")
                assert reason in server.log()
            after = [(await client.get(f"/v1/boards/{board}/definition")).json() for board in ("posts", "june")]
            assert after == before
            assert (await client.get("/v1/boards/new")).status_code == 404
            await reloaded(FILE.replace("june", "july"), "boards that the file names no longer stay")
            assert '["june"]' in server.log()
            assert {(await client.get(f"/v1/boards/{board}")).status_code for board in ("june", "july")} == {200}
    finally:
        server.kill()


@pytest.mark.one_server
async def test_a_lost_board_that_the_file_changes_stops_no_start(valkey_url: str, tmp_path: Path) -> None:
    """The server starts for the other boards. All boards stay as they are, until an operator accepts the loss."""
    file = tmp_path / "boards.toml"
    file.write_text(FILE, encoding="utf-8")
    settings = fresh_settings(valkey_url, boards=file, data_dir=tmp_path / "data")
    await check_store(settings)
    client = connect_store(settings.store, settings)
    try:
        definitions = DefinitionStore(client)
        before = await definitions.load()
        await client.delete(Keys(settings.key_prefix, "june").meta)
        file.write_text(FILE.replace(JUNE, JUNE + 'title = "June"\n') + '[[board]]\nid = "july"\n', encoding="utf-8")
        with capture_logs() as logs:
            await check_store(settings)
        assert "the file changes a board that lost data" in str(logs)
        assert (await definitions.load()).boards == before.boards
        losses, _ = await find_losses(client, settings, nullcontext)
        await recover_from_store(client, losses, AsyncMock())
        await check_store(settings)
        assert (await definitions.load()).boards.keys() == {"posts", "june", "july"}
    finally:
        await client.aclose()


async def test_a_reload_reads_the_limits_again(valkey_url: str, tmp_path: Path) -> None:
    """Every worker gets the limits that the boards file has now."""
    file = tmp_path / "boards.toml"
    file.write_text('[limits."acme-*"]\nboards = 0\n', encoding="utf-8")
    async with running_workers(valkey_url, 2, boards=file, anonymous_admin=True) as workers:
        await until_ready(workers)

        async def make() -> int:
            async with httpx.AsyncClient(base_url=workers.url, timeout=180) as client:
                return (await client.put("/v1/boards/acme-june", json={})).status_code

        async def is_made() -> bool:
            return await make() in {200, 201}

        assert await make() == 409
        file.write_text('[limits."acme-*"]\nboards = 1\n', encoding="utf-8")
        assert await make() == 409
        signal.raise_signal(signal.SIGHUP)
        await eventually(is_made)


async def test_a_signal_during_a_start_waits(tmp_path: Path) -> None:
    """SIGHUP doesn't end the process, even if the signal comes before the server serves."""
    server = ServerProcess(fresh_settings("redis://127.0.0.1:1"), tmp_path)
    server.spawn()
    try:

        async def is_waiting() -> bool:
            return "waiting for the store" in server.log()

        await eventually(is_waiting)
        assert server.process is not None
        server.process.send_signal(signal.SIGHUP)
        assert server.stop() == 0
    finally:
        server.kill()


def test_sigterm_ends_a_start_at_any_moment(tmp_path: Path) -> None:
    """SIGTERM comes in a callback of a weak reference, and the shell that started the server ignores SIGINT."""
    server = subprocess.run(
        [sys.executable, "-c", SIGTERM_IN_CALLBACK, "serve"],
        env=ServerProcess(fresh_settings("redis://127.0.0.1:1"), tmp_path).environment,
        timeout=DEADLINE,
        capture_output=True,
        check=False,
    )
    assert (server.returncode, server.stderr) == (0, b"")
