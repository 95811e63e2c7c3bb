"""The records of a ranking that was read from a journal, as responses and messages show them."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import UNSET

from live.domain.board import Board
from live.domain.ranking import Record, position
from live.domain.window import Periods


def records_of(
    board: Board,
    members: Sequence[str],
    scores: Sequence[int],
    ranks: Sequence[int],
    metadata: Mapping[str, bytes],
    start: int = 0,
) -> Iterator[Record]:
    """The records of consecutive members; `start` records are ahead of the first one."""
    for place, (member, score, rank) in enumerate(zip(members, scores, ranks, strict=True), start + 1):
        text = metadata.get(member)
        yield Record(
            member,
            score,
            rank,
            UNSET if board.score is None else board.score.unpack(score),
            UNSET if text is None else msgspec.Raw(text),
            UNSET if board.bare and board.ranks == "ordinal" else position(rank, place),
        )


def period_name(board: Board, start: int | None) -> str | None:
    """The name of the period that begins at a time; None without periods."""
    if start is None or not isinstance(board.window, Periods):
        return None
    return board.window.calendar.at(start).name
