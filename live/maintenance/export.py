"""Make the rows of an export: the ranking that a board had at some time, or every change of a score in the journal."""

from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

import msgspec
from sqlalchemy import Connection, select

from live.domain.board import Board
from live.domain.item import Item
from live.domain.window import EVER
from live.errors import SetupError
from live.journal.database import Database
from live.journal.log.definitions import latest
from live.journal.log.entries import read_entries_of
from live.journal.log.reader import contents_of, swaps_of
from live.journal.log.timelines import timelines_of
from live.journal.past.queries import AsOf, NoPastError, PastRanking
from live.journal.past.rankings import period_at, ranking_at
from live.journal.schema import LIFE, SEGMENT
from live.journal.state.fold import left_of, taken_by
from live.journal.state.snapshot import Snapshot
from live.journal.state.taken import Taken
from live.store.board.batch import decode_batch

_ROWS: Final = 10_000  # rows of a ranking in one piece
_ITEM: Final = msgspec.json.Decoder(Item)

Kind = Literal["text", "integer", "time", "json"]


class Column(NamedTuple):
    """A column of an export. A `time` is in microseconds since 1970. A value of the kind `json` is a string of JSON."""

    name: str
    kind: Kind


Row = tuple[str | int | None, ...]

EVENT_COLUMNS: Final[tuple[Column, ...]] = (
    Column("time", "time"),
    Column("epoch", "text"),
    Column("offset", "integer"),
    Column("number", "integer"),
    Column("member", "text"),
    Column("amount", "integer"),
    Column("slot", "time"),
)


class Part(NamedTuple):
    """Rows of an export, and the progress: the amount that is done, and the total amount."""

    rows: list[Row]
    done: int
    total: int


def ranking_columns(board: Board) -> tuple[Column, ...]:
    """Return the columns of the rows that `ranking_parts` gives."""
    fields = [Column(field.name, "integer") for field in board.packing.fields] if board.packing else []
    return (
        Column("rank", "integer"), Column("member", "text"), Column("score", "integer"),
        *fields, Column("title", "text"), Column("metadata", "json"),
    )  # fmt: skip


def last_contents(connection: Connection, board: str) -> Snapshot:
    """Return what a board holds at the end of its journal."""
    timelines = timelines_of(connection, board)
    return contents_of(connection, timelines[-1]) if timelines else Snapshot()


def ranking_parts(database: Database, moment: AsOf, *, archived: bool = False) -> tuple[PastRanking, Iterator[Part]]:
    """Return the ranking of a board at a time, and its rows. `archived` means that the board has dropped the period.

    The members and their scores are in memory. Rows and titles are made for one part at a time.

    Raises:
        NoPastError: the journal does not reach back so far.
    """
    board = moment.board
    found = database.work(period_at if archived else ranking_at, moment)
    if found is None:
        raise NoPastError
    if board.votes is not None and board.votes.registered:  # contestants without votes come last, without a rank
        voted = {*found.members}
        rest = sorted(one for one in found.metadata if one not in voted and one not in moment.hidden)
        found = msgspec.structs.replace(
            found,
            members=[*found.members, *rest],
            scores=[*found.scores, *[0] * len(rest)],
            ranks=[*found.ranks, *[0] * len(rest)],
        )

    def parts(found: PastRanking) -> Iterator[Part]:
        total = len(found.members)
        for first in range(0, total, _ROWS):
            some = slice(first, first + _ROWS)
            members = found.members[some]
            items = database.work(latest, "items", members)
            rows: list[Row] = []
            for rank, member, score in zip(found.ranks[some], members, found.scores[some], strict=True):
                fields = board.packing.unpack(score).values() if board.packing else ()
                title = _ITEM.decode(items[member]).title if member in items else None
                metadata = found.metadata.get(member)
                rows.append((rank or None, member, score, *fields, title, metadata.decode() if metadata else None))
            yield Part(rows, first + len(rows), total)

    return found, parts(found)


def _taken_back(connection: Connection, board: str) -> Taken:
    timelines = timelines_of(connection, board)
    return Taken.all_of(taken_by(swap) for timeline in timelines for swap in swaps_of(connection, timeline))


def event_parts(database: Database, board: Board, since: int | None, until: int | None) -> Iterator[Part]:
    """Yield every change of a score in the journal, the first change first. Each part has those of one segment.

    Events that were taken back are left out. Events of one member that were counted together are one row with their
    sum. `since` and `until` are in milliseconds since 1970. A change at `since` is included, and a change at `until` is
    not.
    """
    least, most = (since or 0) * 1000, 2**62 if until is None else until * 1000
    where = (LIFE.c.prefix == database.prefix, LIFE.c.board == board.id)
    within = (SEGMENT.c.ended >= least, SEGMENT.c.began < most)
    query = select(SEGMENT.c.id, LIFE.c.epoch).join(LIFE).where(*where, *within).order_by(SEGMENT.c.life, SEGMENT.c.id)
    segments = database.work(lambda connection: connection.execute(query).all())
    taken = database.work(_taken_back, board.id)
    for done, (segment, epoch) in enumerate(segments, 1):
        packed = select(SEGMENT.c.crc, SEGMENT.c.data).where(SEGMENT.c.id == segment)
        row = database.work(lambda connection, packed=packed: connection.execute(packed).first())  # type: ignore[misc]
        if row is None:
            raise SetupError("the journal forgot some of these events meanwhile: export a later time with --from")
        rows: list[Row] = []
        for head, body in read_entries_of(row):
            if head.kind != "add" or not least <= head.time < most:
                continue
            batch = left_of(taken, head, decode_batch(body))
            if batch.events is not None:
                events = batch.events
                found: Iterator[Any] = zip(events.members, events.amounts, events.times, strict=True)
                changes = [(member, amount, head.time if at is False else at * 1000) for member, amount, at in found]
            else:
                changes = [
                    (member, amount, None if group.start == EVER.start else group.start * 1_000_000)
                    for group in batch.groups
                    for member, amount in zip(group.members, group.amounts, strict=True)
                ]
            rows += [
                (head.time, epoch, head.offset, number, *change)
                for number, change in enumerate(changes, 1)
                if change[0]  # an erased member has an empty name
            ]
        yield Part(rows, done, len(segments))
