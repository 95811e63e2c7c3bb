"""Decode the replies of the scripts that read a ranking into pages of records."""

from itertools import count as count_from
from typing import Any, Final

import msgspec
from msgspec import UNSET

from live.domain.board import Board
from live.domain.ranking import Page, Record, position, ranks_of
from live.domain.window import Periods

HIGH: Final = 40  # bits of a total below its higher part
TAG: Final = 8  # bytes before the member in a name, where ties go by time


def total_of(text: bytes) -> int:
    """Parse the total of all scores: a number, or a number, `+` and another one in units of 2^40."""
    low, _, high = text.partition(b"+")
    return int(low) + (int(high or 0) << HIGH)


def page_of(reply: list[Any], board: Board, period: int | None) -> Page:
    """Return the page of a reply, for a board with the settings at the time of the request."""
    epoch, offset, count, total, start, rank, rows, metadata, registered = reply
    names, scores = rows[::2], _whole(rows[1::2])
    members = list(map(bytes.decode, names if board.tags == "key" else [name[TAG:] for name in names]))
    first = int(start or 0)
    records = (
        tuple(map(Record, members, scores, count_from(first + 1)))
        if board.bare and board.ranks == "ordinal"
        else _described(board, members, scores, metadata, first, int(rank or 0))
    )
    return Page(
        epoch=epoch.decode(),
        offset=int(offset),
        rank_count=int(count),
        total_score=total_of(total) if board.score is None else None,
        start=first,
        records=records,
        names=tuple(names),
        entrants=None if board.votes is None else registered,
        slot=period if board.window.tables else None,
        period=_period_name(board, period),
    )


def _whole(scores: list[bytes]) -> list[int]:
    """Return scores as numbers. A store that does not write whole numbers as such is read more slowly."""
    try:
        return list(map(int, scores))
    except ValueError:
        return [int(float(score)) for score in scores]


def _described(
    board: Board, members: list[str], scores: list[int], metadata: list[bytes | None], first: int, rank: int
) -> tuple[Record, ...]:
    ranks = ranks_of(scores, rank, first, board.ranks)
    rows = zip(members, scores, ranks, metadata or [None] * len(members), strict=True)
    return tuple(
        Record(
            member,
            score,
            rank,
            UNSET if board.score is None else board.score.unpack(score),
            UNSET if text is None else msgspec.Raw(text),
            position(rank, place),
        )
        for place, (member, score, rank, text) in enumerate(rows, first + 1)
    )


def _period_name(board: Board, start: int | None) -> str | None:
    window = board.window
    if start is None or not isinstance(window, Periods) or not window.tables:
        return None
    return window.calendar.at(start).name
