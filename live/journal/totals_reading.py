"""Reads the past of a board from its hourly totals: how it stood at the beginning of an hour."""

from collections.abc import Iterator, Sequence

from sqlalchemy import BigInteger, ColumnElement, Connection, Row, case, cast, func, select

from live.domain.board import Board
from live.domain.window import Forever
from live.journal.cells import tag_parts
from live.journal.contents import Contents, Ranking, Reached
from live.journal.lives import Life
from live.journal.schema import CELL, FOLDED, TOTAL
from live.journal.standing import newest_slot


def totals_since(connection: Connection, life: Life) -> int | None:
    """The first hour whose beginning the totals of a life tell, in seconds since 1970; None if they tell nothing."""
    return connection.scalar(select(FOLDED.c.since).where(FOLDED.c.life == life.id))


def contents_from_totals(
    connection: Connection, life: Life, board: Board, hour: int, period: int | None = None
) -> Contents:
    """The slots and tags that make up a ranking at the beginning of an hour; all slots are added up as the newest one.

    `hour` is not before `totals_since`.
    """
    last = _last_cell(connection, life, hour)
    if last is None:
        return Contents()
    data = Contents(newest=last.newest, offset=last.offset, time=hour * 1_000_000)
    newest = newest_slot(board, data, hour * 1000)
    if newest is None:
        return data
    wanted = newest if period is None or not board.window.tables else period
    counts = TOTAL.c.start == wanted if board.window.tables else TOTAL.c.start >= board.window.oldest(newest)
    rows = connection.execute(
        select(
            TOTAL.c.member,
            cast(func.sum(case((counts, TOTAL.c.value), else_=0)), BigInteger),
            func.max(case((counts, TOTAL.c.reached)) if board.window.tables else TOTAL.c.reached),
        )
        .where(*_reach(connection, life, board, hour, newest if period is None else min(period, newest)))
        .group_by(TOTAL.c.member)
    )
    slot: dict[str, int] = {}
    reached: dict[str, Reached] = {}
    for member, value, tag in rows:
        if value:
            slot[member] = value
            if tag is not None:
                reached[member] = tag_parts(tag)
    data.slots = {wanted: slot}
    data.rankings = {f":{wanted}" if board.window.tables else "": Ranking(reached=reached)}
    return data


def contents_by_hour(
    connection: Connection, life: Life, board: Board, hours: Sequence[int]
) -> Iterator[tuple[int, Contents]]:
    """What a board held at the beginnings of hours, which rise, in one pass. The contents are the same object."""
    data = Contents()
    first = _last_cell(connection, life, hours[0])
    newest = None if first is None else newest_slot(board, Contents(newest=first.newest), hours[0] * 1000)
    reach = _reach(connection, life, board, hours[0], newest)
    begin = connection.scalar(select(func.min(TOTAL.c.cell)).where(*reach))
    cells = connection.execute(
        select(CELL).where(CELL.c.life == life.id, CELL.c.start < hours[-1]).order_by(CELL.c.start)
    ).all()
    left = list(hours)
    for cell in cells:
        while left and left[0] <= cell.start:
            yield left.pop(0), data
        if begin is not None and cell.start >= begin:
            _add_cell(connection, data, board, cell)
        data.newest, data.offset = cell.newest, cell.offset
    for hour in left:
        yield hour, data


def _add_cell(connection: Connection, data: Contents, board: Board, cell: Row[tuple[object, ...]]) -> None:
    """Add what was counted in an hour, and drop what has left the window."""
    if cell.whole:
        data.slots, data.rankings = {}, {}
    rows = connection.execute(
        select(TOTAL.c.start, TOTAL.c.member, TOTAL.c.value, TOTAL.c.reached).where(
            TOTAL.c.life == cell.life, TOTAL.c.cell == cell.start
        )
    )
    tables = board.window.tables
    for start, member, amount, tag in rows:
        slot = data.slots.setdefault(start, {})
        value = slot.get(member, 0) + amount
        if value:
            slot[member] = value
        else:
            slot.pop(member, None)
        if tag is not None:
            reached = data.ranking(f":{start}" if tables else "").reached
            reached[member] = max(reached.get(member, (0, 0)), tag_parts(tag))
    if cell.newest is not None:
        oldest = board.window.oldest(cell.newest)
        for start in [start for start in data.slots if start < oldest]:
            del data.slots[start]
            data.rankings.pop(f":{start}", None)


def _last_cell(connection: Connection, life: Life, hour: int) -> Row[tuple[object, ...]] | None:
    """The last cell before an hour."""
    where = (CELL.c.life == life.id, CELL.c.start < hour)
    return connection.execute(select(CELL).where(*where).order_by(CELL.c.start.desc()).limit(1)).first()


def _reach(
    connection: Connection, life: Life, board: Board, hour: int, newest: int | None
) -> list[ColumnElement[bool]]:
    """The totals that can matter at an hour, when `newest` is the slot or period that is asked for."""
    cells = (CELL.c.life == life.id, CELL.c.start < hour)
    first = connection.scalar(select(func.max(CELL.c.start)).where(*cells, CELL.c.whole)) or 0
    if newest is not None and not isinstance(board.window, Forever):
        oldest = newest if board.window.tables else board.window.oldest(newest)
        reaching = connection.scalar(select(func.min(CELL.c.start)).where(*cells, CELL.c.top >= oldest))
        first = max(first, hour if reaching is None else reaching)
    return [TOTAL.c.life == life.id, TOTAL.c.cell >= first, TOTAL.c.cell < hour]
