"""`ingest-batch`: CPU time of an acknowledged durable event in bodies of 1,000, against the store's bare commands."""

from contextlib import ExitStack
from typing import Final, Literal

import msgspec

from bench.board import BATCH, OURS, Board, batch_load, events_a_second
from bench.plans import Keys, Pairs, Posts
from bench.table import Row, Scale, Tell, middle, middle_ratio, of_round


class _Kind(msgspec.Struct, frozen=True):
    """A kind of body, and the goal for it."""

    order: Literal["uniform", "zipf"]
    ids: bool
    goal: str

    def __str__(self) -> str:
        return f"{self.order} keys{' + ids' if self.ids else ''}"


_KINDS: Final = (
    _Kind("uniform", ids=False, goal="≤ 1.20 x"),
    _Kind("zipf", ids=False, goal="≤ 0.90 x"),
    _Kind("uniform", ids=True, goal="≤ 1.60 x"),
    _Kind("zipf", ids=True, goal="≤ 1.60 x"),
)


def ingest_batch(scale: Scale, tell: Tell) -> list[Row]:
    """1,000 events a body over 8 connections: server and store together, for each acknowledged event.

    Against it, in turn with it: bare HINCRBY+ZINCRBY for the same keys on the same store, 1,000 pairs a write over as
    many connections, of which the store alone is counted. The bare commands know no ids; they are what events with
    ids are measured against all the same. No id is sent twice.
    """
    with ExitStack() as stack:
        board = Board(stack)
        tell("filling")
        board.hold_every_key(scale.keys)
        return [row for kind in _KINDS for row in _rows(board, scale, kind, tell)]


def _rows(board: Board, scale: Scale, kind: _Kind, tell: Tell) -> list[Row]:
    rounds = [
        _round(board, scale, kind, number, of_round(lambda note: tell(f"{kind}, {note}"), number))
        for number in range(1, scale.rounds + 1)
    ]
    mid = middle(rounds)
    return [
        Row(
            work=f"ingest-batch: 1,000 a body, {kind}",
            measured=events_a_second(mid),
            against=f"bare HINCRBY+ZINCRBY: {1e6 / mid['bare']:,.0f}/CPU s ({mid['bare']:.1f} µs)",
            ratio=middle_ratio(rounds, OURS, ("bare",)),
            goal=kind.goal,
            figures={"microseconds": mid, "rounds": rounds},
        ),
        Row(
            work=f"ingest-batch: the store's part, {kind}",
            measured=f"{mid['store']:.1f} µs of the store an event",
            against=f"bare HINCRBY+ZINCRBY: {mid['bare']:.1f} µs",
            ratio=middle_ratio(rounds, ("store",), ("bare",)),
        ),
    ]


def _round(board: Board, scale: Scale, kind: _Kind, number: int, tell: Tell) -> dict[str, float]:
    keys = Keys(count=scale.keys, order=kind.order, seed=number)
    load = batch_load(scale.batch_bodies)
    tell("durable POST")
    ours = board.send(Posts(keys=keys, events=BATCH, ids=kind.ids), load)
    tell("bare commands")
    return {**ours, "bare": board.bare(Pairs(keys=keys, events=BATCH), load)}
