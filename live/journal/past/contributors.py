"""Find the producers and actors who have contributed to members, for administrators."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

import msgspec
from sqlalchemy import Connection, select

from live.journal.erasures import Erasures, erasures_of
from live.journal.log.entries import Add, EntryDelta, EntryVotes, Head, content, read_entries_of
from live.journal.log.timelines import Timeline, open_timelines
from live.journal.past.worker import database_of
from live.journal.schema import SEGMENT
from live.settings import Settings

_MOST: Final = 50  # maximum `LatestEvents` of one board
_SEGMENTS: Final = 4  # segments of a board that are searched for the latest events
_MOST_LATEST: Final = 200  # maximum `LatestEvents` of all boards together
_SHOWN: Final = 4  # bytes of an actor's digest that are shown

_ADD: Final = msgspec.msgpack.Decoder(Add)


class Contributed(NamedTuple):
    """The amount that a producer and an actor added to a member.

    `producer` or `actor` is empty if the journal does not say who it was.
    """

    producer: str
    actor: str
    amount: int


class LatestEvents(msgspec.Struct, frozen=True):
    """What one batch added to a member of a board, and who sent it."""

    at: int
    board: str
    key: str
    amount: int
    producers: Sequence[str]
    actors: Sequence[str]


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
