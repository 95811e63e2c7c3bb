"""Find the producers and actors who have contributed to members, for administrators."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

import msgspec
from sqlalchemy import Connection, select

from live.domain.board import Board
from live.journal.erasures import Erasures, erasures_of
from live.journal.log.entries import Add, EntryDelta, EntryVotes, Head, content, read_entries_of
from live.journal.log.reader import entries_of
from live.journal.log.timelines import Timeline, open_timelines
from live.journal.past.coverage import reaches_of, since_of, timeline_at
from live.journal.past.history import scores_at_all
from live.journal.past.queries import NoPastError
from live.journal.past.worker import database_of
from live.journal.schema import SEGMENT
from live.settings import Settings

_LEAST: Final = 10  # a smaller gain of a member is never unusual
_TWICE: Final = 2
_MOST: Final = 50  # maximum members in `UnusualList`, and maximum `LatestEvents` of one board
_SEGMENTS: Final = 4  # segments of a board that are searched for the latest events
_MOST_LATEST: Final = 200  # maximum `LatestEvents` of all boards together
_MOST_BATCHES: Final = 20_000  # maximum entries that `find_unusual` reads
_SHOWN: Final = 4  # bytes of an actor's digest that are shown

_ADD: Final = msgspec.msgpack.Decoder(Add)


class Contributed(NamedTuple):
    """The amount that a producer and an actor added to a member.

    `producer` or `actor` is empty if the journal does not say who it was.
    """

    producer: str
    actor: str
    amount: int


class Unusual(msgspec.Struct, frozen=True, kw_only=True):
    """A member with an unusual gain between two times, and its score at both times.

    `reasons` are `doubled`, `actor` and `producer`. `actor` and `producer` are the largest contributors, and empty if
    the journal does not say who they are. `actor_share` and `producer_share` are their parts of the gain, from 0 to 1.
    """

    key: str
    before: int
    after: int
    reasons: Sequence[str]
    actor: str
    actor_share: float
    producer: str
    producer_share: float


class LatestEvents(msgspec.Struct, frozen=True):
    """What one batch added to a member of a board, and who sent it."""

    at: int
    board: str
    key: str
    amount: int
    producers: Sequence[str]
    actors: Sequence[str]


class UnusualList(msgspec.Struct, frozen=True):
    """The unusual members of a board, and whether all batches between the two times were searched."""

    members: Sequence[Unusual]
    is_whole: bool


def parts_of(head: Head, batch: Add, group: EntryDelta, place: int, erased: Erasures) -> list[Contributed]:
    """Return who added how much to the member at the index `place` of a group.

    An actor is known only for votes: it is the beginning of its digest, or empty if the actor was erased.
    """
    if group.votes is not None:
        return list(_votes(head, batch, group.votes, place, erased))
    amount, names = group.amounts[place], batch.producers
    if len(names) <= 1:
        return [Contributed(names[0] if names else "", "", amount)]
    parts = {number: dict(zip(pairs[::2], pairs[1::2], strict=True)).get(place, 0) for number, pairs in group.parts}
    parts[0] = amount - sum(part for number, part in parts.items() if number)
    return [Contributed(names[number], "", part) for number, part in sorted(parts.items()) if part]


def _votes(head: Head, batch: Add, votes: EntryVotes, place: int, erased: Erasures) -> Iterator[Contributed]:
    senders = votes.producers or [0] * len(votes.changes)
    for actor, change, at, sender in zip(votes.actors, votes.changes, votes.members, senders, strict=True):
        if at == place:
            voter = content(actor)
            name = "" if erased.among([voter], head.time) else voter[:_SHOWN].hex()
            yield Contributed(batch.producers[sender] if batch.producers else "", name, change)


def find_unusual(settings: Settings, board: Board, hidden: frozenset[str], since: int, until: int) -> UnusualList:
    """Find members that have gained unusually between two times (milliseconds since 1970).

    A gain of at least 10 is unusual if the score has doubled, or if more than half of the gain came from one actor, or
    from one of several producers.

    Raises:
        NoPastError: the journal does not cover one of the times.
        TooLongError: there is too much to read.
    """

    def work(connection: Connection) -> UnusualList:
        found = [
            dict(scores.scores) for _, scores in scores_at_all(connection, settings.key_prefix, board, [since, until])
        ]
        before, after = found
        gained = {
            member: score - before.get(member, 0)
            for member, score in after.items()
            if score - before.get(member, 0) >= _LEAST and member not in hidden
        }
        adds_up = board.operator == "incr" and bool(gained)
        tallies, is_whole = _tallies(connection, settings.key_prefix, board, (since, until)) if adds_up else ({}, True)
        names = {part for tally in tallies.values() for part in tally if part[0] == "producer"}
        rows = list[Unusual]()
        for member, gain in sorted(gained.items(), key=lambda item: -item[1]):
            actor, actor_share = _largest(tallies.get(member, {}), "actor", gain)
            producer, producer_share = _largest(tallies.get(member, {}), "producer", gain)
            old = before.get(member, 0)
            is_odd = {
                "doubled": old > 0 and after[member] >= _TWICE * old,
                "actor": actor_share * _TWICE > 1,
                "producer": len(names) > 1 and producer_share * _TWICE > 1,
            }
            if any(is_odd.values()) and len(rows) < _MOST:
                rows.append(
                    Unusual(
                        key=member, before=old, after=after[member],
                        reasons=[reason for reason, is_so in is_odd.items() if is_so],
                        actor=actor, actor_share=actor_share, producer=producer, producer_share=producer_share,
                    )
                )  # fmt: skip
        return UnusualList(rows, is_whole)

    return database_of(settings).work(work)


def latest_events(settings: Settings, boards: Sequence[str]) -> list[LatestEvents]:
    """Return the newest accepted events of some boards, as far as SQL has them, the newest first."""

    def work(connection: Connection) -> list[LatestEvents]:
        found: list[LatestEvents] = []
        for timeline in open_timelines(connection, settings.key_prefix):
            if timeline.board in boards:
                found += islice(_events_of(connection, settings.key_prefix, timeline), _MOST)
        return sorted(found, key=lambda event: -event.at)[:_MOST_LATEST]

    return database_of(settings).work(work)


def _events_of(connection: Connection, prefix: str, timeline: Timeline) -> Iterator[LatestEvents]:
    """Yield the events of the last segments of a timeline, the newest batch first."""
    erased = erasures_of(connection, prefix, timeline.board)
    rows = select(SEGMENT.c.crc, SEGMENT.c.data).where(SEGMENT.c.life == timeline.id)
    for row in connection.execute(rows.order_by(SEGMENT.c.id.desc()).limit(_SEGMENTS)):
        for head, body in reversed(list(read_entries_of(row))):
            if head.kind != "add":
                continue
            batch = _ADD.decode(body)
            for group in batch.groups:
                for place, member in enumerate(group.members):
                    if member:  # an erased member has an empty name
                        parts = parts_of(head, batch, group, place, erased)
                        producers, actors = (
                            {getattr(part, name): None for part in parts} for name in ("producer", "actor")
                        )
                        yield LatestEvents(
                            head.time, timeline.board, member, group.amounts[place],
                            list(filter(None, producers)), list(filter(None, actors)),
                        )  # fmt: skip


_Tally = dict[tuple[str, str], int]
"""By kind (`actor` or `producer`) and name: the amount that this actor or producer added to a member."""


def _tallies(
    connection: Connection, prefix: str, board: Board, times: tuple[int, int]
) -> tuple[dict[str, _Tally], bool]:
    """Add up the contributions to each member between two times. Also return whether all batches were read."""
    since, until = (at * 1000 for at in times)
    reaches = reaches_of(connection, prefix, board)
    timeline = timeline_at(reaches, times[1])
    if timeline is None:  # in PostgreSQL, the timeline can have been deleted since the scores were read
        raise NoPastError(since_of(reaches))
    erased = erasures_of(connection, prefix, board.id)
    tallies: dict[str, _Tally] = {}
    for number, (head, body) in enumerate(entries_of(connection, timeline, since=since)):
        if number == _MOST_BATCHES:
            return tallies, False
        if head.kind != "add" or not since <= head.time < until:
            continue
        batch = _ADD.decode(body)
        for group in batch.groups:
            for place, member in enumerate(group.members):
                tally = tallies.setdefault(member, {})
                for part in parts_of(head, batch, group, place, erased):
                    for name in (("actor", part.actor), ("producer", part.producer)):
                        tally[name] = tally.get(name, 0) + part.amount
    return tallies, True


def _largest(tally: _Tally, what: str, gain: int) -> tuple[str, float]:
    """Return the actor or producer that added most to a member, and its share of the gain."""
    found = [(amount, name) for (kind, name), amount in tally.items() if kind == what and name]
    amount, name = max(found, default=(0, ""))
    return name, min(1.0, max(0, amount) / gain)
