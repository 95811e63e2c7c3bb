"""The lives of boards in SQL: how far each journal has been moved there."""

import time
from collections.abc import Collection, Sequence
from typing import Final

import msgspec
from sqlalchemy import ColumnElement, Connection, RowMapping, bindparam, insert, select, update

from live.journal.entries import FIRST, Head, parse_head
from live.journal.schema import GAP, LIFE, SEGMENT
from live.journal.segments import Packed, pack_entries
from live.store.board.handover import Entry

_MOST_NUMBERS: Final = 1000  # in one query
START: Final = "0"
"""The id before the first entry."""

_MOVE: Final = (
    update(LIFE)
    .where(LIFE.c.id == bindparam("life"), LIFE.c.drained == bindparam("was"), LIFE.c.link == bindparam("named"))
    .values(drained=bindparam("now"), link=bindparam("next"), size=bindparam("bytes"), ended=None)
)


class Life(msgspec.Struct, frozen=True):
    """One life of a board, as far as SQL has it.

    Attributes:
        id: the number of its row.
        board: the id of the board.
        epoch: the epoch.
        drained: the id of the last entry.
        link: the link of the last entry.
        size: the bytes of all its entries.
    """

    id: int
    board: str
    epoch: str
    drained: str = START
    link: str = FIRST
    size: int = 0

    @property
    def offset(self) -> int:
        """The board's offset after the last entry."""
        return int(self.drained.partition("-")[0])


class Piece(msgspec.Struct, frozen=True):
    """Entries that follow the last one of a life, compressed, and the heads of the first and the last one.

    `gap` is the link that the first entry names, if entries are missing. `parent` is the epoch that the life continues,
    if the first entry says so.
    """

    life: Life
    entries: int
    first: Head
    last: Head
    packed: Packed
    gap: str | None = None
    parent: str | None = None

    @property
    def after(self) -> Life:
        """The life with these entries."""
        last = self.last
        return msgspec.structs.replace(self.life, drained=last.id, link=last.link, size=last.size)


def piece_of(life: Life, entries: Sequence[Entry]) -> Piece:
    """A piece of entries that follow a life. There is at least one."""
    first, last = parse_head(entries[0].head), parse_head(entries[-1].head)
    gap = first.before if first.kind == "adopt" and life.link != FIRST else None
    parent = entries[0].content.decode() if first.kind == "renew" else None
    return Piece(life, len(entries), first, last, pack_entries(entries), gap, parent)


class ConflictError(Exception):
    """Another process has moved entries of a life to SQL."""


def open_lives(connection: Connection, prefix: str, among: Collection[int] | None = None) -> list[Life]:
    """The lives that have not ended; `among` limits them to some numbers of rows.

    A life without an entry never began: a process announced its epoch, and another one had created the board.
    """
    wanted = select(LIFE).where(LIFE.c.prefix == prefix, LIFE.c.ended.is_(None), LIFE.c.size > 0).order_by(LIFE.c.id)
    if among is not None and len(among) <= _MOST_NUMBERS:
        wanted = wanted.where(LIFE.c.id.in_(among))
    return [_life(row) for row in connection.execute(wanted).mappings() if among is None or row["id"] in among]


def drained_of(connection: Connection, prefix: str) -> list[tuple[int, str, str]]:
    """The number of the row, the board, and the id of the last entry of each life that `open_lives` finds."""
    where = (LIFE.c.prefix == prefix, LIFE.c.ended.is_(None), LIFE.c.size > 0)
    rows = connection.execute(select(LIFE.c.id, LIFE.c.board, LIFE.c.drained).where(*where))
    return [(life, board, drained) for life, board, drained in rows]


def lives_of(connection: Connection, prefix: str, board: str) -> list[Life]:
    """All lives of a board, the first one first."""
    where = (LIFE.c.prefix == prefix, LIFE.c.board == board)
    rows = connection.execute(select(LIFE).where(*where).order_by(LIFE.c.id))
    return [_life(row) for row in rows.mappings()]


def find_life(connection: Connection, prefix: str, board: str, epoch: str) -> Life | None:
    """A life; None if SQL does not know it."""
    row = connection.execute(select(LIFE).where(*_named(prefix, board, epoch))).mappings().first()
    return None if row is None else _life(row)


def find_parent(connection: Connection, life: Life, prefix: str, epoch: str) -> Life | None:
    """The life that a life continues: of the same board, or of another one that was rebuilt under this id."""
    found = find_life(connection, prefix, life.board, epoch)
    if found is None:
        where = (LIFE.c.prefix == prefix, LIFE.c.epoch == epoch)
        row = connection.execute(select(LIFE).where(*where).order_by(LIFE.c.id)).mappings().first()
        found = None if row is None else _life(row)
    return found


def begin_life(connection: Connection, prefix: str, board: str, epoch: str) -> Life:
    """A life. If SQL does not know it, it begins now."""
    return begin_lives(connection, prefix, [(board, epoch)])[0]


def begin_lives(connection: Connection, prefix: str, names: Sequence[tuple[str, str]]) -> list[Life]:
    """Lives, each named by board and epoch. Those that SQL does not know begin now. At most a thousand."""
    known = _find_lives(connection, prefix, names)
    new = [
        {
            "prefix": prefix, "board": board, "epoch": epoch, "began": _now(),
            "drained": START, "link": FIRST, "size": 0,
        }
        for board, epoch in names
        if (board, epoch) not in known
    ]  # fmt: skip
    if new:
        connection.execute(insert(LIFE), new)
        known = _find_lives(connection, prefix, names)
    return [known[name] for name in names]


def _find_lives(connection: Connection, prefix: str, names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Life]:
    """The lives of some boards, by board and epoch."""
    where = (LIFE.c.prefix == prefix, LIFE.c.board.in_([board for board, _ in names]))
    rows = connection.execute(select(LIFE).where(*where)).mappings()
    return {(row["board"], row["epoch"]): _life(row) for row in rows}


def end_lives(connection: Connection, lives: Sequence[Life]) -> None:
    """Record that lives have ended: no entry follows."""
    ids = [life.id for life in lives]
    connection.execute(update(LIFE).where(LIFE.c.id.in_(ids), LIFE.c.ended.is_(None)).values(ended=_now()))


def add_pieces(connection: Connection, pieces: Sequence[Piece]) -> None:
    """Add pieces to lives. Each life must still end where its piece begins.

    Raises:
        ConflictError: a life does not.
    """
    moved = connection.execute(_MOVE, [_moved(piece) for piece in pieces])  # many rows with one call: 4 times as fast
    if moved.rowcount != len(pieces):
        raise ConflictError("boards " + ", ".join(sorted({piece.life.board for piece in pieces})))
    for piece in pieces:
        life = piece.life
        if piece.parent is not None:
            _continue(connection, life, piece.parent)
        if piece.gap is not None:
            connection.execute(insert(GAP).values(life=life.id, time=_now(), expected=life.link, found=piece.gap))
    rows = [
        {
            "life": piece.life.id, "first": piece.first.offset, "last": piece.last.offset,
            "began": piece.first.time, "ended": piece.last.time,
            "entries": piece.entries, "crc": piece.packed.crc, "data": piece.packed.data,
        }
        for piece in pieces
    ]  # fmt: skip
    connection.execute(insert(SEGMENT), rows)


def _moved(piece: Piece) -> dict[str, object]:
    """The parameters of `_MOVE`."""
    life, last = piece.life, piece.last
    return {
        "life": life.id, "was": life.drained, "named": life.link, "now": last.id, "next": last.link, "bytes": last.size,
    }  # fmt: skip


def following(life: Life, entries: Sequence[Entry]) -> tuple[list[Entry], str | None]:
    """The entries that follow a life one after another, and the link that the next entry names instead, if it does not.

    The whole content of a board follows anything, and a life may begin as the continuation of another one.

    Raises:
        SetupError: this version cannot read an entry.
    """
    link = life.link
    found: list[Entry] = []
    for entry in entries:
        head = parse_head(entry.head)
        begins = head.kind == "renew" and link == FIRST
        if head.before != link and head.kind != "adopt" and not begins:
            return found, head.before
        found.append(entry)
        link = head.link
    return found, None


def _continue(connection: Connection, life: Life, parent: str) -> None:
    """Record that a life continues another one of its board. The other one ends."""
    connection.execute(update(LIFE).where(LIFE.c.id == life.id).values(parent=parent))
    prefix = select(LIFE.c.prefix).where(LIFE.c.id == life.id).scalar_subquery()
    connection.execute(
        update(LIFE)
        .where(LIFE.c.prefix == prefix, LIFE.c.board == life.board, LIFE.c.epoch == parent, LIFE.c.ended.is_(None))
        .values(ended=_now())
    )


def _named(prefix: str, board: str, epoch: str) -> tuple[ColumnElement[bool], ...]:
    return LIFE.c.prefix == prefix, LIFE.c.board == board, LIFE.c.epoch == epoch


def _life(row: RowMapping) -> Life:
    return Life(row["id"], row["board"], row["epoch"], row["drained"], row["link"], row["size"])


def _now() -> int:
    return time.time_ns() // 1000
