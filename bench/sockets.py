"""`ingest-socket`: CPU time per durable event over the producer's WebSocket, compared with single POSTs."""

from contextlib import ExitStack
from typing import Final

from bench.board import OURS, Board, events_a_second, single_load
from bench.plans import Frames, Keys, Posts
from bench.table import Report, Row, Scale, median_ratio, medians, of_round, total

_GOALS: Final = {16: "≤ 0.60 x", 1: ""}  # the socket is made for many in flight; 1 is for comparison
_POST: Final = ("post_server", "post_store")


def ingest_socket(scale: Scale, report: Report) -> list[Row]:
    """One event per text frame over 64 WebSockets, with 16 frames or 1 in flight on each: server and store together.

    The baseline, measured in turn: the same events as POSTs of one event over as many connections, on the same board.
    """
    with ExitStack() as stack:
        board = Board(stack)
        report("filling")
        board.create_every_member(scale.keys)
        rounds = [_round(board, scale, number, of_round(report, number)) for number in range(1, scale.rounds + 1)]
    mid = medians(rounds)
    return [
        Row(
            work=f"ingest-socket: 1 event a frame, {in_flight} in flight",
            measured=events_a_second({name: mid[f"{in_flight}_{name}"] for name in OURS}),
            against=f"a durable POST of 1 event: {total(mid, _POST):.0f} µs",
            ratio=median_ratio(rounds, [f"{in_flight}_{name}" for name in OURS], _POST),
            goal=goal,
            figures={"microseconds": mid, "rounds": rounds} if goal else {},
        )
        for in_flight, goal in _GOALS.items()
    ]


def _round(board: Board, scale: Scale, number: int, report: Report) -> dict[str, float]:
    keys = Keys(count=scale.keys, seed=number)
    load = single_load(scale)
    report("durable POST")
    figures = {f"post_{name}": used for name, used in board.send(Posts(keys=keys), load).items()}
    for in_flight in _GOALS:
        report(f"frames, {in_flight} in flight")
        used = board.send(Frames(keys=keys, in_flight=in_flight), load)
        figures |= {f"{in_flight}_{name}": each for name, each in used.items()}
    return figures
