"""What the journal holds, and whether it is sound."""

from collections.abc import Callable

import msgspec
from sqlalchemy import Connection, func, select

from live.errors import SetupError
from live.journal.entries import parse_head
from live.journal.lives import Life, open_lives
from live.journal.schema import CHECKPOINT, GAP, SEGMENT
from live.journal.segments import decompress, unpack_entries

Progress = Callable[[int, int], None]


class LifeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal holds of a board.

    `last` is the time of the last entry in microseconds since 1970, 0 for none. `bytes` is the compressed size.
    """

    board: str
    epoch: str
    offset: int
    last: int
    entries: int
    bytes: int
    checkpoints: int
    gaps: int


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of reading all entries of a board: what is damaged or missing, one sentence each."""

    board: str
    epoch: str
    entries: int
    faults: list[str]


def status(connection: Connection, prefix: str) -> list[LifeStatus]:
    """What the journal holds of each board that has not ended."""
    return [_status(connection, life) for life in open_lives(connection, prefix)]


def _status(connection: Connection, life: Life) -> LifeStatus:
    sums = connection.execute(
        select(func.max(SEGMENT.c.ended), func.sum(SEGMENT.c.entries), func.sum(func.length(SEGMENT.c.data))).where(
            SEGMENT.c.life == life.id
        )
    ).one()
    count = func.count()
    return LifeStatus(
        board=life.board,
        epoch=life.epoch,
        offset=life.offset,
        last=sums[0] or 0,
        entries=int(sums[1] or 0),
        bytes=int(sums[2] or 0),
        checkpoints=connection.scalar(select(count).select_from(CHECKPOINT).where(CHECKPOINT.c.life == life.id)) or 0,
        gaps=connection.scalar(select(count).select_from(GAP).where(GAP.c.life == life.id)) or 0,
    )


def verify(connection: Connection, prefix: str, show: Progress) -> list[Verdict]:
    """Read all entries of all boards. Calls `show` with the number of segments so far, and of all."""
    lives = open_lives(connection, prefix)
    ids = {life.id: _segments(connection, life) for life in lives}
    total, done, verdicts = sum(map(len, ids.values())), 0, []
    for life in lives:
        link: str | None = None
        faults, entries = [], 0
        for segment in ids[life.id]:
            row = connection.execute(
                select(SEGMENT.c.first, SEGMENT.c.last, SEGMENT.c.crc, SEGMENT.c.data).where(SEGMENT.c.id == segment)
            ).one()
            try:
                for text, _ in unpack_entries(row.crc, row.data):
                    head = parse_head(text)
                    if link is not None and head.before != link and head.kind != "adopt":
                        faults.append(f"an entry is missing before offset {head.offset}")
                    link, entries = head.link, entries + 1
            except SetupError as error:
                faults.append(f"offsets {row.first} to {row.last}: {error}")
                link = None
            done += 1
            show(done, total)
        faults += _damaged_checkpoints(connection, life)
        if link is not None and link != life.link:
            faults.append(f"the last entry is {link!r}, and SQL has the board at {life.link!r}")
        verdicts.append(Verdict(board=life.board, epoch=life.epoch, entries=entries, faults=faults))
    return verdicts


def _segments(connection: Connection, life: Life) -> list[int]:
    rows = connection.execute(select(SEGMENT.c.id).where(SEGMENT.c.life == life.id).order_by(SEGMENT.c.id))
    return [row.id for row in rows]


def _damaged_checkpoints(connection: Connection, life: Life) -> list[str]:
    faults = []
    for row in connection.execute(select(CHECKPOINT).where(CHECKPOINT.c.life == life.id)).all():
        try:
            decompress(row.crc, row.data)
        except SetupError as error:
            faults.append(f"the checkpoint after segment {row.segment}: {error}")
    return faults
