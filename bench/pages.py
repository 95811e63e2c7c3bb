"""`pages`: CPU time of HTML pages that differ from reader to reader, compared with doing nothing."""

import json
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from typing import Final

from bench.board import Board, cost_of
from bench.plans import Gets, Load, Members, Plan
from bench.processes import Server, idle_server, microseconds
from bench.table import Report, Row, Scale, of_round

_CONNECTIONS: Final = 8
_FOLLOWED: Final = 200  # members that the pages are about; the first 50 are on the first page
_SHARE: Final = 20  # a page takes as long as many short reads


def pages(scale: Scale, report: Report) -> list[Row]:
    """Read pages of a board of 100,000 members while nothing changes: CPU time of server and store.

    The pages are those of viewers who follow 200 members in turn, those of these records, and that of the rows 51 to
    100. The baseline is measured alternately: the same requests to an endpoint that does nothing.
    """
    rounds: list[dict[str, float]] = []
    with ExitStack() as stack:
        board = Board(stack)
        idle = stack.enter_context(idle_server())
        report("filling")
        board.fill(Members(count=scale.members, order="each"), scale.members)
        board.fill(Members(count=scale.members, order="zipf"), scale.members)
        members = _members(board.server)
        paths = {
            "key": [f"/boards/posts?key={member}" for member in members],
            "record": [f"/boards/posts/records/{member}" for member in members],
            "start": ["/boards/posts?start=50"],
        }
        load = Load(requests=scale.read_requests // _SHARE, connections=_CONNECTIONS, warmup=_CONNECTIONS)
        for number in range(1, scale.rounds + 1):
            note, figures = of_round(report, number), dict[str, float]()
            for name, some in paths.items():
                note(name)
                plan = Plan(address=board.server.address, content=Gets(paths=some), load=load, expect="<!doctype")
                cost = microseconds(plan, board.processes)
                figures |= {f"{name}-{process}": figure for process, figure in cost.items()}
            note("do-nothing GET")
            nothing = Plan(address=idle.address, content=Gets(paths=["/"]), load=load)
            figures |= microseconds(nothing, {"nothing": idle})
            rounds.append(figures)
    return [
        _row("HTML page of a viewer who follows a member", "key", rounds),
        _row("HTML page of a record", "record", rounds),
        _row("HTML page of the rows 51 to 100", "start", rounds),
    ]


def _row(work: str, name: str, rounds: list[dict[str, float]]) -> Row:
    cost = cost_of(name, rounds)
    return Row(
        work=work,
        measured=f"{cost.total / 1000:.2f} ms (server {cost.server:.0f} + store {cost.store:.0f} µs)",
        against=f"do-nothing ASGI GET: {cost.nothing:.0f} µs",
        ratio=cost.ratio,
        goal="≤ 1 ms",
        figures=cost.figures,
    )


def _members(server: Server) -> list[str]:
    with closing(HTTPConnection(server.address, timeout=10)) as connection:
        connection.request("GET", f"/v1/boards/posts?limit={_FOLLOWED}")
        return [str(record["key"]) for record in json.load(connection.getresponse())["records"]]
