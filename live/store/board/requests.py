"""The scripts of a board and their requests. A script gets one struct, packed as MessagePack, as its first argument.

A field with its default value is left out, and the script finds `nil`. Times are in milliseconds and the starts of
slots in seconds since 1970. `clock` is the board's clock, as the plan assumes.
"""

from typing import Final, Literal

import msgspec

from live.domain.board import Board, Rules
from live.domain.packing import Digit
from live.store.connection.scripts import Script, Text


class PlannedClock(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of the board's clock, as the caller believes."""

    by_event: bool = False  # whether the clock shows the time of the newest event
    current: int | None = None  # the newest slot; None if there is none yet
    till: int | None = None  # when the slot ends; None when time alone does not end it


class HeldAmounts(msgspec.Struct):
    """What members held in each slot of the board when the caller read it."""

    starts: list[str]
    members: list[str]
    values: list[list[str]]  # for each member a text for each slot, empty for none


class BoardRequest(msgspec.Struct, omit_defaults=True):
    """A request about the board with an epoch."""

    epoch: str  # that the caller knows


class RuledRequest(BoardRequest, kw_only=True):
    """A request whose caller relies on the rules of the board."""

    # The edition with which the rules last changed when the caller opened the board; None if they never changed.
    ruled: str | None = None


class AddRequest(RuledRequest, kw_only=True):
    """Count a batch, if it fits the board."""

    writer: str  # the id of the `BoardWriter` that sends the batch
    sequence: int  # the number of the batch among those of this writer; a retry has the same number
    clock: PlannedClock
    batch: msgspec.Raw  # a packed `live.store.board.batch.Batch`, which becomes the entry of the journal as it is
    future: int  # milliseconds that the newest event time may be ahead of the store's clock
    most: int  # the largest absolute value that a member may have in a slot
    # How many slots the board may have, so that no score leaves its range; None if it has a single slot.
    most_slots: int | None = None
    most_members: int  # how many members a slot and a ranking may have
    # The identities that only events have which the plan refuses. If the store knows one of them, its event was counted
    # before.
    refused: msgspec.Raw | None = None
    backlog: int | None = None  # how many bytes of the journal may wait to be moved to SQL; None means no limit
    # What the members of a correction or a merge must still hold, so that no concurrent change gets lost.
    held: HeldAmounts | None = None
    beaten: bool = False  # whether the reply has the values that the best amounts of the batch had to beat
    digits: tuple[Digit, ...] = ()  # where fields add up, the digits of a score; see `live.domain.packing.Digit`


class OpenRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Open a board."""

    idle: int  # seconds after which the board forgets a writer that sends nothing
    span: int  # seconds that a bucket of identities covers, if the board has no such length yet
    # The epoch that the board is known to have; None if it is not known, or if the board may be new.
    born: str | None = None
    journal: bool = False  # whether the board is to have a journal


class TouchRequest(BoardRequest):
    """Record that somebody uses the board with this epoch."""


class ConfirmRequest(BoardRequest):
    """Record that a board was checked at an offset. With an empty `offset`, only tell whether the board is checked."""

    offset: str


class RotatePeriodRequest(RuledRequest, kw_only=True):
    """Move on to the newest period, or drop the oldest one."""

    clock: PlannedClock
    kept: int  # the start of the oldest slot in the window
    start: int | None = None  # the slot whose store keys are sent; None when the caller does not know the oldest slot


class RotateRequest(RotatePeriodRequest, kw_only=True, omit_defaults=True):
    """Subtract a piece of the oldest slot, by the rules of the board."""

    rules: Rules
    cursor: str  # what the last step on this slot returned, or `0`. A wrong cursor costs time and does no harm
    count: int  # about how many fields to subtract
    starts: list[str] = []  # if a sum of zero is a score: the starts of all slots


class ExpireEventsRequest(RuledRequest, kw_only=True):
    """Subtract events that have left a sliding window. `digits` is as in `AddRequest`."""

    by_event: bool = False
    window: int  # milliseconds
    count: int  # the most events to subtract
    rules: Rules
    start: int  # the start of the slot that holds the sums
    digits: tuple[Digit, ...] = ()


class EnterRequest(BoardRequest):
    """Register a member with metadata (JSON), or replace its metadata; at most `most` members may be registered."""

    member: str
    metadata: Text
    most: int


class WithdrawRequest(RuledRequest):
    """Withdraw a member that has no votes; `tagged` means that the names of records begin with a tag."""

    member: str
    tagged: bool = False


class HideRequest(RuledRequest, kw_only=True):
    """Hide or show a member."""

    member: str
    hide: bool = False
    rules: Rules
    starts: list[str] = []  # the starts of all slots of the board, in their order
    tables: bool = False  # whether each slot has a ranking of its own


class Continued(msgspec.Struct):
    """What a created board continues, whose contents are already written under its store keys."""

    offset: str  # the offset from which the board goes on
    fields: list[str]  # more fields of its state, each before its value
    parent: str  # the epoch that the board continues
    link: str  # the last entry in the journal of that epoch


class CreateRequest(BoardRequest):
    """Create a board."""

    shape: str  # the settings on which the meaning of the stored data depends
    secret: Text  # random bytes, the key of the digests of voters
    journal: bool = False  # whether the board has a journal
    past: Continued | None = None  # what the board continues; None if it is empty


class UpdateRequest(BoardRequest, kw_only=True):
    """Apply a revision of a board's definition. If the board has this revision or a newer one, nothing changes."""

    revision: int
    frozen: bool = False


class DeleteKeysRequest(BoardRequest):
    """Delete store keys of the board that has this epoch."""

    count: int  # the most starts from the list of slots to return
    elements: int  # about how many elements of the store keys to delete
    starts: list[str] = []  # the starts of the slots to delete as a whole
    cursor: str = "0"  # from the reply to the step before


class DiscardRequest(msgspec.Struct):
    """Delete about `count` elements of a store key. `cursor` is from the reply to the step before."""

    count: int
    cursor: str


class ExpireBoardRequest(BoardRequest):
    """Expire a board that nobody has used for `idle` milliseconds."""

    idle: int


class RenewRequest(BoardRequest):
    """Give a board a new epoch."""


class AdoptRequest(BoardRequest, kw_only=True):
    """Begin the journal of a board that has data. `starts` and `tables` are as in `HideRequest`."""

    starts: list[str] = []
    buckets: list[int] = []  # the starts of the buckets of identities, whose store keys are the last ones
    bucket: int | None = None  # the newest bucket that the board ever had
    tables: bool = False
    again: bool = False  # begin the journal even if it has begun


class EraseRequest(BoardRequest, kw_only=True):
    """Delete digests, and append an entry that says so to the journal. `starts` is as in `HideRequest`."""

    starts: list[str] = []
    rankings: int  # of the store keys after the journal, the first so many hold votes
    digests: list[msgspec.Raw] = []
    entry: msgspec.Raw


class ForgetRequest(BoardRequest, kw_only=True):
    """Delete a member, and append an entry that says so to the journal. `starts`, `tables`: as in `HideRequest`."""

    member: str
    rules: Rules
    starts: list[str] = []
    tables: bool = False
    votes: list[Text] = []  # digests of votes for the member
    last: str = ""  # the link of the journal's last entry; empty if any will do
    entry: msgspec.Raw


class PauseRequest(BoardRequest, kw_only=True):
    """Begin round `number` of the swap with a `token`."""

    token: str
    number: int
    ms: int | None = None  # for how many milliseconds the board is paused; None ends the pause
    begins: bool = False  # whether the swap begins
    ends: bool = False  # whether the swap ends


class LoadRequest(msgspec.Struct):
    """Run HSET, HDEL, ZADD, ZREM, SADD or EXPIREAT with some words on a store key, if the board's state names a swap.

    `swap` is the token of the swap, a space, and the number of its round, or the token in a `FenceRequest`.
    """

    swap: str
    command: str
    words: list[Text | int]


class SwapRequest(BoardRequest, kw_only=True):
    """Make what is beside a board its contents."""

    swap: str  # as in `LoadRequest`
    link: str  # the last entry of the journal that the new contents have
    starts: list[str] = []  # the starts of all slots of the board
    sizes: list[int]  # for each store key beside the board, the number of its elements
    # For each ranking, the suffix of the names of the fields that hold its total, and the two fields.
    totals: list[str | int]
    oldest: int | None = None  # the start of the oldest slot in the new contents; None if the board has no slot yet
    left: int | None = None  # the new contents have no events of a sliding window up to this time
    waits: bool = False  # whether what the new contents lack has to leave the window of the board first
    # What the entry of the journal says about events that were taken back. The script does not unpack it.
    taken: Text | None = None
    ruled: msgspec.Raw | None = None  # what it says about new rules, as MessagePack; None if the rules stay
    shape: str | None = None  # the shape of the board by new rules
    newest: str = ""  # the start of the newest slot by new rules, as a text; empty if there is none


class FenceRequest(BoardRequest):
    """Fence a board whose journal in the store ends with `link`. `swap` is a token of the caller."""

    link: str
    swap: str


class MendRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """End the fence of a board that holds what the journal says."""

    epoch: str = ""
    swap: str = ""  # as in `FenceRequest`
    clock: int  # the time of the journal's last entry, in microseconds
    offset: int  # the board continues beyond this offset
    fields: list[str]  # fields of the board's state, each before its value
    gained: int = 0  # the sum of the amounts that were written
    swapped: bool = False  # whether a swap has replaced the contents since the marks in `baseline` were made


class TrimRequest(BoardRequest, kw_only=True):
    """Record that everything up to an offset is in SQL, and delete those entries."""

    offset: int
    least: str  # the id of the first entry to keep
    drained: int  # bytes in SQL


class View(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a ranking is read."""

    order: str  # `forward`, `backward` or `turned`
    ranks: str  # `ordinal`, `dense` or `competition`
    tagged: bool = False  # whether names begin with a tag
    described: bool = False  # whether members may have metadata
    suffix: str  # the end of the names of the fields that hold the total of the ranking
    clock: PlannedClock | None = None  # the board's clock; None when the result does not depend on it


def view_of(board: Board, suffix: str, clock: PlannedClock | None) -> View:
    """Return how a ranking of a board is read."""
    return View(
        order=board.reading,
        ranks=board.ranks,
        tagged=board.tags != "key",
        described=board.described,
        suffix=suffix,
        clock=clock,
    )


class RankingRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Read a ranking."""

    view: View
    ruled: str | None = None


class ReadRequest(RankingRequest, kw_only=True, omit_defaults=True):
    """Read consecutive records."""

    mode: Literal["rank", "after", "before", "around", "score"]
    # `rank`: the number of records to skip; `after`, `before`, `score`: a score; `around`: the number of neighbours on
    # each side.
    number: int
    # `after`, `before`: the name of the record after or before which to read, which need not exist any more; `around`:
    # a member.
    name: Text
    limit: int  # the most records to read; `around` does not use it
    # The position at which the caller has read these records before. If the board is still at that position, the reply
    # has no records.
    epoch: str | None = None
    offset: int | None = None


class LookupRequest(RankingRequest, kw_only=True, omit_defaults=True):
    """Look up members, each with a number of neighbours on each side."""

    members: list[str]
    neighbours: list[int]


class ContestantsRequest(RankingRequest, kw_only=True, omit_defaults=True):
    """Read a piece of the contestants."""

    cursor: str  # what the last piece returned, or `0`
    count: int  # about how many contestants to look at
    voted: bool = False  # whether to return contestants that have votes, too


class BaselineRequest(RankingRequest, kw_only=True, omit_defaults=True):
    """Take a mark of the ranking if one is due, and find the baseline."""

    epoch: str
    limit: int  # how many records to read
    most: int  # the most members of a mark
    # When the day or week began whose start is the baseline; None if the baseline is an hour old.
    begun: int | None = None
    ends: int | None = None  # when this day or week ends
    # A mark of this process, to which the next digests are added; None to look whether a mark is due.
    mark: str | None = None


class SlotsRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Read what members hold in slots. By `clock` and `ruled`, the caller chose the slots."""

    clock: PlannedClock
    ruled: str | None = None
    members: list[str]
    sizes: list[int]  # the number of slots in each group. The values in the slots of a group are added up


class Scripts(msgspec.Struct, frozen=True):
    """The scripts of a board. Tests replace some of them with wrong ones, to prove that the tests notice."""

    add: Script[AddRequest] = Script("add", AddRequest)
    open: Script[OpenRequest] = Script("open", OpenRequest, waits=False)
    create: Script[CreateRequest] = Script("create", CreateRequest)
    read: Script[ReadRequest] = Script("read", ReadRequest)
    places: Script[LookupRequest] = Script("places", LookupRequest)
    contestants: Script[ContestantsRequest] = Script("contestants", ContestantsRequest)
    slots: Script[SlotsRequest] = Script("slots", SlotsRequest)
    baseline: Script[BaselineRequest] = Script("baseline", BaselineRequest, waits=False)
    rotate: Script[RotateRequest] = Script("rotate", RotateRequest, waits=False)
    expire_events: Script[ExpireEventsRequest] = Script("expire_events", ExpireEventsRequest, waits=False)
    discard: Script[DiscardRequest] = Script("discard", DiscardRequest, waits=False)
    rotate_period: Script[RotatePeriodRequest] = Script("rotate_period", RotatePeriodRequest, waits=False)
    enter: Script[EnterRequest] = Script("enter", EnterRequest)
    withdraw: Script[WithdrawRequest] = Script("withdraw", WithdrawRequest)
    hide: Script[HideRequest] = Script("hide", HideRequest)
    adopt: Script[AdoptRequest] = Script("adopt", AdoptRequest)
    touch: Script[TouchRequest] = Script("touch", TouchRequest, waits=False)


SCRIPTS: Final = Scripts()
