"""Keeps the hourly totals of boards in SQL: from the segments of their journals, each exactly once.

The row in `folded` says which segments the totals contain, and changes with them in one transaction. So a process that
is killed at any point neither skips a segment nor counts one twice.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import Connection, delete, insert, select, update

from live.domain.board import Board
from live.journal.cells import HOUR, Cell, Cells, pack_cell
from live.journal.entries import parse_head
from live.journal.lives import ConflictError, Life
from live.journal.reading import contents_of_parent, oldest_checkpoint
from live.journal.schema import CELL, FOLDED, SEGMENT, TOTALS
from live.journal.segments import Packed, unpack_entries

_MOST_ROWS: Final = 20_000  # in one transaction, unless one segment has more


class NewTotals(msgspec.Struct, frozen=True):
    """What the segments of a life after `before`, up to `segment`, add to its totals."""

    life: Life
    before: int
    segment: int
    cells: list[tuple[Cell, Packed]]


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
    return None if segment == before else NewTotals(life, before, segment, packed(cells.cells))


def add_totals(connection: Connection, new: NewTotals) -> None:
    """Add what `add_up` has found.

    Raises:
        ConflictError: another process has added it.
    """
    _advance(connection, new)
    for cell, totals in new.cells:
        put_cell(connection, new.life, cell, totals)


def packed(cells: Sequence[Cell]) -> list[tuple[Cell, Packed]]:
    """Cells without their totals, and the totals compressed."""
    return [(msgspec.structs.replace(cell, totals={}, size=len(cell.totals)), pack_cell(cell)) for cell in cells]


def put_cell(connection: Connection, life: Life, cell: Cell, totals: Packed) -> None:
    """Add totals to a cell. If they are everything that the board held, they replace what the cell has."""
    if cell.whole:
        connection.execute(delete(TOTALS).where(TOTALS.c.life == life.id, TOTALS.c.cell == cell.start))
    connection.execute(insert(TOTALS).values(life=life.id, cell=cell.start, crc=totals.crc, data=totals.data))
    of_cell = (CELL.c.life == life.id, CELL.c.start == cell.start)
    held = connection.execute(select(CELL.c.whole, CELL.c.rows).where(*of_cell)).first()
    row = {"newest": cell.newest, "top": cell.top, "offset": cell.offset, "whole": cell.whole, "rows": cell.size}
    if held is None:
        connection.execute(insert(CELL).values(row | {"life": life.id, "start": cell.start}))
        return
    if not cell.whole:
        row |= {"whole": held.whole, "rows": held.rows + cell.size}
    connection.execute(update(CELL).where(*of_cell).values(row))


def _advance(connection: Connection, new: NewTotals) -> None:
    """Advance the progress if the new totals begin where it ends."""
    first = next((cell.start + HOUR for cell, _ in new.cells if cell.whole), None)
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
