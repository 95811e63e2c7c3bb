"""Report the contents of the journal, find damage in any of its rows, and forget the past of boards.

SQLite and PostgreSQL notice a damaged page only when they read it. Rows with compressed data also have a checksum in
the column `crc`.
"""

import zlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import (
    BigInteger,
    Connection,
    Table,
    delete,
    desc,
    func,
    insert,
    inspect,
    literal,
    literal_column,
    select,
    tuple_,
)

from live.domain.text import counted, unknown
from live.errors import JournalBrokenError, NotFoundError, SetupError
from live.journal.database import Database, prefix_of
from live.journal.log.audit_trail import trail_faults
from live.journal.log.entries import Head, compress, read_entries_of
from live.journal.log.reader import Progress, contents_of, newest_segment
from live.journal.log.timelines import Timeline, all_timelines, open_timelines, timelines_of
from live.journal.schema import CHECKPOINT, LIFE, METADATA, SEGMENT
from live.journal.state.snapshot import pack
from live.journal.state.taken import NOTHING
from live.journal.upkeep.checkpoints import prune
from live.maintenance.recover import require_recoverable
from live.settings import Settings
from live.store.connection.client import Store
from live.store.connection.pipelined import Word

_DAY: Final = 86_400_000_000  # microseconds
_MOST_DAYS: Final = 400


class TimelineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a board in the journal, with the time of its last entry (microseconds since 1970, or 0).

    `bytes` is the compressed size. `timelines` counts this timeline and the timelines of the board before it.
    """

    board: str
    epoch: str
    offset: int
    last: int
    entries: int
    bytes: int
    checkpoints: int
    timelines: int


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of reading all entries of a board: in `faults`, a sentence for everything damaged or missing."""

    board: str
    epoch: str
    entries: int
    faults: list[str]


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The result of reading a whole journal. `faults` has a sentence for each fault that belongs to no board."""

    sound: bool
    faults: list[str]
    boards: list[Verdict]


def status(connection: Connection) -> list[TimelineStatus]:
    """Return the state of each board whose timeline has not ended."""
    found, count = [], func.count()
    held = select(func.max(SEGMENT.c.ended), func.sum(SEGMENT.c.entries), func.sum(func.length(SEGMENT.c.data)))
    for timeline in open_timelines(connection):
        last, entries, size = connection.execute(held.where(SEGMENT.c.life == timeline.id)).one()
        checkpoints = select(count).select_from(CHECKPOINT).where(CHECKPOINT.c.life == timeline.id)
        found.append(
            TimelineStatus(
                board=timeline.board,
                epoch=timeline.epoch,
                offset=timeline.offset,
                last=last or 0,
                entries=int(entries or 0),
                bytes=int(size or 0),
                checkpoints=connection.scalar(checkpoints) or 0,
                timelines=len(timelines_of(connection, timeline.board)),
            )
        )
    return found


class DaySize(msgspec.Struct, frozen=True):
    """The size of one day (in days since 1970, in UTC) in the journal: its compressed bytes and its entries."""

    day: int
    bytes: int
    entries: int


class Measured(msgspec.Struct, frozen=True):
    """The state of boards in the journal, and the size of each day, the last day first."""

    boards: Sequence[TimelineStatus]
    days: Sequence[DaySize]


def measure_journal(connection: Connection, boards: Sequence[str] | None) -> Measured:
    """Measure the journal of some boards, or of all boards."""
    day = (SEGMENT.c.began // literal_column(str(_DAY), BigInteger)).label("day")
    size = select(day, func.sum(func.length(SEGMENT.c.data)), func.sum(SEGMENT.c.entries))
    of = size.join(LIFE, LIFE.c.id == SEGMENT.c.life).where(LIFE.c.prefix == prefix_of(connection))
    if boards is not None:
        of = of.where(LIFE.c.board.in_(boards))
    rows = connection.execute(of.group_by("day").order_by(desc("day")).limit(_MOST_DAYS))
    found = [one for one in status(connection) if boards is None or one.board in boards]
    return Measured(found, [DaySize(int(row[0]), int(row[1] or 0), int(row[2] or 0)) for row in rows])


async def lost_at_most(client: Store | None, settings: Settings, found: Sequence[TimelineStatus]) -> dict[str, str]:
    """Say for each possible fault which acknowledged events it loses. `client` is None if the store does not answer."""
    lacks = "what SQL lacks"
    if client is not None:
        metas = [client.keys_of(one.board).meta for one in found]
        commands: list[tuple[str, tuple[Word, ...]]] = [(meta, ("HMGET", meta, "epoch", "offset")) for meta in metas]
        states = zip(found, await client.calls(commands), strict=True)
        behind = [int(offset) - one.offset for one, (epoch, offset) in states if epoch == one.epoch.encode()]
        changes, boards = sum(max(0, by) for by in behind), sum(by > 0 for by in behind)
        lacks += f", now {counted(changes, 'change')} of {counted(boards, 'board')}" if changes else ", now nothing"
    awaited, acknowledged = settings.wait_replicas, settings.journal_ack
    data = "nothing: LIVE_JOURNAL_ACK is set" if acknowledged else lacks
    if awaited:
        replica = f"nothing, if it is one of those for which LIVE_WAIT_REPLICAS={awaited} waits"
    else:
        replica = f"{data}. Events that SQL has are written again" if settings.store else "there is none"
    return {
        "a server process ends": "nothing",
        "the store restarts": "nothing",
        "a replica takes over": replica,
        "the data of the store is lost": data,
        "the database of the journal is lost": "the journal. Boards continue",
    }


def verify(database: Database, show: Progress) -> Verification:
    """Read every row of the journal in this thread, even if some are damaged. `show` gets the read and all segments."""
    faults, timelines = database.check_pages(), []
    try:
        timelines = database.work(open_timelines)
        segments = select(SEGMENT.c.id).order_by(SEGMENT.c.id)
        ids = database.work(
            lambda connection: {
                timeline.id: connection.scalars(segments.where(SEGMENT.c.life == timeline.id)).all()
                for timeline in timelines
            }
        )
    except JournalBrokenError as error:
        return Verification(sound=False, faults=faults or [str(error)], boards=[])
    of_timelines: dict[int | None, list[str]] = {timeline.id: [] for timeline in timelines}
    try:
        faults += database.work(lambda connection: list(trail_faults(connection)))
    except (SetupError, *WRONG_TYPES) as error:
        faults.append(f"the audit log can't be read: {error}")
    for timeline_id, fault in row_faults(database, without=[SEGMENT]):
        of_timelines.get(timeline_id, faults).append(fault)
    total, done, verdicts = sum(map(len, ids.values())), 0, []
    for timeline in timelines:
        entries, found = 0, of_timelines[timeline.id]
        link, is_whole = None, False
        for segment in ids[timeline.id]:
            try:
                heads = database.work(_heads, segment)
            except (SetupError, *WRONG_TYPES) as error:
                found.append(f"segment {segment}: {error}")
                link, heads = None, []
            for head in heads:
                if link is not None and head.before != link:
                    found.append(f"an entry is missing before offset {head.offset}")
                link, entries = head.link, entries + 1
                is_whole = is_whole or link == timeline.link  # a running server may have added later entries meanwhile
            done += 1
            show(done, total)
        if link is not None and not is_whole:
            found.append(f"the last entry is {link!r}, and SQL has the board at {timeline.link!r}")
        if not found:
            try:
                database.work(require_recoverable, timeline)
            except SetupError as error:
                found.append(str(error))
            except (LookupError, *WRONG_TYPES) as error:
                found.append(f"the board can't be read: {error}")
        verdicts.append(Verdict(board=timeline.board, epoch=timeline.epoch, entries=entries, faults=found))
    return Verification(sound=not faults and not any(of_timelines.values()), faults=faults, boards=verdicts)


def _heads(connection: Connection, segment: int) -> list[Head]:
    row = connection.execute(select(SEGMENT).where(SEGMENT.c.id == segment)).first()
    if row is None:
        return []
    heads = [head for head, _ in read_entries_of(row)]
    told = (row.first, row.last, row.began, row.ended, row.entries)
    if told != (heads[0].offset, heads[-1].offset, heads[0].time, heads[-1].time, len(heads)):
        raise SetupError("its row does not match the entries in it")
    return heads


_ROWS: Final = 500  # maximum rows in one transaction
_BYTES: Final = 1024**2  # maximum packed bytes in one transaction, but at least one row is read
WRONG_TYPES: Final = (TypeError, ValueError, OverflowError, MemoryError)
"""The errors of the database driver when a damaged row holds values of wrong types."""


def row_faults(database: Database, without: Collection[Table] = ()) -> Iterator[tuple[int | None, str]]:
    """Read every row of every table, some at a time. Yield each fault, with its timeline."""
    try:
        names = database.work(lambda connection: inspect(connection).get_table_names())
    except JournalBrokenError as error:
        yield None, str(error)
        return
    for table in METADATA.sorted_tables:
        if table in without or table.name not in names:  # without tables, no server has used this journal yet
            continue
        after: tuple[Any, ...] | None = None
        while True:
            try:
                last = database.work(_last_key, table, after)
            except JournalBrokenError as error:
                yield None, f"{error}, in table {table.name}"
                break  # the rows after the damage can't be found
            if last is None:
                break
            try:
                yield from database.work(_faults, table, after, last, database.place)
            except JournalBrokenError as error:
                yield None, f"{error}, in rows up to {_named(table, last)}"
            except WRONG_TYPES:
                place = f"{database.place}: rows up to {_named(table, last)}"
                yield None, f"the journal is damaged: {place} have values of other types"
            after = last


def _last_key(connection: Connection, table: Table, after: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    """Return the primary key of the last row to read at once after a key. Return None if there is none."""
    columns = list(table.primary_key.columns)
    size = func.coalesce(func.length(table.c.data), 0) if "data" in table.c else literal(0)
    wanted = select(size, *columns).order_by(*columns).limit(_ROWS)
    if after is not None:
        wanted = wanted.where(tuple_(*columns) > after)
    last, total = None, 0
    for packed, *key in connection.execute(wanted):
        total += packed
        if last is not None and total > _BYTES:
            break
        last = tuple(key)
    return last


def _faults(
    connection: Connection, table: Table, after: tuple[Any, ...] | None, last: tuple[Any, ...], place: str
) -> list[tuple[int | None, str]]:
    """Read whole rows, and compare their checksums. Return the faults, each with its timeline."""
    columns = list(table.primary_key.columns)
    wanted = select(table).where(tuple_(*columns) <= last)
    if after is not None:
        wanted = wanted.where(tuple_(*columns) > after)
    faults: list[tuple[int | None, str]] = []
    for row in connection.execute(wanted).mappings():
        if "crc" in table.c and zlib.crc32(row["data"]) != row["crc"]:
            board = connection.scalar(select(LIFE.c.board).where(LIFE.c.id == row["life"]))
            name = _named(table, tuple(row[column.name] for column in columns))
            faults.append(
                (row["life"], f"the journal is damaged: {place}: the checksum of {name}, of board {board}, is wrong")
            )
    return faults


def _named(table: Table, key: tuple[Any, ...]) -> str:
    return f"{table.name} {'/'.join(map(str, key))}"


class Compacted(msgspec.Struct, kw_only=True):
    """How many entries were dropped from a timeline, and the compressed size of them and of its checkpoints.

    `since` is the first time that the journal still covers, in microseconds since 1970. `fault` says why nothing was
    dropped.
    """

    board: str
    epoch: str
    entries: int = 0
    bytes: int = 0
    since: int = 0
    fault: str = ""


def compact(database: Database, boards: Collection[str], show: Progress) -> list[Compacted]:
    """Compact the timelines of some boards, or of all boards. This process must hold the lock of the journal.

    Reading a timeline begins with the timeline that it continues, which can belong to another board. So timelines that
    continue a wanted timeline are compacted too, before the wanted timeline.
    """
    timelines = database.work(all_timelines)
    known = {timeline.board for timeline, _ in timelines}
    if missing := sorted({*boards} - known):
        raise NotFoundError(unknown("board", missing[0], known))
    wanted: list[Timeline] = []
    epochs = set[str | None]()
    parents = {timeline.id: parent for timeline, parent in timelines}
    for timeline, parent in timelines:
        if not boards or timeline.board in boards or parent in epochs:
            wanted.append(timeline)
            epochs.add(timeline.epoch)
    needed, done = set[str | None](), []
    for number, timeline in enumerate(reversed(wanted), 1):
        one = Compacted(board=timeline.board, epoch=timeline.epoch)
        if timeline.epoch in needed:
            one.fault = "a timeline that continues it can't be compacted"
        else:
            try:
                database.work(_compact, timeline, one)
            except SetupError as error:
                one.fault = str(error)
        if one.fault:
            needed.add(parents[timeline.id])
        if one.entries or one.fault:
            done.append(one)
        show(number, len(wanted))
    database.compact()
    return done


def _compact(connection: Connection, timeline: Timeline, one: Compacted) -> None:
    of_timeline = CHECKPOINT.c.life == timeline.id
    last = select(func.max(CHECKPOINT.c.segment), func.sum(func.length(CHECKPOINT.c.data))).where(of_timeline)
    checkpoint, size = connection.execute(last).one()
    segment = max(newest_segment(connection, timeline), checkpoint or 0)
    if not segment:
        return
    data = contents_of(connection, timeline)
    prune(data)
    data.taken = NOTHING  # no entry is left that could have these events
    dropped = select(func.sum(SEGMENT.c.entries), func.sum(func.length(SEGMENT.c.data)))
    entries, bytes_ = connection.execute(dropped.where(SEGMENT.c.life == timeline.id)).one()
    one.entries, one.bytes, one.since = int(entries or 0), int(bytes_ or 0) + int(size or 0), data.time
    connection.execute(delete(CHECKPOINT).where(of_timeline))
    connection.execute(delete(SEGMENT).where(SEGMENT.c.life == timeline.id, SEGMENT.c.id <= segment))
    made = compress(pack(data))
    row = {"life": timeline.id, "segment": segment, "time": data.time, "crc": made.crc, "data": made.data}
    connection.execute(insert(CHECKPOINT).values(row))
