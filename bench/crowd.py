"""`crowd`: very many viewers of one board at one frame per second."""

from contextlib import ExitStack
from typing import Final

from bench.fanout import behind, delivered_share
from bench.idle import resident
from bench.processes import BenchError
from bench.swarm import built, need_files, not_built, room_for, swarming
from bench.table import Report, Row, Scale
from bench.watched import PATH, fill_top, liked, settle, watched_board

_PAUSE: Final = 1.0  # seconds between two frames
_CORES: Final = 0.2
_MEGABYTES: Final = 150


def crowd(scale: Scale, report: Report) -> list[Row]:
    """20,000 viewers that ask for one frame per second: CPU time of the server process, and its resident memory.

    There are fewer viewers where the limit of open files allows no more. One round is enough, because every frame is
    one of thousands.
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
        with liked(board), swarming(programs, board.server, f"{PATH}&interval=1s", deflates=True) as swarm:
            swarm.connect(viewers, first=True)
            settle()
            delivery = swarm.measure(scale.crowd_seconds, [board.server])
            memory = resident(board.server) / 1e6
    if delivery.lost:
        raise BenchError(f"{delivery.lost:,} viewers were disconnected")
    cores = delivery.cpu[0] / delivery.seconds
    late = behind(delivered_share(delivery, _PAUSE))
    work = f"crowd: {viewers:,} viewers, one frame per second"
    return [
        Row(
            work=work,
            measured=f"{cores:.2f} cores, {delivery.microseconds()[0]:.1f} µs a frame{late}",
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
