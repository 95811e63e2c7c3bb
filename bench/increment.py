"""`increment`: the cost of showing one like to many viewers, compared with Nchan, which sends the whole top."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

import msgspec

from bench.broadcasters import TICK, find_peers
from bench.fanout import behind, delivered_share
from bench.processes import Server
from bench.swarm import Delivery, Programs, Swarm, built, need_files, not_built, pin, swarming
from bench.table import Report, Row, Scale, median_ratio, medians, of_round
from bench.watched import PATH, fill, long_name, posted, settle, sync_size, watched_board

_TOP: Final = 50
_SCORE: Final = 1_000  # the difference between two scores at the start, so large that likes change no order
_WORK: Final = "increment: one like seen by {:,} viewers"
_Round = dict[str, float]


def increment(scale: Scale, report: Report) -> list[Row]:
    """Send ten likes per second, one in each request, to a board of 50 members with names of 40 to 60 characters.

    Our viewers offer permessage-deflate, as browsers do, and receive one change per like. For each like, Nchan receives
    the whole top, as an application without a board would publish it, and sends it to its viewers. CPU time is that of
    all processes except the publisher and the viewers, per like and viewer.
    """
    need_files(scale.viewers)
    work = _WORK.format(scale.viewers)
    with ExitStack() as stack:
        programs = stack.enter_context(built())
        if programs is None:
            return not_built("increment")
        start = find_peers(programs)["nchan"].start
        if start is None:
            return [Row(work=work, measured="not measured: nginx with its module nchan is not installed")]
        board = watched_board(stack)
        fill(board, [{"key": long_name(rank), "amount": (_TOP - rank) * _SCORE + 1} for rank in range(_TOP)])
        bodies, size = [msgspec.json.encode({"key": long_name(rank)}) for rank in range(_TOP)], sync_size(board)
        rounds: list[_Round] = []
        for number in range(1, scale.rounds + 1):
            note = of_round(report, number)
            note("ours")
            with posted(board, bodies, 1 / TICK):
                ours = _watch(programs, board.server, PATH, scale, [board.server, board.store], deflates=True)
            note("Nchan")
            with start(size) as nchan:
                pin(nchan.server.pid, 0)
                theirs = _watch(programs, nchan.server, nchan.path, scale, [nchan.server])
            rounds.append(_figures("ours", ours) | _figures("nchan", theirs))
    return _rows(rounds, work)


def _watch(
    programs: Programs, server: Server, path: str, scale: Scale, counted: Sequence[Server], *, deflates: bool = False
) -> Delivery:
    with swarming(programs, server, path, deflates=deflates) as swarm:
        return _measured(swarm, scale, counted)


def _measured(swarm: Swarm, scale: Scale, counted: Sequence[Server]) -> Delivery:
    swarm.connect(scale.viewers, first=True)
    settle()
    return swarm.measure(scale.fan_seconds, counted)


def _figures(name: str, delivery: Delivery) -> _Round:
    return {
        f"{name}_cpu": sum(delivery.microseconds()), f"{name}_bytes": delivery.bytes / max(1, delivery.frames),
        f"{name}_share": delivered_share(delivery),
    }  # fmt: skip


def _rows(rounds: Sequence[_Round], work: str) -> list[Row]:
    mid = medians(rounds)
    return [
        Row(
            work=f"{work}: CPU time per viewer",
            measured=f"{mid['ours_cpu']:.2f} µs{behind(mid['ours_share'])}",
            against=f"Nchan, the whole top: {mid['nchan_cpu']:.2f} µs{behind(mid['nchan_share'])}",
            ratio=median_ratio(rounds, ("ours_cpu",), ("nchan_cpu",)),
            figures={"medians": mid, "rounds": rounds},
        ),
        Row(
            work=f"{work}: bytes per viewer",
            measured=f"{mid['ours_bytes']:,.0f} bytes",
            against=f"Nchan, the whole top: {mid['nchan_bytes']:,.0f} bytes",
            ratio=median_ratio(rounds, ("ours_bytes",), ("nchan_bytes",)),
        ),
    ]
