"""`delay`: the cost of a frame that viewers receive some seconds late, compared with a live frame.

`replay`: the cost of the steps through a journal from one frame to the next.
"""

import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import accumulate
from statistics import mean
from typing import Final

import msgspec

from bench.board import PLAIN, Board
from bench.fanout import behind, delivered_share, measure_ours
from bench.processes import BenchError, descendants_of
from bench.swarm import Programs, built, need_files, not_built, swarming
from bench.table import Report, Row, Scale, median_ratio, medians, of_round
from bench.watched import fill_top, liked, settle, watched_board
from live.domain.board_file import parse_boards
from live.fanout.engine.delivery import ViewerPosition
from live.fanout.engine.variant import PageHistory, Variant
from live.journal.log.entries import Head
from live.journal.state.fold import apply
from live.journal.state.snapshot import Snapshot
from live.journal.state.top import RunningTop

_DELAY: Final = 5  # seconds, the least that viewers can ask for
_PATH: Final = f"/v1/boards/posts/live?delay={_DELAY}s"
_GOAL: Final = "≤ 1.10 x"
_BEGIN: Final = 1_900_000_800  # seconds; the beginning of an hour
_TICK: Final = 100  # milliseconds
_TOP: Final = 50


def delayed(scale: Scale, report: Report) -> list[Row]:
    """Measure the CPU time per frame, live and delayed, with one board, many viewers and ten frames per second.

    In both runs, the server receives the same likes. The figure includes all processes that the server has started. One
    of them steps through the journal.
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
        later = swarm.measure(scale.fan_seconds, [board.server, *descendants_of(board.server)])
    return {
        "live": live.microseconds()[0],
        "live_share": delivered_share(live),
        "delayed": sum(later.microseconds()),
        "delayed_share": delivered_share(later),
    }


def replayed(scale: Scale, report: Report) -> list[Row]:
    """Measure the CPU time per frame of a replay of Zipf likes, with ten frames per second.

    The journal has 24 hours of likes in batches of 50. For each frame, the process applies the entries of a tenth of a
    second, and makes the message.
    """
    (board,) = parse_boards('[[board]]\nid = "posts"\nties = "first"\n')
    chance, data, top = random.Random(1), Snapshot(), RunningTop(board, (), _TOP)
    variant, position = Variant(board, _TOP, _TICK, PageHistory(0)), ViewerPosition()
    weights, members = list(accumulate(1 / rank for rank in range(1, scale.keys + 1))), list(range(scale.keys))
    chance.shuffle(members)
    offset = 0

    def count(now: int, batch: Sequence[int]) -> tuple[Head, bytes]:
        nonlocal offset
        offset += 1
        names = [f"post-{member:06d}" for member in dict.fromkeys(batch)]
        start = board.window.slot_at(now // 1000).start
        group = {
            "start": start, "suffix": "", "members": names, "amounts": [1] * len(names),
            "orders": [-number for number in range(1, len(names) + 1)],
        }  # fmt: skip
        rules = {"operation": board.operation, "order": board.reading, "ties": board.tags}
        body = msgspec.msgpack.encode({"rules": rules, "span": 3600, "reached": start, "groups": [group]})
        return Head("add", 0, f"{offset}-0", now * 1000, "", ""), body

    def step(entries: Sequence[tuple[Head, bytes]], now: int) -> float:
        started = time.process_time()
        for head, body in entries:
            apply(data, head, body)
            top.follow(head, body, data)
        variant.advance(top.page(data, "epoch", now))
        if variant.next_frame(position) is None:
            raise BenchError("a step without a message")
        return (time.process_time() - started) * 1000

    report("filling")
    day = 86_400_000
    for first in range(0, scale.keys, 1000):
        for head, body in [count(_BEGIN * 1000 - day + first * day // scale.keys, members[first : first + 1000])]:
            apply(data, head, body)
    first_page = step([count(_BEGIN * 1000, members[:1])], _BEGIN * 1000)
    report("stepping")
    batches = scale.likes_a_second * _TICK // 1000 // 50
    used = []
    for now in range(_BEGIN * 1000, _BEGIN * 1000 + scale.load_seconds * 1000, _TICK):
        entries = [count(now, chance.choices(members, cum_weights=weights, k=50)) for _ in range(batches)]
        used.append(step(entries, now + _TICK))
    return [
        Row(
            work=f"replay: {scale.keys:,} members, {scale.likes_a_second:,} likes/s, a frame of the top {_TOP}",
            measured=f"mean {mean(used):.2f}, max {max(used):.1f} ms; the first one {first_page:.0f} ms",
            goal="≤ 30 ms",
            figures={"milliseconds": used, "first": first_page},
        )
    ]
