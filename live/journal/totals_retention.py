"""Forgets hourly totals that are too old, and adds up many hours so that a sum over all time stays short."""

from typing import Final

import msgspec
from sqlalchemy import Connection, delete, func, select, update

from live.domain.board import Board
from live.domain.window import Forever
from live.journal.cells import HOUR, Cell
from live.journal.contents import Contents
from live.journal.lives import Life
from live.journal.schema import CELL, FOLDED, TOTALS
from live.journal.scores import newest_slot
from live.journal.segments import Packed
from live.journal.totals import packed, put_cell
from live.journal.totals_reading import whole_cell

LEAST: Final = 500_000  # totals after which a board whose events never expire gets a cell with all of them
_SLACK: Final = 20  # delete when a twentieth of the totals is too old


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with the totals of a life: put a whole cell in place of one, and delete the cells before `first`.

    `since` is the first hour whose beginning they cover then; None if that does not change.
    """

    life: Life
    whole: tuple[Cell, Packed] | None
    first: int
    since: int | None = None


def has_sums(board: Board) -> bool:
    """Whether a cell of the board can hold everything before: its scores, and not one part for each slot."""
    return isinstance(board.window, Forever) or board.window.tables


def condense(connection: Connection, life: Life, board: Board) -> Change | None:
    """Make the last cell of a board whose scores never expire complete, if many totals follow the last such cell.

    Otherwise, reading the board would take longer and longer. Returns None if that is not due.
    """
    if not has_sums(board):
        return None
    of_life = CELL.c.life == life.id
    wholes = select(CELL.c.start, CELL.c.rows).where(of_life, CELL.c.whole)
    whole = connection.execute(wholes.order_by(CELL.c.start.desc()).limit(1)).first()
    if whole is None:
        return None
    since = select(func.max(CELL.c.start), func.sum(CELL.c.rows)).where(of_life, CELL.c.start > whole.start)
    last, rows = connection.execute(since).one()
    if last is None or rows <= max(LEAST, 2 * whole.rows):
        return None
    return Change(life=life, whole=_whole(connection, life, board, last, None), first=0)


def due_totals(connection: Connection, life: Life, board: Board, now: int, kept: int) -> int | None:
    """The first hour of which totals are kept (seconds since 1970), if enough of those before can be deleted.

    `now` is in seconds since 1970; an event clock has its own. `kept` is for how many seconds totals are kept.
    """
    since = connection.scalar(select(FOLDED.c.since).where(FOLDED.c.life == life.id))
    if board.clock == "event":
        now = connection.scalar(select(func.max(CELL.c.start)).where(CELL.c.life == life.id)) or now
    before = (now - kept) // HOUR * HOUR
    return None if since is None or since > before - kept // _SLACK else before


def old_totals(connection: Connection, life: Life, board: Board, now: int, kept: int) -> Change | None:
    """What is not needed to read the board at any hour since `due_totals`; None for nothing."""
    of_life = CELL.c.life == life.id
    before = due_totals(connection, life, board, now, kept)
    if before is None:
        return None
    cells = select(CELL.c.start, CELL.c.newest).where(of_life, CELL.c.start < before)
    base = connection.execute(cells.order_by(CELL.c.start.desc()).limit(1)).first()
    if base is None:
        return None
    newest = newest_slot(board, Contents(newest=base.newest), before * 1000)
    oldest = None if newest is None else board.window.oldest(newest)
    if has_sums(board):
        whole = _whole(connection, life, board, base.start, oldest)
        return Change(life=life, whole=whole, first=base.start, since=before)
    reaching = connection.scalar(select(func.min(CELL.c.start)).where(of_life, CELL.c.top >= oldest))
    first = base.start if reaching is None else min(reaching, base.start)
    return Change(life=life, whole=None, first=first, since=before)


def apply_change(connection: Connection, change: Change) -> None:
    """Apply a change."""
    life = change.life
    if change.whole is not None:
        put_cell(connection, life, *change.whole)
    connection.execute(delete(TOTALS).where(TOTALS.c.life == life.id, TOTALS.c.cell < change.first))
    connection.execute(delete(CELL).where(CELL.c.life == life.id, CELL.c.start < change.first))
    if change.since is not None:
        connection.execute(update(FOLDED).where(FOLDED.c.life == life.id).values(since=change.since))


def _whole(
    connection: Connection, life: Life, board: Board, start: int, oldest: int | None
) -> tuple[Cell, Packed] | None:
    cell = whole_cell(connection, life, board, start, oldest)
    return None if cell is None else packed([cell])[0]
