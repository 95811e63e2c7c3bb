"""`delay`: what a frame costs that viewers receive some seconds later, compared with a live one."""

import time
from contextlib import ExitStack
from typing import Final

from bench.board import OURS, PLAIN, Board
from bench.fanout import behind, delivered_share, measure_ours
from bench.swarm import Programs, built, need_files, not_built, swarming
from bench.table import Report, Row, Scale, median_ratio, medians, of_round
from bench.watched import fill_top, liked, settle, watched_board

_DELAY: Final = 5  # seconds, the least that viewers can ask for
_PATH: Final = f"/v1/boards/posts/live?delay={_DELAY}s"
_BOARD: Final = f'{PLAIN}replay = "1h"\n'
_GOAL: Final = "≤ 1.10 x"


def delayed(scale: Scale, report: Report) -> list[Row]:
    """One board that keeps its frames, many viewers, ten frames per second: CPU time per frame, live and delayed.

    In both runs, the server receives the same likes and records the board. The figure is all the CPU time of the server
    process: with `delay`, also reading and unpacking what was kept.
    """
    need_files(scale.viewers)
    with ExitStack() as stack:
        programs = stack.enter_context(built())
        if programs is None:
            return not_built("delay")
        board = watched_board(stack, _BOARD)
        fill_top(board)
        rounds = [_round(board, programs, scale, of_round(report, number)) for number in range(1, scale.rounds + 1)]
    mid = medians(rounds)
    return [
        Row(
            work=f"delay: {scale.viewers:,} viewers, `delay={_DELAY}s`, 10 frames a second",
            measured=f"server {mid['delayed']:.2f} µs a frame{behind(mid['delayed_share'])}",
            against=f"live viewers of the same board: {mid['live']:.2f} µs{behind(mid['live_share'])}",
            ratio=median_ratio(rounds, ("delayed",), ("live",)),
            goal=_GOAL,
            figures={"medians": mid, "rounds": rounds},
        )
    ]


def _round(board: Board, programs: Programs, scale: Scale, report: Report) -> dict[str, float]:
    report("live")
    live = measure_ours(board, programs, scale)
    report("delayed")
    with liked(board), swarming(programs, board.server, _PATH) as swarm:
        swarm.connect(scale.viewers, first=True)
        time.sleep(_DELAY)  # until what they receive was sent while the likes arrived
        settle()
        later = swarm.measure(scale.fan_seconds, [board.processes[name] for name in OURS])
    return {
        "live": live.microseconds()[0],
        "live_share": delivered_share(live),
        "delayed": later.microseconds()[0],
        "delayed_share": delivered_share(later),
    }
