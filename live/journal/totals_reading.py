"""Reads the past of a board from its hourly totals: its state at the beginning of an hour."""

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, Row, func, select

from live.domain.board import Board
from live.domain.window import Forever
from live.journal.cells import Cell, tag_number, tag_parts, unpack_cell
from live.journal.contents import Contents, Reached
from live.journal.lives import Life
from live.journal.running import Sums
from live.journal.schema import CELL, FOLDED, TOTALS
from live.journal.scores import Scores, newest_slot


class Tally:
    """Adds up cells one after another. A score is the sum of the slots that are in the window of the last cell."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._slots: dict[int, dict[str, int]] = {}
        self._reached: dict[int | None, dict[str, Reached]] = {}  # for each period, or for None where there are none
        self._sums = Sums()  # of all slots, on a board whose slots add up

    def clear(self) -> None:
        """Forget everything."""
        self._slots, self._reached, self._sums = {}, {}, Sums()

    def add(self, totals: dict[tuple[int, str], tuple[int, int | None]]) -> None:
        """Add what was counted."""
        tables, sums = self._board.window.tables, self._sums
        for (start, member), (amount, tag) in totals.items():
            slot = self._slots.setdefault(start, {})
            slot[member] = slot.get(member, 0) + amount
            if not tables:
                sums.add(member, amount)
            if tag is not None:
                reached = self._reached.setdefault(start if tables else None, {})
                reached[member] = max(reached.get(member, (0, 0)), tag_parts(tag))

    def scores(self, newest: int, period: int | None = None) -> Scores:
        """The scores of a period, or those while `newest` is the newest slot. `newest` must not go back."""
        if self._board.window.tables:
            wanted = newest if period is None else period
            scores = {member: value for member, value in self._slots.get(wanted, {}).items() if value}
            return Scores(wanted, scores, self._reached.get(wanted, {}))
        oldest, sums = self._board.window.oldest(newest), self._sums
        for start in [start for start in self._slots if start < oldest]:
            sums.subtract(self._slots.pop(start))
        return Scores(None, sums.scores, self._reached.get(None, {}), sums.spread)

    @property
    def totals(self) -> dict[tuple[int, str], tuple[int, int | None]]:
        """Everything, as the totals of one cell."""
        tables, found = self._board.window.tables, {}
        for start, slot in self._slots.items():
            reached = self._reached.get(start if tables else None, {})
            for member, value in slot.items():
                if value:
                    tag = reached.get(member)
                    found[start, member] = (value, None if tag is None else tag_number(*tag))
        return found


def totals_since(connection: Connection, life: Life) -> int | None:
    """The first hour whose beginning the totals of a life cover, in seconds since 1970; None if they cover none."""
    return connection.scalar(select(FOLDED.c.since).where(FOLDED.c.life == life.id))


def scores_by_hour(
    connection: Connection, life: Life, board: Board, hours: Sequence[int], period: int | None = None
) -> Iterator[tuple[int, int, Scores]]:
    """The scores at the beginnings of ascending hours, with the board's offset then, in one pass.

    No hour is before `totals_since`. `period` is the start of a period; None for the current one.
    """
    tally, offset, left = Tally(board), 0, list(hours)
    newest: int | None = None

    def at_start_of(hour: int) -> tuple[int, int, Scores]:
        current = newest_slot(board, Contents(newest=newest), hour * 1000)
        return hour, offset, Scores(None, {}, {}) if current is None else tally.scores(current, period)

    begin = _begin(connection, life, board, hours[0], period)
    for cell in _cells(connection, life, hours[-1]):
        while left[0] <= cell.start:
            yield at_start_of(left.pop(0))
        if cell.start >= begin:
            if cell.whole:
                tally.clear()
            for totals in _totals(connection, life, cell.start):
                tally.add(totals)
        newest, offset = cell.newest, cell.offset
    for hour in left:
        yield at_start_of(hour)


def whole_cell(connection: Connection, life: Life, board: Board, start: int, oldest: int | None) -> Cell | None:
    """A cell with everything that the board held at its end, in slots since `oldest`; None for no such cell."""
    tally, found = Tally(board), None
    for cell in _cells(connection, life, start + 1):
        if cell.whole:
            tally.clear()
        for totals in _totals(connection, life, cell.start):
            tally.add(totals)
        found = cell
    if found is None or found.start != start:
        return None
    totals = {key: value for key, value in tally.totals.items() if oldest is None or key[0] >= oldest}
    return Cell(start=start, newest=found.newest, top=found.top, offset=found.offset, whole=True, totals=totals)


def _cells(connection: Connection, life: Life, before: int) -> Sequence[Row[tuple[object, ...]]]:
    where = (CELL.c.life == life.id, CELL.c.start < before)
    return connection.execute(select(CELL).where(*where).order_by(CELL.c.start)).all()


def _totals(connection: Connection, life: Life, cell: int) -> list[dict[tuple[int, str], tuple[int, int | None]]]:
    """The parts of the totals of a cell."""
    where = (TOTALS.c.life == life.id, TOTALS.c.cell == cell)
    rows = connection.execute(select(TOTALS.c.crc, TOTALS.c.data).where(*where).order_by(TOTALS.c.id))
    return [unpack_cell(row.crc, row.data) for row in rows.all()]


def _begin(connection: Connection, life: Life, board: Board, hour: int, period: int | None) -> int:
    """The first cell that is needed for the scores at an hour."""
    cells = (CELL.c.life == life.id, CELL.c.start < hour)
    whole = connection.scalar(select(func.max(CELL.c.start)).where(*cells, CELL.c.whole)) or 0
    last = connection.execute(select(CELL.c.newest).where(*cells).order_by(CELL.c.start.desc()).limit(1)).first()
    newest = None if last is None else newest_slot(board, Contents(newest=last.newest), hour * 1000)
    if newest is None or isinstance(board.window, Forever):
        return whole
    oldest = board.window.oldest(newest) if not board.window.tables else newest if period is None else period
    reaching = connection.scalar(select(func.min(CELL.c.start)).where(*cells, CELL.c.top >= oldest))
    return max(whole, hour if reaching is None else reaching)
