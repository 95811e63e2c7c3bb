"""A real nginx in front of a server, with the configuration file of the documentation."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

from tests.harness.boards import rolling_board
from tests.harness.certificate import Certificate
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.waiting import DEADLINE

NGINX: Final = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
DOCUMENTED: Final = Path(__file__).parents[2] / "docs" / "nginx.conf"
TRUSTED: Final = ("127.0.0.1",)  # nginx connects to the server from this address

_MAIN: Final = """
{user}
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/board.conf;
}}
"""
# A worker of nginx with another user could not enter the folder of a test.
_USER: Final = "user root;" if os.getuid() == 0 else ""


@contextmanager
def nginx(
    server: str, folder: Path, *changes: tuple[str, str], certificate: Certificate | None = None
) -> Iterator[str]:
    """Run nginx in front of a server while in the context; yields the URL at which it listens.

    nginx uses `docs/nginx.conf` with the two addresses and the folder of the cache replaced. `changes` are further
    texts in that file and their replacements. With a certificate, the lines of the file for TLS are no comments.
    """
    assert NGINX is not None
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "nginx.log"
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener, log.open("wb") as errors:
        host, port = listener.getsockname()
        listen = (("listen 80;", f"listen {host}:{port};"),) if certificate is None else _over_tls(port, certificate)
        _write_configuration(server, folder, *listen, *changes)
        process = subprocess.Popen(
            command_of(folder),
            stderr=errors,
            pass_fds=[listener.fileno()],
            env={
                **os.environ,
                "NGINX": f"{listener.fileno()};",
            },  # nginx inherits the listening socket, so no other process can take the port
        )
    try:
        _await_start(process, folder / "nginx.pid", log)
        yield f"{'http' if certificate is None else 'https'}://{host}:{port}"
    finally:
        process.terminate()
        process.wait(DEADLINE)


def command_of(folder: Path) -> list[str]:
    """The command that runs nginx with its configuration in a folder. More words change what it does."""
    assert NGINX is not None
    return [NGINX, "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]


@asynccontextmanager
async def behind_nginx(
    store: str, folder: Path, *changes: tuple[str, str], **settings: Any
) -> AsyncIterator[tuple[str, str]]:
    """Yield the URLs of nginx and of the server behind it. The server trusts nginx."""
    made = fresh_settings(store, **{"trusted_proxies": TRUSTED, "open": True, **settings})
    async with run_server(made, [rolling_board()]) as server:
        with nginx(server, folder, *changes) as url:
            yield url, server


def _over_tls(port: int, certificate: Certificate) -> tuple[tuple[str, str], ...]:
    documented = (
        ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        ("ssl_certificate     /etc/ssl/board.example.org.pem;", f"ssl_certificate {certificate.path};"),
        ("ssl_certificate_key /etc/ssl/private/board.example.org.key;", f"ssl_certificate_key {certificate.key};"),
    )
    return ("    listen 80;\n", ""), *((f"    #   {old}", f"    {new}") for old, new in documented)


def _write_configuration(server: str, folder: Path, *changes: tuple[str, str]) -> None:
    text = DOCUMENTED.read_text(encoding="utf-8")
    upstream = server.removeprefix("http://").rstrip("/")
    address = ("server 127.0.0.1:8000;", f"server {upstream};")
    places = (("/var/cache/live_board", f"{folder}/cache"), ("/var/log/nginx/live_board", f"{folder}/access"))
    for old, new in (address, *places, *changes):
        assert old in text, f"docs/nginx.conf has no {old!r}"
        text = text.replace(old, new)
    (folder / "board.conf").write_text(text, encoding="utf-8")
    (folder / "nginx.conf").write_text(_MAIN.format(folder=folder, user=_USER), encoding="utf-8")


def _await_start(process: "subprocess.Popen[bytes]", pid: Path, log: Path) -> None:
    end = time.monotonic() + DEADLINE
    while not pid.exists() or not pid.read_text(encoding="ascii").strip():
        assert process.poll() is None, log.read_text(encoding="utf-8")
        assert time.monotonic() < end, log.read_text(encoding="utf-8")
        time.sleep(0.02)
