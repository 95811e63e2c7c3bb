"""The requests of a board's scripts: each script receives one struct, packed as MessagePack, as its first argument.

A field with its default value is left out, and the script finds `nil`. Times are in milliseconds and the starts of
slots in seconds since 1970.
"""

from typing import Literal

import msgspec

from live.domain.board import Board
from live.domain.packing import Digit
from live.store.connection.scripts import Text


class Rules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rules of a board's rankings.

    Attributes:
        operation: how an amount changes a value: `incr`, `set`, `max` or `min`.
        order: how the ranking is read, and so which records are last: `forward`, `backward` or `turned`.
        ties: whether the tags of names grow (`rising`) or shrink (`falling`) with time; None if names have no tags.
        dense: whether to keep the set of all scores.
        summed: whether to keep the total of all scores.
        cap: the most records that a ranking keeps.
        per_key: the most votes of an actor for one member.
        per_actor: the most votes of an actor.
        registered: whether only registered members can receive votes.
        zeros: whether a sum of zero is a score.
    """

    operation: str
    order: str
    ties: str | None = None
    dense: bool = False
    summed: bool = False
    cap: int | None = None
    per_key: int | None = None
    per_actor: int | None = None
    registered: bool = False
    zeros: bool = False


def rules_of(board: Board) -> Rules:
    """Return the rules of a board."""
    votes = board.votes
    return Rules(
        operation=board.operation,
        order=board.reading,
        ties=None if board.tags == "key" else board.tags,
        dense=board.ranks == "dense",
        summed=board.score is None,
        cap=board.cap,
        per_key=None if votes is None else votes.per_key,
        per_actor=None if votes is None else votes.per_actor,
        registered=votes is not None and votes.registered,
        zeros=board.zeros,
    )


class PlannedClock(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of the board's clock, as the caller believes.

    Attributes:
        by_event: whether the clock shows the time of the newest event.
        current: the newest slot; None if there is none yet.
        till: when the slot ends; None when time alone does not end it.
    """

    by_event: bool = False
    current: int | None = None
    till: int | None = None


class BatchIdentities(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The identities of a batch.

    Attributes:
        all: the identities, 16 bytes each and distinct.
        counted: the first `counted` identities belong to events that the plan counts. The rest belong only to refused
            events.
        bucket: the start of the newest bucket of identities.
        newest: the number in `KEYS` of the store key of this bucket.
        oldest: the number of the last store key to search. The store key after it is deleted when a new bucket begins.
        kept: for how many seconds after its start the newest bucket is kept.
    """

    all: msgspec.Raw
    counted: int = 0
    bucket: int
    newest: int
    oldest: int
    kept: int


class BatchVotes(msgspec.Struct, omit_defaults=True):
    """For each vote, the digest of its actor, the digest of actor and member, and the change to their counts.

    For the journal, `members` has the index of its member in the group, and `producers` that of its producer in a batch
    of several. `replaced` has the numbers of votes that are taken back only together with the vote after them.
    """

    actors: list[Text]
    pairs: list[Text]
    changes: list[int]
    members: list[int] = []
    producers: list[int] = []
    replaced: list[int] = []


class SlotDelta(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a batch does to one slot.

    Attributes:
        start: the start of the slot.
        suffix: the end of the names of the fields that hold the total of its ranking.
        keys: the number in `KEYS` of the first of its store keys.
        members: distinct members.
        amounts: the amount of each member.
        orders: where ties go by time, for each member the number of the event with which it reached its amount: 0 if
            there is none, negative if the member may have had another score in between.
        times: the time (ms) of each of these events; False for the time of arrival. Empty if all are False.
        arrivals: members that also have an event without a time: the index (from 1) of the member and the number of
            the event, in turn. Only the script knows which of the two counts.
        metadata: for each member its metadata (JSON), empty to delete it.
        votes: the votes in a contest.
        parts: what each producer but the first added, if the board adds up amounts and the batch has several producers.
            A part has the number of its producer, and a list of member indexes and amounts, in turn. It is for the
            journal.
        drops: the indexes (from 1) of the members that leave the slot; where amounts add up, only if they are zero.
        moments: on a board with an event clock, each event in turn: its time (ms), its number in the batch, the index
            of its member, and its amount. They are for the journal, which divides the batch at any time.
    """

    start: int
    suffix: str
    keys: int
    members: list[str]
    amounts: list[int]
    orders: list[int] = []
    times: list[int | Literal[False]] = []
    arrivals: list[int] = []
    metadata: list[Text] = []
    votes: BatchVotes | None = None
    parts: list[tuple[int, list[int]]] = []
    drops: list[int] = []
    moments: list[int] = []


class LogEvents(msgspec.Struct, omit_defaults=True):
    """Events for the log of a sliding window. A time of False means now. `producers` are as in `BatchVotes`."""

    times: list[int | Literal[False]]
    amounts: list[int]
    members: list[str]
    producers: list[int] = []


class HeldAmounts(msgspec.Struct):
    """What members held in each slot of the board when the caller read it.

    `values` has for each member a text for each slot, empty for none. `keys` is the first slot's number in `KEYS`.
    """

    starts: list[str]
    members: list[str]
    values: list[list[str]]
    keys: int


class AddRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Count a batch.

    Attributes:
        epoch: the epoch that the caller knows.
        writer: the id of the `BoardWriter` that sends the batch.
        sequence: the number of the batch among those of this writer; a retry has the same number.
        channel: the channel on which the change is announced.
        clock: the board's clock, as the plan assumes.
        rules: the rules of the board.
        span: seconds that a bucket of identities covers.
        reached: the newest slot after the batch.
        latest: the newest event time in the batch; None if no event has a time.
        future: milliseconds that `latest` may be ahead of the store's clock.
        most: the largest absolute value that a member may have in a slot.
        most_slots: how many slots the board may have, so that no score leaves its range; None if it has a single slot.
        most_members: how many members a slot and a ranking may have.
        identities: the identities of the batch; None when no event has one.
        groups: what the batch adds to each slot; empty when the plan refuses every event.
        backlog: how many bytes of the journal may wait to be moved to SQL; None means no limit.
        events: the events for the log of a sliding window.
        producers: the ids of the producers that sent the batch, for the journal; empty if they are not known.
        held: what the members of a correction or a merge must still hold, so that no concurrent change gets lost.
        reason: why an administrator corrects or merges scores, for the journal.
        beaten: whether the reply has the values that the best amounts of the batch had to beat.
        digits: where fields add up, the digits of a score; see `live.domain.packing.Digit`.
    """

    epoch: str
    writer: str
    sequence: int
    channel: str
    clock: PlannedClock
    rules: Rules
    span: int
    reached: int | None
    latest: int | None = None
    future: int
    most: int
    most_slots: int | None = None
    most_members: int
    identities: BatchIdentities | None = None
    groups: list[SlotDelta] = []
    backlog: int | None = None
    events: LogEvents | None = None
    producers: list[str] = []
    held: HeldAmounts | None = None
    reason: str = ""
    beaten: bool = False
    digits: tuple[Digit, ...] = ()


class OpenRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Open a board.

    Attributes:
        idle: seconds after which the board forgets a writer that sends nothing.
        span: seconds that a bucket of identities covers, if the board has no such length yet.
        born: the epoch that the board is known to have; None if it is not known, or if the board may be new.
        journal: whether the board is to have a journal.
    """

    idle: int
    span: int
    born: str | None = None
    journal: bool = False


class TouchRequest(msgspec.Struct):
    """Record that somebody uses the board with this epoch."""

    epoch: str


class ConfirmRequest(msgspec.Struct):
    """Record that a board was checked at an offset. With an empty `offset`, only tell whether the board is checked."""

    epoch: str
    channel: str
    offset: str


class RotatePeriodRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Move on to the newest period, or drop the oldest one.

    Attributes:
        epoch: the epoch that the caller knows.
        channel: the channel on which the change is announced.
        clock: the board's clock.
        kept: the start of the oldest slot in the window.
        start: the slot whose store keys are sent; None when the caller does not know the oldest slot.
    """

    epoch: str
    channel: str
    clock: PlannedClock
    kept: int
    start: int | None = None


class RotateRequest(RotatePeriodRequest, kw_only=True, omit_defaults=True):
    """Subtract a piece of the oldest slot, about `count` fields, by the rules of the board.

    `cursor` is what the last step on this slot returned, or `0`. A wrong cursor costs time and does no harm. If a sum
    of zero is a score, `starts` are the starts of all slots.
    """

    rules: Rules
    cursor: str
    count: int
    starts: list[str] = []


class ExpireEventsRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Subtract at most `count` events that have left a sliding window of `window` milliseconds.

    `start` is the start of the slot that holds the sums. `digits` is as in `AddRequest`. The other fields are as in
    `RotateRequest`.
    """

    epoch: str
    channel: str
    by_event: bool = False
    window: int
    count: int
    rules: Rules
    start: int
    digits: tuple[Digit, ...] = ()


class EnterRequest(msgspec.Struct):
    """Register a member with metadata (JSON), or replace its metadata; at most `most` members may be registered."""

    epoch: str
    channel: str
    member: str
    metadata: Text
    most: int


class WithdrawRequest(msgspec.Struct, omit_defaults=True):
    """Withdraw a member that has no votes; `tagged` means that the names of records begin with a tag."""

    epoch: str
    channel: str
    member: str
    tagged: bool = False


class SlotRef(msgspec.Struct):
    """A slot: its start, the suffix of its ranking, and the number of its first store key in `KEYS`."""

    start: str
    suffix: str
    keys: int


class HideRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Hide or show a member. `slots` are all slots of the board, in the order of their starts."""

    epoch: str
    channel: str
    member: str
    hide: bool = False
    rules: Rules
    slots: list[SlotRef] = []


class CreateRequest(msgspec.Struct, omit_defaults=True):
    """Create a board.

    Attributes:
        epoch: the epoch of the new board.
        shape: the settings on which the meaning of the stored data depends.
        secret: random bytes, the key of the digests of voters.
        made: whether the board is created at run time, and so can expire.
        journal: whether the board has a journal.
    """

    epoch: str
    shape: str
    secret: Text
    made: bool = False
    journal: bool = False


class UpdateRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Apply a revision of a board's definition. If the board has this revision or a newer one, nothing changes."""

    epoch: str
    channel: str
    revision: int
    frozen: bool = False


class DeleteKeysRequest(msgspec.Struct, omit_defaults=True):
    """Delete store keys of the board that has this epoch, about `elements` of their elements.

    `starts` are the starts of the slots to delete as a whole. `count` is the most starts from the
    list of slots to return. `cursor` is from the reply to the step before.
    """

    epoch: str
    count: int
    elements: int
    starts: list[str] = []
    cursor: str = "0"


class DiscardRequest(msgspec.Struct):
    """Delete about `count` elements of the dropped period that begins at `start`.

    `cursor` is from the reply to the step before.
    """

    start: int
    count: int
    cursor: str


class ExpireBoardRequest(msgspec.Struct):
    """Expire a board that nobody has used for `idle` milliseconds."""

    epoch: str
    idle: int


class RenewRequest(msgspec.Struct):
    """Give a board a new epoch.

    Attributes:
        epoch: the new epoch.
        channel: the channel on which the change is announced.
    """

    epoch: str
    channel: str


class AdoptRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Begin the journal of a board that has data.

    `slots` are all slots of the board, in the order of their starts. `buckets` are the starts of the buckets of
    identities, whose store keys are the last ones, and `bucket` is the newest bucket that the board ever had.
    `tables` means that each slot has a ranking of its own. `again` means to begin the journal even if it has begun.
    """

    epoch: str
    slots: list[SlotRef] = []
    buckets: list[int] = []
    bucket: int | None = None
    tables: bool = False
    again: bool = False


class EraseRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Delete digests, and append an entry that says so to the journal.

    `slots` are the starts of all slots. Of the store keys after the journal, the first `rankings` hold votes.
    """

    epoch: str
    channel: str
    slots: list[str] = []
    rankings: int
    digests: list[msgspec.Raw] = []
    entry: msgspec.Raw


class ForgetRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Delete a member, and append an entry that says so to the journal.

    `slots` are all slots of the board, in the order of their starts. `votes` are digests of votes for the member.
    """

    epoch: str
    channel: str
    member: str
    rules: Rules
    slots: list[SlotRef] = []
    votes: list[Text] = []
    entry: msgspec.Raw


class RestoreRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Make a restored board visible. Its data is already written under the board's store keys.

    Attributes:
        epoch: the new epoch of the board.
        shape: the settings on which the meaning of the stored data depends.
        offset: the offset from which the board continues.
        secret: random bytes, the key of the digests of voters.
        fields: more fields of the board's state, each before its value.
        made: whether the board was created at run time.
        parent: the epoch that the board continues.
        link: the last entry in the journal of that epoch.
    """

    epoch: str
    shape: str
    offset: str
    secret: Text
    fields: list[str]
    made: bool = False
    parent: str
    link: str


class TrimRequest(msgspec.Struct, kw_only=True):
    """Record that everything up to an offset is in SQL, and delete those entries.

    `least` is the id of the first entry to keep, and `drained` is the number of bytes in SQL.
    """

    epoch: str
    offset: int
    least: str
    drained: int
