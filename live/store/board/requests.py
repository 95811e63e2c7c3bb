"""What the scripts of a board are asked: one struct for each, which the script receives as its first argument.

A field that has its default is left out, and a script finds `nil` in its place. Times are in milliseconds and starts of
slots in seconds since 1970.
"""

from typing import Literal

import msgspec

from live.domain.board import Board
from live.store.connection.scripts import Text


class Rules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rules of a board's rankings.

    `operation` is `incr`, `set`, `max` or `min`; `ties` says whether the tags of names grow (`rising`) or shrink
    (`falling`) with time, None for names without tags; `dense` keeps the set of all scores; `summed` keeps their total;
    `cap` is the most records that a ranking keeps; `order` is how it is read, so which records are its last:
    `forward`, `backward` or `turned`. The others are the limits of a contest.
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


def rules_of(board: Board) -> Rules:
    """The rules of a board."""
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
    )


class PlannedClock(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the caller takes the board's clock to stand.

    `by_event` says that the newest event tells the time; `current` is the newest slot (None for none yet); the board
    has passed on to another from `till` (None: time alone does not end the slot).
    """

    by_event: bool = False
    current: int | None = None
    till: int | None = None


class Identities(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The identities of a batch, 16 bytes each and distinct.

    The first `counted` are of events that the plan counts, the others of events that it refuses. `bucket` is the start
    of the newest bucket of identities, whose store key has the number `newest`; `oldest` is the number of the last key
    to look at, after which comes the key to drop. The newest bucket is kept for `kept` seconds after its start.
    """

    all: msgspec.Raw
    counted: int = 0
    bucket: int
    newest: int
    oldest: int
    kept: int


class Votes(msgspec.Struct):
    """For each vote the digests of its actor and of its actor and member, and by how much it changes their count."""

    actors: list[Text]
    pairs: list[Text]
    changes: list[int]


class Group(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a batch does to the slot that begins at `start`.

    `suffix` ends the names of the totals of the slot's ranking; `keys` is the number of the first of its store keys.
    `members` are distinct, each with its amount. `orders` are sent where ties go by time: the number of the event that
    decides when a member reached its score, 0 for none, negative where it left the score in between. `metadata` is
    JSON, empty to drop what there is.
    """

    start: int
    suffix: str
    keys: int
    members: list[str]
    amounts: list[int]
    orders: list[int] = []
    metadata: list[Text] = []
    votes: Votes | None = None


class LogEvents(msgspec.Struct):
    """Events for the log of a sliding window; a time of False is now."""

    times: list[int | Literal[False]]
    amounts: list[int]
    members: list[str]


class AddRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Count a batch.

    Attributes:
        epoch: the epoch that the caller knows.
        writer: the process that sends.
        sequence: the number of this writer's batch; a retry keeps it.
        channel: where the change is announced.
        clock: where the board's clock stands by the plan.
        rules: the rules of the board.
        span: seconds that a bucket of identities covers.
        reached: the newest slot after the batch.
        latest: the newest event time in the batch; None for none.
        future: milliseconds that `latest` may be ahead of the store's clock.
        most: how far from zero a member's value in a slot may be.
        most_slots: how many slots there may be for `most` to be enough; None where there is but one.
        most_members: how many members a slot and a ranking may have.
        identities: those of the batch; None when no event has one.
        groups: what the batch adds to each slot; empty when the plan refuses every event.
        events: the events for the log of a sliding window.
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
    identities: Identities | None = None
    groups: list[Group] = []
    events: LogEvents | None = None


class OpenRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Open a board.

    Attributes:
        idle: seconds after which the board forgets a writer that sends nothing.
        span: seconds that a bucket of identities covers, if the board has no such length yet.
        born: the epoch that the board is known to have; None if it is not known, or if the board may be new.
        secret: random bytes that key the digests of voters, if the board has none yet.
        votes: whether the board counts votes.
    """

    idle: int
    span: int
    born: str | None = None
    secret: Text
    votes: bool = False


class TouchRequest(msgspec.Struct):
    """Note that somebody uses the board with an epoch."""

    epoch: str


class View(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a ranking is read.

    `order` is `forward`, `backward` or `turned`, and `ranks` as in `Board`; `tagged` says that names begin with a tag,
    and `described` that there may be metadata.
    """

    order: str
    ranks: str
    tagged: bool = False
    described: bool = False


def view_of(board: Board) -> View:
    """How the rankings of a board are read."""
    return View(order=board.reading, ranks=board.ranks, tagged=board.tags != "key", described=board.described)


class ReadRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Read consecutive records.

    Attributes:
        clock: where the board's clock stands; None when what is read does not depend on it.
        suffix: ends the names of the totals of the ranking.
        view: how the ranking is read.
        mode: `rank`, `after`, `before`, `around` or `score`.
        number: rank: how many records to pass over; after, before, score: a score; around: how many neighbours.
        name: after, before: with `number` the position to go on from, which need not exist any more; around: a member.
        limit: the most records to read; unused by `around`.
    """

    clock: PlannedClock | None = None
    suffix: str
    view: View
    mode: Literal["rank", "after", "before", "around", "score"]
    number: int
    name: Text
    limit: int


class LookupRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Look members up, each with its number of neighbours on each side; the other fields are those of `ReadRequest`."""

    clock: PlannedClock | None = None
    suffix: str
    view: View
    members: list[str]
    neighbours: list[int]


class RotateRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Subtract a piece of the oldest slot.

    Attributes:
        epoch: the epoch that the caller knows.
        channel: where the change is announced.
        clock: where the board's clock stands.
        rules: the rules of the board.
        kept: the start of the oldest slot that stays.
        start: the slot whose store key is sent; None when the caller does not know the oldest.
        cursor: what the last step on this slot returned, or `0`; a lost one costs a pass, not correctness.
        count: about how many fields to subtract.
    """

    epoch: str
    channel: str
    clock: PlannedClock
    rules: Rules
    kept: int
    start: int | None = None
    cursor: str
    count: int


class RotatePeriodRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Pass on to the newest period, or drop the oldest; the fields are those of `RotateRequest`."""

    epoch: str
    channel: str
    clock: PlannedClock
    kept: int
    start: int | None = None


class ExpireEventsRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Subtract at most `count` events that have left a sliding window of `window` milliseconds.

    `start` is that of the slot that holds the sums; the other fields are those of `RotateRequest`.
    """

    epoch: str
    channel: str
    by_event: bool = False
    window: int
    count: int
    rules: Rules
    start: int


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


class Part(msgspec.Struct):
    """A slot by its start, the suffix of the totals of its ranking, and the number of the first of its store keys."""

    start: str
    suffix: str
    keys: int


class HideRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Hide or show a member in every slot, in the order of their starts."""

    epoch: str
    channel: str
    member: str
    hide: bool = False
    rules: Rules
    slots: list[Part] = []


class AuditRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Compare some distinct members with the slots that begin at `starts`, and with `repair` set them right.

    `tables` says that each slot has a ranking of its own.
    """

    channel: str
    rules: Rules
    repair: bool = False
    tables: bool = False
    starts: list[str] = []
    members: list[Text] = []


class FixTotalsRequest(msgspec.Struct):
    """Set the two parts of a total that was counted at an offset; `suffix` ends the names of their fields."""

    offset: int
    channel: str
    suffix: str
    total: int
    high: int


class CreateRequest(msgspec.Struct, omit_defaults=True):
    """Create a board.

    Attributes:
        epoch: the epoch to give it.
        shape: the settings on which the meaning of the stored data depends.
        secret: random bytes that key the digests of voters.
        made: whether the board is created at run time, and so can expire.
    """

    epoch: str
    shape: str
    secret: Text
    made: bool = False


class UpdateRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Bring a board in line with a revision of its definition; an older one than the board knows changes nothing."""

    epoch: str
    channel: str
    revision: int
    frozen: bool = False


class DeleteKeysRequest(msgspec.Struct, omit_defaults=True):
    """Drop store keys of the board with an epoch.

    `starts` are the slots of which every store key is sent; `count` is the most starts to return.
    """

    epoch: str
    count: int
    starts: list[str] = []


class ExpireRequest(msgspec.Struct):
    """End the life of a board that nobody has used for `idle` milliseconds."""

    epoch: str
    idle: int


class RenewRequest(msgspec.Struct):
    """Give a board another epoch."""

    epoch: str
    channel: str
