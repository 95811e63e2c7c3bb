"""Erases digests from the journal in SQL: rewrites the segments and checkpoints that contain them."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import msgspec
from sqlalchemy import Connection, Table, select, update

from live.journal.database import Database
from live.journal.log.entries import (
    Adopt,
    Begin,
    Head,
    compress,
    content,
    decompress,
    pack_entries,
    parse_head,
    unpack_entries,
)
from live.journal.log.timelines import lives_of
from live.journal.schema import CHECKPOINT, LIFE, SEGMENT
from live.journal.state.snapshot import pack, unpack
from live.maintenance.erased import is_due, mark_done, remembered
from live.maintenance.erasure import Erasure
from live.maintenance.rewriting import clean, rewrite
from live.store.board.journal_stream import Entry

Progress = Callable[[int, int], None]

_BEGIN: Final = msgspec.msgpack.Decoder(Begin)
_ADOPT: Final = msgspec.msgpack.Decoder(Adopt)


class Rewritten(msgspec.Struct):
    """How many segments and checkpoints contained something, and were rewritten."""

    segments: int = 0
    checkpoints: int = 0


def boards_in(connection: Connection, prefix: str) -> list[str]:
    """All boards that the journal knows, also those that were deleted."""
    rows = connection.execute(select(LIFE.c.board).where(LIFE.c.prefix == prefix).distinct().order_by(LIFE.c.board))
    return [row.board for row in rows]


def secrets_of(connection: Connection, prefix: str, board: str) -> set[bytes]:
    """The secrets that a board has had, which key the digests of its voters.

    Raises:
        SetupError: the journal is damaged.
    """
    found = set()
    for life in lives_of(connection, prefix, board):
        for row in connection.execute(select(CHECKPOINT.c.crc, CHECKPOINT.c.data).where(CHECKPOINT.c.life == life.id)):
            found.add(unpack(decompress(row.crc, row.data)).secret)
        for head, body in _entries(connection, life.id):
            if head.kind == "begin":
                found.add(content(_BEGIN.decode(body).secret))
            elif head.kind == "adopt":
                found.add(content(_ADOPT.decode(body).secret))
    return found - {b""}


def erase_board(
    database: Database, prefix: str, board: str, erasure: Erasure, show: Progress, *, dry: bool
) -> Rewritten:
    """Take digests out of everything that the journal has of a board. The chain of entries stays the same.

    Each row is rewritten in its own transaction, so the same call continues after an interruption. With `dry`,
    nothing changes.

    Raises:
        SetupError: the journal is damaged.
        JournalError: the database does not answer.
    """
    ids = [life.id for life in database.work(partial(lives_of, prefix=prefix, board=board))]
    segments = database.work(partial(_ids, table=SEGMENT, lives=ids))
    checkpoints = database.work(partial(_ids, table=CHECKPOINT, lives=ids))
    done, total = Rewritten(), len(segments) + len(checkpoints)
    for number, row in enumerate(segments, 1):
        done.segments += database.work(partial(_segment, row=row, erasure=erasure, dry=dry))
        show(number, total)
    for number, row in enumerate(checkpoints, 1 + len(segments)):
        done.checkpoints += database.work(partial(_checkpoint, row=row, erasure=erasure, dry=dry))
        show(number, total)
    return done


def erase_again(database: Database, show: Progress) -> int:
    """Apply earlier erasures to a database that was restored from an older backup. Returns the number of changed rows.

    Raises:
        SetupError: the journal is damaged.
        JournalError: the database does not answer.
    """
    prefix = database.prefix
    if not database.work(is_due):
        return 0
    erasure = database.work(partial(remembered, prefix=prefix))
    count = 0
    for board in database.work(partial(boards_in, prefix=prefix)):
        done = erase_board(database, prefix, board, erasure, show, dry=False)
        count += done.segments + done.checkpoints
    database.compact()
    database.work(mark_done)
    return count


def _ids(connection: Connection, table: Table, lives: list[int]) -> list[int]:
    rows = connection.execute(select(table.c.id).where(table.c.life.in_(lives)).order_by(table.c.id))
    return [row.id for row in rows]


def _entries(connection: Connection, life: int) -> Iterator[tuple[Head, bytes]]:
    for segment in _ids(connection, SEGMENT, [life]):
        row = connection.execute(select(SEGMENT.c.crc, SEGMENT.c.data).where(SEGMENT.c.id == segment)).one_or_none()
        if row is not None:  # a server may have dropped it meanwhile
            for text, body in unpack_entries(row.crc, row.data):
                yield parse_head(text), body


def _segment(connection: Connection, row: int, erasure: Erasure, *, dry: bool) -> bool:
    """Rewrite a segment without what has to go. Returns whether there was something."""
    found = connection.execute(select(SEGMENT.c.crc, SEGMENT.c.data).where(SEGMENT.c.id == row)).one_or_none()
    if found is None:
        return False
    entries, changed = [], False
    for text, body in unpack_entries(found.crc, found.data):
        head = parse_head(text)
        left = rewrite(head, body, erasure)
        changed = changed or left is not body
        entries.append(Entry(head.id, text, left))
    if changed and not dry:
        packed = pack_entries(entries)
        connection.execute(update(SEGMENT).where(SEGMENT.c.id == row).values(crc=packed.crc, data=packed.data))
    return changed


def _checkpoint(connection: Connection, row: int, erasure: Erasure, *, dry: bool) -> bool:
    """Rewrite a checkpoint without what has to go. Returns whether there was something."""
    found = connection.execute(select(CHECKPOINT.c.crc, CHECKPOINT.c.data).where(CHECKPOINT.c.id == row)).one_or_none()
    if found is None:
        return False
    data = unpack(decompress(found.crc, found.data))
    changed = clean(data, erasure)
    if changed and not dry:
        packed = compress(pack(data))
        connection.execute(update(CHECKPOINT).where(CHECKPOINT.c.id == row).values(crc=packed.crc, data=packed.data))
    return changed
