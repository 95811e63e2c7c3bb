"""`pages`: CPU time of HTML pages that are drawn for one request, compared with doing nothing."""

import json
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from typing import Final

from bench.board import OURS, Board
from bench.plans import Gets, Keys, Load, Plan
from bench.processes import Server, idle_server, microseconds
from bench.table import Report, Row, Scale, median_ratio, medians, of_round

_CONNECTIONS: Final = 8
_FOLLOWED: Final = 20  # the place of the member that the pages are about
_SHARE: Final = 20  # a page takes as long as many short reads


def pages(scale: Scale, report: Report) -> list[Row]:
    """Read pages of a board of 100,000 members that no other request can share: CPU time of server and store.

    The pages are that of a viewer who follows one member, that of a record, and that of the rows 51 to 100. The
    baseline is measured alternately: the same requests to an endpoint that does nothing.
    """
    rounds: list[dict[str, float]] = []
    with ExitStack() as stack:
        board = Board(stack)
        idle = stack.enter_context(idle_server())
        report("filling")
        board.fill(Keys(count=scale.keys, order="each"), scale.keys)
        board.fill(Keys(count=scale.keys, order="zipf"), scale.keys)
        member = _member(board.server)
        paths = {
            "key": f"/boards/posts?key={member}",
            "record": f"/boards/posts/records/{member}",
            "start": "/boards/posts?start=50",
        }
        load = Load(requests=scale.read_requests // _SHARE, connections=_CONNECTIONS, warmup=_CONNECTIONS)
        for number in range(1, scale.rounds + 1):
            note, figures = of_round(report, number), dict[str, float]()
            for name, path in paths.items():
                note(name)
                plan = Plan(address=board.server.address, content=Gets(path=path), load=load, expect="<!doctype")
                cost = microseconds(plan, board.processes)
                figures |= {f"{name}-{process}": figure for process, figure in cost.items()}
            note("do-nothing GET")
            nothing = Plan(address=idle.address, content=Gets(path="/"), load=load)
            figures |= microseconds(nothing, {"nothing": idle})
            rounds.append(figures)
    return [
        _row("HTML page of a viewer who follows a member", "key", rounds),
        _row("HTML page of a record", "record", rounds),
        _row("HTML page of the rows 51 to 100", "start", rounds),
    ]


def _row(work: str, name: str, rounds: list[dict[str, float]]) -> Row:
    mid, ours = medians(rounds), tuple(f"{name}-{process}" for process in OURS)
    server, store = (mid[figure] for figure in ours)
    return Row(
        work=work,
        measured=f"{(server + store) / 1000:.2f} ms (server {server:.0f} + store {store:.0f} µs)",
        against=f"do-nothing ASGI GET: {mid['nothing']:.0f} µs",
        ratio=median_ratio(rounds, ours, ("nothing",)),
        goal="≤ 1 ms",
        figures={"microseconds": mid, "rounds": rounds},
    )


def _member(server: Server) -> str:
    with closing(HTTPConnection(server.address, timeout=10)) as connection:
        connection.request("GET", f"/v1/boards/posts?start={_FOLLOWED}&limit=1")
        return str(json.load(connection.getresponse())["records"][0]["key"])
