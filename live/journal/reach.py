"""How far back the journal of a board reaches, and where to read the board at a time."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from sqlalchemy import Connection, func, select

from live.domain.board import Board
from live.domain.window import Sliding
from live.journal.cells import has_totals, hour_of
from live.journal.entries import parse_head
from live.journal.lives import Life, lives_of
from live.journal.moments import NoPastError, UnsupportedPastError
from live.journal.reading import contents_at, oldest_checkpoint
from live.journal.running import RunningScores
from live.journal.schema import CHECKPOINT, GAP, LIFE, SEGMENT
from live.journal.scores import Scores
from live.journal.segments import unpack_entries
from live.journal.totals_reading import scores_by_hour, totals_since

_ALWAYS: Final = -(2**62)


class Reach(NamedTuple):
    """What the journal covers of a life. All times are in milliseconds since 1970, by the board's clock.

    Attributes:
        life: the life.
        began: when it began.
        entries: the time from which its entries are complete.
        totals: the hour from which its totals are complete; None for none.
        gaps: stretches of which entries are missing, each from the last entry before to the first one after.
    """

    life: Life
    began: int
    entries: int
    totals: int | None
    gaps: Sequence[tuple[int, int]] = ()


class Source(NamedTuple):
    """Where to read a board at a time: in the entries of a life, or in its totals at the beginning of an hour."""

    life: Life
    hour: int | None


def reaches_of(connection: Connection, prefix: str, board: Board) -> list[Reach]:
    """What the journal covers of the lives of a board, the last one first."""
    found = [_reach(connection, board, life) for life in reversed(lives_of(connection, prefix, board.id))]
    return [reach for reach in found if reach is not None]


def source_of(reaches: Sequence[Reach], board: Board, at: int) -> Source | None:
    """Where to read a board at a time (milliseconds since 1970); None before it began.

    Raises:
        NoPastError: the journal has forgotten it.
        UnsupportedPastError: the journal has only totals of that time, which do not suffice.
    """
    for reach in reaches:
        for begin, end in reach.gaps:
            if begin < at <= end:
                raise NoPastError(end)
        if at >= reach.entries:
            return Source(reach.life, None)
        hour = hour_of(at)
        if reach.totals is not None and hour * 1000 >= reach.totals:
            return Source(reach.life, hour)
        if at >= reach.began:
            reason = _why_not(board)
            raise UnsupportedPastError(reach.entries, reason) if reason else NoPastError(reach.totals or reach.entries)
    return None


def since_of(reaches: Sequence[Reach]) -> int | None:
    """The first time that the journal covers, in milliseconds since 1970; None for none."""
    return min((min(reach.entries, reach.totals or reach.entries) for reach in reaches), default=None)


def scores_at_all(
    connection: Connection, prefix: str, board: Board, times: Sequence[int]
) -> Iterator[tuple[int, int | None, Scores]]:
    """The scores at some ascending times; with the hour, if only totals cover them.

    Before the board began, there are none. Each result is valid until the next one.

    Raises:
        NoPastError: the journal does not cover it, or the board had not begun at any of the times.
    """
    reaches = reaches_of(connection, prefix, board)
    found = [source_of(reaches, board, at) for at in times]
    if not any(found):
        raise NoPastError(since_of(reaches))
    parts = [(None if source is None else (source.life, source.hour is None), source) for source in found]
    for part, some in groupby(zip(parts, times, strict=True), key=lambda item: item[0][0]):
        wanted = [(at, source) for (_, source), at in some]
        if part is None:
            yield from ((at, None, Scores(None, {}, {})) for at, _ in wanted)
        elif part[1]:
            running = RunningScores(board)
            held = contents_at(
                connection, prefix, part[0], [at for at, _ in wanted], board.clock, follow=running.follow
            )
            yield from ((at, None, running.scores(data, at)) for at, data in held)
        else:
            hours = [source.hour or 0 for _, source in wanted if source is not None]
            summed = scores_by_hour(connection, part[0], board, hours)
            yield from ((at, hour, scores) for (at, _), (hour, _, scores) in zip(wanted, summed, strict=True))


def _why_not(board: Board) -> str:
    """Why hourly totals do not suffice for the past of a board; empty if they do."""
    if has_totals(board):
        return ""
    if isinstance(board.window, Sliding):
        return "events leave a sliding window one by one, at any time"
    return f"totals are sums, and the operator of this board is {board.operator}"


def _reach(connection: Connection, board: Board, life: Life) -> Reach | None:
    """What the journal covers of a life; None if it has no entry."""
    checkpoint = connection.scalar(select(func.min(CHECKPOINT.c.time)).where(CHECKPOINT.c.life == life.id))
    segment = connection.execute(
        select(SEGMENT.c.began, SEGMENT.c.crc, SEGMENT.c.data)
        .where(SEGMENT.c.life == life.id)
        .order_by(SEGMENT.c.id)
        .limit(1)
    ).first()
    if checkpoint is None and segment is None:
        return None
    began = connection.scalar(select(LIFE.c.began).where(LIFE.c.id == life.id)) or 0
    is_whole = segment is not None and (checkpoint is None or _begins(segment.crc, segment.data))
    since = totals_since(connection, life) if has_totals(board) else None
    totals = None if since is None else since * 1000
    if board.clock == "event":
        held = None if is_whole else oldest_checkpoint(connection, life)
        latest = None if held is None else held[0].latest
        return Reach(life, _ALWAYS, _ALWAYS if latest is None else latest + 1, totals)
    gaps = connection.execute(select(GAP.c.expected, GAP.c.time).where(GAP.c.life == life.id)).all()
    entries = segment.began // 1000 if is_whole and segment is not None else (checkpoint or 0) // 1000 + 1
    stretches = [(int(link.split(" ")[1]) // 1000, time // 1000) for link, time in gaps]
    return Reach(life, min(began // 1000, entries), entries, totals, stretches)


def _begins(crc: int, data: bytes) -> bool:
    """Whether a segment is the first of its life. If it is missing, later segments need a checkpoint."""
    head = parse_head(next(unpack_entries(crc, data))[0])
    return head.kind in ("begin", "adopt", "renew")
