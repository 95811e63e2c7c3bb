"""Adds up the entries of a journal by hour: what was counted in each slot for each member.

A cell is an hour by the board's clock: of the store's time, or of the newest event time. An event is added to the cell
in which it was counted, whatever slot it belongs to. So the sum of all cells before an hour is exactly what the board
held then, although late events came afterwards.
"""

from itertools import accumulate
from typing import Final

import msgspec

from live.domain.board import Board
from live.domain.window import Sliding
from live.errors import SetupError
from live.journal.contents import Contents
from live.journal.corrections import reached_of
from live.journal.entries import Add, Head, Mend, Tags, content
from live.journal.fold import apply
from live.journal.segments import Packed, compress, decompress

HOUR: Final = 3600  # seconds
_NUMBERS: Final = 2**24  # events of one batch

_ADD: Final = msgspec.msgpack.Decoder(Add)
_MEND: Final = msgspec.msgpack.Decoder(Mend)
_TAGS: Final = msgspec.msgpack.Decoder(Tags)
_Columns = tuple[int, list[str], list[int], list[int]]  # a slot: members, values, and the steps from tag to tag
_COLUMNS: Final = msgspec.msgpack.Decoder(list[_Columns])
_UNCOUNTED: Final = frozenset(("begin", "hide", "enter", "withdraw"))  # entries that change no score


class Cell(msgspec.Struct, kw_only=True):
    """What was counted in an hour.

    Attributes:
        start: the start of the hour, in seconds since 1970.
        newest: the newest slot at its end; None for none.
        top: the highest slot in which anything was counted until its end; None for none.
        offset: the board's offset at its end.
        whole: whether `totals` is everything that the board held, and not only what was added.
        totals: for a slot and a member, the sum, and the tag of the member (`tag_number`) if it has changed.
        size: how many totals it has, where they are packed apart.
    """

    start: int
    newest: int | None = None
    top: int | None = None
    offset: int = 0
    whole: bool = False
    totals: dict[tuple[int, str], tuple[int, int | None]] = {}
    size: int = 0

    def add(self, start: int, member: str, amount: int, reached: int | None) -> None:
        """Add an amount to a slot."""
        value, before = self.totals.get((start, member), (0, None))
        self.totals[start, member] = (value + amount, before if reached is None else reached)
        self.top = start if self.top is None else max(self.top, start)


def has_totals(board: Board) -> bool:
    """Whether the past of a board follows from hourly sums: amounts add up, and they leave with their slot."""
    return board.operator == "incr" and not isinstance(board.window, Sliding)


def tag_number(offset: int, number: int) -> int:
    """The tag of a member as one number, which grows with time."""
    return offset * _NUMBERS + number


def tag_parts(tag: int) -> tuple[int, int]:
    """The offset and the number of a tag."""
    return divmod(tag, _NUMBERS)


def hour_of(milliseconds: int) -> int:
    """The start of the hour that contains a time. The time is in milliseconds since 1970, and the result in seconds."""
    return milliseconds // 1000 // HOUR * HOUR


def pack_cell(cell: Cell) -> Packed:
    """The totals of a cell, compressed.

    Those of each slot are in the order in which members reached their scores, so that tags differ by little.
    """
    slots: dict[int, list[tuple[int, str, int]]] = {}
    for (start, member), (value, reached) in cell.totals.items():
        slots.setdefault(start, []).append((-1 if reached is None else reached, member, value))
    columns: list[_Columns] = []
    for start, rows in sorted(slots.items()):
        rows.sort()
        tags = [reached for reached, _, _ in rows]
        steps = [tag - before for before, tag in zip([-1, *tags], tags, strict=False)]
        columns.append((start, [member for _, member, _ in rows], [value for _, _, value in rows], steps))
    return compress(msgspec.msgpack.encode(columns))


def unpack_cell(crc: int, data: bytes) -> dict[tuple[int, str], tuple[int, int | None]]:
    """The totals of a cell.

    Raises:
        SetupError: they are damaged.
    """
    totals: dict[tuple[int, str], tuple[int, int | None]] = {}
    for start, members, values, steps in _COLUMNS.decode(decompress(crc, data)):
        tags = accumulate(steps, initial=-1)
        next(tags)
        for member, value, tag in zip(members, values, tags, strict=True):
            totals[start, member] = (value, None if tag < 0 else tag)
    return totals


class Cells:
    """Adds up entries one after another."""

    def __init__(self, board: Board, last: Cell | None) -> None:
        """Continue after the cell `last`; None at the beginning of a life."""
        self.done: list[Cell] = []
        self._board = board
        self._now = None if last is None else Cell(start=last.start, newest=last.newest, top=last.top)
        self._begins = last is None

    @property
    def size(self) -> int:
        """How many totals there are."""
        return sum(len(cell.totals) for cell in self.cells)

    @property
    def cells(self) -> list[Cell]:
        """The cells that have something new. More can follow in the last one."""
        return self.done + ([] if self._now is None or not self._now.offset else [self._now])

    def apply(self, head: Head, body: bytes, parent: Contents | None = None) -> None:
        """Add the next entry. `parent` is what the life before held, if the entry continues it.

        Raises:
            SetupError: this version does not know such an entry.
        """
        match head.kind:
            case "add":
                self._add(head, _ADD.decode(body))
            case "tags":
                self._tag(head, _TAGS.decode(body))
            case "mend":
                self._mend(head, _MEND.decode(body))
            case "adopt" | "renew":
                data = parent or Contents()
                apply(data, head, body)
                self.replace(data)
            case kind if kind in _UNCOUNTED:
                self._advance(head.time, head.offset)
            case kind:
                raise SetupError(f"the journal has an entry {kind!r}: a newer version has written it")

    def _advance(self, time: int, offset: int, latest: int | None = None) -> Cell | None:
        """The cell of an entry that was made at a time (microseconds); None while the board's clock has no time."""
        moment = latest if self._board.clock == "event" else time // 1000
        cell = self._now
        if moment is not None and (cell is None or hour_of(moment) > cell.start):
            if cell is not None and cell.offset:
                self.done.append(cell)
            cell = self._now = Cell(
                start=hour_of(moment),
                newest=None if cell is None else cell.newest,
                top=None if cell is None else cell.top,
                whole=self._begins,
            )
            self._begins = False
        if cell is not None:
            cell.offset = offset
        return cell

    def _add(self, head: Head, request: Add) -> None:
        cell = self._advance(head.time, head.offset, request.latest)
        if cell is None:
            return
        tags = _tags_of(head, request)
        for group in request.groups:
            for member, amount in zip(group.members, group.amounts, strict=True):
                reached = tags.get((group.suffix, member))
                if amount or reached is not None:
                    cell.add(group.start, member, amount, reached)
        if request.reached is not None:
            cell.newest = request.reached

    def _tag(self, head: Head, tags: Tags) -> None:
        cell = self._advance(head.time, head.offset)
        if cell is None:
            return
        for suffix, member, number in tags:
            if number:
                start = int(suffix[1:]) if suffix else cell.top or 0
                cell.add(start, member, 0, tag_number(head.offset, number))

    def _mend(self, head: Head, mend: Mend) -> None:
        """Add what the journal learned from the store."""
        cell = self._advance(head.time, head.offset)
        if cell is None or not mend.teach or mend.kind not in ("slot", "reached"):
            return
        names = [content(name).decode() for name in mend.names]
        if mend.kind == "slot" and mend.start is not None:
            for name, amount in zip(names, mend.amounts or (), strict=True):
                cell.add(mend.start, name, amount, None)
        else:
            start, shape = int(mend.suffix[1:]) if mend.suffix else cell.top or 0, self._board.shape.encode()
            for name, tag in zip(names, map(content, mend.values), strict=True):
                cell.add(start, name, 0, tag_number(*reached_of(shape, tag)) if tag else None)

    def replace(self, data: Contents) -> None:
        """Continue with everything that the board held."""
        self._begins = True
        cell = self._advance(data.time, data.offset, data.latest)
        if cell is None:
            return
        cell.whole, self._begins = True, False
        cell.newest, cell.top, cell.totals = data.newest, None, {}
        tagged = self._board.tags != "key"
        for start, slot in data.slots.items():
            ranking = data.rankings.get(f":{start}" if self._board.window.tables else "")
            for member, value in slot.items():
                reached = ranking.reached.get(member) if ranking is not None and tagged else None
                cell.add(start, member, value, None if reached is None else tag_number(*reached))


def _tags_of(head: Head, request: Add) -> dict[tuple[str, str], int]:
    """The tags that a batch gives to members. For a member in several slots of one ranking, that of the last slot."""
    if not request.rules.ties:
        return {}
    return {
        (group.suffix, member): tag_number(head.offset, abs(order))
        for group in request.groups
        for member, order in zip(group.members, group.orders, strict=True)
        if order
    }
