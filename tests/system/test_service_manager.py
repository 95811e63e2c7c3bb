"""A server under a service manager, with real sockets: what it reports, and the socket that it takes over."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.harness.settings import as_environment, fresh_settings
from tests.harness.waiting import DEADLINE, eventually

# Starts the server like systemd: the socket is descriptor 3, and `LISTEN_PID` is the id of the server's process.
START: Final = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.executable, [sys.executable, "-m", "live", "serve"])
"""


@contextmanager
def started(
    store: str, folder: Path, listener: socket.socket, environment: dict[str, str], **settings: Any
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a server that takes over a socket."""
    descriptor = listener.fileno()
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", START, str(descriptor)],
            env={**os.environ, **as_environment(fresh_settings(store, **settings)), "LISTEN_FDS": "1", **environment},
            cwd=folder, pass_fds=(descriptor,), stdout=output, stderr=output,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait(DEADLINE)


def wait_for(word: str, notices: socket.socket) -> list[str]:
    """Receive notices until `word` comes, and return all of them."""
    found = []
    while word not in found:
        found.append(notices.recv(256).decode())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_it_takes_the_socket_and_says_how_it_is(valkey_url: str, tmp_path: Path, workers: int) -> None:
    """The server takes a connection from before its start. It reports ready, alive and stopping, in this order."""
    address = str(tmp_path / "notices") if workers == 1 else f"@live-{os.getpid()}"
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices,
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname(), timeout=DEADLINE) as early,
    ):
        notices.bind(address.replace("@", "\0"))
        notices.settimeout(DEADLINE)
        early.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        told = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "200000"}
        with started(valkey_url, tmp_path, listener, told, workers=workers, port=9) as server:
            assert wait_for("READY=1", notices) == ["READY=1"]
            assert wait_for("WATCHDOG=1", notices) == ["WATCHDOG=1"]
            assert early.recv(15) == b"HTTP/1.1 200 OK"
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            assert {httpx.get(f"{url}/healthz").status_code for _ in range(10)} == {200}
            server.send_signal(signal.SIGTERM)
            assert set(wait_for("STOPPING=1", notices)) <= {"WATCHDOG=1", "STOPPING=1"}
            assert server.wait(DEADLINE) == 0


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
async def test_a_restart_refuses_no_request(valkey_url: str, tmp_path: Path, workers: int) -> None:
    """The service manager holds the socket. Sixty requests a second wait in its queue until the next server accepts."""
    settings = {"workers": workers, "key_prefix": f"restart{workers}", "open": True}
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        statuses: list[int] = []
        client = httpx.AsyncClient(
            base_url=url, timeout=DEADLINE, limits=httpx.Limits(max_keepalive_connections=0), trust_env=False
        )

        async def post() -> None:
            statuses.append((await client.post("/v1/events", json={"key": "a"})).status_code)

        async def load(requests: list[asyncio.Task[None]]) -> None:
            while True:
                requests.append(asyncio.create_task(post()))
                await asyncio.sleep(1 / 60)

        requests: list[asyncio.Task[None]] = []
        loading = asyncio.create_task(load(requests))
        for _ in range(3):
            with started(valkey_url, tmp_path, listener, {}, **settings) as server:
                known = len(statuses)

                async def has_answered(known: int = known) -> bool:
                    return len(statuses) > known + 60

                await eventually(has_answered)
                server.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(server.wait, DEADLINE) == 0
        with started(valkey_url, tmp_path, listener, {}, **settings):
            loading.cancel()
            await asyncio.gather(*requests)
        await client.aclose()
        assert len(statuses) > 180
        assert set(statuses) == {200}


@pytest.mark.slow
def test_a_stopped_loop_gives_no_sign(valkey_url: str, tmp_path: Path) -> None:
    """Without a sign of life, the service manager restarts a server that hangs."""
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        notices.bind(str(tmp_path / "notices"))
        notices.settimeout(DEADLINE)
        told = {"NOTIFY_SOCKET": str(tmp_path / "notices"), "WATCHDOG_USEC": "200000"}
        with started(valkey_url, tmp_path, listener, told) as server:
            wait_for("WATCHDOG=1", notices)
            server.send_signal(signal.SIGSTOP)
            notices.settimeout(1)
            with pytest.raises(TimeoutError):
                wait_for("never", notices)


@pytest.mark.slow
def test_a_socket_that_does_not_fit_ends_the_start(valkey_url: str, tmp_path: Path) -> None:
    """A public socket needs an API key, whatever LIVE_HOST says.

    Two sockets are refused, and so is a socket that is not TCP.
    """
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(str(tmp_path / "socket"))
    for listener, environment, words in (
        (socket.create_server(("0.0.0.0", 0)), {}, "no producer has an API key"),  # noqa: S104 - what it tests
        (socket.create_server(("127.0.0.1", 0)), {"LISTEN_FDS": "2"}, "passes on 2 sockets"),
        (unix, {}, "not a TCP socket"),
    ):
        with listener, started(valkey_url, tmp_path, listener, environment, host="127.0.0.1", open=False) as server:
            assert server.wait(DEADLINE) == 2
            assert words in (tmp_path / "log").read_text(encoding="utf-8")
