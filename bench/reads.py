"""`get-top-100`: CPU time of a page of 100 records, of a 304 and of an HTML page, compared with doing nothing."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from typing import Final

import msgspec

from bench.board import SINGLE_CONNECTIONS, SINGLE_WARMUP, Board, cost_of
from bench.plans import Gets, Load, Members, Plan
from bench.processes import BenchError, Server, cpu_seconds, idle_server, microseconds
from bench.table import Report, Row, Scale

_TOP: Final = "/v1/boards/posts?limit=100"
_PAGE: Final = "/boards/posts"
_BODY: Final = 10  # likes in a body
_ALONE: Final = 1.0  # seconds of likes without reads


def get_top_100(scale: Scale, report: Report) -> list[Row]:
    """Read a board of 100,000 members over 64 connections: CPU time of server and store.

    The top 100 is read while likes arrive through another server on the same store. The CPU time of that server is not
    counted. The time that the store spends on the likes is measured before, and subtracted. The 304 and the HTML page
    of 50 rows are read while nothing changes. The baseline is measured alternately: the same requests to an endpoint
    that does nothing. The ratios are ratios of rates.
    """
    rounds: list[dict[str, float]] = []
    with ExitStack() as stack:
        board = Board(stack)
        idle = stack.enter_context(idle_server())
        other = board.second_server(stack)
        report("filling")
        board.fill(Members(count=scale.members, order="each"), scale.members)
        board.fill(Members(count=scale.members, order="zipf"), scale.members)  # these likes make the scores differ
        for number in range(1, scale.rounds + 1):
            figures: dict[str, float] = {}
            report(f"round {number}: the top 100 while likes arrive")
            with _likes(other, board.key, scale.likes_a_second):
                before = cpu_seconds(board.store.pid)
                time.sleep(_ALONE)
                share = (cpu_seconds(board.store.pid) - before) / _ALONE
                figures |= _read(board, scale, "top", Gets(paths=[_TOP]), '{"board":"posts",', share)
            report(f"round {number}: do-nothing GET")
            nothing = Plan(address=idle.address, content=Gets(paths=[_TOP]), load=_load(scale))
            figures |= microseconds(nothing, {"nothing": idle})
            report(f"round {number}: 304 and HTML")
            figures |= _read(board, scale, "same", Gets(paths=[_TOP], etag=_tag_of(board.server)), "")
            figures |= _read(board, scale, "html", Gets(paths=[_PAGE]), "<!doctype")
            rounds.append(figures)
    members = f"of {scale.members:,} members"
    return [
        _row(f"get-top-100 {members} while likes arrive", "top", "≥ 0.90 x its rate", rounds),
        _row(f"get-top-100 {members}: 304", "same", "≥ 0.90 x its rate", rounds),
        _row(f"HTML page of 50 rows {members}", "html", "≥ 0.60 x its rate", rounds),
    ]


def _read(board: Board, scale: Scale, name: str, content: Gets, expect: str, share: float = 0) -> dict[str, float]:
    """Return the microseconds per request. `share` is the CPU time that the store uses per second without the reads."""
    plan = Plan(address=board.server.address, content=content, load=_load(scale), expect=expect)
    found = microseconds(plan, board.processes, {"store": share})
    return {f"{name}-{process}": figure for process, figure in found.items()}


def _load(scale: Scale) -> Load:
    return Load(requests=scale.read_requests, connections=SINGLE_CONNECTIONS, warmup=SINGLE_WARMUP)


def _row(work: str, name: str, goal: str, rounds: list[dict[str, float]]) -> Row:
    cost = cost_of(name, rounds)
    return Row(
        work=work,
        measured=f"{1e6 / cost.total:,.0f}/CPU s (server {cost.server:.0f} + store {cost.store:.1f} µs)",
        against=f"do-nothing ASGI GET: {1e6 / cost.nothing:,.0f}/CPU s ({cost.nothing:.0f} µs)",
        ratio=1 / cost.ratio,
        goal=goal,
        figures=cost.figures,
    )


@contextmanager
def _likes(server: Server, key: str, rate: int) -> Iterator[None]:
    """Post likes at a rate, in bodies of 10, while in the context."""
    ended, failed = threading.Event(), []
    body = msgspec.json.encode([{"key": f"post-{number:06d}"} for number in range(_BODY)])
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def post() -> None:
        connection, due = HTTPConnection(server.address, timeout=10), time.perf_counter()
        while not ended.wait(max(0, due - time.perf_counter())):
            connection.request("POST", "/v1/events", body, headers)
            answer = connection.getresponse().read()
            if not answer.startswith(b'{"accepted":10,'):
                failed.append(answer)
                return
            due += _BODY / rate

    thread = threading.Thread(target=post)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if failed:
        raise BenchError(f"a like was answered {failed[0]!r}")


def _tag_of(server: Server) -> str:
    with closing(HTTPConnection(server.address, timeout=10)) as connection:
        connection.request("GET", _TOP)
        return connection.getresponse().headers["ETag"]
