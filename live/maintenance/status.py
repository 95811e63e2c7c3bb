"""Report the contents of the journal, and whether they are damaged."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec
from sqlalchemy import BigInteger, Connection, desc, func, literal_column, select

from live.domain.text import counted
from live.errors import JournalBrokenError, SetupError
from live.journal.database import Database
from live.journal.log.audit_trail import trail_faults
from live.journal.log.entries import Head, read_entries_of
from live.journal.log.reader import contents_of
from live.journal.log.timelines import open_timelines, timelines_of
from live.journal.past.worker import database_of
from live.journal.schema import CHECKPOINT, LIFE, SEGMENT
from live.journal.upkeep.scan import WRONG_TYPES, scan
from live.settings import Settings
from live.store.board.keys import Keys
from live.store.connection.client import Store
from live.store.connection.pipelined import Word

Progress = Callable[[int, int], None]

_DAY: Final = 86_400_000_000  # microseconds
_MOST_DAYS: Final = 400


class TimelineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a board in the journal.

    `last` is the time of the last entry in microseconds since 1970, or 0. `bytes` is the compressed size. `timelines`
    counts this timeline and the timelines of the board before it.
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
    """The result of reading all entries of a board.

    `faults` has a sentence for everything that is damaged or missing.
    """

    board: str
    epoch: str
    entries: int
    faults: list[str]


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The result of reading a whole journal. `faults` has a sentence for each fault that belongs to no board."""

    sound: bool
    faults: list[str]
    boards: list[Verdict]


def status(connection: Connection, prefix: str) -> list[TimelineStatus]:
    """Return the state of each board whose timeline has not ended."""
    found, count = [], func.count()
    held = select(func.max(SEGMENT.c.ended), func.sum(SEGMENT.c.entries), func.sum(func.length(SEGMENT.c.data)))
    for timeline in open_timelines(connection, prefix):
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
                timelines=len(timelines_of(connection, prefix, timeline.board)),
            )
        )
    return found


class DaySize(msgspec.Struct, frozen=True):
    """The size of one day in the journal: its compressed bytes and its entries.

    `day` is the day in UTC, in days since 1970.
    """

    day: int
    bytes: int
    entries: int


class Measured(msgspec.Struct, frozen=True):
    """The state of boards in the journal, and the size of each day, the last day first."""

    boards: Sequence[TimelineStatus]
    days: Sequence[DaySize]


def measure_journal(settings: Settings, boards: Sequence[str] | None) -> Measured:
    """Measure the journal of some boards, or of all boards. The call runs in a process that reads the past."""

    def work(connection: Connection) -> Measured:
        prefix = settings.key_prefix
        day = (SEGMENT.c.began // literal_column(str(_DAY), BigInteger)).label("day")
        size = select(day, func.sum(func.length(SEGMENT.c.data)), func.sum(SEGMENT.c.entries))
        of = size.join(LIFE, LIFE.c.id == SEGMENT.c.life).where(LIFE.c.prefix == prefix)
        if boards is not None:
            of = of.where(LIFE.c.board.in_(boards))
        rows = connection.execute(of.group_by("day").order_by(desc("day")).limit(_MOST_DAYS))
        found = [one for one in status(connection, prefix) if boards is None or one.board in boards]
        return Measured(found, [DaySize(int(row[0]), int(row[1] or 0), int(row[2] or 0)) for row in rows])

    return database_of(settings).work(work)


async def lost_at_most(client: Store | None, settings: Settings, found: Sequence[TimelineStatus]) -> dict[str, str]:
    """Say for each possible fault which acknowledged events it loses, with the present settings of the servers.

    `client` is None if the store does not answer.

    Raises:
        StoreUnavailableError: the store does not answer any more.
    """
    lacks = "what SQL lacks"
    if client is not None:
        metas = [Keys(settings.key_prefix, one.board).meta for one in found]
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
        replica = f"{data}. Events that SQL has are sent again" if settings.store else "there is none"
    return {
        "a server process ends": "nothing",
        "the store restarts": "nothing",
        "a replica takes over": replica,
        "the data of the store is lost": data,
        "the database of the journal is lost": "the journal. Boards continue",
    }


def verify(database: Database, prefix: str, show: Progress) -> Verification:
    """Read every row of the journal, in the thread of the caller, even if some rows are damaged.

    Call `show` with the number of segments read so far, and the number of all segments.
    """
    faults, timelines = database.check_pages(), []
    try:
        timelines = database.work(lambda connection: open_timelines(connection, prefix))
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
        faults += database.work(lambda connection: list(trail_faults(connection, prefix)))
    except (SetupError, *WRONG_TYPES) as error:
        faults.append(f"the audit log can't be read: {error}")
    for batch in scan(database, without=[SEGMENT]):
        for timeline_id, fault in batch.faults:
            of_timelines.get(timeline_id, faults).append(fault)
    total, done, verdicts = sum(map(len, ids.values())), 0, []
    for timeline in timelines:
        entries, found = 0, of_timelines[timeline.id]
        link, is_whole = None, False
        for segment in ids[timeline.id]:
            try:
                heads = database.work(partial(_heads, segment=segment))
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
                database.work(partial(contents_of, prefix=prefix, timeline=timeline))
            except SetupError as error:
                found.append(str(error))
            except (LookupError, *WRONG_TYPES) as error:
                found.append(f"the board can't be read: {error}")
        verdicts.append(Verdict(board=timeline.board, epoch=timeline.epoch, entries=entries, faults=found))
    return Verification(sound=not faults and not any(of_timelines.values()), faults=faults, boards=verdicts)


def _heads(connection: Connection, segment: int) -> list[Head]:
    """Return the heads of the entries in a segment. Return none if the segment was forgotten meanwhile.

    Raises:
        SetupError: the segment is damaged.
    """
    row = connection.execute(select(SEGMENT).where(SEGMENT.c.id == segment)).first()
    if row is None:
        return []
    heads = [head for head, _ in read_entries_of(row)]
    told = (row.first, row.last, row.began, row.ended, row.entries)
    if told != (heads[0].offset, heads[-1].offset, heads[0].time, heads[-1].time, len(heads)):
        raise SetupError("its row does not match the entries in it")
    return heads
