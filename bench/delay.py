"""`delay`: the cost of a frame that viewers receive some seconds late, compared with a live frame."""

import time
from contextlib import ExitStack
from typing import Final

from bench.board import PLAIN, Board
from bench.fanout import behind, delivered_share, measure_ours
from bench.swarm import Programs, built, need_files, not_built, swarming
from bench.table import Report, Row, Scale, median_ratio, medians, of_round
from bench.watched import fill_top, liked, settle, watched_board

_DELAY: Final = 5  # seconds, the least that viewers can ask for
_PATH: Final = f"/v1/boards/posts/live?delay={_DELAY}s"
_GOAL: Final = "≤ 1.10 x"
_BEGIN: Final = 1_900_000_800  # seconds; the beginning of an hour
_TOP: Final = 50


def delayed(scale: Scale, report: Report) -> list[Row]:
    """Measure the CPU time per frame, live and delayed, with one board, many viewers and ten frames per second.

    In both runs, the server receives the same likes.
    """
    need_files(scale.viewers)
    with ExitStack() as stack:
        programs = stack.enter_context(built())
        if programs is None:
            return not_built("delay")
        board = watched_board(stack, PLAIN)
        fill_top(board)
        rounds = [_round(board, programs, scale, of_round(report, number)) for number in range(1, scale.rounds + 1)]
    mid = medians(rounds)
    return [
        Row(
            work=f"delay: {scale.viewers:,} viewers, `delay={_DELAY}s`, 10 frames per second",
            measured=f"server {mid['delayed']:.2f} µs per frame{behind(mid['delayed_share'])}",
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
        time.sleep(_DELAY)  # after this pause, viewers receive frames of the time when likes arrived
        settle()
        later = swarm.measure(scale.fan_seconds, [board.server])
    return {
        "live": live.microseconds()[0],
        "live_share": delivered_share(live),
        "delayed": sum(later.microseconds()),
        "delayed_share": delivered_share(later),
    }
