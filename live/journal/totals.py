"""Keeps the hourly totals of boards in SQL: from the segments of their journals, each exactly once.

The row in `folded` says which segments the totals contain, and changes with them in one transaction. So a process that
is killed at any point neither skips a segment nor counts one twice.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Insert, Table, delete, func, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from live.domain.board import Board
from live.journal.cells import HOUR, Cell, Cells
from live.journal.entries import parse_head
from live.journal.lives import ConflictError, Life
from live.journal.reading import contents_of_parent, oldest_checkpoint
from live.journal.schema import CELL, FOLDED, SEGMENT, TOTAL
from live.journal.segments import unpack_entries

_MOST_ROWS: Final = 20_000  # in one transaction, unless one segment has more


class NewTotals(msgspec.Struct, frozen=True):
    """What the segments of a life after `before`, up to `segment`, add to its totals."""

    life: Life
    before: int
    segment: int
    cells: list[Cell]


def folded(connection: Connection, life: Life) -> int:
    """The last segment that the totals of a life contain; 0 for none."""
    return connection.scalar(select(FOLDED.c.segment).where(FOLDED.c.life == life.id)) or 0


def unfolded(connection: Connection, life: Life, until: int) -> bool:
    """Whether segments that began before a time (microseconds) are not in the totals."""
    where = (SEGMENT.c.life == life.id, SEGMENT.c.id > folded(connection, life), SEGMENT.c.began < until)
    return connection.scalar(select(SEGMENT.c.id).where(*where).limit(1)) is not None


def add_up(connection: Connection, prefix: str, life: Life, board: Board, until: int) -> NewTotals | None:
    """Add up some of the segments that are not in the totals and began before a time; None if there is none.

    Raises:
        SetupError: the journal is damaged.
    """
    before = folded(connection, life)
    cells, segment = Cells(board, _last(connection, life)), before
    if not before and (held := oldest_checkpoint(connection, life)) is not None:
        segment = held[1]
        cells.replace(held[0])
    rows = connection.execute(
        select(SEGMENT.c.id, SEGMENT.c.crc, SEGMENT.c.data)
        .where(SEGMENT.c.life == life.id, SEGMENT.c.id > segment, SEGMENT.c.began < until)
        .order_by(SEGMENT.c.id)
        .execution_options(yield_per=16)
    )
    for row in rows:
        for text, body in unpack_entries(row.crc, row.data):
            head = parse_head(text)
            parent = None
            if head.kind == "renew":
                parent = contents_of_parent(connection, prefix, life, body.decode(), head.before)
            cells.apply(head, body, parent)
        segment = row.id
        if cells.size >= _MOST_ROWS:
            break
    rows.close()
    return None if segment == before else NewTotals(life, before, segment, cells.cells)


def add_totals(connection: Connection, new: NewTotals) -> None:
    """Add what `add_up` has found.

    Raises:
        ConflictError: another process has added it.
    """
    life = new.life.id
    _advance(connection, new)
    for cell in new.cells:
        if cell.whole:
            connection.execute(delete(TOTAL).where(TOTAL.c.life == life, TOTAL.c.cell == cell.start))
        row = {
            "life": life, "start": cell.start, "newest": cell.newest, "top": cell.top, "offset": cell.offset,
            "whole": cell.whole, "rows": len(cell.totals),
        }  # fmt: skip
        connection.execute(_add_cell(connection), [row])
        rows = [
            {"life": life, "cell": cell.start, "start": start, "member": member, "value": value, "reached": reached}
            for (start, member), (value, reached) in sorted(cell.totals.items())
        ]
        if rows:
            connection.execute(_add_total(connection), rows)


def _advance(connection: Connection, new: NewTotals) -> None:
    """Move the progress on, if it stands where the new totals begin."""
    first = next((cell.start + HOUR for cell in new.cells if cell.whole), None)
    held = connection.execute(select(FOLDED).where(FOLDED.c.life == new.life.id)).first()
    if held is None:
        connection.execute(insert(FOLDED).values(life=new.life.id, segment=new.segment, since=first))
        return
    since = first if held.since is None else held.since
    moved = connection.execute(
        update(FOLDED)
        .where(FOLDED.c.life == new.life.id, FOLDED.c.segment == new.before)
        .values(segment=new.segment, since=since)
    )
    if moved.rowcount != 1:
        raise ConflictError(f"board {new.life.board}, epoch {new.life.epoch}: its totals have moved on")


def _last(connection: Connection, life: Life) -> Cell | None:
    """The last cell of a life, without its totals."""
    row = connection.execute(select(CELL).where(CELL.c.life == life.id).order_by(CELL.c.start.desc()).limit(1)).first()
    return None if row is None else Cell(start=row.start, newest=row.newest, top=row.top, offset=row.offset)


def upsert(connection: Connection, table: Table, key: Sequence[str], **changes: Any) -> Insert:  # noqa: ANN401
    """Insert rows, or change those that are there; `changes` receive the row that was to be inserted."""
    is_postgresql = connection.dialect.name == "postgresql"
    statement = postgresql.insert(table) if is_postgresql else sqlite.insert(table)
    new = statement.excluded
    return statement.on_conflict_do_update(
        index_elements=list(key), set_={name: change(new) for name, change in changes.items()}
    )


def _add_cell(connection: Connection) -> Insert:
    return upsert(
        connection,
        CELL,
        ("life", "start"),
        newest=lambda new: new.newest,
        top=lambda new: new.top,
        offset=lambda new: new.offset,
        whole=lambda new: or_(CELL.c.whole, new.whole),
        rows=lambda new: CELL.c.rows + new.rows,
    )


def _add_total(connection: Connection) -> Insert:
    return upsert(
        connection,
        TOTAL,
        ("life", "cell", "start", "member"),
        value=lambda new: TOTAL.c.value + new.value,
        reached=lambda new: func.coalesce(new.reached, TOTAL.c.reached),
    )
