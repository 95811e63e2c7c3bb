"""Find the producers and actors who have contributed to members, for administrators."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec
from sqlalchemy import Connection, select

from live.journal.log.entries import REPLACED, content, read_entries_of
from live.journal.log.timelines import Timeline, open_timelines
from live.journal.schema import SEGMENT
from live.store.board.batch import Batch, SlotDelta, decode_batch

_MOST: Final = 50  # maximum `LatestEvents` of one board
_SEGMENTS: Final = 4  # segments of a board that are searched for the latest events
_MOST_LATEST: Final = 200  # maximum `LatestEvents` of all boards together
_SHOWN: Final = 4  # bytes of an actor's digest that are shown


class LatestEvents(msgspec.Struct, frozen=True):
    """What one batch added to a member of a board, and who sent it."""

    at: int
    board: str
    member: str
    amount: int
    producers: Sequence[str]
    actors: Sequence[str]


def senders_of(batch: Batch, group: SlotDelta, place: int) -> tuple[list[str], list[str]]:
    """Return who sent events for the member at the index `place` of a group: the known producers, and the actors.

    A producer whose amounts add up to zero is left out. Actors are known only for votes: each is the beginning of its
    digest, unless the actor was erased.
    """
    names = batch.producers
    if (votes := group.votes) is not None:
        rows = zip(votes.actors, votes.members, group.rows(batch), strict=True)
        found = [(content(actor), row.producer) for actor, at, row in rows if at == place]
        actors = [actor[:_SHOWN].hex() for actor, _ in found if not actor.startswith(REPLACED)]
        producers = [names[producer] for _, producer in found] if names else []
        return [*filter(None, dict.fromkeys(producers))], [*dict.fromkeys(actors)]
    if len(names) <= 1:
        return [*filter(None, names)], []
    sums = Counter[int]()
    for row in group.rows(batch):
        if row.member == group.members[place]:
            sums[row.producer] += row.amount
    return [names[number] for number, amount in sorted(sums.items()) if amount and names[number]], []


def latest_events(connection: Connection, boards: Sequence[str]) -> list[LatestEvents]:
    """Return the newest accepted events of some boards, as far as SQL has them, the newest first."""
    found: list[LatestEvents] = []
    for timeline in open_timelines(connection):
        if timeline.board in boards:
            found += islice(_events_of(connection, timeline), _MOST)
    return sorted(found, key=lambda event: -event.at)[:_MOST_LATEST]


def _events_of(connection: Connection, timeline: Timeline) -> Iterator[LatestEvents]:
    rows = select(SEGMENT.c.crc, SEGMENT.c.data).where(SEGMENT.c.life == timeline.id)
    for row in connection.execute(rows.order_by(SEGMENT.c.id.desc()).limit(_SEGMENTS)):
        for head, body in reversed(list(read_entries_of(row))):
            if head.kind != "add":
                continue
            batch = decode_batch(body)
            for group in batch.groups:
                for place, member in enumerate(group.members):
                    if member:  # an erased member has an empty name
                        amount, senders = group.amounts[place], senders_of(batch, group, place)
                        yield LatestEvents(head.time, timeline.board, member, amount, *senders)
