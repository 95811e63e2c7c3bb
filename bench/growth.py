"""`growth`: whether an event costs more on a large board, and how that compares with bare commands."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Final

from bench.board import BATCH, OURS, Board, batch_load, events_a_second
from bench.plans import Members, Pairs, Posts
from bench.table import Report, Row, Scale, median_ratio, medians, of_round, total

_SIZES: Final = ("small", "large")
_Round = dict[str, float]


def growth(scale: Scale, report: Report) -> list[Row]:
    """Count 1,000 events per body, with uniformly drawn members, on a small and on a large board.

    Each board has its own store. The baseline is measured alternately: bare commands on as many members in the same
    store. The result is the ratio of two growths, so it has the noise of four figures. The row shows the ratio of each
    round. A batch adds up the events of one member, and on a small board more events share a member. That alone makes
    our growth slightly steeper.
    """
    with ExitStack() as stack:
        boards = {size: Board(stack) for size in _SIZES}
        members = dict(zip(_SIZES, scale.growth_members, strict=True))
        for size, board in boards.items():
            report(f"filling: {members[size]:,} members")
            board.create_every_member(members[size])
        rounds = [
            _round(boards, members, scale, number, of_round(report, number)) for number in range(1, scale.rounds + 1)
        ]
    return [
        *(_size_row(rounds, size, members[size]) for size in _SIZES),
        _growth_row(rounds, OURS, "server and store", "≤ 1.00 x + noise"),
        _growth_row(rounds, ("store",), "the store's part"),
    ]


def _round(
    boards: Mapping[str, Board], members: Mapping[str, int], scale: Scale, number: int, report: Report
) -> _Round:
    load = batch_load(scale.growth_bodies)
    figures: _Round = {}
    for size, board in boards.items():
        drawn = Members(count=members[size], seed=number)
        report(f"{members[size]:,} members")
        used = board.send(Posts(members=drawn, events=BATCH), load)
        figures |= {f"{size}_{name}": each for name, each in used.items()}
        figures[f"{size}_bare"] = board.send_bare(Pairs(members=drawn, events=BATCH), load)
    return figures


def _size_row(rounds: Sequence[_Round], size: str, members: int) -> Row:
    mid = medians(rounds)
    bare = f"{size}_bare"
    return Row(
        work=f"growth: 1,000 events per body, {members:,} members",
        measured=events_a_second({name: mid[f"{size}_{name}"] for name in OURS}),
        against=f"bare HINCRBY+ZINCRBY: {mid[bare]:.1f} µs",
        ratio=median_ratio(rounds, [f"{size}_{name}" for name in OURS], (bare,)),
    )


def _growth_row(rounds: Sequence[_Round], names: Sequence[str], whose: str, goal: str = "") -> Row:
    ours = [_growth_factor(figures, names) for figures in rounds]
    bare = [_growth_factor(figures, ("bare",)) for figures in rounds]
    steeper = [one / other for one, other in zip(ours, bare, strict=True)]
    each = ", ".join(f"{ratio:.2f}" for ratio in steeper)
    return Row(
        work=f"growth: from few members to many, {whose}",
        measured=f"{median(ours):.2f} times the cost; rounds: {each} x",
        against=f"bare HINCRBY+ZINCRBY: {median(bare):.2f} times",
        ratio=median(steeper),
        goal=goal,
        figures={"microseconds": medians(rounds), "rounds": rounds} if goal else {},
    )


def _growth_factor(figures: _Round, names: Sequence[str]) -> float:
    small, large = (total(figures, [f"{size}_{name}" for name in names]) for size in _SIZES)
    return large / small
