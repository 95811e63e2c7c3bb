"""Forgets hourly totals that are too old, and adds up many hours so that a sum over all time stays short."""

from typing import Final

from sqlalchemy import Connection, delete, func, literal, select, update

from live.domain.board import Board
from live.domain.window import Forever
from live.journal.cells import HOUR
from live.journal.contents import Contents
from live.journal.lives import Life
from live.journal.schema import CELL, FOLDED, TOTAL
from live.journal.standing import newest_slot
from live.journal.totals import upsert

LEAST: Final = 500_000  # totals after which a board whose events never leave gets a cell with all of them
_SLACK: Final = 20  # forget when a twentieth of what is kept is too old


def condense(connection: Connection, life: Life, board: Board) -> None:
    """Let the last cell of a board whose scores never leave say everything, if many totals have come since such a cell.

    Otherwise, to read the board would take as long as all its past.
    """
    if not (isinstance(board.window, Forever) or board.window.tables):
        return
    whole = connection.execute(
        select(CELL.c.start, CELL.c.rows)
        .where(CELL.c.life == life.id, CELL.c.whole)
        .order_by(CELL.c.start.desc())
        .limit(1)
    ).first()
    if whole is None:
        return
    since = (CELL.c.life == life.id, CELL.c.start > whole.start)
    last, rows = connection.execute(select(func.max(CELL.c.start), func.sum(CELL.c.rows)).where(*since)).one()
    if last is not None and rows > max(LEAST, 2 * whole.rows):
        _make_whole(connection, life, last)


def forget_totals(connection: Connection, life: Life, board: Board, before: int, kept: int) -> None:
    """Delete what is not needed to tell how the board stood at any hour since `before` (seconds since 1970).

    `kept` is for how many seconds totals are kept. Deleting waits until that is worthwhile.
    """
    since = connection.scalar(select(FOLDED.c.since).where(FOLDED.c.life == life.id))
    before = before // HOUR * HOUR
    if since is None or since > before - kept // _SLACK:
        return
    of_life = CELL.c.life == life.id
    base = connection.execute(
        select(CELL.c.start, CELL.c.newest).where(of_life, CELL.c.start < before).order_by(CELL.c.start.desc()).limit(1)
    ).first()
    if base is None:
        return
    newest = newest_slot(board, Contents(newest=base.newest), before * 1000)
    oldest = None if newest is None else board.window.oldest(newest)
    first = base.start
    if isinstance(board.window, Forever) or board.window.tables:
        _make_whole(connection, life, first, oldest)
    elif oldest is not None:
        first = connection.scalar(select(func.min(CELL.c.start)).where(of_life, CELL.c.top >= oldest)) or first
        first = min(first, base.start)
    connection.execute(delete(TOTAL).where(TOTAL.c.life == life.id, TOTAL.c.cell < first))
    connection.execute(delete(CELL).where(of_life, CELL.c.start < first))
    connection.execute(update(FOLDED).where(FOLDED.c.life == life.id).values(since=before))


def _make_whole(connection: Connection, life: Life, cell: int, oldest: int | None = None) -> None:
    """Let the totals of a cell include those of all cells before, of slots since `oldest`."""
    before = select(func.max(CELL.c.start)).where(CELL.c.life == life.id, CELL.c.start <= cell, CELL.c.whole)
    where = [TOTAL.c.life == life.id, TOTAL.c.cell.between(connection.scalar(before) or 0, cell)]
    if oldest is not None:
        where.append(TOTAL.c.start >= oldest)
    columns = ("life", "cell", "start", "member", "value", "reached")
    sums = (
        select(
            TOTAL.c.life,
            literal(cell),
            TOTAL.c.start,
            TOTAL.c.member,
            func.sum(TOTAL.c.value),
            func.max(TOTAL.c.reached),
        )
        .where(*where)
        .group_by(TOTAL.c.life, TOTAL.c.start, TOTAL.c.member)
    )
    replace = upsert(
        connection,
        TOTAL,
        ("life", "cell", "start", "member"),
        value=lambda new: new.value,
        reached=lambda new: new.reached,
    )
    connection.execute(replace.from_select(columns, sums))
    own = (TOTAL.c.life == life.id, TOTAL.c.cell == cell)
    connection.execute(delete(TOTAL).where(*own, TOTAL.c.value == 0))
    if oldest is not None:
        connection.execute(delete(TOTAL).where(*own, TOTAL.c.start < oldest))
    rows = select(func.count()).select_from(TOTAL).where(*own).scalar_subquery()
    connection.execute(update(CELL).where(CELL.c.life == life.id, CELL.c.start == cell).values(whole=True, rows=rows))
