"""`ingest-batch`: CPU time per acknowledged durable event in bodies of 1,000, compared with bare store commands."""

from contextlib import ExitStack
from typing import Final, Literal

import msgspec

from bench.board import BATCH, OURS, Board, batch_load, events_a_second
from bench.plans import Members, Pairs, Posts
from bench.table import Report, Row, Scale, median_ratio, medians, of_round


class _Kind(msgspec.Struct, frozen=True):
    order: Literal["uniform", "zipf"]
    ids: bool
    goal: str

    def __str__(self) -> str:
        return f"{self.order} members{' + ids' if self.ids else ''}"


_KINDS: Final = (
    _Kind("uniform", ids=False, goal="≤ 1.00 x"),
    _Kind("zipf", ids=False, goal="≤ 0.65 x"),
    _Kind("uniform", ids=True, goal="≤ 1.40 x"),
    _Kind("zipf", ids=True, goal="≤ 1.40 x"),
)


def ingest_batch(scale: Scale, report: Report) -> list[Row]:
    """Measure the CPU time of server and store per acknowledged event, with 1,000 events per body over 8 connections.

    The baseline is measured alternately: bare HINCRBY+ZINCRBY for the same members on the same store, 1,000 pairs per
    write over as many connections. For the baseline, only the CPU time of the store counts. Bare commands have no ids,
    and are also the baseline for events with ids. Every id is new.
    """
    with ExitStack() as stack:
        board = Board(stack)
        report("filling")
        board.create_every_member(scale.members)
        return [row for kind in _KINDS for row in _rows(board, scale, kind, report)]


def _rows(board: Board, scale: Scale, kind: _Kind, report: Report) -> list[Row]:
    rounds = [
        _round(board, scale, kind, number, of_round(lambda note: report(f"{kind}, {note}"), number))
        for number in range(1, scale.rounds + 1)
    ]
    mid = medians(rounds)
    return [
        Row(
            work=f"ingest-batch: 1,000 events per body, {kind}",
            measured=events_a_second(mid),
            against=f"bare HINCRBY+ZINCRBY: {1e6 / mid['bare']:,.0f}/CPU s ({mid['bare']:.1f} µs)",
            ratio=median_ratio(rounds, OURS, ("bare",)),
            goal=kind.goal,
            figures={"microseconds": mid, "rounds": rounds},
        ),
        Row(
            work=f"ingest-batch: the store's part, {kind}",
            measured=f"{mid['store']:.1f} µs of store per event",
            against=f"bare HINCRBY+ZINCRBY: {mid['bare']:.1f} µs",
            ratio=median_ratio(rounds, ("store",), ("bare",)),
        ),
    ]


def _round(board: Board, scale: Scale, kind: _Kind, number: int, report: Report) -> dict[str, float]:
    members = Members(count=scale.members, order=kind.order, seed=number)
    load = batch_load(scale.batch_bodies)
    report("durable POST")
    ours = board.send(Posts(members=members, events=BATCH, ids=kind.ids), load)
    report("bare commands")
    return {**ours, "bare": board.send_bare(Pairs(members=members, events=BATCH), load)}
