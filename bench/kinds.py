"""`kinds`: the cost of an event on each kind of board, and the cost of each further board that counts the event."""

from contextlib import ExitStack
from statistics import median
from typing import Final

import msgspec

from bench.board import BATCH, OURS, PLAIN, Board, batch_load, events_a_second, single_load
from bench.plans import Members, Posts, Says
from bench.table import Report, Row, Scale, median_ratio, medians, of_round, total

_BOARD: Final = '[[board]]\nid = "{}"\n'
_BY_KEY: Final = 'ties = "key"\n'
_OTHER: Final = _BOARD.format("other") + _BY_KEY + 'types = ["other"]\n'
_UNION: Final = _BOARD.format("both") + _BY_KEY + 'union = ["posts", "other"]\n'
_FIELDS: Final = '[{ field = "level", max = 99 }, { field = "seconds", order = "asc", max = 99_999 }]'
_SUMS: Final = (
    '[{ field = "level", max = 200_000 }, { field = "seconds", order = "asc", max = 200_000_000 }]'  # room for a run
)
_FURTHER: Final = 3
_Round = dict[str, float]


class _Kind(msgspec.Struct, frozen=True):
    name: str
    boards: str
    says: Says = "like"
    summed: bool = True


_KINDS: Final = (
    _Kind("ties by time", _BOARD.format("posts")),
    _Kind("zeros", PLAIN + "zeros = true\n"),
    _Kind("a sliding window", PLAIN + 'window = { sliding = "24h" }\n'),
    _Kind("a calendar", PLAIN + 'window = { calendar = "week", timezone = "Asia/Shanghai" }\n'),
    _Kind("the 500 best", PLAIN + 'window = "forever"\noperator = "best"\ncap = 500\n', "score", summed=False),
    _Kind("a contest", PLAIN + 'window = "forever"\nvotes = { per_key = 100, per_actor = 1000 }\n', "vote"),
    _Kind("packed fields", PLAIN + f'window = "forever"\noperator = "best"\nscore = {_FIELDS}\n', "run", summed=False),
    _Kind("fields that add up", PLAIN + f'window = "forever"\nscore = {_SUMS}\n', "run", summed=False),
    _Kind("a union of two", PLAIN + _OTHER + _UNION),
)
_MANY: Final = _Kind(
    "many boards", PLAIN + "".join(_BOARD.format(f"more-{number}") + _BY_KEY for number in range(_FURTHER))
)


def kinds(scale: Scale, report: Report) -> list[Row]:
    """Measure the CPU time of server and store per acknowledged event, in bodies of 1,000 events.

    The baseline is measured alternately with each kind: a plain board with a rolling window and ties by member, on its
    own server and store. If a kind of board needs more content (an amount, an actor, fields), this content is part of
    its cost.
    """
    with ExitStack() as stack:
        plain = Board(stack, PLAIN)
        report("filling")
        _fill(plain, scale, "like")
        rows = [_kind_row(plain, kind, scale, report) for kind in _KINDS]
        return [*rows, _further_row(plain, scale, report, BATCH), _further_row(plain, scale, report, 1)]


def _kind_row(plain: Board, kind: _Kind, scale: Scale, report: Report) -> Row:
    rounds = _rounds(plain, kind, scale, report)
    mid = medians(rounds)
    return Row(
        work=f"kinds: 1,000 events per body, {kind.name}",
        measured=events_a_second(mid),
        against=f"a plain board: {_plain_cost(mid):.1f} µs",
        ratio=median_ratio(rounds, OURS, _names("plain")),
        figures={"microseconds": mid, "rounds": rounds},
    )


def _further_row(plain: Board, scale: Scale, report: Report, events: int) -> Row:
    """Measure what each board after the first adds to an event that several plain boards count."""
    rounds = _rounds(plain, _MANY, scale, report, events)
    further = [(total(figures, OURS) - _plain_cost(figures)) / _FURTHER for figures in rounds]
    ratios = [cost / _plain_cost(figures) for cost, figures in zip(further, rounds, strict=True)]
    mid = medians(rounds)
    return Row(
        work=f"kinds: one event on {1 + _FURTHER} boards, {events:,} per body",
        measured=f"{median(further):.1f} µs per board after the first; total: server {mid['server']:.1f} + "
        f"store {mid['store']:.1f} µs",
        against=f"the first: {_plain_cost(mid):.1f} µs",
        ratio=median(ratios),
        goal="≤ 0.90 x" if events == BATCH else "≤ 0.50 x",
        figures={"microseconds": mid, "rounds": rounds},
    )


def _rounds(plain: Board, kind: _Kind, scale: Scale, report: Report, events: int = BATCH) -> list[_Round]:
    """Measure the plain board and the other kind in each round, one right after the other."""
    with ExitStack() as stack:
        board = Board(stack, kind.boards, summed=kind.summed)
        report(f"{kind.name}: filling")
        _fill(board, scale, kind.says)
        rounds = []
        for number in range(1, scale.rounds + 1):
            note = of_round(lambda what: report(f"{kind.name}, {what}"), number)
            members = Members(count=scale.members, seed=number)
            load = batch_load(scale.batch_bodies) if events > 1 else single_load(scale)
            note("a plain board")
            used = plain.send(Posts(members=members, events=events), load)
            note("this kind")
            ours = board.send(Posts(members=members, events=events, says=kind.says), load)
            rounds.append({**ours, **{f"plain_{name}": cost for name, cost in used.items()}})
        return rounds


def _fill(board: Board, scale: Scale, says: Says) -> None:
    """Create every member, so that no round creates members."""
    each = Posts(members=Members(count=scale.members, order="each"), events=BATCH, says=says)
    board.send(each, batch_load(scale.members // BATCH))


def _names(board: str) -> list[str]:
    return [f"{board}_{name}" for name in OURS]


def _plain_cost(figures: _Round) -> float:
    return total(figures, _names("plain"))
