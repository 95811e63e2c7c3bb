"""Forget an erased member in SQL: rewrite all older rows that have the member.

Erasing a member appends a `forget` entry to the journal of each board. The transaction that moves this entry to SQL
rewrites the earlier segments, checkpoints and periods of the board, so that no instant shows the member, and no row has
the name. The past then looks as if the member had never been counted.

In the entries of batches, an empty name and the amount zero replace the member, so that every other event keeps its
number. Digests of voters stay in these entries, like digests of actors (see `live.journal.erasures`).
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, delete, select, update

from live.journal.erasures import Erasures, erasures_of, member_digest, take_out_members
from live.journal.log.audit_trail import rewrite_trail
from live.journal.log.entries import (
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
from live.journal.schema import CHECKPOINT, DEFINITION, ERASED, LIFE, PERIOD, SEGMENT
from live.journal.state.snapshot import logged_of, pack, unpack
from live.store.board.journal_stream import Entry

Gone = Callable[[str], bool]
"""Whether a member is gone."""

When = Callable[[str], int]
"""When a member was erased, in microseconds since 1970; -1 if it was not."""

_ALWAYS: Final = 2**63
_ROWS: Final = 100  # rows read at once
_Fields = dict[str, msgspec.Raw]
_FIELDS: Final = msgspec.msgpack.Decoder(_Fields)


class FoundRows(msgspec.Struct):
    """How many entries, checkpoints and periods contain members that were erased later."""

    entries: int = 0
    checkpoints: int = 0
    periods: int = 0


def _cached(when: When) -> When:
    known: dict[str, int] = {}

    def cached(member: str) -> int:
        found = known.get(member)
        if found is None:
            found = known[member] = when(member)
        return found

    return cached


def without(head: Head, body: bytes, gone: Gone) -> bytes | None:
    """Return the body of an entry without the erased members. Return None if it has none of them."""
    if head.kind == "tags":
        tags = msgspec.msgpack.decode(body, type=Tags)
        left = [tag for tag in tags if not gone(tag[1])]
        return _encode(left) if len(left) < len(tags) else None
    change = _CHANGES.get(head.kind)
    return None if change is None else change(_FIELDS.decode(body), gone)


def _without_in_moderation(fields: _Fields, gone: Gone) -> bytes | None:
    if not gone(_decode(fields["member"], str)):
        return None
    return _encode(fields | {name: _raw("") for name in ("member", "metadata") if name in fields})


def _without_in_batch(request: _Fields, gone: Gone) -> bytes | None:
    groups = [_FIELDS.decode(raw) for raw in _decode(request.get("groups", _raw([])), list[msgspec.Raw])]
    is_changed = False
    for group in groups:
        members = _decode(group["members"], list[str])
        places = {place for place, member in enumerate(members) if gone(member)}
        if not places:
            continue
        is_changed = True
        group["members"] = _raw(["" if place in places else member for place, member in enumerate(members)])
        for name in group.keys() & {"amounts", "orders"}:
            amounts = _decode(group[name], list[int])
            group[name] = _raw([0 if place in places else amount for place, amount in enumerate(amounts)])
        if "moments" in group:
            words = _decode(group["moments"], list[int])
            for first in range(0, len(words), 4):
                words[first + 3] = 0 if words[first + 2] in places else words[first + 3]
            group["moments"] = _raw(words)
        if "metadata" in group:
            texts = _decode(group["metadata"], list[msgspec.Raw])
            group["metadata"] = _raw([_raw("") if place in places else text for place, text in enumerate(texts)])
        if "parts" in group:
            parts = _decode(group["parts"], list[tuple[int, list[int]]])
            group["parts"] = _raw([(sender, _part(part, places)) for sender, part in parts])
    if "events" in request:
        events = _FIELDS.decode(request["events"])
        members = _decode(events["members"], list[str])
        if any(map(gone, members)):
            amounts = _decode(events["amounts"], list[int])
            pairs = [
                ("", 0) if gone(member) else (member, amount) for member, amount in zip(members, amounts, strict=True)
            ]
            events |= {
                "members": _raw([member for member, _ in pairs]),
                "amounts": _raw([amount for _, amount in pairs]),
            }
            request["events"], is_changed = _raw(events), True
    if not is_changed:
        return None
    request["groups"] = _raw(groups)
    if "reason" in request:  # the entry is a correction of this member, so its reason goes too
        request["reason"] = _raw("")
    request.pop("held", None)
    return _encode(request)


def _part(part: list[int], places: set[int]) -> list[int]:
    pairs = zip(part[::2], part[1::2], strict=True)
    return [number for place, amount in pairs for number in (place, 0 if place in places else amount)]


def _without_in_state(held: _Fields, gone: Gone) -> bytes | None:
    is_changed = False

    def kept(fields: Sequence[Any], name: Callable[[Any], str], step: int = 2) -> list[Any]:
        nonlocal is_changed
        rows = [fields[first : first + step] for first in range(0, len(fields), step)]
        left = [row for row in rows if not gone(name(row[0]))]
        is_changed |= len(left) < len(rows)
        return [value for row in left for value in row]

    def text(raw: msgspec.Raw) -> str:
        return content(raw).decode()

    slots = _decode(held["slots"], list[tuple[str, list[str]]])
    held["slots"] = _raw([(start, kept(fields, str)) for start, fields in slots])
    tables = _decode(held["tables"], list[tuple[str, list[msgspec.Raw], list[msgspec.Raw], msgspec.Raw]])
    held["tables"] = _raw(
        [(suffix, kept(reached, text), kept(metadata, text), votes) for suffix, reached, metadata, votes in tables]
    )
    held["entrants"] = _raw(kept(_decode(held["entrants"], list[msgspec.Raw]), text))
    held["hidden"] = _raw(kept(_decode(held["hidden"], list[str]), str, 1))
    held["log"] = _raw(kept(_decode(held["log"], list[msgspec.Raw]), lambda raw: logged_of(content(raw), 0).member))
    return _encode(held) if is_changed else None


def forgotten(entries: Sequence[Entry], erase: Erase) -> list[Entry]:
    """Return entries that the store has written before a `forget` entry, without the member that it names."""
    when = _cached(_when_of(erase))
    found = []
    for entry in entries:
        body = without(parse_head(entry.head), entry.content, lambda member: when(member) >= 0)
        found.append(entry if body is None else entry._replace(content=body))
    return found


def _when_of(erase: Erase) -> When:
    return lambda member: _ALWAYS if member and member_digest(erase.key, member) == erase.member else -1


def forget_by(connection: Connection, prefix: str, board: str, erase: Erase) -> None:
    """Forget the member that a `forget` entry names, in all rows that SQL has now."""
    when = _cached(_when_of(erase))
    for name in (board, *(name for name, _ in erase.elsewhere)):
        forget_in_board(connection, prefix, name, when)
    if erase.system:
        forget_in_system(connection, prefix, when)


def forget_listed(connection: Connection, prefix: str) -> None:
    """Forget the members on the list of erased digests, in rows from before their erasure, for example of a backup."""
    if connection.scalar(select(ERASED.c.id).where(ERASED.c.prefix == prefix).limit(1)) is None:
        return
    lists: list[Erasures] = []
    for board in connection.scalars(select(LIFE.c.board).where(LIFE.c.prefix == prefix).distinct()).all():
        lists.append(erasures_of(connection, prefix, board))
        forget_in_board(connection, prefix, board, _cached(lists[-1].member_gone))
    forget_in_system(
        connection, prefix, _cached(lambda name: max((one.member_gone(name) for one in lists), default=-1))
    )


def forget_in_board(
    connection: Connection, prefix: str, board: str, when: When, *, needle: bytes = b"", dry: bool = False
) -> FoundRows:
    """Rewrite the rows of a board that have members which were erased later. With `dry`, only count them.

    With a `needle`, look only at segments and checkpoints that contain it, and at all periods.

    Raises:
        JournalBrokenError: the journal is damaged.
    """
    found = FoundRows()
    lives = select(LIFE.c.id).where(LIFE.c.prefix == prefix, LIFE.c.board == board)

    def gone_at(time: int) -> Gone:
        return lambda member: when(member) > time

    for row in _rows(connection, SEGMENT, SEGMENT.c.life.in_(lives)):
        if needle not in decompress(row.crc, row.data):
            continue
        pairs = []
        before = found.entries
        for text, body in unpack_entries(row.crc, row.data):
            head = parse_head(text)
            left = without(head, body, gone_at(head.time))
            found.entries += left is not None
            pairs.append((text, body if left is None else left))
        if found.entries > before and not dry:
            _put(connection, SEGMENT, SEGMENT.c.id == row.id, pack_pairs(pairs))
    for row in _rows(connection, CHECKPOINT, CHECKPOINT.c.life.in_(lives)):
        data = decompress(row.crc, row.data)
        held = unpack(data) if needle in data else None
        if held is not None and take_out_members(held, gone_at(row.time)):
            found.checkpoints += 1
            if not dry:
                _put(connection, CHECKPOINT, CHECKPOINT.c.id == row.id, compress(pack(held)))
    for row in connection.execute(select(PERIOD).where(PERIOD.c.life.in_(lives))).all():
        # The period was archived after `newest` began, so it lacks members that were erased before that time.
        packed = _period_without(decompress(row.crc, row.data), gone_at(row.newest * 1_000_000))
        if packed is not None:
            found.periods += 1
            if not dry:
                _put(connection, PERIOD, (PERIOD.c.life == row.life) & (PERIOD.c.start == row.start), packed)
    return found


def _period_without(data: bytes, gone: Gone) -> Packed | None:
    period = msgspec.msgpack.decode(data)
    left = [place for place, member in enumerate(period["members"]) if not gone(member)]
    if len(left) == len(period["members"]):
        return None
    for name in ("members", "scores"):
        period[name] = [period[name][place] for place in left]
    period["metadata"] = {member: text for member, text in period["metadata"].items() if not gone(member)}
    return compress(_encode(period))


def forget_in_system(connection: Connection, prefix: str, when: When) -> None:
    """Delete the titles of members that were erased later, and rewrite what the audit log says about them."""
    rows = select(DEFINITION.c.id, DEFINITION.c.name, DEFINITION.c.time).where(
        DEFINITION.c.prefix == prefix, DEFINITION.c.kind == "items"
    )
    for row in connection.execute(rows).all():
        if when(row.name) > row.time:
            connection.execute(delete(DEFINITION).where(DEFINITION.c.id == row.id))
    rewrite_trail(connection, prefix, when)


def _rows(connection: Connection, table: Any, where: Any) -> Any:  # noqa: ANN401 - of SQLAlchemy
    """Yield rows, a few at a time."""
    last = 0
    while rows := connection.execute(
        select(table).where(where, table.c.id > last).order_by(table.c.id).limit(_ROWS)
    ).all():
        yield from rows
        last = rows[-1].id


def _put(connection: Connection, table: Any, where: Any, packed: Packed) -> None:  # noqa: ANN401 - of SQLAlchemy
    connection.execute(update(table).where(where).values(crc=packed.crc, data=packed.data))


def _decode(raw: msgspec.Raw, kind: Any) -> Any:  # noqa: ANN401 - of this type
    return msgspec.msgpack.decode(raw, type=kind)


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(_encode(value))


def _encode(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


_CHANGES: Final[dict[str, Callable[[_Fields, Gone], bytes | None]]] = {
    "add": _without_in_batch,
    "adopt": _without_in_state,
    "enter": _without_in_moderation,
    "hide": _without_in_moderation,
    "withdraw": _without_in_moderation,
}
