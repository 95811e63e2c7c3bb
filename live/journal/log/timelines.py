"""The timelines of boards in SQL: how far each journal has been moved there."""

import time
from collections.abc import Collection, Sequence
from itertools import takewhile
from typing import Final

import msgspec
from sqlalchemy import ColumnElement, Connection, RowMapping, bindparam, delete, func, insert, select, update

from live.journal.database import Database
from live.journal.erasures import add_erasures
from live.journal.forgetting import forget_by, forgotten
from live.journal.log.entries import (
    FIRST,
    Erase,
    Head,
    Packed,
    pack_entries,
    pack_pairs,
    parse_head,
    position_of,
    unpack_entries,
)
from live.journal.schema import CHECKPOINT, DEFINITION, LIFE, SEGMENT
from live.store.board.journal_stream import Entry
from live.store.board.keys import Keys
from live.store.connection.client import Store
from live.store.connection.pipelined import Word

_MOST_NUMBERS: Final = 1000  # row numbers in one query
START: Final = "0"
"""The id before the first entry."""

_BEGINNINGS: Final = ("adopt", "renew")  # kinds of entries with which a timeline may continue another

_MOVE: Final = (
    update(LIFE)
    .where(LIFE.c.id == bindparam("life"), LIFE.c.drained == bindparam("was"), LIFE.c.link == bindparam("named"))
    .values(drained=bindparam("now"), link=bindparam("next"), size=bindparam("bytes"), ended=None)
)


class Timeline(msgspec.Struct, frozen=True):
    """One timeline of a board, up to its last entry in SQL.

    Attributes:
        id: the number of its row.
        board: the id of the board.
        epoch: the epoch of the board in this timeline.
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


class Segment(msgspec.Struct, frozen=True):
    """Compressed entries that follow the last entry of a timeline, and the heads of the first and the last of them.

    If the first entry says that the timeline continues an older epoch, `parent` is that epoch. `erased` has the `erase`
    and `forget` entries, each with its time.
    """

    timeline: Timeline
    entries: int
    first: Head
    last: Head
    packed: Packed
    parent: str = ""
    erased: Sequence[tuple[int, Erase]] = ()

    @property
    def after(self) -> Timeline:
        """The timeline with these entries."""
        last = self.last
        return msgspec.structs.replace(self.timeline, drained=last.id, link=last.link, size=last.size)


def segment_of(timeline: Timeline, entries: Sequence[Entry]) -> Segment:
    """Pack entries that follow a timeline, at least one."""
    first, last = parse_head(entries[0].head), parse_head(entries[-1].head)
    for number, entry in enumerate(entries):
        if entry.head.startswith("forget "):
            entries = [*forgotten(entries[:number], _ERASE.decode(entry.content)), *entries[number:]]
    erased = [
        (parse_head(entry.head).time, _ERASE.decode(entry.content))
        for entry in entries
        if entry.head.startswith(("erase ", "forget "))
    ]
    parent = continued(first, entries[0].content)
    return Segment(timeline, len(entries), first, last, pack_entries(entries), parent, erased)


def continued(head: Head, body: bytes) -> str:
    """Return the epoch that the first entry of a timeline continues; empty for none."""
    match head.kind:
        case "renew":
            return body.decode()
        case "adopt":
            return _CONTINUING.decode(body).parent
    return ""


class _Continuing(msgspec.Struct, frozen=True):
    """The field of `Adopt` that this module needs."""

    parent: str = ""


_ERASE: Final = msgspec.msgpack.Decoder(Erase)
_CONTINUING: Final = msgspec.msgpack.Decoder(_Continuing)


def went_back(timeline: Timeline, link: str) -> bool:
    """Return whether the store lacks entries that SQL has.

    `link` is the link of the last entry in the store, or the link that the next entry there names.
    """
    return link != timeline.link and position_of(link) <= position_of(timeline.drained)


class ConflictError(Exception):
    """Another process has moved entries of a timeline to SQL."""


def open_timelines(connection: Connection, prefix: str, among: Collection[int] | None = None) -> list[Timeline]:
    """Return the timelines that have not ended. `among` has the row numbers to choose from.

    Leave out timelines without an entry. Such a timeline never began: its process announced an epoch, but another
    process created the board.
    """
    wanted = select(LIFE).where(LIFE.c.prefix == prefix, LIFE.c.ended.is_(None), LIFE.c.size > 0).order_by(LIFE.c.id)
    if among is not None and len(among) <= _MOST_NUMBERS:
        wanted = wanted.where(LIFE.c.id.in_(among))
    return [_timeline(row) for row in connection.execute(wanted).mappings() if among is None or row["id"] in among]


def drained_of(connection: Connection, prefix: str) -> list[tuple[int, str, str]]:
    """Return the row's number, the board, and the last entry's id of each timeline that `open_timelines` finds."""
    where = (LIFE.c.prefix == prefix, LIFE.c.ended.is_(None), LIFE.c.size > 0)
    rows = connection.execute(select(LIFE.c.id, LIFE.c.board, LIFE.c.drained).where(*where))
    return [(timeline, board, drained) for timeline, board, drained in rows]


def timelines_of(connection: Connection, prefix: str, board: str) -> list[Timeline]:
    """Return all timelines of a board, the oldest first."""
    where = (LIFE.c.prefix == prefix, LIFE.c.board == board)
    rows = connection.execute(select(LIFE).where(*where).order_by(LIFE.c.id))
    return [_timeline(row) for row in rows.mappings()]


def all_timelines(connection: Connection, prefix: str) -> list[tuple[Timeline, str | None]]:
    """Return every timeline, the oldest first, each with the epoch that it continues, or None."""
    rows = connection.execute(select(LIFE).where(LIFE.c.prefix == prefix).order_by(LIFE.c.id))
    return [(_timeline(row), row["parent"]) for row in rows.mappings()]


def find_timeline(connection: Connection, prefix: str, board: str, epoch: str) -> Timeline | None:
    """Return the last timeline of an epoch; None if SQL does not know it."""
    return _last(connection, LIFE.c.prefix == prefix, LIFE.c.board == board, LIFE.c.epoch == epoch)


def _last(connection: Connection, *where: ColumnElement[bool]) -> Timeline | None:
    row = connection.execute(select(LIFE).where(*where).order_by(LIFE.c.id.desc()).limit(1)).mappings().first()
    return None if row is None else _timeline(row)


def find_parent(connection: Connection, timeline: Timeline, prefix: str, epoch: str) -> Timeline | None:
    """Return the timeline that `timeline` continues, or None if SQL does not know it.

    That timeline can belong to another board, which was rebuilt under the id of this board. Where entries are missing,
    a timeline continues an earlier timeline of the same epoch.
    """
    where = [LIFE.c.prefix == prefix, LIFE.c.epoch == epoch]
    if epoch == timeline.epoch:
        where.append(LIFE.c.id < timeline.id)
    return _last(connection, *where, LIFE.c.board == timeline.board) or _last(connection, *where)


def origins(connection: Connection, prefix: str, timeline: Timeline) -> list[Timeline]:
    """Return the timelines that a timeline continues, the newest first."""
    found: list[Timeline] = []
    while parent := connection.scalar(select(LIFE.c.parent).where(LIFE.c.id == timeline.id)):
        earlier = find_parent(connection, timeline, prefix, parent)
        if earlier is None:
            break
        timeline = earlier
        found.append(timeline)
    return found


def first_seen(connection: Connection, prefix: str, timeline: Timeline) -> int:
    """Return when SQL first had a timeline, or one that it continues, in microseconds since 1970."""
    ids = [one.id for one in (timeline, *origins(connection, prefix, timeline))]
    return int(connection.execute(select(func.min(LIFE.c.began)).where(LIFE.c.id.in_(ids))).scalar_one())


def life_of(connection: Connection, prefix: str, board: str, epoch: str | None) -> list[Timeline]:
    """Return the timelines of a board's present life, whose epoch is `epoch` now, the newest first.

    A board that was deleted may have had other readers. So its timelines do not belong to the life of a later board
    with the same id. A board that the store lost goes on living after an operator has accepted the loss: the lost
    timeline names the epoch in which it does. Without an epoch, return the timelines of every life.
    """
    if epoch is None:
        return timelines_of(connection, prefix, board)[::-1]
    of_board = (LIFE.c.prefix == prefix, LIFE.c.board == board)
    found: list[Timeline] = []
    last = find_timeline(connection, prefix, board, epoch)
    while last is not None:
        found += last, *takewhile(lambda timeline: timeline.board == board, origins(connection, prefix, last))
        epochs = {timeline.epoch for timeline in found}
        last = _last(connection, *of_board, LIFE.c.id < found[-1].id, LIFE.c.lost.in_(epochs))
    return found


def made_once(connection: Connection, prefix: str) -> set[str]:
    """Return the ids of all boards that were ever made at run time, including deleted boards."""
    where = (DEFINITION.c.prefix == prefix, DEFINITION.c.kind == "boards")
    return set(connection.scalars(select(DEFINITION.c.name).where(*where).distinct()))


def begin_timelines(connection: Connection, prefix: str, names: Sequence[tuple[str, str]]) -> list[Timeline]:
    """Return the timelines of at most a thousand boards and epochs. Begin the timelines that SQL does not know."""
    known = _find_timelines(connection, prefix, names)
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
        known = _find_timelines(connection, prefix, names)
    return [known[name] for name in names]


def _find_timelines(
    connection: Connection, prefix: str, names: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], Timeline]:
    where = (LIFE.c.prefix == prefix, LIFE.c.board.in_([board for board, _ in names]))
    rows = connection.execute(select(LIFE).where(*where).order_by(LIFE.c.id)).mappings()
    return {(row["board"], row["epoch"]): _timeline(row) for row in rows}


def end_timelines(connection: Connection, timelines: Sequence[Timeline]) -> None:
    """Record that timelines have ended."""
    ids = [timeline.id for timeline in timelines]
    connection.execute(update(LIFE).where(LIFE.c.id.in_(ids), LIFE.c.ended.is_(None)).values(ended=_now()))


def begin_again(connection: Connection, timeline: Timeline) -> Timeline:
    """End a timeline after which entries are missing. Begin another timeline of its epoch, and return that one.

    Raises:
        ConflictError: the timeline ends at another entry by now.
    """
    where = (LIFE.c.id == timeline.id, LIFE.c.drained == timeline.drained, LIFE.c.link == timeline.link)
    if connection.execute(update(LIFE).where(*where, LIFE.c.ended.is_(None)).values(ended=_now())).rowcount != 1:
        raise ConflictError(f"board {timeline.board}")
    # The entries after the last millisecond of the timeline are missing.
    began = (int(timeline.link.split(" ")[1]) // 1000 + 1) * 1000
    row = {
        "prefix": _prefix(connection, timeline), "board": timeline.board, "epoch": timeline.epoch, "began": began,
        "parent": timeline.epoch, "drained": START, "link": FIRST, "size": 0,
    }  # fmt: skip
    (new,) = connection.execute(insert(LIFE).returning(LIFE.c.id), [row]).one()
    return Timeline(new, timeline.board, timeline.epoch)


def add_segments(connection: Connection, segments: Sequence[Segment]) -> None:
    """Add segments to timelines. Each timeline must still end at the entry before its segment.

    Raises:
        ConflictError: a timeline ends at another entry by now.
    """
    # One call with many rows is four times as fast as one call for each row.
    moves = [
        {
            "life": segment.timeline.id, "was": segment.timeline.drained, "named": segment.timeline.link,
            "now": segment.last.id, "next": segment.last.link, "bytes": segment.last.size,
        }
        for segment in segments
    ]  # fmt: skip
    moved = connection.execute(_MOVE, moves)
    if moved.rowcount != len(segments):
        raise ConflictError("boards " + ", ".join(sorted({segment.timeline.board for segment in segments})))
    for segment in segments:
        if not segment.timeline.size:
            _go_on(connection, segment.timeline)
        if segment.parent:
            _continue(connection, segment)
        if segment.erased:
            prefix, board = _prefix(connection, segment.timeline), segment.timeline.board
            add_erasures(connection, prefix, board, segment.erased)
            for entry in [entry for _, entry in segment.erased if entry.member]:
                forget_by(connection, prefix, board, entry)
    rows = [
        {
            "life": segment.timeline.id, "first": segment.first.offset, "last": segment.last.offset,
            "began": segment.first.time, "ended": segment.last.time,
            "entries": segment.entries, "crc": segment.packed.crc, "data": segment.packed.data,
        }
        for segment in segments
    ]  # fmt: skip
    connection.execute(insert(SEGMENT), rows)


def cut(connection: Connection, timeline: Timeline, link: str) -> Timeline:
    """Remove the entries of a timeline after the entry that `link` names. Return the timeline that is left.

    Raises:
        ConflictError: the timeline ends at another entry by now, or has no such entry.
    """
    # Positions always grow; times may go back.
    where = (SEGMENT.c.life == timeline.id, SEGMENT.c.last >= position_of(link)[0])
    found = None
    for row in connection.execute(select(SEGMENT).where(*where).order_by(SEGMENT.c.id)).all():
        if found is None:
            pairs = list(unpack_entries(row.crc, row.data))
            heads = [parse_head(text) for text, _ in pairs]
            places = [place for place, head in enumerate(heads) if head.link == link]
            if not places:
                continue
            found = last = heads[places[0]]
            if places[0] + 1 == len(pairs):
                continue
            packed = pack_pairs(pairs[: places[0] + 1])
            kept = {
                "life": timeline.id, "first": row.first, "last": last.offset, "began": row.began, "ended": last.time,
                "entries": places[0] + 1, "crc": packed.crc, "data": packed.data,
            }  # fmt: skip
            connection.execute(insert(SEGMENT), [kept])
        connection.execute(delete(SEGMENT).where(SEGMENT.c.id == row.id))
        connection.execute(delete(CHECKPOINT).where(CHECKPOINT.c.life == timeline.id, CHECKPOINT.c.segment >= row.id))
    if found is None:
        raise ConflictError(f"board {timeline.board}")
    after = msgspec.structs.replace(timeline, drained=found.id, link=found.link, size=found.size)
    move = {
        "life": timeline.id, "was": timeline.drained, "named": timeline.link,
        "now": after.drained, "next": after.link, "bytes": after.size,
    }  # fmt: skip
    if connection.execute(_MOVE, [move]).rowcount != 1:
        raise ConflictError(f"board {timeline.board}")
    return after


def following(timeline: Timeline, entries: Sequence[Entry]) -> tuple[list[Entry], str | None]:
    """Return the entries that follow a timeline. If an entry does not follow, also return the link that it names.

    A timeline may begin with an entry that continues another timeline, or that has the whole content of the board.

    Raises:
        SetupError: this version cannot read an entry.
    """
    link = timeline.link
    found: list[Entry] = []
    for entry in entries:
        head = parse_head(entry.head)
        begins = head.kind in _BEGINNINGS and link == FIRST
        if head.before != link and not begins:
            return found, head.before
        found.append(entry)
        link = head.link
    return found, None


def _continue(connection: Connection, segment: Segment) -> None:
    """Record that a timeline continues another timeline of its board, and end that other timeline."""
    timeline = segment.timeline
    connection.execute(update(LIFE).where(LIFE.c.id == timeline.id).values(parent=segment.parent))
    parent = find_timeline(connection, _prefix(connection, timeline), timeline.board, segment.parent)
    if parent is not None:
        end_timelines(connection, [parent])


def _go_on(connection: Connection, timeline: Timeline) -> None:
    """Let the timeline that the store lost name the epoch of the next timeline of its board."""
    where = (LIFE.c.prefix == _prefix(connection, timeline), LIFE.c.board == timeline.board, LIFE.c.lost == "")
    connection.execute(update(LIFE).where(*where, LIFE.c.id < timeline.id).values(lost=timeline.epoch))


def _prefix(connection: Connection, timeline: Timeline) -> str:
    return str(connection.execute(select(LIFE.c.prefix).where(LIFE.c.id == timeline.id)).scalar_one())


def _timeline(row: RowMapping) -> Timeline:
    return Timeline(row["id"], row["board"], row["epoch"], row["drained"], row["link"], row["size"])


def _now() -> int:
    return time.time_ns() // 1000


class Loss(msgspec.Struct, frozen=True):
    """A timeline of which SQL has more entries than the store. `what` says in words what the store has instead.

    If `gone` is true, the store lacks the whole timeline. Otherwise it has the timeline up to an earlier entry.
    """

    timeline: Timeline
    what: str
    gone: bool

    def __str__(self) -> str:
        timeline = self.timeline
        has = f"the journal has board {timeline.board} (epoch {timeline.epoch}) up to offset {timeline.offset}"
        return f"{has}, and the board {self.what}"


async def find_lost(client: Store, prefix: str, database: Database) -> list[Loss]:
    """Return the timelines that the store lacks, and the timelines of which it lost the last entries."""
    timelines = database.work(lambda connection: open_timelines(connection, prefix))
    commands: list[tuple[str, tuple[Word, ...]]] = []
    for timeline in timelines:
        keys, stream = Keys(prefix, timeline.board), Keys(prefix, timeline.board).journal(timeline.epoch)
        commands.append((keys.meta, ("HMGET", keys.meta, "epoch", "offset", "journal")))
        commands.append((keys.gone, ("HGET", keys.gone, "epoch")))
        commands.append((keys.journals, ("SISMEMBER", keys.journals, f"{timeline.board} {timeline.epoch}")))
        commands.append((stream, ("XRANGE", stream, f"({timeline.drained}", "+", "COUNT", 1)))
    replies = await client.calls(commands)
    found = []
    for timeline, (epoch, offset, journal), deleted, listed, waiting in zip(
        timelines, replies[::4], replies[1::4], replies[2::4], replies[3::4], strict=True
    ):
        name = timeline.epoch.encode()
        if epoch == name:
            what = _what_is_missing(timeline, int(offset or 0), journal, waiting[0][1][1] if waiting else None)
            if what:
                found.append(Loss(timeline, what, gone=False))
        elif name != deleted and not listed:
            what = f"has epoch {epoch.decode()}" if epoch else "is not in the store"
            found.append(Loss(timeline, what, gone=True))
    return found


def _what_is_missing(timeline: Timeline, offset: int, journal: bytes | None, waiting: bytes | None) -> str:
    """Say what the store has instead of the last entry of a timeline. The text is empty if the store has this entry.

    `journal` is the link of the last entry in the store, and the size of the journal. `waiting` is the head of the
    first entry there that SQL lacks.
    """
    if journal is None:  # the journal has ended
        return f"is at offset {offset}" if offset < timeline.offset else ""
    link = journal.decode().rpartition(" ")[0]
    if went_back(timeline, link):
        return f"is at offset {offset}, with {link.partition(' ')[0]} as the last entry"
    head = None if waiting is None else parse_head(waiting.decode())
    if head is not None and head.kind != "adopt" and went_back(timeline, head.before):
        return f"has other events up to offset {offset}: the store went back, and counted again"
    return ""


def end_lost(connection: Connection, lost: Sequence[Loss], left: Collection[str]) -> None:
    """End lost timelines, after an operator has accepted the loss. `left` are the boards that go on without data.

    A board goes on after its newest timeline. An earlier timeline may be of another life, whose board was deleted.
    """
    end_timelines(connection, [loss.timeline for loss in lost])
    ids = [loss.timeline.id for loss in lost if loss.gone and loss.timeline.board in left]
    newest = select(func.max(LIFE.c.id)).where(LIFE.c.size > 0).group_by(LIFE.c.prefix, LIFE.c.board)
    ids = list(connection.scalars(newest.having(func.max(LIFE.c.id).in_(ids))))
    connection.execute(update(LIFE).where(LIFE.c.id.in_(ids)).values(lost=""))
