"""Events that were taken back: from an entry `swap` on, a board holds what it would hold without them.

The entries of these events stay as they are. A reader leaves the events out. So taking the same events back twice
changes nothing, and the past before the `swap` stays as it was.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Self

import msgspec

from live.journal.log.entries import Head, position_of
from live.store.board.batch import Batch


class SentBetween(msgspec.Struct, frozen=True, array_like=True):
    """All events of a producer in the entries from a time (µs since 1970) up to an entry, named by its link.

    Without a producer, everything that these entries have changed: the board went back to the time.
    """

    producer: str | None
    since: int
    last: str

    def has(self, head: Head) -> bool:
        """Return whether an entry is among these entries. Several entries can have the same time."""
        if head.time < self.since:
            return False
        last = int(self.last.split(" ")[1])
        return head.time < last or (head.time == last and position_of(head.id) <= position_of(self.last))


class Some(msgspec.Struct, frozen=True, array_like=True):
    """Some of the `count` events of a batch: their places in `events_of`."""

    count: int
    places: tuple[int, ...]


_NONE: Final = Some(0, ())


class Taken(msgspec.Struct, frozen=True, omit_defaults=True):
    """Events that were taken back."""

    senders: tuple[SentBetween, ...] = ()  # the producers whose events were taken back
    events: Mapping[str, Some] = {}  # by the link of an entry, single events of its batch

    def __bool__(self) -> bool:
        """Return whether anything was taken back."""
        return bool(self.senders or self.events)

    @classmethod
    def all_of(cls, several: Iterable[Self]) -> Self:
        """Return the events of all."""
        senders, events = dict[SentBetween, None](), dict[str, Some]()
        for taken in several:
            senders |= dict.fromkeys(taken.senders)
            for link, some in taken.events.items():
                known = events.get(link, _NONE).places
                events[link] = Some(some.count, tuple(sorted({*known, *some.places}))) if known else some
        return cls(tuple(senders), events)

    def without(self, other: Self) -> Self:
        """Return the events that are not in `other`."""
        events = dict[str, Some]()
        for link, some in self.events.items():
            if left := {*some.places} - {*other.events.get(link, _NONE).places}:
                events[link] = Some(some.count, tuple(sorted(left)))
        known = {*other.senders}
        return type(self)(tuple(one for one in self.senders if one not in known), events)

    def reaches(self, known: Self, time: int) -> bool:
        """Return whether there are events besides those of `known` in entries up to a time (microseconds)."""
        left = self.without(known) if self else self
        return any(one.since <= time for one in left.senders) or any(
            int(link.split(" ")[1]) <= time for link in left.events
        )

    @property
    def since(self) -> int | None:
        """The time of the first entry that may have such events; None if there are none."""
        times = [one.since for one in self.senders] + [int(link.split(" ")[1]) for link in self.events]
        return min(times, default=None)

    def touches(self, head: Head, batch: Batch) -> bool:
        """Return whether events of an entry were taken back."""
        return head.link in self.events or any(
            (one.producer is None or one.producer in batch.producers) and one.has(head) for one in self.senders
        )

    def takes(self, head: Head, place: int, producer: str) -> bool:
        """Return whether the event at a place of an entry, and of a producer, was taken back."""
        return place in self.events.get(head.link, _NONE).places or any(
            one.producer in (None, producer) and one.has(head) for one in self.senders
        )

    def undoes(self, head: Head) -> bool:
        """Return whether the board went back to a time before an entry."""
        return any(one.producer is None and one.has(head) for one in self.senders)


NOTHING: Final = Taken()
