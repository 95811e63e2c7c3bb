"""`workers`: how soon four workers know a board that one of them has created."""

import time
from contextlib import ExitStack, closing
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.processes import BenchError, add_api_key, module_server, running_store
from bench.table import Report, Row, Scale, quantile
from live.settings import as_environment, load_settings

_WORKERS: Final = 4
_WARMUP: Final = 5  # boards while workers start
_ASKED: Final = 16  # new connections, which the kernel spreads over the workers


def workers(scale: Scale, report: Report) -> list[Row]:
    """Create boards one after another, and ask for each over many new connections as soon as PUT has answered.

    The figure is the time from the request to its answer. A worker that does not know the board then is a failure.
    """
    with ExitStack() as stack:
        store = stack.enter_context(running_store())
        key = add_api_key(store)
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="live-bench-")))
        settings = load_settings(
            {}, store=f"unix://{store.address}", port=0, workers=_WORKERS, data_dir=folder, journal="off"
        )
        server = stack.enter_context(module_server("live", "serve", environment=as_environment(settings)))
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

        def ask(method: str, board: int, body: bytes | None = None) -> int:
            with closing(HTTPConnection(server.address, timeout=10)) as connection:
                connection.request(method, f"/v1/boards/n-{board}", body, headers)
                return connection.getresponse().status

        report("creating boards")
        times, missing, count = [], 0, max(20, scale.definitions // 3)
        for board in range(_WARMUP + count):
            started = time.perf_counter()
            if ask("PUT", board, b'{"source": ["new"]}') != HTTPStatus.CREATED:
                raise BenchError("a board was not created")
            if board < _WARMUP:
                continue
            times.append((time.perf_counter() - started) * 1e3)
            missing += sum(ask("GET", board) != HTTPStatus.OK for _ in range(_ASKED))
    return [
        Row(
            work=f"workers: create a board that {_WORKERS} workers know when PUT answers",
            measured=f"p50 {quantile(times, 0.5):.0f}, p99 {quantile(times, 0.99):.0f}, max {max(times):.0f} ms",
            against=f"{missing} of {count * _ASKED:,} requests right after it found no board",
            goal="≤ 100 ms",
            figures={"milliseconds": times, "missing": missing},
        )
    ]
