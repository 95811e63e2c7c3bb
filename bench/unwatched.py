"""`unwatched-boards`: the cost of boards without viewers and events."""

import time
from contextlib import ExitStack
from typing import Final

from bench.board import PLAIN, Board
from bench.processes import cpu_seconds
from bench.table import Report, Row, Scale, median_ratio, medians, of_round

_BOARD: Final = '[[board]]\nid = "b-{0}"\ntypes = ["b-{0}"]\n'
_AFTER: Final = 3.0  # seconds until the work of the start is done
_READY: Final = 5  # seconds
_Round = dict[str, float]


def unwatched_boards(scale: Scale, report: Report) -> list[Row]:
    """Measure the CPU time of server and store for an idle server with 10,000 boards, and for one with a single board.

    First, a second server on the same store shows how long a restart takes until `/readyz` returns 200. The measurement
    begins some seconds later, when the servers are quiet.
    """
    with ExitStack() as stack:
        report("starting")
        one = Board(stack)
        many = Board(stack, PLAIN + "".join(_BOARD.format(number) for number in range(scale.unwatched_boards)))
        report("a second server")
        with ExitStack() as other:
            started = time.perf_counter()
            many.await_ready(many.second_server(other))
            ready = time.perf_counter() - started
        time.sleep(_AFTER)
        rounds = [_round(one, many, scale, of_round(report, number)) for number in range(1, scale.rounds + 1)]
    mid = medians(rounds)
    work = f"unwatched-boards: {scale.unwatched_boards:,} boards"
    return [
        Row(
            work=f"{work}, idle",
            measured=f"{mid['many'] * 1000:.1f} ms of CPU per second",
            against=f"one board: {mid['one'] * 1000:.1f} ms",
            ratio=median_ratio(rounds, ("many",), ("one",)),
            goal="≤ 1.20 x",
            figures={"medians": mid, "rounds": rounds},
        ),
        Row(
            work=f"{work}: from start to ready",
            measured=f"{ready:.1f} s",
            against=f"the goal: {_READY} s",
            ratio=ready / _READY,
            goal=f"≤ {_READY} s",
        ),
    ]


def _round(one: Board, many: Board, scale: Scale, report: Report) -> _Round:
    report("idle")
    boards = {"one": one, "many": many}
    before, started = {name: _cpu(board) for name, board in boards.items()}, time.perf_counter()
    time.sleep(scale.idle_seconds)
    seconds = time.perf_counter() - started
    return {name: (_cpu(board) - before[name]) / seconds for name, board in boards.items()}


def _cpu(board: Board) -> float:
    return sum(cpu_seconds(server.pid) for server in board.processes.values())
