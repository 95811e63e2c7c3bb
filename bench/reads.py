"""`get-top-100`: CPU time of a page of 100 records, compared with an endpoint that does nothing."""

from contextlib import ExitStack

from bench.board import OURS, SINGLE_CONNECTIONS, SINGLE_WARMUP, Board
from bench.plans import Gets, Keys, Load, Plan
from bench.processes import Server, idle_server, microseconds
from bench.table import Report, Row, Scale, median_ratio, medians


def get_top_100(scale: Scale, report: Report) -> list[Row]:
    """GET the first 100 records of a board of 100,000 members over 64 connections: CPU time of server and store.

    The baseline, measured in turn: the same requests to the endpoint that does nothing. The ratio is of rates.
    """
    rounds: list[dict[str, float]] = []
    with ExitStack() as stack:
        board = Board(stack)
        idle = stack.enter_context(idle_server())
        report("filling")
        board.fill(Keys(count=scale.keys, order="each"), scale.keys)
        board.fill(Keys(count=scale.keys, order="zipf"), scale.keys)  # so that scores differ
        for number in range(1, scale.rounds + 1):
            report(f"round {number}: the top 100")
            ours = _get(board.server, board.processes, scale, '{"board":"posts",')
            report(f"round {number}: do-nothing GET")
            rounds.append({**ours, "nothing": _get(idle, {"idle": idle}, scale, "{")["idle"]})
    mid = medians(rounds)
    ours_us = mid["server"] + mid["store"]
    return [
        Row(
            work=f"get-top-100 of {scale.keys:,} members",
            measured=f"{1e6 / ours_us:,.0f}/CPU s (server {mid['server']:.0f} + store {mid['store']:.0f} µs)",
            against=f"do-nothing ASGI GET: {1e6 / mid['nothing']:,.0f}/CPU s ({mid['nothing']:.0f} µs)",
            ratio=1 / median_ratio(rounds, OURS, ("nothing",)),
            goal="≥ 0.90 x its rate",
            figures={"microseconds": mid, "rounds": rounds},
        )
    ]


def _get(server: Server, counted: dict[str, Server], scale: Scale, expect: str) -> dict[str, float]:
    load = Load(requests=scale.read_requests, connections=SINGLE_CONNECTIONS, warmup=SINGLE_WARMUP)
    content = Gets(path="/v1/boards/posts?limit=100")
    return microseconds(Plan(address=server.address, content=content, load=load, expect=expect), counted)
