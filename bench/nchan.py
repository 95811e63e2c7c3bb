"""A peer for `fan-out`: Nchan, the publish-subscribe module of nginx in C, as packaged by Debian."""

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.processes import BenchError, Server, stop
from bench.webdis import await_listening, free_port

SUBSCRIBE: Final = "/watch"
PUBLISH: Final = "/publish"
_MODULE: Final = "ngx_nchan_module.so"
_MODULES: Final = re.compile(r"--modules-path=(\S+)")
_START_DEADLINE: Final = 10.0
# One worker, because our server is one process. Messages are not stored, because only connected clients receive them.
_CONFIGURATION: Final = """
load_module {module};
daemon off;
worker_processes 1;
pid {folder}/pid;
error_log {folder}/log error;
events {{ worker_connections 65536; }}
http {{
    access_log off;
    client_body_temp_path {folder};
    proxy_temp_path {folder};
    fastcgi_temp_path {folder};
    uwsgi_temp_path {folder};
    scgi_temp_path {folder};
    tcp_nodelay on;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        keepalive_requests 1000000;
        location = {publish} {{
            nchan_publisher http;
            nchan_channel_id board;
            nchan_store_messages off;
        }}
        location = {subscribe} {{
            nchan_subscriber websocket;
            nchan_channel_id board;
        }}
    }}
}}
"""


def find_nchan() -> tuple[str, str] | None:
    """Find the paths of nginx and the module. Return None if one of them is not installed."""
    program = shutil.which("nginx")
    if program is None:
        return None
    said = subprocess.run([program, "-V"], capture_output=True, text=True, check=False).stderr
    found = _MODULES.search(said)
    module = Path(found[1]) / _MODULE if found else None
    return (program, str(module)) if module is not None and module.exists() else None


@contextmanager
def nchan_server(program: str, module: str) -> Iterator[Server]:
    """Run nginx with the module; the yielded server is its only worker."""
    with TemporaryDirectory(prefix="live-bench-") as folder:
        port = free_port()
        choice = Path(folder) / "nginx.conf"
        choice.write_text(
            _CONFIGURATION.format(module=module, folder=folder, port=port, publish=PUBLISH, subscribe=SUBSCRIBE),
            encoding="utf-8",
        )
        process = subprocess.Popen([program, "-p", folder, "-e", f"{folder}/log", "-c", str(choice)])
        try:
            await_listening(process, port)
            yield Server(_worker(process.pid), f"127.0.0.1:{port}")
        finally:
            stop(process)


def _worker(master: int) -> int:
    """Return the PID of the worker, the only child of the master process."""
    deadline = time.monotonic() + _START_DEADLINE
    while time.monotonic() < deadline:
        children = Path(f"/proc/{master}/task/{master}/children").read_text(encoding="ascii").split()
        if len(children) == 1:
            return int(children[0])
        time.sleep(0.02)
    raise BenchError("nginx has no worker")
