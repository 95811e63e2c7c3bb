"""The lives of boards in SQL: how far each journal has been moved there."""

import time
from collections.abc import Collection, Sequence
from typing import Final

import msgspec
from sqlalchemy import ColumnElement, Connection, RowMapping, bindparam, insert, select, update

from live.errors import StoreUnavailableError
from live.journal.database import Database
from live.journal.log.entries import FIRST, Head, Packed, pack_entries, parse_head, position_of
from live.journal.schema import DEFINITION, GAP, LIFE, SEGMENT
from live.store.board.journal_stream import Entry
from live.store.board.keys import Keys
from live.store.connection.client import Store, store_errors
from live.store.connection.pipelined import Word

_MOST_NUMBERS: Final = 1000  # in one query
START: Final = "0"
"""The id before the first entry."""

_MOVE: Final = (
    update(LIFE)
    .where(LIFE.c.id == bindparam("life"), LIFE.c.drained == bindparam("was"), LIFE.c.link == bindparam("named"))
    .values(drained=bindparam("now"), link=bindparam("next"), size=bindparam("bytes"), ended=None)
)


class Timeline(msgspec.Struct, frozen=True):
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


class Gap(msgspec.Struct, frozen=True):
    """Where entries are missing: the link before, the one that the next entry names, and the time of that entry.

    After a loss of the store's data that was accepted, the board continues after an earlier entry, or after none.
    """

    expected: str
    found: str
    time: int

    @property
    def is_loss(self) -> bool:
        """Whether the store lost data. Otherwise entries did not reach SQL."""
        return not self.found or (self.found != FIRST and position_of(self.found) <= position_of(self.expected))

    @property
    def since(self) -> int:
        """The time of the last entry before, in microseconds since 1970."""
        return int(self.expected.split(" ")[1])


class Segment(msgspec.Struct, frozen=True):
    """Entries that follow the last one of a life, compressed, and the heads of the first and the last one.

    `gaps` are those between them. If the first entry says so, `parent` is the epoch that the life continues, and `lost`
    the offset up to which the store lost data.
    """

    life: Timeline
    entries: int
    first: Head
    last: Head
    packed: Packed
    gaps: Sequence[Gap] = ()
    parent: str = ""
    lost: int = 0

    @property
    def after(self) -> Timeline:
        """The life with these entries."""
        last = self.last
        return msgspec.structs.replace(self.life, drained=last.id, link=last.link, size=last.size)


def segment_of(life: Timeline, entries: Sequence[Entry]) -> Segment:
    """Return a segment of entries that follow a life. There is at least one."""
    first, last = parse_head(entries[0].head), parse_head(entries[-1].head)
    gaps = []
    for number, entry in enumerate(entries):
        if entry.head.startswith("adopt "):
            head, link = parse_head(entry.head), parse_head(entries[number - 1].head).link if number else life.link
            if link not in (FIRST, head.before):
                gaps.append(Gap(link, head.before, head.time))
    return Segment(life, len(entries), first, last, pack_entries(entries), gaps, *continued(first, entries[0].content))


def continued(head: Head, body: bytes) -> tuple[str, int]:
    """The epoch that the first entry of a life continues, empty for none, and the offset up to which data was lost."""
    match head.kind:
        case "renew":
            return body.decode(), 0
        case "adopt":
            found = _CONTINUING.decode(body)
            return found.parent, found.lost
    return "", 0


class _Continuing(msgspec.Struct, frozen=True):
    """The only fields of `Adopt` that are decoded here."""

    parent: str = ""
    lost: int = 0


_CONTINUING: Final = msgspec.msgpack.Decoder(_Continuing)


def went_back(life: Timeline, link: str) -> bool:
    """Return whether a store whose last entry has a link, or whose next entry names it, lacks entries that SQL has."""
    return link != life.link and position_of(link) <= position_of(life.drained)


class ConflictError(Exception):
    """Another process has moved entries of a life to SQL."""


def open_lives(connection: Connection, prefix: str, among: Collection[int] | None = None) -> list[Timeline]:
    """Return the lives that have not ended; `among` limits them to some numbers of rows.

    A life without an entry never began: a process announced its epoch, and another one had created the board.
    """
    wanted = select(LIFE).where(LIFE.c.prefix == prefix, LIFE.c.ended.is_(None), LIFE.c.size > 0).order_by(LIFE.c.id)
    if among is not None and len(among) <= _MOST_NUMBERS:
        wanted = wanted.where(LIFE.c.id.in_(among))
    return [_life(row) for row in connection.execute(wanted).mappings() if among is None or row["id"] in among]


def drained_of(connection: Connection, prefix: str) -> list[tuple[int, str, str]]:
    """Return the number of the row, the board, and the id of the last entry of each life that `open_lives` finds."""
    where = (LIFE.c.prefix == prefix, LIFE.c.ended.is_(None), LIFE.c.size > 0)
    rows = connection.execute(select(LIFE.c.id, LIFE.c.board, LIFE.c.drained).where(*where))
    return [(life, board, drained) for life, board, drained in rows]


def lives_of(connection: Connection, prefix: str, board: str) -> list[Timeline]:
    """Return all lives of a board, the first one first."""
    where = (LIFE.c.prefix == prefix, LIFE.c.board == board)
    rows = connection.execute(select(LIFE).where(*where).order_by(LIFE.c.id))
    return [_life(row) for row in rows.mappings()]


def find_life(connection: Connection, prefix: str, board: str, epoch: str) -> Timeline | None:
    """Return a life; None if SQL does not know it."""
    row = connection.execute(select(LIFE).where(*_named(prefix, board, epoch))).mappings().first()
    return None if row is None else _life(row)


def find_parent(connection: Connection, life: Timeline, prefix: str, epoch: str) -> Timeline | None:
    """Return the life that a life continues: of the same board, or of another one that was rebuilt under this id."""
    found = find_life(connection, prefix, life.board, epoch)
    if found is None:
        where = (LIFE.c.prefix == prefix, LIFE.c.epoch == epoch)
        row = connection.execute(select(LIFE).where(*where).order_by(LIFE.c.id)).mappings().first()
        found = None if row is None else _life(row)
    return found


def origins(connection: Connection, prefix: str, life: Timeline) -> list[Timeline]:
    """Return the lives that a life continues, the newest one first."""
    found: list[Timeline] = []
    while parent := connection.scalar(select(LIFE.c.parent).where(LIFE.c.id == life.id)):
        earlier = find_parent(connection, life, prefix, parent)
        if earlier is None:
            break
        life = earlier
        found.append(life)
    return found


def made_once(connection: Connection, prefix: str) -> set[str]:
    """Return the ids of all boards that were ever made at run time, also of those that were deleted."""
    where = (DEFINITION.c.prefix == prefix, DEFINITION.c.kind == "boards")
    return set(connection.scalars(select(DEFINITION.c.name).where(*where).distinct()))


def begin_life(connection: Connection, prefix: str, board: str, epoch: str) -> Timeline:
    """Return a life. If SQL does not know it, it begins now."""
    return begin_lives(connection, prefix, [(board, epoch)])[0]


def begin_lives(connection: Connection, prefix: str, names: Sequence[tuple[str, str]]) -> list[Timeline]:
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


def _find_lives(
    connection: Connection, prefix: str, names: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], Timeline]:
    """Return the lives of some boards, by board and epoch."""
    where = (LIFE.c.prefix == prefix, LIFE.c.board.in_([board for board, _ in names]))
    rows = connection.execute(select(LIFE).where(*where)).mappings()
    return {(row["board"], row["epoch"]): _life(row) for row in rows}


def end_lives(connection: Connection, lives: Sequence[Timeline], gaps: Sequence[Gap] = ()) -> None:
    """Record that lives have ended: no entry follows, or only others than expected, which are gaps at their end."""
    for life in lives:
        add_gaps(connection, life, gaps)
    ids = [life.id for life in lives]
    connection.execute(update(LIFE).where(LIFE.c.id.in_(ids), LIFE.c.ended.is_(None)).values(ended=_now()))


def add_segments(connection: Connection, segments: Sequence[Segment]) -> None:
    """Add segments to lives. Each life must still end where its segment begins.

    Raises:
        ConflictError: a life does not.
    """
    # many rows with one call: 4 times as fast
    moved = connection.execute(_MOVE, [_moved(segment) for segment in segments])
    if moved.rowcount != len(segments):
        raise ConflictError("boards " + ", ".join(sorted({segment.life.board for segment in segments})))
    for segment in segments:
        if segment.parent:
            _continue(connection, segment)
        add_gaps(connection, segment.life, segment.gaps)
    rows = [
        {
            "life": segment.life.id, "first": segment.first.offset, "last": segment.last.offset,
            "began": segment.first.time, "ended": segment.last.time,
            "entries": segment.entries, "crc": segment.packed.crc, "data": segment.packed.data,
        }
        for segment in segments
    ]  # fmt: skip
    connection.execute(insert(SEGMENT), rows)


def _moved(segment: Segment) -> dict[str, object]:
    """Return the parameters of `_MOVE`."""
    life, last = segment.life, segment.last
    return {
        "life": life.id, "was": life.drained, "named": life.link, "now": last.id, "next": last.link, "bytes": last.size,
    }  # fmt: skip


def following(life: Timeline, entries: Sequence[Entry]) -> tuple[list[Entry], str | None]:
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


def gaps_of(connection: Connection, lives: Sequence[Timeline]) -> list[Gap]:
    """Return the gaps of some lives, the first one first."""
    where = GAP.c.life.in_([life.id for life in lives])
    rows = connection.execute(select(GAP.c.expected, GAP.c.found, GAP.c.time).where(where).order_by(GAP.c.id))
    return [Gap(*row) for row in rows]


def add_gaps(connection: Connection, life: Timeline, gaps: Sequence[Gap]) -> None:
    """Record that entries of a life are missing."""
    for gap in gaps:
        connection.execute(insert(GAP).values(life=life.id, time=gap.time, expected=gap.expected, found=gap.found))


def _continue(connection: Connection, segment: Segment) -> None:
    """Record that a life continues another one of its board, which ends.

    If it begins with what the board held after a loss, what SQL has beyond that is not part of it. That is a gap. So is
    what the store had acknowledged and SQL never had.
    """
    life, first = segment.life, segment.first
    connection.execute(update(LIFE).where(LIFE.c.id == life.id).values(parent=segment.parent))
    prefix = connection.execute(select(LIFE.c.prefix).where(LIFE.c.id == life.id)).scalar_one()
    parent = find_life(connection, prefix, life.board, segment.parent)
    if parent is None:
        return
    end_lives(connection, [parent])
    if first.kind == "adopt" and went_back(parent, first.before):
        add_gaps(connection, life, [Gap(parent.link, first.before, first.time)])
    elif segment.lost:
        add_gaps(connection, life, [Gap(f"{segment.lost}-0 {first.time} - 0", first.before, first.time)])


def _named(prefix: str, board: str, epoch: str) -> tuple[ColumnElement[bool], ...]:
    return LIFE.c.prefix == prefix, LIFE.c.board == board, LIFE.c.epoch == epoch


def _life(row: RowMapping) -> Timeline:
    return Timeline(row["id"], row["board"], row["epoch"], row["drained"], row["link"], row["size"])


def _now() -> int:
    return time.time_ns() // 1000


class Loss(msgspec.Struct, frozen=True):
    """A life of which SQL has more than the store: what the store has instead, for people.

    `gone` means that the store has nothing of it. Otherwise it has the life to an earlier entry.
    """

    life: Timeline
    what: str
    gone: bool

    def __str__(self) -> str:
        """Return one sentence."""
        life = self.life
        return f"the journal has board {life.board} (epoch {life.epoch}) up to offset {life.offset}, and it {self.what}"


async def find_lost(client: Store, prefix: str, database: Database) -> list[Loss]:
    """Return the lives that the store lacks or in which it went back."""
    lives = database.work(lambda connection: open_lives(connection, prefix))
    commands: list[tuple[str, tuple[Word, ...]]] = []
    for life in lives:
        keys, stream = Keys(prefix, life.board), Keys(prefix, life.board).journal(life.epoch)
        commands.append((keys.meta, ("HMGET", keys.meta, "epoch", "offset", "journal")))
        commands.append((keys.gone, ("HGET", keys.gone, "epoch")))
        commands.append((keys.journals, ("SISMEMBER", keys.journals, f"{life.board} {life.epoch}")))
        commands.append((stream, ("XRANGE", stream, f"({life.drained}", "+", "COUNT", 1)))
    async with store_errors():
        replies = await client.calls(commands)
    for reply in replies:
        if isinstance(reply, Exception):
            raise StoreUnavailableError(str(reply)) from reply
    found = []
    for life, (epoch, offset, journal), deleted, listed, waiting in zip(
        lives, replies[::4], replies[1::4], replies[2::4], replies[3::4], strict=True
    ):
        name = life.epoch.encode()
        if epoch == name:
            what = _what_is_missing(life, int(offset or 0), journal, waiting[0][1][1] if waiting else None)
            if what:
                found.append(Loss(life, what, gone=False))
        elif name != deleted and not listed:
            what = f"has epoch {epoch.decode()}" if epoch else "is not in the store"
            found.append(Loss(life, what, gone=True))
    return found


def _what_is_missing(life: Timeline, offset: int, journal: bytes | None, waiting: bytes | None) -> str:
    """Return what the store has instead of the last entry of a life; empty if it has that, or more.

    `journal` is the link of its last entry, with a size, and `waiting` the head of the first one that SQL lacks.
    """
    if journal is None:  # the journal has ended
        return f"is at offset {offset}" if offset < life.offset else ""
    link = journal.decode().rpartition(" ")[0]
    if went_back(life, link):
        return f"is at offset {offset}, with {link.partition(' ')[0]} as the last entry"
    head = None if waiting is None else parse_head(waiting.decode())
    if head is not None and head.kind != "adopt" and went_back(life, head.before):
        return f"has other events up to offset {offset}: the store went back, and counted again"
    return ""


def end_lost(connection: Connection, lost: Sequence[Loss]) -> None:
    """End the lives that were lost, after an operator has accepted the loss.

    What a board holds that continues an earlier entry is the beginning of a life, which records what is missing. Of the
    others, nothing continues, and it is recorded here.
    """
    for loss in lost:
        end_lives(connection, [loss.life], [Gap(loss.life.link, "", time.time_ns() // 1000)] if loss.gone else [])
