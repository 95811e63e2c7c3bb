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
from bench.table import Row, Scale, Tell, middle, middle_ratio, of_round, total
from bench.watched import fill_top, posted, settle, watched_board

_PATH: Final = "/v1/boards/b-%d/live?limit=50"
_BOARD: Final = '[[board]]\nid = "b-{0}"\nsource = ["b-{0}"]\nties = "key"\n'
_NAMES: Final = 4
_NAME: Final = "post-with-a-long-name-" + "x" * 220 + "-"  # so that one record is as long as six on the single board
_RATE: Final = 2.0  # POSTs a second, each with a like for every board: more, and the likes alone fill a core
_GOAL: Final = "≤ 2.00 x"
_Round = dict[str, float]


def many_boards(scale: Scale, tell: Tell) -> list[Row]:
    """1,000 boards with 5 viewers each, and likes for each board: CPU time for each delivered frame.

    Against the single board with as many viewers, in turn with it; everything is counted, server and store. A frame on
    each of 1,000 boards takes a like on each of them, of which nothing can be shared; what these cost where nobody
    watches is measured by itself, POST by POST, and the second row, which has the goal, is what is left without it.
    """
    need_files(scale.viewers)
    with ExitStack() as stack:
        programs = stack.enter_context(built())
        if programs is None:
            return not_built("many-boards")
        tell("starting")
        single = watched_board(stack)
        fill_top(single)
        many = watched_board(stack, "".join(_BOARD.format(number) for number in range(scale.boards)))
        rounds = [
            _round(single, many, programs, scale, of_round(tell, number)) for number in range(1, scale.rounds + 1)
        ]
    return _rows(rounds, scale)


def _round(single: Board, many: Board, programs: Programs, scale: Scale, tell: Tell) -> _Round:
    tell("one board")
    one = measure_ours(single, programs, scale)
    bodies = _bodies(scale.boards)
    tell("likes without viewers")
    likes = _likes_alone(many, bodies, scale)
    tell("many boards")
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
    """CPU seconds of server and store for a POST while nobody watches."""
    with posted(board, bodies, _RATE) as sender:
        settle()
        before, sent = _cpu(board), sender.sent
        time.sleep(scale.fan_seconds)
        return (_cpu(board) - before) / max(1, sender.sent - sent)


def _cpu(board: Board) -> float:
    return sum(cpu_seconds(server.pid) for server in board.processes.values())


def _bodies(boards: int) -> list[bytes]:
    """Each a like for every board: the same key on all, another the next time."""
    return [
        msgspec.json.encode([{"key": f"{_NAME}{name}", "board": f"b-{board}"} for board in range(boards)])
        for name in range(_NAMES)
    ]


def _rows(rounds: Sequence[_Round], scale: Scale) -> list[Row]:
    mid = middle(rounds)
    late = behind(mid["share"])
    each = scale.viewers // scale.boards
    against = f"one board, {mid['single_payload']:.0f}-byte frames: {mid['single']:.2f} µs{behind(mid['single_share'])}"
    return [
        Row(
            work=f"many-boards: {scale.boards:,} boards, {each} viewers each, {mid['payload']:.0f}-byte frames",
            measured=f"{total(mid, OURS):.2f} µs a frame (server {mid['server']:.2f} + store {mid['store']:.2f}), "
            f"{mid['rate']:,.0f} frames/s{late}",
            against=against,
            ratio=middle_ratio(rounds, OURS, ("single",)),
            figures={"medians": mid, "rounds": rounds},
        ),
        Row(
            work="many-boards: without what the likes cost",
            measured=f"{mid['fanned']:.2f} µs a frame; {mid['likes'] * 1000:.1f} ms a POST of {scale.boards:,} likes",
            against=against,
            ratio=middle_ratio(rounds, ("fanned",), ("single",)),
            goal=_GOAL,
        ),
    ]
