"""A peer: webdis, an HTTP server for Redis in C, as packaged by Debian."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
import redis

from bench.processes import BenchError, Server, stop

# A script that does the minimum work for a like in one call, on the store keys of the bare commands. It returns the
# score.
_SCRIPT: Final = """
redis.call("HINCRBY", KEYS[1], ARGV[1], 1)
return redis.call("ZINCRBY", KEYS[2], 1, ARGV[1])
"""
_START_DEADLINE: Final = 10.0


def find_webdis() -> str | None:
    """Return the path of the program, or None if it is not installed."""
    return shutil.which("webdis")


def load_script(store: Server) -> str:
    """Load the script into the store. Return its SHA-1."""
    with redis.Redis(unix_socket_path=store.address) as client:
        return str(client.script_load(_SCRIPT))


@contextmanager
def webdis_server(program: str, store: Server) -> Iterator[Server]:
    """Run webdis on a store, with the default number of connections."""
    with TemporaryDirectory(prefix="live-bench-") as folder:
        port = free_port()
        settings = {
            "redis_host": store.address, "http_host": "127.0.0.1", "http_port": port, "threads": 1, "daemonize": False,
            "verbosity": 0, "logfile": str(Path(folder) / "log"),
        }  # fmt: skip
        choice = Path(folder) / "webdis.json"
        choice.write_bytes(msgspec.json.encode(settings))
        process = subprocess.Popen([program, str(choice)], cwd=folder)
        try:
            await_listening(process, port)
            yield Server(process.pid, f"127.0.0.1:{port}")
        finally:
            stop(process)


def free_port() -> int:
    """Find a free port, for servers that can't choose one themselves."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def await_listening(process: subprocess.Popen[bytes], port: int) -> None:
    """Wait until a started server accepts connections."""
    deadline = time.monotonic() + _START_DEADLINE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"{process.args!r} did not start") from None
            time.sleep(0.02)
        else:
            return
