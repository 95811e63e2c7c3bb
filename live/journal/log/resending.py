"""Send again the entries that SQL has and the store lost in a failover.

The store lacks the last entries in SQL. These entries are sent again in order, with their old writers and numbers. So
if a producer also sends an event again, the event that comes later is a duplicate. No other process changes the board
meanwhile, because the board is not checked yet. Then one transaction replaces the old entries in SQL with the entries
that the store has now.

After an interruption, the next attempt sends everything again under the same numbers, so each entry counts once. Until
an attempt succeeds, the field `resending` in the board's state keeps all processes from using the board.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, Final, cast

import msgspec
from sqlalchemy import Connection

from live.domain.board import Board
from live.errors import ProblemError, SetupError
from live.journal.database import Database
from live.journal.log.entries import (
    FIRST,
    Enter,
    EntryClock,
    EntryDelta,
    EntryRules,
    Head,
    Hide,
    Withdraw,
    arrival_of,
    content,
    marks_of,
    parse_head,
    position_of,
)
from live.journal.log.reader import entries_of
from live.journal.log.timelines import Timeline, add_segments, cut, segment_of
from live.settings import Settings
from live.store.board.journal_stream import MOST_ENTRIES, Entry, read_entries
from live.store.board.keys import Keys
from live.store.board.manage.moderation import BoardModeration
from live.store.board.state import MOST_REPLANS, SCRIPTS, BoardState
from live.store.board.write.writer import keys_of_batch, keys_of_buckets
from live.store.connection.client import Store, required

_Fields = dict[str, msgspec.Raw]
_FOLLOWING: Final = ("tags", "left")  # kinds of entries that scripts append again by themselves
_AT_ONCE: Final = 64  # batches in one packet
_UNLIMITED: Final = 1 << 53
# Kinds of entries that no request of a client makes.
_REFUSED: Final = ("begin", "adopt", "renew", "erase", "forget")


class UnsentError(Exception):
    """Entries can't be sent again. The message says why."""


async def send_again(
    client: Store, settings: Settings, database: Database, timeline: Timeline, board: Board, *, least: int = 0
) -> Timeline:
    """Send again the entries of a timeline that the store lacks. Return the timeline with what the store has now.

    Afterwards the board has at least the offset `least`.

    Raises:
        UnsentError: the store has something that SQL lacks, or an entry can't be sent again.
        StoreUnavailableError, JournalError: try again.
    """
    keys = Keys(settings.key_prefix, timeline.board)
    held = await client.call(keys.meta, "HMGET", keys.meta, "reign", "journal")
    reign, link = ((held[0] or b"").decode(), (held[1] or b"").decode().rpartition(" ")[0])
    chain = [parse_head(entry.head) for entry in await _entries_after(client, keys, timeline.epoch, "0")]
    links = [chain[0].before, *(head.link for head in chain)] if chain else [link]
    if links[0] == FIRST:  # the store still has the first entry
        links = links[1:]
    try:
        known = await database.run(
            lambda connection: list(entries_of(connection, timeline, offset=position_of(links[0])[0]))
        )
    except SetupError as error:
        raise UnsentError(str(error)) from None
    last, lost = _lost(links, known)
    await client.call(keys.meta, "HSET", keys.meta, "resending", 1)
    state = _state_of(client, settings, board, timeline.epoch, reign)
    await state.open()
    for kind, group in groupby(lost, _group_of):
        entries_of_kind = list(group)
        if kind[0] == "add":
            for first in range(0, len(entries_of_kind), _AT_ONCE):
                await _add(state, entries_of_kind[first : first + _AT_ONCE])
        else:
            for head, body in entries_of_kind:
                await _moderate(state, head, body)
    # Begin the new reign beyond every offset that a client has seen. HINCRBY never lowers a value that another process
    # has set.
    offset = int(await client.call(keys.meta, "HGET", keys.meta, "offset"))
    await client.call(keys.meta, "HINCRBY", keys.meta, "offset", max(timeline.offset, least, offset) - offset)
    # This read waits until replicas hold all entries. Only then does SQL drop the old entries.
    entries = await _entries_after(client, keys, timeline.epoch, last.partition(" ")[0])

    def replace(connection: Connection) -> Timeline:
        after = cut(connection, timeline, last)
        for first in range(0, len(entries), MOST_ENTRIES):
            segment = segment_of(after, entries[first : first + MOST_ENTRIES])
            add_segments(connection, [segment])
            after = segment.after
        return after

    sent = await database.run(replace)
    await client.call(keys.meta, "HDEL", keys.meta, "resending")
    return sent


def _lost(links: Sequence[str], known: Sequence[tuple[Head, bytes]]) -> tuple[str, list[tuple[Head, bytes]]]:
    """Return the last link that store and SQL share, and the entries of SQL after it.

    `links` are the links of the store.
    """
    places = {head.link: place for place, (head, _) in enumerate(known)}
    last = ""
    for link in links:
        if link not in places:
            break
        last = link
    if not last:
        raise UnsentError(f"the journal has no entry {links[0].partition(' ')[0]} like that of the store")
    lost = list(known[places[last] + 1 :])
    for head, _ in lost:
        if head.kind in _REFUSED:
            raise UnsentError(f"entry {head.id}, of the kind {head.kind!r}, can't be sent again")
    return last, lost


async def _entries_after(client: Store, keys: Keys, epoch: str, after: str) -> list[Entry]:
    """Return all entries in the store after an id."""
    found: list[Entry] = []
    while True:
        (entries,) = required(await read_entries(client, [(keys, epoch, after)]))
        found += entries
        if len(entries) < MOST_ENTRIES:
            return found
        after = entries[-1].id


def _state_of(client: Store, settings: Settings, board: Board, epoch: str, reign: str) -> BoardState:
    """Return a state whose scripts run under `reign`, because the board is not checked under the server's reign yet."""
    scripts = msgspec.structs.replace(
        SCRIPTS,
        add=SCRIPTS.add.under(reign),
        hide=SCRIPTS.hide.under(reign),
        enter=SCRIPTS.enter.under(reign),
        withdraw=SCRIPTS.withdraw.under(reign),
    )
    return BoardState(client, board, settings, scripts, born=epoch)


def _group_of(entry: tuple[Head, bytes]) -> tuple[str, bool]:
    """Return the kind of an entry, and whether it has identities: only then does its plan depend on buckets."""
    head, body = entry
    return head.kind, head.kind == "add" and "identities" in _fields(body)


async def _moderate(state: BoardState, head: Head, body: bytes) -> None:
    moderation = BoardModeration(state)
    match head.kind:
        case "hide":
            hide = msgspec.msgpack.decode(body, type=Hide)
            await moderation.hide(hide.member, hidden=hide.hide)
        case "enter":
            entrant = msgspec.msgpack.decode(body, type=Enter)
            await moderation.enter(entrant.member, content(entrant.metadata))
        case "withdraw":
            with suppress(ProblemError):  # an earlier attempt may have withdrawn the member
                await moderation.withdraw(msgspec.msgpack.decode(body, type=Withdraw).member)
        case kind if kind not in _FOLLOWING:
            raise UnsentError(f"entry {head.id} has the unknown kind {kind!r}")


async def _add(state: BoardState, left: Sequence[tuple[Head, bytes]]) -> None:
    """Send batches again in one packet, by the present clock.

    If the clock moves, the store refuses the remaining batches, and they are planned and sent once more.
    """
    for _ in range(MOST_REPLANS):
        planned = [_planned_again(state, head, body) for head, body in left]
        script = cast("Any", state.scripts.add)
        replies = required(
            await state.client.outcomes(
                [(state.keys.meta, script.command(keys, msgspec.Raw(request))) for keys, request in planned]
            )
        )
        for place, reply in enumerate(replies):
            match reply:
                # "stale": an earlier attempt has sent this batch, and also a later batch of its writer.
                case [b"ok", *_] | [b"stale"]:
                    continue
                case [b"replan", newest, now, latest, bucket]:
                    state.update_clock(newest, now, latest)
                    state.buckets.newest = int(bucket)
                    left = left[place:]
                    break
                case _:
                    raise UnsentError(f"the store answers {reply[0].decode()!r} to entry {left[place][0].id}")
        else:
            return
    raise state.moved_too_often()


def _fields(body: bytes | msgspec.Raw) -> _Fields:
    return msgspec.msgpack.decode(body, type=_Fields)


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(value))


def _planned_again(state: BoardState, head: Head, body: bytes) -> tuple[list[str], bytes]:
    """Return the store keys and the request of a batch by the present clock, without slots that have left the window.

    The next batch is planned for the clock after this batch.
    """
    board, clock, request = state.board, state.planned(), _fields(body)
    before = msgspec.msgpack.decode(request["reached"], type=int | None)
    reached = max((start for start in (before, clock.current) if start is not None), default=None)
    keys = keys_of_batch(state)
    if "identities" in request:
        identities = _fields(request["identities"])
        first = len(keys) + 1
        keys += keys_of_buckets(state)
        kept = {"bucket": state.buckets.newest, "newest": first, "oldest": len(keys) - 1}
        request["identities"] = _raw(identities | {name: _raw(value) for name, value in kept.items()})
    oldest = None if reached is None else board.window.oldest(reached)
    groups, arrival = [], arrival_of(head, before)
    for raw in msgspec.msgpack.decode(request["groups"], type=list[msgspec.Raw]) if "groups" in request else ():
        start = msgspec.msgpack.decode(_fields(raw)["start"], type=int)
        if oldest is None or start >= oldest:
            groups.append(_dated(request, raw, arrival) | {"keys": _raw(len(keys) + 1)})
            keys += (state.keys.slot(start), *state.table(start).all)
    if "events" in request:  # an event without a time counts at the time of its batch
        events = _fields(request["events"])
        times = msgspec.msgpack.decode(events["times"], type=list[int | bool])
        events["times"] = _raw([head.time // 1000 if time is False else time for time in times])
        request["events"] = _raw(events)
    # The board has counted these events before, so no limit refuses them now. Otherwise a late rotation or the clock of
    # another server could cause a refusal, and the next batches of the packet would then overtake this one.
    request.pop("backlog", None)
    request.pop("most_slots", None)
    request.pop("held", None)
    request |= {"most_members": _raw(_UNLIMITED), "future": _raw(_UNLIMITED)}
    state.clock.newest = reached
    # A batch without a group still records its number and its identities.
    changed = {"clock": _raw(clock), "reached": _raw(reached), "groups": _raw(groups)}
    return keys, msgspec.msgpack.encode(request | changed)


def _dated(request: _Fields, raw: msgspec.Raw, arrival: int) -> _Fields:
    """Return a group in which an event without a time has the time (ms) at which it arrived."""
    group = _fields(raw)
    if "orders" not in group or msgspec.msgpack.decode(request["clock"], type=EntryClock).by_event:
        return group
    rules = msgspec.msgpack.decode(request["rules"], type=EntryRules)
    marks = marks_of(msgspec.msgpack.decode(raw, type=EntryDelta), rules, arrival)
    group.pop("arrivals", None)
    return group | {"orders": _raw([number for _, number in marks]), "times": _raw([time for time, _ in marks])}
