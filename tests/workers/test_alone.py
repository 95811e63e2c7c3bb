"""SIGHUP to a server with a single process: it reads the boards file again, and a reload cuts no request."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import httpx
import msgspec
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from live.errors import SHUTTING_DOWN
from live.ingest.intake import Intake
from live.web.app import _report
from tests.harness.server import ServerProcess
from tests.harness.settings import fresh_settings
from tests.harness.waiting import DEADLINE, eventually

TWO = '[[board]]\nid = "posts"\n[[board]]\nid = "talks"\n'
MISTAKES = {
    "[[board]]\nid = 5\n": "expected a text, got 5",
    "max_members = " + "9" * 5000: "not TOML: Exceeds the limit",
    "a = " + "[" * 3000: "not TOML: maximum recursion depth",
    TWO.replace("posts", 'posts"\nwindow = "forever'): "the store holds board 'posts' with other choices",
    "".join(f'[[board]]\nid = "b{number}"\n' for number in range(4)): "the setting max_boards allows 3",
}
LIMITED = '[limits."acme-*"]\nboards = 1\n'
# Python drops an exception that is raised while it runs a callback of a weak reference.
SIGTERM_IN_CALLBACK = """
import asyncio, signal, weakref
from live import serve
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


async def post(client: httpx.AsyncClient) -> None:
    """Post over connections that are kept, until canceled. An error of a connection fails the test."""
    while True:
        response = await client.post("/v1/events", json=[{"key": "a", "board": "posts"}])
        assert response.status_code == 200, response.text


async def until_closed(url: str, seen: asyncio.Event) -> list[object]:
    """Watch a board until the connection ends; returns the close code, and whether the server has asked for a pause."""
    async with connect(f"{url.replace('http', 'ws')}/v1/boards/posts/live") as viewer:
        pause = 0.0
        seen.set()
        try:
            async for message in viewer:
                pause = msgspec.json.decode(message).get("retry_after", 0.0)
        except ConnectionClosed:
            pass
        return [viewer.close_code, pause > 0]


async def reload_during_a_request(url: str, reloaded: Callable[[str], Awaitable[None]]) -> None:
    """Reload twice while a request is unfinished, which keeps its old application running.

    The second reload must not wait for the end of the request.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
    body = b'[{"key": "a", "board": "posts"}]'
    head = (
        b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )
    writer.write(head % len(body))
    await writer.drain()
    for _ in range(2):
        await reloaded("the boards of the file are served")
    writer.write(body)
    assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    writer.close()


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


@pytest.mark.slow
async def test_one_process_reads_the_boards_file_again(valkey_url: str, tmp_path: Path) -> None:
    """New boards and limits hold, no request is cut, and a viewer is disconnected once. A wrong file changes nothing.

    Each idle connection gets one more answer, and is then closed. If the answer is a refusal, the client may try again.
    """
    file = tmp_path / "boards.toml"
    file.write_text(TWO + '[limits."acme-*"]\nboards = 0\n', encoding="utf-8")
    settings = fresh_settings(valkey_url, boards=file, open=True, anonymous_admin=True, max_boards=3)
    server = ServerProcess(settings, tmp_path)
    server.start()
    kept = partial(httpx.AsyncClient, base_url=server.url, timeout=180, limits=httpx.Limits(keepalive_expiry=None))
    async with kept() as client, kept() as idle, kept() as probe:
        try:
            seen = asyncio.Event()
            watching, posting = asyncio.create_task(until_closed(server.url, seen)), asyncio.create_task(post(client))

            async def reloaded(line: str) -> None:
                assert server.process is not None
                known = server.log().count(line)
                server.process.send_signal(signal.SIGHUP)

                async def is_logged() -> bool:
                    return server.log().count(line) > known

                await eventually(is_logged)

            await seen.wait()
            for text, reason in MISTAKES.items():
                file.write_text(text, encoding="utf-8")
                await reloaded("so the old boards stay")
                assert reason in server.log()
            for each in (idle, probe):
                assert (await each.get("/v1/boards/talks")).status_code == 200
            assert not watching.done()

            file.write_text(TWO.replace("talks", "songs") + LIMITED, encoding="utf-8")
            await reloaded("the boards of the file are served")
            event = {"key": "a", "board": "songs"}
            refused, ready = await idle.post("/v1/events", json=event), await probe.get("/readyz")
            assert (refused.status_code, refused.json()["code"]) == (503, "stopping")
            assert (ready.status_code, ready.json()["status"]) == (200, "ready")
            assert [each.headers["connection"] for each in (refused, ready)] == ["close", "close"]
            async with kept() as other:  # with a new connection
                assert (await other.post("/v1/events", json=event)).json()["accepted"] == 1
                assert (await other.get("/v1/boards/songs")).status_code == 200
                assert (await other.get("/v1/boards/talks")).status_code == 404
                assert (await other.put("/v1/boards/acme-june", json={})).status_code == 201
                assert await watching == [SHUTTING_DOWN, True]

                async def is_forgotten() -> bool:
                    text = (await other.get("/metrics")).text
                    is_right = 'live_connections{worker="0"} 2.0' in text  # the connections of `client` and `other`
                    return is_right and 'board="talks"' not in text

                await eventually(is_forgotten)
            await reload_during_a_request(server.url, reloaded)
            assert not posting.done(), posting.exception()
            posting.cancel()
            assert server.stop() == 0
            assert "Traceback" not in server.log()
        finally:
            server.kill()


async def test_an_old_application_that_fails_does_not_end_the_process() -> None:
    """The application's successor may serve in the same process."""

    async def fail() -> None:
        raise RuntimeError

    work = asyncio.create_task(fail())
    await asyncio.wait([work])
    intake = Intake.__new__(Intake)  # only `is_retiring` matters here
    intake.is_retiring = False
    with pytest.raises(SystemExit):
        _report(intake, work)
    intake.is_retiring = True
    _report(intake, work)
