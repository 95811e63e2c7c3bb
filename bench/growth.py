"""`growth`: does an event cost more on a large board, and more so than the bare commands do?"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Final

from bench.board import BATCH, OURS, Board, batch_load, events_a_second
from bench.plans import Keys, Pairs, Posts
from bench.table import Row, Scale, Tell, middle, middle_ratio, of_round, total

_SIZES: Final = ("small", "large")
_Round = dict[str, float]


def growth(scale: Scale, tell: Tell) -> list[Row]:
    """1,000 events a body, uniform keys, on a board of few members and on one of many, each on a store of its own.

    Against it, in turn with it: the bare commands on as many members, on the same store. What counts is the ratio of
    two growths, so its noise is that of four figures; the row tells the ratio of
    every round. Equal keys of
    a batch are added up, and a small board has more of them: that alone makes ours a little steeper.
    """
    with ExitStack() as stack:
        boards = {size: Board(stack) for size in _SIZES}
        members = dict(zip(_SIZES, scale.growth_members, strict=True))
        for size, board in boards.items():
            tell(f"filling: {members[size]:,} members")
            board.hold_every_key(members[size])
        rounds = [
            _round(boards, members, scale, number, of_round(tell, number)) for number in range(1, scale.rounds + 1)
        ]
    return [
        *(_size_row(rounds, size, members[size]) for size in _SIZES),
        _growth_row(rounds, OURS, "server and store", "≤ 1.00 x + noise"),
        _growth_row(rounds, ("store",), "the store's part"),
    ]


def _round(boards: Mapping[str, Board], members: Mapping[str, int], scale: Scale, number: int, tell: Tell) -> _Round:
    load = batch_load(scale.growth_bodies)
    figures: _Round = {}
    for size, board in boards.items():
        keys = Keys(count=members[size], seed=number)
        tell(f"{members[size]:,} members")
        used = board.send(Posts(keys=keys, events=BATCH), load)
        figures |= {f"{size}_{name}": each for name, each in used.items()}
        figures[f"{size}_bare"] = board.bare(Pairs(keys=keys, events=BATCH), load)
    return figures


def _size_row(rounds: Sequence[_Round], size: str, members: int) -> Row:
    mid = middle(rounds)
    bare = f"{size}_bare"
    return Row(
        work=f"growth: 1,000 a body, {members:,} members",
        measured=events_a_second({name: mid[f"{size}_{name}"] for name in OURS}),
        against=f"bare HINCRBY+ZINCRBY: {mid[bare]:.1f} µs",
        ratio=middle_ratio(rounds, [f"{size}_{name}" for name in OURS], (bare,)),
    )


def _growth_row(rounds: Sequence[_Round], names: Sequence[str], whose: str, goal: str = "") -> Row:
    ours = [_times(figures, names) for figures in rounds]
    bare = [_times(figures, ("bare",)) for figures in rounds]
    steeper = [one / other for one, other in zip(ours, bare, strict=True)]
    each = ", ".join(f"{ratio:.2f}" for ratio in steeper)
    return Row(
        work=f"growth: from few members to many, {whose}",
        measured=f"{median(ours):.2f} times the cost; by rounds {each} x",
        against=f"bare HINCRBY+ZINCRBY: {median(bare):.2f} times",
        ratio=median(steeper),
        goal=goal,
        figures={"microseconds": middle(rounds), "rounds": rounds} if goal else {},
    )


def _times(figures: _Round, names: Sequence[str]) -> float:
    """How many times as much it costs on the large board."""
    small, large = (total(figures, [f"{size}_{name}" for name in names]) for size in _SIZES)
    return large / small
