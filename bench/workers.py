"""`workers`: how soon four workers know a board that one of them has created, and the cost of their frames."""

import time
from contextlib import ExitStack, closing
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.fanout import behind, delivered_share
from bench.nodes import Site, one_node
from bench.posting import Posting, posting_to
from bench.processes import BenchError, add_api_key, descendants_of, module_server, running_store
from bench.swarm import Delivery, Programs, built, need_files, not_built, pin, swarming
from bench.table import Report, Row, Scale, median_ratio, medians, of_round, quantile
from bench.watched import EVENTS, PATH, RATE, likes_of_top, settle
from live.settings import load_settings
from tests.harness.settings import as_environment

_WORKERS: Final = 4
_WARMUP: Final = 5  # boards to create before the measurement, while workers may still start
_ASKED: Final = 16  # new connections, which the kernel spreads over the workers


def workers(scale: Scale, report: Report) -> list[Row]:
    """Measure how soon four workers know a new board, and the cost of their frames."""
    return [_new_boards(scale, report), *_frames(scale, report)]


def _new_boards(scale: Scale, report: Report) -> Row:
    """Create boards one after another, and GET each over many new connections as soon as PUT has answered.

    The figure is the time from the PUT to its answer. Each GET that does not find the board is counted as missing.
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
            if ask("PUT", board, b'{"types": ["new"]}') != HTTPStatus.CREATED:
                raise BenchError("a board was not created")
            if board < _WARMUP:
                continue
            times.append((time.perf_counter() - started) * 1e3)
            missing += sum(ask("GET", board) != HTTPStatus.OK for _ in range(_ASKED))
    return Row(
        work=f"workers: create a board that {_WORKERS} workers know when PUT answers",
        measured=f"p50 {quantile(times, 0.5):.0f}, p99 {quantile(times, 0.99):.0f}, max {max(times):.0f} ms",
        against=f"{missing} of {count * _ASKED:,} requests right after PUT found no board",
        goal="≤ 100 ms",
        figures={"milliseconds": times, "missing": missing},
    )


def _frames(scale: Scale, report: Report) -> list[Row]:
    """Measure the CPU time of all workers and of the store per delivered frame of one board.

    The baseline is measured alternately: one worker with its own store. All workers share the first core.
    """
    need_files(scale.viewers)
    rounds: list[dict[str, float]] = []
    with ExitStack() as stack:
        programs = stack.enter_context(built())
        if programs is None:
            return not_built("workers: frames")
        sites = {name: Site(stack, one_node(stack), workers=count) for name, count in (("four", _WORKERS), ("one", 1))}
        for number in range(1, scale.rounds + 1):
            figures: dict[str, float] = {}
            for name, site in sites.items():
                of_round(report, number)(f"frames, {name}")
                delivery = _delivery(site, programs, scale)
                figures |= {name: sum(delivery.microseconds()), f"{name}_share": delivered_share(delivery)}
            rounds.append(figures)
    mid = medians(rounds)
    return [
        Row(
            work=f"workers: a frame of {_WORKERS} workers, {scale.viewers:,} viewers of one board, 10 per second",
            measured=f"all workers and the store {mid['four']:.2f} µs{behind(mid['four_share'])}",
            against=f"one worker: {mid['one']:.2f} µs{behind(mid['one_share'])}",
            ratio=median_ratio(rounds, ["four"], ["one"]),
            goal="≤ 1.10 x",
            figures={"medians": mid, "rounds": rounds},
        )
    ]


def _delivery(site: Site, programs: Programs, scale: Scale) -> Delivery:
    servers = [site.server, *descendants_of(site.server)]
    for server in servers:
        pin(server.pid, 0)
    pin(site.nodes[0].pid, 1)
    posting = Posting(path=EVENTS, bodies=likes_of_top(), rate=RATE)
    with posting_to(site.server, posting), swarming(programs, site.server, PATH) as swarm:
        swarm.connect(scale.viewers, first=True)
        settle()
        return swarm.measure(scale.fan_seconds, [*servers, *site.nodes])
