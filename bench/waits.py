"""`long-poll`: CPU time per answer to clients that wait for a change, against doing nothing."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from bench.board import OURS, Board
from bench.plans import Gets, Load, Plan, Waits
from bench.posting import Posting, posting_to
from bench.processes import Server, idle_server, microseconds
from bench.table import Report, Row, Scale, median_ratio, medians
from bench.watched import EVENTS, fill_top

_PATH: Final = "/v1/boards/posts?wait=30s&limit=50"
_CHANGES: Final = 10.0  # per second
_WARMUP: Final = 3  # answers to each client before the measurement


def long_poll(scale: Scale, report: Report) -> list[Row]:
    """Measure clients that wait for a change of the top 50, and then ask again with the new tag.

    The likes come through another server on the same store, whose CPU time is not counted. The baseline is measured
    alternately: as many requests on as many connections to an endpoint that does nothing.
    """
    rounds: list[dict[str, float]] = []
    with ExitStack() as stack:
        board = Board(stack)
        idle = stack.enter_context(idle_server())
        other = board.second_server(stack)
        fill_top(board)
        load = Load(
            requests=scale.waiting * scale.wait_rounds, connections=scale.waiting, warmup=scale.waiting * _WARMUP
        )
        for number in range(1, scale.rounds + 1):
            report(f"round {number}: {scale.waiting:,} waiting clients")
            waits = Plan(address=board.server.address, content=Waits(path=_PATH), load=load, expect='{"board":"posts",')
            with _changing(other, board.key):
                figures = microseconds(waits, board.processes)
            report(f"round {number}: do-nothing GET")
            nothing = Plan(address=idle.address, content=Gets(path=_PATH), load=load)
            rounds.append(figures | microseconds(nothing, {"nothing": idle}))
    mid = medians(rounds)
    return [
        Row(
            work=f"long-poll: an answer to one of {scale.waiting:,} clients that wait for the top 50",
            measured=f"server {mid['server']:.0f} + store {mid['store']:.1f} µs",
            against=f"do-nothing ASGI GET: {mid['nothing']:.0f} µs",
            ratio=median_ratio(rounds, OURS, ("nothing",)),
            goal="≤ 1.5 x",
            figures={"microseconds": mid, "rounds": rounds},
        )
    ]


@contextmanager
def _changing(server: Server, key: str) -> Iterator[None]:
    """Change the top ten times per second while in the context."""
    bodies = [json.dumps({"key": f"post-{number:06d}"}).encode() for number in range(50)]
    posting = Posting(path=EVENTS, bodies=bodies, rate=_CHANGES, key=key, expect=b'"rejected":[],')
    with posting_to(server, posting):
        yield
