"""`egress`: what frames cost with and without compression, in bytes and in CPU time."""

import random
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

import msgspec

from bench.board import BATCH, Board
from bench.fanout import behind, delivered_share
from bench.swarm import Delivery, Programs, built, need_files, not_built, swarming
from bench.table import Report, Row, Scale, median_ratio, medians, of_round
from bench.watched import PATH, fill, long_name, posted, settle, watched_board

_HISTORY: Final = 3600  # seconds of likes that the board has at the start
_BODIES: Final = 200
_RATE: Final = 20.0  # POSTs per second
_Round = dict[str, float]


def egress(scale: Scale, report: Report) -> list[Row]:
    """Measure frames of the top 50 of 100,000 members while likes arrive.

    A member receives likes in proportion to 1/rank, and has a name of 40 to 60 characters. Viewers that offer
    permessage-deflate alternate with viewers that do not. Bytes are those of frames with their headers. CPU time is
    that of server and store, including the likes.
    """
    need_files(scale.viewers)
    with ExitStack() as stack:
        programs = stack.enter_context(built())
        if programs is None:
            return not_built("egress")
        board = watched_board(stack)
        report("filling")
        _fill(board, scale)
        bodies = _bodies(scale)
        rounds = [
            _round(board, bodies, programs, scale, of_round(report, number)) for number in range(1, scale.rounds + 1)
        ]
    return _rows(rounds, scale)


def _fill(board: Board, scale: Scale) -> None:
    whole = sum(1 / rank for rank in range(1, scale.members + 1))
    for first in range(1, scale.members + 1, BATCH):
        ranks = range(first, min(first + BATCH, scale.members + 1))
        amounts = {rank: max(1, round(_HISTORY * scale.likes_a_second / whole / rank)) for rank in ranks}
        fill(board, [{"key": long_name(rank), "amount": amount} for rank, amount in amounts.items()])


def _bodies(scale: Scale) -> list[bytes]:
    ranks = range(1, scale.members + 1)
    size = round(scale.likes_a_second / _RATE)
    drawn = random.Random(7).choices(ranks, [1 / rank for rank in ranks], k=_BODIES * size)
    likes = [{"key": long_name(rank)} for rank in drawn]
    return [msgspec.json.encode(likes[first : first + size]) for first in range(0, len(likes), size)]


def _round(board: Board, bodies: Sequence[bytes], programs: Programs, scale: Scale, report: Report) -> _Round:
    figures: _Round = {}
    for name in ("compressed", "plain"):
        report(name)
        delivery = _watch(board, bodies, programs, scale, deflates=name == "compressed")
        figures |= {
            f"{name}_bytes": delivery.bytes / delivery.viewers / delivery.seconds,
            f"{name}_frame": delivery.bytes / max(1, delivery.frames),
            f"{name}_cpu": sum(delivery.microseconds()),
            f"{name}_share": delivered_share(delivery),
        }
    return figures


def _watch(board: Board, bodies: Sequence[bytes], programs: Programs, scale: Scale, *, deflates: bool) -> Delivery:
    with posted(board, bodies, _RATE), swarming(programs, board.server, PATH, deflates=deflates) as swarm:
        swarm.connect(scale.viewers, first=True)
        settle()
        return swarm.measure(scale.fan_seconds, [board.server, board.store])


def _rows(rounds: Sequence[_Round], scale: Scale) -> list[Row]:
    mid = medians(rounds)
    work = f"egress: {scale.viewers:,} viewers, {scale.likes_a_second:,} likes/s, {scale.members:,} members"
    return [
        Row(
            work=f"{work}: bytes per viewer and second",
            measured=f"{mid['compressed_bytes']:,.0f} bytes, {mid['compressed_frame']:,.0f} per frame",
            against=f"plain frames: {mid['plain_bytes']:,.0f} bytes, {mid['plain_frame']:,.0f} per frame",
            ratio=median_ratio(rounds, ("compressed_bytes",), ("plain_bytes",)),
            goal="≤ 0.10 x",
            figures={"medians": mid, "rounds": rounds},
        ),
        Row(
            work="egress: CPU time per delivered frame",
            measured=f"{mid['compressed_cpu']:.2f} µs{behind(mid['compressed_share'])}",
            against=f"plain frames: {mid['plain_cpu']:.2f} µs{behind(mid['plain_share'])}",
            ratio=median_ratio(rounds, ("compressed_cpu",), ("plain_cpu",)),
            goal="≤ 1.00 x",
        ),
    ]
