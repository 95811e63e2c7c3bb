"""`many-boards`: as many viewers and frames as in `fan-out`, spread over many boards."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

import msgspec

from bench.board import OURS, Board
from bench.fanout import behind, delivered_share, measure_ours
from bench.processes import cpu_seconds
from bench.swarm import Programs, built, need_files, not_built, swarming
from bench.table import Report, Row, Scale, median_ratio, medians, of_round, total
from bench.watched import fill_top, posted, settle, watched_board

_PATH: Final = "/v1/boards/b-%d/live?limit=50"
_BOARD: Final = '[[board]]\nid = "b-{0}"\ntypes = ["b-{0}"]\nties = "key"\n'
_NAMES: Final = 4
_NAME: Final = "post-with-a-long-name-" + "x" * 220 + "-"  # so that a record is as long as six on the single board
_RATE: Final = 2.0  # POSTs per second, with a like for every board; a higher rate would use a whole core
_GOAL: Final = "≤ 1.50 x"
_Round = dict[str, float]


def many_boards(scale: Scale, report: Report) -> list[Row]:
    """Measure the CPU time of server and store per delivered frame, with likes on 1,000 boards of 5 viewers each.

    The baseline is measured alternately: a single board with as many viewers. A frame on each of 1,000 boards needs a
    like on each board. The cost of the likes without viewers is measured separately, per POST. The second row, which
    has the goal, subtracts this cost.
    """
    need_files(scale.viewers)
    with ExitStack() as stack:
        programs = stack.enter_context(built())
        if programs is None:
            return not_built("many-boards")
        report("starting")
        single = watched_board(stack)
        fill_top(single)
        many = watched_board(stack, "".join(_BOARD.format(number) for number in range(scale.boards)))
        rounds = [
            _round(single, many, programs, scale, of_round(report, number)) for number in range(1, scale.rounds + 1)
        ]
    return _rows(rounds, scale)


def _round(single: Board, many: Board, programs: Programs, scale: Scale, report: Report) -> _Round:
    report("one board")
    one = measure_ours(single, programs, scale)
    bodies = _bodies(scale.boards)
    report("likes without viewers")
    likes = _likes_alone(many, bodies, scale)
    report("many boards")
    with posted(many, bodies, _RATE) as sender, swarming(programs, many.server, _PATH, scale.boards) as swarm:
        swarm.connect(scale.viewers, first=True)
        settle()
        before = sender.sent
        spread = swarm.measure(scale.fan_seconds, [many.server, many.store])
        posts = sender.sent - before
    return {
        **dict(zip(OURS, spread.microseconds(), strict=True)), "single": sum(one.microseconds()),
        "fanned": sum(spread.microseconds()) - likes * posts / spread.frames * 1e6, "likes": likes, "posts": posts,
        "share": delivered_share(spread, 1 / _RATE), "rate": spread.rate, "payload": spread.payload,
        "least": spread.least,
        "single_share": delivered_share(one), "single_payload": one.payload,
    }  # fmt: skip


def _likes_alone(board: Board, bodies: Sequence[bytes], scale: Scale) -> float:
    with posted(board, bodies, _RATE) as sender:
        settle()
        before, sent = _cpu(board), sender.sent
        time.sleep(scale.fan_seconds)
        return (_cpu(board) - before) / max(1, sender.sent - sent)


def _cpu(board: Board) -> float:
    return sum(cpu_seconds(server.pid) for server in board.processes.values())


def _bodies(boards: int) -> list[bytes]:
    """Make bodies with a like for every board: the same member on all boards, another member in the next body."""
    return [
        msgspec.json.encode([{"key": f"{_NAME}{name}", "board": f"b-{board}"} for board in range(boards)])
        for name in range(_NAMES)
    ]


def _rows(rounds: Sequence[_Round], scale: Scale) -> list[Row]:
    mid = medians(rounds)
    late = behind(mid["share"])
    each = scale.viewers // scale.boards
    against = f"one board, {mid['single_payload']:.0f}-byte frames: {mid['single']:.2f} µs{behind(mid['single_share'])}"
    return [
        Row(
            work=f"many-boards: {scale.boards:,} boards, {each} viewers each, {mid['payload']:.0f}-byte frames",
            measured=f"{total(mid, OURS):.2f} µs per frame (server {mid['server']:.2f} + store {mid['store']:.2f}), "
            f"{mid['rate']:,.0f} frames/s{late}",
            against=against,
            ratio=median_ratio(rounds, OURS, ("single",)),
            figures={"medians": mid, "rounds": rounds},
        ),
        Row(
            work="many-boards: without the likes",
            measured=f"{mid['fanned']:.2f} µs per frame; {mid['likes'] * 1000:.1f} ms per POST",
            against=against,
            ratio=median_ratio(rounds, ("fanned",), ("single",)),
            goal=_GOAL,
        ),
    ]
