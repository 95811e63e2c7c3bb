"""What a batch does to a board: the plan, the request to `add.lua` and the entry of the journal have this one form.

A planner fills a `Batch` (`live.store.board.write.slot_assignment`), and it is packed once. The script reads it, and
appends the same bytes to the journal. Whoever reads the journal decodes them with `decode_batch`. A field with its
default value is left out, and the script finds `nil`. Times are in milliseconds and the starts of slots in seconds
since 1970. Digests and metadata are texts that need not be UTF-8 (`live.store.connection.scripts.text`).
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final, Literal, NamedTuple, Self

import msgspec

from live.domain.board import Rules
from live.domain.event import Entry
from live.store.connection.scripts import text

NO_METADATA: Final = text(b"")


class BatchIdentities(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The identities of the events that a batch counts."""

    all: msgspec.Raw  # the identities, 16 bytes each and distinct
    bucket: int  # the start of the newest bucket of identities
    kept: int  # for how many seconds after its start the newest bucket is kept


class BatchVotes(msgspec.Struct, omit_defaults=True):
    """Votes: a row for each of them."""

    actors: list[msgspec.Raw] = []  # the digest of the actor
    pairs: list[msgspec.Raw] = []  # the digest of actor and member
    changes: list[int] = []  # the change to their counts
    members: list[int] = []  # the index of the member in the group, for the journal
    replaced: list[int] = []  # the numbers of votes that are taken back only together with the vote after them


class SlotEvents(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a group of sums does not say about its single events. It is for the journal; no script reads it.

    Each column has a row for each vote of a contest, for each event in the log of a sliding window, and otherwise for
    each event of the group, in the order in which they count. A column is left out where other columns say the same.
    """

    # The index of the member. Left out if there is a row for each vote, each event in the log, or each member.
    members: list[int] = []
    amounts: list[int] = []  # left out without `members`, and if each amount is 1
    # The number of the event in the batch. Left out if `orders` has it for each member, and if the events are numbered
    # from 1.
    numbers: list[int] = []
    # How many milliseconds before `latest` of the batch; None for the time of arrival. Left out if all are 0, if no
    # event of the batch has a time, and if the times of the group or of the log say it.
    times: list[int | None] = []
    # The number (from 1) of the identity in the batch; 0 for none. Left out if no event of the group has one, and if
    # each event of a batch with a single group has one.
    identities: list[int] = []
    producers: list[int] = []  # the index of the producer, if the batch has several
    metadata: list[msgspec.Raw] = []  # left out unless members with several events have some
    ones: bool = False  # whether the amounts of the group count likes, which all are the same


class LogEvents(msgspec.Struct, omit_defaults=True):
    """Events for the log of a sliding window. A time of False means now."""

    times: list[int | Literal[False]] = []
    amounts: list[int] = []
    members: list[str] = []


class Row(NamedTuple):
    """What a batch says about an event or a vote."""

    member: str  # empty if the member was erased
    amount: int
    number: int
    time: int | None
    identity: int  # its number (from 1) in the batch; 0 if there is none or the order of the rows tells it
    producer: int  # the index of the producer
    metadata: msgspec.Raw


class SlotDelta(msgspec.Struct, kw_only=True, omit_defaults=True, dict=True):
    """What a batch does to one slot."""

    start: int
    suffix: str  # the end of the names of the fields that hold the total of its ranking
    members: list[str]  # the members; an erased member has an empty name
    amounts: list[int]  # for each member, what its events of the batch add up to
    # Where ties go by time, for each member the number of the event with which it reached its amount: 0 if there is
    # none, negative if the member may have had another score in between.
    orders: list[int] = []
    # The time (ms) of each of these events; False for the time of arrival. Empty if all are False.
    times: list[int | Literal[False]] = []
    # For members that also have an event without a time, the number of that event, by the number (from 1) of the
    # member. Only the script knows which of the two counts.
    arrivals: dict[int, int] = {}
    metadata: list[msgspec.Raw] = []  # for each member its metadata (JSON), empty to delete it
    votes: BatchVotes | None = None
    # The numbers (from 1) of the members that leave the slot; where amounts add up, only if they are zero.
    drops: list[int] = []
    events: SlotEvents | None = None  # what the other columns do not say about single events

    @classmethod
    def of(cls, start: int, suffix: str, amounts: Mapping[str, int]) -> Self:
        """Return the change that adds these amounts."""
        return cls(start=start, suffix=suffix, members=list(amounts), amounts=list(amounts.values()))

    @cached_property
    def places(self) -> dict[str, int]:
        """The index of each member."""
        return {member: place for place, member in enumerate(self.members)}

    def add(self, rules: Rules, member: str, amount: int, time: int | None, number: int, metadata: msgspec.Raw) -> int:
        """Add an event to what the earlier events of its member amount to by the rules. Return the member's index."""
        places, amounts, tied = self.places, self.amounts, rules.ties is not None
        place = places.get(member)
        is_new, is_best = place is None, rules.operation != "set"
        if place is None:
            place = places[member] = len(amounts)
            self.members.append(member)
            amounts.append(0)
            if tied:
                self.orders.append(0)
            if self.times:
                self.times.append(False)
        if rules.operation == "incr":
            amounts[place] += amount
            if tied and (amount or rules.zeros):
                if time is None and not self.times:
                    self.orders[place] = -number  # as `mark` does, but faster
                else:
                    self.mark(place, time, -number, earliest=False)
            return place
        before = amounts[place]
        if is_best and not is_new and (before == amount or (amount < before) == (rules.operation == "max")):
            if tied and before == amount:
                self.mark(place, time, number, earliest=True)
            return place
        if tied and (is_new or before != amount):
            self.unmark(place)
            self.mark(place, time, number if is_new or is_best else -number, earliest=is_best)
        amounts[place] = amount
        self.metadata[place : place + 1] = [metadata]
        return place

    def mark(self, place: int, time: int | None, number: int, *, earliest: bool) -> None:
        """Record with which event a member reached its amount: of several, the latest one, or the `earliest`."""
        orders, times, arrivals = self.orders, self.times, self.arrivals
        held = times[place] if times else False
        if time is None and held is False:
            if not (earliest and orders[place]):
                orders[place] = number
        elif time is None:
            if not (earliest and place + 1 in arrivals):
                arrivals[place + 1] = number
        elif held is False:
            if orders[place]:
                arrivals[place + 1] = orders[place]
            if not times:
                times += [False] * len(self.members)
            orders[place], times[place] = number, time
        elif time < held if earliest else time >= held:
            orders[place], times[place] = number, time

    def unmark(self, place: int) -> None:
        """Forget with which events a member reached its amount."""
        self.orders[place] = 0
        if self.times:
            self.times[place] = False
        self.arrivals.pop(place + 1, None)

    def rows(self, batch: "Batch") -> list[Row]:
        """Return the rows of `events`, with what other columns and the batch say about them.

        Raises `ValueError` if the columns do not fit together.
        """
        told, votes, log, latest = self.events or _NOTHING, self.votes, batch.events, batch.latest
        times: Sequence[int | None] = [None if ago is None else (latest or 0) - ago for ago in told.times]
        if told.members:
            members, amounts = [self.members[place] for place in told.members], told.amounts or [1] * len(told.members)
        elif told.ones:
            members = [member for member, amount in zip(self.members, self.amounts, strict=True) for _ in range(amount)]
            amounts = [1] * len(members)
        elif votes is not None:
            members, amounts = [self.members[place] for place in votes.members], votes.changes
        elif log is not None:
            members, amounts, times = log.members, log.amounts, log.times
        else:
            members, amounts = self.members, self.amounts
        count, numbers = len(members), told.numbers or _numbers(votes, len(members))
        held = count == len(self.members) and not told.members
        if self.orders and not told.numbers and (held or told.ones):
            orders = self.orders if held else [self.orders[self.places[member]] for member in members]
            numbers = [abs(order) or number for order, number in zip(orders, numbers, strict=True)]
        nothing = [0] * count
        columns = zip(
            members,
            amounts,
            numbers,
            [None if time is False else time for time in times or (held and self.times) or [latest] * count],
            told.identities or nothing,
            told.producers or nothing,
            told.metadata or (held and self.metadata) or [NO_METADATA] * count,
            strict=True,
        )
        return [Row._make(column) for column in columns]

    def tell(
        self,
        batch: "Batch",
        events: Sequence[Entry],
        numbers: list[int],
        identities: Mapping[bytes | None, int],
        producers: list[int],
    ) -> None:
        """Record what the other columns and the batch do not say about `events`, in the order in which they count.

        `numbers` are those of the events, or empty if they are numbered from 1. `identities` has the number of each
        identity, unless there are none or the order of the events tells it. `producers` has the index of the producer
        of each event of a batch of several.
        """
        votes, log, latest, count = self.votes, batch.events, batch.latest, len(events)
        has_all = count == len(votes.changes if votes is not None else self.members if log is None else log.members)
        is_single, in_log = has_all and count == len(self.members), has_all and votes is None and log is not None
        is_marked = bool(self.orders) and is_single and all(self.orders)
        is_timed = latest is not None and not (in_log or (is_marked and self.times))
        if has_all and not (is_timed or numbers or identities or producers):
            return
        told = SlotEvents(producers=producers)
        if not has_all:
            places = self.places
            told.members = [places[event[0]] for event in events]
            amounts = [event[1] for event in events]
            if amounts.count(1) < count:
                told.amounts = amounts
            if self.metadata:
                texts = [_metadata_of(event) for event in events]
                told.metadata = texts if any(text != NO_METADATA for text in texts) else []
        if numbers and not is_marked and numbers != _numbers(votes, count):
            told.numbers = numbers
        if latest is not None and is_timed:
            times = [None if event[2] is None else latest - event[2] for event in events]
            if times.count(0) < count or (is_single and self.times):
                told.times = times
        if identities:
            told.identities = [identities.get(event[3], 0) for event in events]
            if not any(told.identities):
                told.identities = []
        self.events = told if told != _NOTHING else None


class Batch(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a batch does to a board."""

    rules: Rules  # the rules of the board, by which the amounts count
    by_event: bool = False  # whether the board's clock shows the time of the newest event
    span: int = 0  # seconds that a bucket of identities covers
    reached: int | None = None  # the newest slot after the batch
    latest: int | None = None  # the newest event time in the batch; None if no event has a time
    identities: BatchIdentities | None = None  # the identities of the batch; None when no event has one
    groups: list[SlotDelta] = []  # what the batch adds to each slot; empty when the plan refuses every event
    events: LogEvents | None = None  # the events for the log of a sliding window
    producers: list[str] = []  # the ids of the producers that sent the batch; empty if they are not known
    reason: str = ""  # why an administrator corrects, merges or renames
    # If the first member of each group gets everything that the second one has in the window, the start of the window:
    # of its oldest slot, or the time (ms) after which events are in a sliding window. Whoever reads the journal without
    # some events, or by other rules, moves what is there then.
    since: int | None = None
    # If the second member of each group is renamed, the tag that the first one takes over, by the suffix of the
    # ranking; empty for none.
    tags: dict[str, msgspec.Raw] = {}


def _metadata_of(event: Entry) -> msgspec.Raw:
    extra = event[4]
    return NO_METADATA if extra is None or extra.metadata is None else text(extra.metadata)


def _numbers(votes: BatchVotes | None, count: int) -> list[int]:
    """Return the numbers of rows if the board has refused no event. A vote takes two, for the vote that it replaces."""
    if votes is None:
        return list(range(1, count + 1))
    numbers, last = [], 0
    for row in range(1, count + 1):
        last += 1 if row in votes.replaced or row - 1 in votes.replaced else 2
        numbers.append(last)
    return numbers


_NOTHING: Final = SlotEvents()

encode_batch: Final = msgspec.msgpack.Encoder().encode
decode_batch: Final = msgspec.msgpack.Decoder(Batch).decode
