"""`ingest-socket`: CPU time of an acknowledged durable event over the producer's socket, against a POST of one."""

from contextlib import ExitStack
from typing import Final

from bench.board import OURS, Board, events_a_second, single_load
from bench.plans import Frames, Keys, Posts
from bench.table import Row, Scale, Tell, middle, middle_ratio, of_round, total

_GOALS: Final = {16: "≤ 0.60 x", 1: ""}  # many in flight is what the socket is for; one at a time is there to compare
_POST: Final = ("post_server", "post_store")


def ingest_socket(scale: Scale, tell: Tell) -> list[Row]:
    """One event a text frame over 64 WebSockets, 16 frames in flight on each, and 1: server and store together.

    Against it, in turn with it: the same events as POSTs of one over as many connections, on the same board.
    """
    with ExitStack() as stack:
        board = Board(stack)
        tell("filling")
        board.hold_every_key(scale.keys)
        rounds = [_round(board, scale, number, of_round(tell, number)) for number in range(1, scale.rounds + 1)]
    mid = middle(rounds)
    return [
        Row(
            work=f"ingest-socket: 1 event a frame, {in_flight} in flight",
            measured=events_a_second({name: mid[f"{in_flight}_{name}"] for name in OURS}),
            against=f"a durable POST of 1 event: {total(mid, _POST):.0f} µs",
            ratio=middle_ratio(rounds, [f"{in_flight}_{name}" for name in OURS], _POST),
            goal=goal,
            figures={"microseconds": mid, "rounds": rounds} if goal else {},
        )
        for in_flight, goal in _GOALS.items()
    ]


def _round(board: Board, scale: Scale, number: int, tell: Tell) -> dict[str, float]:
    keys = Keys(count=scale.keys, seed=number)
    load = single_load(scale)
    tell("durable POST")
    figures = {f"post_{name}": used for name, used in board.send(Posts(keys=keys), load).items()}
    for in_flight in _GOALS:
        tell(f"frames, {in_flight} in flight")
        used = board.send(Frames(keys=keys, in_flight=in_flight), load)
        figures |= {f"{in_flight}_{name}": each for name, each in used.items()}
    return figures
