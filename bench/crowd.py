"""`crowd`: very many viewers of one board at one frame per second."""

from contextlib import ExitStack
from typing import Final

from bench.fanout import behind
from bench.idle import resident
from bench.processes import BenchError
from bench.swarm import built, need_files, not_built, room_for, swarming
from bench.table import Report, Row, Scale
from bench.watched import PATH, fill_top, liked, settle, watched_board

_PAUSE: Final = 0.8  # seconds between two frames: eight times the board's interval
_VIEWERS: Final = 20_000
_CORES: Final = 0.2
_MEGABYTES: Final = 150


def crowd(scale: Scale, report: Report) -> list[Row]:
    """Measure CPU time and resident memory of a server with 20,000 viewers of one board and one frame per second.

    If the limit of open files allows fewer viewers, the time is extrapolated to 20,000 frames. One round is enough,
    because it has thousands of frames.
    """
    viewers = room_for(scale.crowd)
    need_files(viewers)
    with ExitStack() as stack:
        programs = stack.enter_context(built())
        if programs is None:
            return not_built("crowd")
        report(f"{viewers:,} viewers")
        board = watched_board(stack)
        fill_top(board)
        with liked(board), swarming(programs, board.server, f"{PATH}&interval=800ms", deflates=True) as swarm:
            swarm.connect(viewers, first=True)
            settle()
            delivery = swarm.measure(scale.crowd_seconds, [board.server])
            memory = resident(board.server) / 1e6
    if delivery.lost:
        raise BenchError(f"{delivery.lost:,} viewers were disconnected")
    each = delivery.microseconds()[0]
    cores = each * _VIEWERS / 1e6
    due = viewers * (delivery.seconds // _PAUSE)  # one more frame may be due at the end
    late = behind(delivery.frames / due)
    work = f"crowd: {viewers:,} viewers"
    return [
        Row(
            work=f"{work}, one frame per second",
            measured=f"{each:.1f} µs per frame, {cores:.2f} cores for {_VIEWERS:,}{late}",
            against=f"the goal: {_CORES} cores",
            ratio=cores / _CORES,
            goal=f"≤ {_CORES} cores",
            figures={"delivery": delivery},
        ),
        Row(
            work=f"{work}: memory of the server",
            measured=f"{memory:.0f} MB",
            against=f"the goal: {_MEGABYTES} MB",
            ratio=memory / _MEGABYTES,
            goal=f"< {_MEGABYTES} MB",
        ),
    ]
