"""The timelines of boards in SQL: how far each journal has been moved there."""

import time
from collections.abc import Collection, Sequence
from itertools import takewhile
from typing import Final

import msgspec
from sqlalchemy import ColumnElement, Connection, bindparam, func, insert, select, update

from live.journal.database import Database, prefix_of
from live.journal.forgetting import forget_by, forgotten
from live.journal.log.entries import (
    FIRST,
    Erase,
    Head,
    Packed,
    pack_entries,
    parse_head,
    position_of,
)
from live.journal.schema import DEFINITION, LIFE, SEGMENT
from live.store.board.journal_stream import Entry
from live.store.connection.client import Store
from live.store.connection.pipelined import Word

START: Final = "0"
"""The id before the first entry."""

_BEGINNINGS: Final = ("adopt", "renew")  # kinds of entries with which a timeline may continue another

_MOVE: Final = (
    update(LIFE)
    .where(LIFE.c.id == bindparam("life"), LIFE.c.drained == bindparam("was"), LIFE.c.link == bindparam("named"))
    .values(drained=bindparam("now"), link=bindparam("next"), size=bindparam("bytes"), ended=None)
)


class Timeline(msgspec.Struct, frozen=True):
    """One timeline of a board, with the number of its row. SQL has its entries up to the one with the id `drained`.

    `link` is the link of that entry, and `size` the bytes of all entries.
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
    and `forget` entries as they were in the store. `swapped` tells whether there is a `swap`.
    """

    timeline: Timeline
    entries: int
    first: Head
    last: Head
    packed: Packed
    parent: str = ""
    erased: Sequence[Erase] = ()
    swapped: bool = False

    @property
    def after(self) -> Timeline:
        """The timeline with these entries."""
        last = self.last
        return msgspec.structs.replace(self.timeline, drained=last.id, link=last.link, size=last.size)


def segment_of(timeline: Timeline, entries: Sequence[Entry]) -> Segment:
    """Pack entries that follow a timeline, at least one."""
    first, last = parse_head(entries[0].head), parse_head(entries[-1].head)
    entries, erased = forgotten(entries)
    parent = continued(first, entries[0].content)
    swapped = any(entry.head.startswith("swap ") for entry in entries)
    return Segment(timeline, len(entries), first, last, pack_entries(entries), parent, erased, swapped)


def continued(head: Head, body: bytes) -> str:
    """Return the epoch that the first entry of a timeline continues; empty for none."""
    match head.kind:
        case "renew":
            return body.decode()
        case "adopt":
            return _CONTINUING.decode(body).parent
    return ""


class _Continuing(msgspec.Struct, frozen=True):
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


_TIMELINES: Final = select(*(LIFE.c[name] for name in Timeline.__struct_fields__)).order_by(LIFE.c.id)


def open_timelines(connection: Connection) -> list[Timeline]:
    """Return the timelines that have not ended.

    Leave out timelines without an entry. Such a timeline never began: its process announced an epoch, but another
    process created the board.
    """
    where = (LIFE.c.prefix == prefix_of(connection), LIFE.c.ended.is_(None), LIFE.c.size > 0)
    return [Timeline(*row) for row in connection.execute(_TIMELINES.where(*where))]


def timelines_of(connection: Connection, board: str) -> list[Timeline]:
    """Return all timelines of a board, the oldest first."""
    where = (LIFE.c.prefix == prefix_of(connection), LIFE.c.board == board)
    return [Timeline(*row) for row in connection.execute(_TIMELINES.where(*where))]


def all_timelines(connection: Connection) -> list[tuple[Timeline, str | None]]:
    """Return every timeline, the oldest first, each with the epoch that it continues, or None."""
    rows = connection.execute(_TIMELINES.add_columns(LIFE.c.parent).where(LIFE.c.prefix == prefix_of(connection)))
    return [(Timeline(*row), parent) for *row, parent in rows]


def find_timeline(connection: Connection, board: str, epoch: str) -> Timeline | None:
    """Return the last timeline of an epoch; None if SQL does not know it."""
    return _last(connection, LIFE.c.prefix == prefix_of(connection), LIFE.c.board == board, LIFE.c.epoch == epoch)


def _last(connection: Connection, *where: ColumnElement[bool]) -> Timeline | None:
    newest = _TIMELINES.where(*where).order_by(None).order_by(LIFE.c.id.desc()).limit(1)
    row = connection.execute(newest).first()
    return None if row is None else Timeline(*row)


def find_parent(connection: Connection, timeline: Timeline, epoch: str) -> Timeline | None:
    """Return the timeline that `timeline` continues, or None if SQL does not know it.

    That timeline can belong to another board, which was recovered under this id. Where entries are missing,
    a timeline continues an earlier timeline of the same epoch.
    """
    where = [LIFE.c.prefix == prefix_of(connection), LIFE.c.epoch == epoch]
    if epoch == timeline.epoch:
        where.append(LIFE.c.id < timeline.id)
    return _last(connection, *where, LIFE.c.board == timeline.board) or _last(connection, *where)


def origins(connection: Connection, timeline: Timeline) -> list[Timeline]:
    """Return the timelines that a timeline continues, the newest first."""
    found: list[Timeline] = []
    while parent := connection.scalar(select(LIFE.c.parent).where(LIFE.c.id == timeline.id)):
        earlier = find_parent(connection, timeline, parent)
        if earlier is None:
            break
        timeline = earlier
        found.append(timeline)
    return found


def first_seen(connection: Connection, timeline: Timeline) -> int:
    """Return when SQL first had a timeline, or one that it continues, in microseconds since 1970."""
    ids = [one.id for one in (timeline, *origins(connection, timeline))]
    return int(connection.execute(select(func.min(LIFE.c.began)).where(LIFE.c.id.in_(ids))).scalar_one())


def life_of(connection: Connection, board: str, epoch: str | None) -> list[Timeline]:
    """Return the timelines of a board's present life, whose epoch is `epoch` now, the newest first.

    A board that was deleted may have had other readers. So its timelines do not belong to the life of a later board
    with the same id. A board that the store lost goes on living after an operator has accepted the loss: the lost
    timeline names the epoch in which it does. Without an epoch, return the timelines of every life.
    """
    if epoch is None:
        return timelines_of(connection, board)[::-1]
    of_board = (LIFE.c.prefix == prefix_of(connection), LIFE.c.board == board)
    found: list[Timeline] = []
    last = find_timeline(connection, board, epoch)
    while last is not None:
        found += last, *takewhile(lambda timeline: timeline.board == board, origins(connection, last))
        epochs = {timeline.epoch for timeline in found}
        last = _last(connection, *of_board, LIFE.c.id < found[-1].id, LIFE.c.lost.in_(epochs))
    return found


def made_once(connection: Connection) -> set[str]:
    """Return the ids of all boards that were ever made, including deleted boards."""
    where = (DEFINITION.c.prefix == prefix_of(connection), DEFINITION.c.kind == "boards")
    return set(connection.scalars(select(DEFINITION.c.name).where(*where).distinct()))


def begin_timelines(connection: Connection, names: Sequence[tuple[str, str]]) -> list[Timeline]:
    """Return the timelines of at most a thousand boards and epochs. Begin the timelines that SQL does not know."""
    known = _find_timelines(connection, names)
    new = [
        {
            "prefix": prefix_of(connection), "board": board, "epoch": epoch, "began": _now(),
            "drained": START, "link": FIRST, "size": 0,
        }
        for board, epoch in names
        if (board, epoch) not in known
    ]  # fmt: skip
    if new:
        connection.execute(insert(LIFE), new)
        known = _find_timelines(connection, names)
    return [known[name] for name in names]


def _find_timelines(connection: Connection, names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Timeline]:
    where = (LIFE.c.prefix == prefix_of(connection), LIFE.c.board.in_([board for board, _ in names]))
    found = (Timeline(*row) for row in connection.execute(_TIMELINES.where(*where)))
    return {(timeline.board, timeline.epoch): timeline for timeline in found}


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
        "prefix": prefix_of(connection), "board": timeline.board, "epoch": timeline.epoch, "began": began,
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
    rows: list[dict[str, object]] = []
    for segment in sorted(segments, key=lambda segment: segment.first.time):
        if not segment.timeline.size:
            _go_on(connection, segment.timeline)
        if segment.parent:
            _continue(connection, segment)
        if segment.erased:
            if rows:  # the end of an earlier epoch of the board may be among them
                connection.execute(insert(SEGMENT), rows)
                rows = []
            for erase in segment.erased:
                forget_by(connection, segment.timeline.board, erase)
        rows.append({
            "life": segment.timeline.id, "first": segment.first.offset, "last": segment.last.offset,
            "began": segment.first.time, "ended": segment.last.time,
            "entries": segment.entries, "swapped": segment.swapped,
            "crc": segment.packed.crc, "data": segment.packed.data,
        })  # fmt: skip
    connection.execute(insert(SEGMENT), rows)


def following(timeline: Timeline, entries: Sequence[Entry]) -> tuple[list[Entry], str | None]:
    """Return the entries that follow a timeline. If an entry does not follow, also return the link that it names.

    A timeline may begin with an entry that continues another timeline, or that has the whole content of the board.
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
    timeline = segment.timeline
    connection.execute(update(LIFE).where(LIFE.c.id == timeline.id).values(parent=segment.parent))
    parent = find_timeline(connection, timeline.board, segment.parent)
    if parent is not None:
        end_timelines(connection, [parent])


def _go_on(connection: Connection, timeline: Timeline) -> None:
    """Let the timeline that the store lost name the epoch of the next timeline of its board."""
    where = (LIFE.c.prefix == prefix_of(connection), LIFE.c.board == timeline.board, LIFE.c.lost == "")
    connection.execute(update(LIFE).where(*where, LIFE.c.id < timeline.id).values(lost=timeline.epoch))


def _now() -> int:
    return time.time_ns() // 1000


class Loss(msgspec.Struct, frozen=True):
    """A timeline of which SQL has more than the store, all of it if `gone`. `what` says what the store has instead."""

    timeline: Timeline
    what: str
    gone: bool

    def __str__(self) -> str:
        timeline = self.timeline
        has = f"the journal has board {timeline.board} (epoch {timeline.epoch}) up to offset {timeline.offset}"
        return f"{has}, and the board {self.what}"


async def find_lost(client: Store, database: Database) -> list[Loss]:
    """Return the timelines that the store lacks, and the timelines of which it lost the last entries."""
    timelines, journals = database.work(open_timelines), client.system.journals
    commands: list[tuple[str, tuple[Word, ...]]] = []
    for timeline in timelines:
        keys = client.keys_of(timeline.board)
        stream = keys.journal(timeline.epoch)
        commands.append((keys.meta, ("HMGET", keys.meta, "epoch", "offset", "journal")))
        commands.append((keys.gone, ("HGET", keys.gone, "epoch")))
        commands.append((journals, ("SISMEMBER", journals, f"{timeline.board} {timeline.epoch}")))
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
    """End lost timelines, after an operator has accepted the loss. The boards in `left` go on without data.

    A board goes on after its newest timeline. An earlier timeline may be of another life, whose board was deleted.
    """
    end_timelines(connection, [loss.timeline for loss in lost])
    ids = [loss.timeline.id for loss in lost if loss.gone and loss.timeline.board in left]
    newest = select(func.max(LIFE.c.id)).where(LIFE.c.size > 0).group_by(LIFE.c.prefix, LIFE.c.board)
    ids = list(connection.scalars(newest.having(func.max(LIFE.c.id).in_(ids))))
    connection.execute(update(LIFE).where(LIFE.c.id.in_(ids)).values(lost=""))
