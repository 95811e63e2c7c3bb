"""Rewrite the rows in SQL when an actor or a member is erased, so that no row has the person.

Erasing appends an `erase` entry (an actor) or a `forget` entry (a member) to the journal of each board. The transaction
that moves this entry to SQL rewrites the earlier segments, checkpoints and periods of the board, and the entry.

A random-looking replacement takes the place of each digest: the same one everywhere, because a vote and its withdrawal
belong together. Its key is kept only until the erasure has ended. Then nobody can find out whose digest it was.

The past looks as if an erased member had never been counted. In the entries of batches, an empty name and the amount
zero replace the member, so that every other event keeps its number.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import Connection, delete, insert, select, update

from live.journal.database import prefix_of
from live.journal.log.audit_trail import rewrite_trail
from live.journal.log.entries import (
    DIGEST,
    Adopt,
    Erase,
    Head,
    Packed,
    Tags,
    compress,
    content,
    decompress,
    pack_pairs,
    parse_head,
    unpack_entries,
)
from live.journal.schema import ABOUT, CHECKPOINT, DEFINITION, LIFE, PERIOD, SEGMENT
from live.journal.state.snapshot import logged_of, pack, unpack
from live.store.board.batch import NO_METADATA, Batch, SlotDelta, SlotEvents, decode_batch, encode_batch
from live.store.board.journal_stream import Entry

_T = TypeVar("_T")

_ROWS: Final = 100  # rows read at once
_TEXT: Final = b"\xb0"  # how MessagePack begins a text of this length, as entries have digests
_BYTES: Final = b"\xc4\x10"  # how it begins bytes of this length, as checkpoints have digests
_FIELDS: Final = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_ADOPT: Final = msgspec.msgpack.Decoder(Adopt)


class FoundRows(msgspec.Struct):
    """How many entries, checkpoints and periods contain a member."""

    entries: int = 0
    checkpoints: int = 0
    periods: int = 0


def without(head: Head, body: bytes, member: str) -> bytes | None:
    """Return the body of an entry without an erased member. Return None if it does not have the member."""
    match head.kind:
        case "tags":
            tags = msgspec.msgpack.decode(body, type=Tags)
            left = [tag for tag in tags if tag[0] != member]
            return _encode(left) if len(left) < len(tags) else None
        case "add":
            return _without_in_batch(decode_batch(body), member)
        case "adopt":
            return _without_in_contents(_ADOPT.decode(body), member)
        case "enter" | "hide" | "withdraw":
            fields = _FIELDS.decode(body)
            if content(fields["member"]).decode() == member:
                nothing = msgspec.Raw(_encode(""))
                return _encode(fields | {name: nothing for name in ("member", "metadata") if name in fields})
    return None


def exchange(data: bytes, digests: Mapping[bytes, bytes], begin: bytes = _TEXT) -> bytes:
    """Return data with a replacement for each digest. All have the same length, so nothing has to be decoded.

    Return the same object if it has none of them. `begin` comes before each digest.
    """
    found: bytearray | None = None
    at = data.find(begin) if digests else -1
    while at >= 0:
        first = at + len(begin)
        if (new := digests.get(data[first : first + DIGEST])) is not None:
            found = bytearray(data) if found is None else found
            found[first : first + DIGEST] = new
        at = data.find(begin, at + 1)
    return data if found is None else bytes(found)


def _without_in_batch(batch: Batch, member: str) -> bytes | None:
    is_changed = False
    for group in batch.groups:
        if member in group.members:
            is_changed = True
            _take_out(group, group.members.index(member))
    if (events := batch.events) is not None:
        for place in [place for place, one in enumerate(events.members) if one == member]:
            is_changed = True
            events.members[place], events.amounts[place] = "", 0
    if not is_changed:
        return None
    batch.reason = ""  # the entry may be a correction of this member, so its reason goes too
    return encode_batch(batch)


def _take_out(group: SlotDelta, place: int) -> None:
    group.members[place], group.amounts[place] = "", 0
    if group.orders:
        group.orders[place] = 0
    if group.metadata:
        group.metadata[place] = NO_METADATA
    told = group.events or SlotEvents()
    for row, at in enumerate(told.members):
        if at == place:
            told.amounts = told.amounts or [1] * len(told.members)
            told.amounts[row] = 0
            told.metadata[row : row + 1] = [NO_METADATA] if told.metadata else []


def _without_in_contents(held: Adopt, member: str) -> bytes | None:
    is_changed = False

    def left(fields: Sequence[_T], name: Callable[[_T], str], step: int = 2) -> list[_T]:
        nonlocal is_changed
        gone = {at + one for at in range(0, len(fields), step) if name(fields[at]) == member for one in range(step)}
        is_changed |= bool(gone)
        return [field for at, field in enumerate(fields) if at not in gone]

    def text(raw: msgspec.Raw) -> str:
        return content(raw).decode()

    found = msgspec.structs.replace(
        held,
        slots=[(start, left(fields, str)) for start, fields in held.slots],
        tables=[
            (suffix, left(reached, text), left(metadata, text), votes)
            for suffix, reached, metadata, votes in held.tables
        ],
        entrants=left(held.entrants, text),
        hidden=left(held.hidden, str, 1),
        log=left(held.log, lambda raw: logged_of(content(raw), 0).member),
    )
    return _encode(found) if is_changed else None


def forgotten(entries: Sequence[Entry]) -> tuple[list[Entry], list[Erase]]:
    """Return entries of the store as SQL keeps them, without the persons whom some of them erase.

    Also return what these entries say in the store.
    """
    left, erased = list(entries), list[Erase]()
    for number, entry in enumerate(entries):
        if entry.head.startswith(("erase ", "forget ")):
            erase = _ERASE.decode(entry.content)
            digests = erase.replacements(erase.digests)
            for place in range(number):
                left[place] = left[place]._replace(content=_left_of(left[place], erase.member, digests))
            left[number] = entry._replace(content=_encode(Erase(digests=list(digests.values()))))
            erased.append(erase)
    return left, erased


def _left_of(entry: Entry, member: str, digests: Mapping[bytes, bytes]) -> bytes:
    body = entry.content
    if member and member.encode() in body:
        body = without(parse_head(entry.head), body, member) or body
    return exchange(body, digests)


def forget_by(connection: Connection, board: str, erase: Erase) -> None:
    """Forget the person whom an `erase` or `forget` entry names, in all rows that SQL has now."""
    for name, digests in [(board, erase.digests), *erase.elsewhere]:
        forget_in_board(connection, name, erase.member, erase.replacements(digests))
    if erase.system:  # delete the title, and rewrite what the audit log says about the member
        of_prefix = DEFINITION.c.prefix == prefix_of(connection)
        is_title = (DEFINITION.c.kind == "items") & (DEFINITION.c.name == erase.member)
        connection.execute(delete(DEFINITION).where(of_prefix, is_title))
        rewrite_trail(connection, erase.member.__eq__)
    count = str(erasures_in(connection) + 1)
    connection.execute(update(ABOUT).where(ABOUT.c.name == _COUNT).values(value=count))


def erasures_in(connection: Connection) -> int:
    """Return how often an erasure has rewritten rows of this database. What was read before is not valid any more."""
    return int(connection.scalar(select(ABOUT.c.value).where(ABOUT.c.name == _COUNT)) or 0)


def uncleared_in(connection: Connection) -> int:
    """Return how often an erasure has rewritten rows, or 0 if the files of SQLite have none of the old rows."""
    if connection.dialect.name != "sqlite":
        return 0  # the old rows in the files of PostgreSQL belong to its operator
    cleared = int(connection.scalar(select(ABOUT.c.value).where(ABOUT.c.name == _CLEARED)) or 0)
    return count if (count := erasures_in(connection)) > cleared else 0


def clear(connection: Connection, erasures: int) -> None:
    """Record that the files of SQLite have none of the rows that so many erasures have rewritten."""
    connection.execute(delete(ABOUT).where(ABOUT.c.name == _CLEARED))
    connection.execute(insert(ABOUT), [{"name": _CLEARED, "value": str(erasures)}])


def forget_in_board(
    connection: Connection,
    board: str,
    member: str = "",
    digests: Mapping[bytes, bytes] | None = None,
    *,
    dry: bool = False,
) -> FoundRows:
    """Rewrite the rows of a board that have a member, or digests, each with its replacement.

    Return which of them had the member. With `dry`, only count them.
    """
    found, needle, digests = FoundRows(), member.encode(), digests or {}
    lives = select(LIFE.c.id).where(LIFE.c.prefix == prefix_of(connection), LIFE.c.board == board)
    for row in _rows(connection, SEGMENT, SEGMENT.c.life.in_(lives)):
        data = decompress(row.crc, row.data)
        if member and needle in data:
            pairs = []
            for text, body in unpack_entries(row.crc, row.data):
                left = without(parse_head(text), body, member)
                found.entries += left is not None
                pairs.append((text, exchange(body if left is None else left, digests)))
            _put(connection, SEGMENT, SEGMENT.c.id == row.id, pack_pairs(pairs), dry=dry)
        elif (left := exchange(data, digests)) is not data:
            _put(connection, SEGMENT, SEGMENT.c.id == row.id, compress(left), dry=dry)
    for row in _rows(connection, CHECKPOINT, CHECKPOINT.c.life.in_(lives)):
        left = data = decompress(row.crc, row.data)
        if member and needle in data:
            held = unpack(data)
            if held.forget_members({member}):
                found.checkpoints += 1
                left = pack(held)
        if (left := exchange(left, digests, _BYTES)) is not data:
            _put(connection, CHECKPOINT, CHECKPOINT.c.id == row.id, compress(left), dry=dry)
    for row in connection.execute(select(PERIOD).where(PERIOD.c.life.in_(lives))).all() if member else ():
        packed = _period_without(decompress(row.crc, row.data), member)
        if packed is not None:
            found.periods += 1
            _put(connection, PERIOD, (PERIOD.c.life == row.life) & (PERIOD.c.start == row.start), packed, dry=dry)
    return found


def _period_without(data: bytes, member: str) -> Packed | None:
    period = msgspec.msgpack.decode(data)
    if member not in period["members"]:
        return None
    place = period["members"].index(member)
    del period["members"][place], period["scores"][place]
    period["metadata"].pop(member, None)
    return compress(_encode(period))


def _rows(connection: Connection, table: Any, where: Any) -> Any:  # noqa: ANN401 - of SQLAlchemy
    last = 0
    while rows := connection.execute(
        select(table).where(where, table.c.id > last).order_by(table.c.id).limit(_ROWS)
    ).all():
        yield from rows
        last = rows[-1].id


def _put(connection: Connection, table: Any, where: Any, packed: Packed, *, dry: bool) -> None:  # noqa: ANN401 - of SQLAlchemy
    if not dry:
        connection.execute(update(table).where(where).values(crc=packed.crc, data=packed.data))


def _encode(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


_ERASE: Final = msgspec.msgpack.Decoder(Erase)
_COUNT: Final = "erasures"
_CLEARED: Final = "erasures_cleared"
