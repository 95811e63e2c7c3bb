"""What readers get: responses of the API, and messages to viewers.

The server makes these structs, and the Python client reads them.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from live.domain import meaning
from live.domain.board import Board
from live.domain.choices import ShownChoices, Visibility
from live.domain.event import rfc3339
from live.domain.item import Item
from live.domain.meaning import says
from live.domain.packing import Field
from live.domain.ranking import Ranks, Record
from live.domain.text import NumberFormat


class BoardSummary(ShownChoices, frozen=True, kw_only=True):
    """The definition of a board. Lengths in `window` and `idle_ttl` are in seconds."""

    board: Annotated[str, meaning.BOARD]
    window: Annotated[
        dict[str, int | str | None],
        says("The time range that the board covers. `kind` names the window; lengths are in seconds."),
    ]
    types: Annotated[Sequence[str], says("Event types that feed the board.")]
    category: Annotated[Sequence[str], says("Event categories that the board takes. Empty means all.")]
    union: Annotated[dict[str, int], says("Weight of each board that this board adds up, by id.")]
    score: Annotated[
        Sequence[Field], says("Fields that make up the score, in order of weight. Empty if the score is the amount.")
    ]
    max_amount: Annotated[
        int | None, says("Largest absolute amount of an event. Null on unions, and where amounts are not added.")
    ]
    idle_ttl: Annotated[int | None, says("Seconds without use after which the board deletes itself. Null means never.")]
    visibility: Annotated[Visibility, says("Who may read the board: everybody, or clients with an API key for it.")]


class BoardList(msgspec.Struct, frozen=True):
    """All boards that the reader may read."""

    boards: Annotated[Sequence[BoardSummary], says("All boards, in the order of the boards file.")]


class ScoreFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How people read the whole numbers of a board, if not as plain numbers."""

    unit: Annotated[str | UnsetType, says("What people read after a score, such as `€`.")] = UNSET
    scale: Annotated[int | UnsetType, says("How many decimals people read: with 2, the score 123 is `1.23`.")] = UNSET
    format: Annotated[
        NumberFormat | UnsetType, says("How people read scores: as a `number`, or as a `duration` such as `1:23`.")
    ] = UNSET


class BoardFacts(ScoreFacts, frozen=True, kw_only=True):
    """The facts that a page or a `sync` has of its board. Scores are whole numbers."""

    period_start: Annotated[
        str | UnsetType, says("When the period begins, RFC 3339. Omitted on boards without a ranking for each period.")
    ] = UNSET
    period_end: Annotated[
        str | UnsetType, says("When the period ends, RFC 3339. Omitted on boards without a ranking for each period.")
    ] = UNSET
    opens: Annotated[
        str | UnsetType, says("Start of voting, RFC 3339. Omitted on boards whose voting has no start.")
    ] = UNSET
    closes: Annotated[str | UnsetType, says("End of voting, RFC 3339. Omitted on boards whose voting has no end.")] = (
        UNSET
    )
    final_at: Annotated[
        str | UnsetType,
        says("When the result of the voting is final, RFC 3339. Omitted on boards whose voting has no end."),
    ] = UNSET


def score_facts(board: Board) -> dict[str, Any]:
    """Return how people read the scores of a board, for `ScoreFacts` and definitions."""
    return {} if board.score_format is None else msgspec.structs.asdict(board.score_format)


def facts_of(board: Board, slot: int | None) -> dict[str, Any]:
    """Return the facts of a board, for `BoardFacts`. `slot` is the start of the period that is shown."""
    facts = score_facts(board)
    if slot is not None and board.window.tables:
        period = board.window.slot_at(slot)
        facts["period_start"] = rfc3339(period.start, 1, "seconds")
        facts["period_end"] = rfc3339(period.end, 1, "seconds")
    if board.votes is not None:
        times = {"opens": board.votes.opens_at, "closes": board.votes.closes_at, "final_at": board.votes.final_at}
        facts |= {name: UNSET if time is None else rfc3339(time) for name, time in times.items()}
    return facts


class BoardPage(BoardFacts, frozen=True):
    """One page of a board. Its `ETag` does not depend on `viewer_count`. A page of the past has no `definition`."""

    board: Annotated[str, meaning.BOARD]
    title: Annotated[str, says("Name for people.")]
    epoch: Annotated[str, meaning.EPOCH]
    offset: Annotated[int, meaning.OFFSET]
    period: Annotated[str | None, meaning.PERIOD]
    rank_count: Annotated[int, meaning.RANK_COUNT]
    total_score: Annotated[int | None, meaning.TOTAL_SCORE]
    entrant_count: Annotated[int | None, says("Number of registered members. Null on boards without registration.")]
    viewer_count: Annotated[int, meaning.VIEWER_COUNT]
    records: Annotated[Sequence[Record], meaning.RECORDS]
    next_cursor: Annotated[str | None, meaning.NEXT_CURSOR]
    prev_cursor: Annotated[str | None, says("`cursor` of the previous page. Null on the first page.")]
    definition: Annotated[str | UnsetType, meaning.DEFINITION] = UNSET
    as_of: Annotated[
        str | UnsetType, says("The time of a page of the past, RFC 3339. Omitted on pages of the present.")
    ] = UNSET
    final: Annotated[bool | UnsetType, meaning.FINAL] = UNSET
    revision: Annotated[int | UnsetType, meaning.REVISION] = UNSET


class RecordView(ScoreFacts, frozen=True):
    """One record. A contestant without votes has the score 0, and no rank or percentile."""

    board: Annotated[str, meaning.BOARD]
    epoch: Annotated[str, meaning.EPOCH]
    offset: Annotated[int, meaning.OFFSET]
    period: Annotated[str | None, meaning.PERIOD]
    rank_count: Annotated[int, meaning.RANK_COUNT]
    member: Annotated[str, meaning.MEMBER] = msgspec.field(name="key")
    score: Annotated[int, meaning.SCORE]
    rank: Annotated[int | None, says("Place in the ranking, from 1. Null for a contestant without votes.")]
    percentile: Annotated[
        float | None, says("Percentage of the other records that come after this one in the ranking.")
    ]
    gap: Annotated[int | None, meaning.GAP]
    records: Annotated[Sequence[Record], says("The record with its neighbours.")]
    fields: Annotated[dict[str, int] | UnsetType, meaning.FIELDS] = UNSET
    metadata: Annotated[msgspec.Raw | UnsetType, meaning.METADATA] = UNSET
    as_of: Annotated[
        str | UnsetType, says("The time of a record of the past, RFC 3339. Omitted on records of the present.")
    ] = UNSET
    final: Annotated[bool | UnsetType, meaning.FINAL] = UNSET
    revision: Annotated[int | UnsetType, meaning.REVISION] = UNSET


class RecordList(msgspec.Struct, frozen=True):
    """Records of several members, in the order of the request. Members that are not on the board are omitted.

    A reply to a `prefix` has the members that were found, by rank. Its `next_cursor` is null if all names were
    searched.
    """

    board: Annotated[str, meaning.BOARD]
    period: Annotated[str | None, meaning.PERIOD]
    records: Annotated[Sequence[RecordView], meaning.RECORDS]
    next_cursor: Annotated[str | UnsetType | None, meaning.NEXT_CURSOR] = UNSET


class MemberRecords(msgspec.Struct, frozen=True):
    """The records of one member on all boards."""

    member: Annotated[str, meaning.MEMBER] = msgspec.field(name="key")
    records: Annotated[Sequence[RecordView], says("The record of the member on each board that has it.")]


class HistoryStep(msgspec.Struct, frozen=True):
    """The score and rank of a member at one time."""

    at: Annotated[str, says("The time, RFC 3339.")]
    score: Annotated[int | None, meaning.SCORE_THEN]
    rank: Annotated[int | None, says("The rank at that time. Null if the member was not on the board.")]
    fields: Annotated[dict[str, int] | UnsetType, meaning.FIELDS] = UNSET


class RecordHistory(msgspec.Struct, frozen=True):
    """The scores and ranks of one member over time."""

    member: Annotated[str, meaning.MEMBER] = msgspec.field(name="key")
    steps: Annotated[Sequence[HistoryStep], says("The record at each time, the earliest time first.")]


class HistoryList(msgspec.Struct, frozen=True):
    """The scores and ranks of several members at the same times, in the order of the members."""

    board: Annotated[str, meaning.BOARD]
    records: Annotated[Sequence[RecordHistory], says("The members, in the order of the request.")]
    since: Annotated[
        str | UnsetType | None,
        says("The first time for which the journal has the board. Omitted if the request has `key`."),
    ] = UNSET


class Entrant(msgspec.Struct, frozen=True):
    """A registered member of a contest. `score` is the number of its votes, and `metadata` is a JSON object."""

    member: Annotated[str, meaning.MEMBER] = msgspec.field(name="key")
    score: Annotated[int, says("Votes of the member. 0 without votes.")]
    metadata: Annotated[Any, meaning.METADATA]  # encoded in the server, and decoded in the client


class EntrantList(msgspec.Struct, frozen=True):
    """Registered members of a contest, in no particular order. `next_cursor` is null on the last page."""

    board: Annotated[str, meaning.BOARD]
    epoch: Annotated[str, meaning.EPOCH]
    entrants: Annotated[Sequence[Entrant], says("Registered members, in no particular order.")]
    next_cursor: Annotated[str | None, meaning.NEXT_CURSOR]


class ItemList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Items of several members. Members without an item are omitted."""

    items: Annotated[Sequence[Item], meaning.ITEMS]


class Sync(BoardFacts, frozen=True, tag="sync", tag_field="type"):
    """The whole top of a board.

    `time` is the time of the server. `definition` is another text as soon as the definition of the board is another
    one. Updates for viewers that return have both too, and the facts about the board.
    """

    board: Annotated[str, meaning.BOARD]
    epoch: Annotated[str, meaning.EPOCH]
    offset: Annotated[int, meaning.OFFSET]
    rank_count: Annotated[int, meaning.RANK_COUNT]
    total_score: Annotated[int | None, meaning.TOTAL_SCORE]
    recovered: Annotated[bool, meaning.RECOVERED]
    records: Annotated[Sequence[Record], meaning.RECORDS]
    time: Annotated[str, meaning.SERVER_TIME]
    definition: Annotated[str, meaning.DEFINITION]
    period: Annotated[str | UnsetType, meaning.PERIOD_SHOWN] = UNSET
    ranks: Annotated[
        Ranks | UnsetType, says("How equal scores are ranked: `ordinal` 1 2 3, `dense` 1 1 2, `competition` 1 1 3.")
    ] = UNSET


class Update(BoardFacts, frozen=True, tag="update", tag_field="type"):
    """The changes of the top since an offset. Apply it to the list that you have at that offset.

    Remove the members in `removed` and in `changed` from your list. Then insert each record of `changed`, in the given
    order, at its `position`, or at its `rank` if it has no position. The order of the list then gives the other ranks;
    if the sync has `ranks`, the scores are needed too. If nothing in the top changed, an update has only new totals,
    and comes at most once per ten `LIVE_CONFLATION_INTERVAL`.
    """

    epoch: Annotated[str, meaning.EPOCH]
    since: Annotated[int, says("Offset to which the update applies.")]
    offset: Annotated[int, meaning.OFFSET]
    rank_count: Annotated[int, meaning.RANK_COUNT]
    total_score: Annotated[int | None, meaning.TOTAL_SCORE]
    changed: Annotated[Sequence[Record], says("Records that are new, changed or moved. Insert them in this order.")]
    removed: Annotated[Sequence[str], says("Members that left the list.")]
    period: Annotated[str | UnsetType, meaning.PERIOD_SHOWN] = UNSET
    recovered: Annotated[bool | UnsetType, meaning.RECOVERED] = UNSET
    time: Annotated[str | UnsetType, meaning.SERVER_TIME] = UNSET
    definition: Annotated[str | UnsetType, meaning.DEFINITION] = UNSET


class Status(msgspec.Struct, frozen=True, tag="status", tag_field="type", omit_defaults=True):
    """Whether the records may be out of date, and when to reconnect if the server closes the connection."""

    stale: Annotated[bool, says("Whether the records may be out of date.")]
    reason: Annotated[str | None, says("Why the state is stale.")] = None
    retry_after: Annotated[float | None, says("Seconds after which to connect again.")] = None


class Viewers(msgspec.Struct, frozen=True, tag="viewers", tag_field="type"):
    """The number of viewers of the board, in all processes."""

    count: Annotated[int, meaning.VIEWER_COUNT]


class Around(msgspec.Struct, frozen=True, tag="around", tag_field="type"):
    """The rank of the member that you asked for with `key`, with its neighbours.

    `score`, `rank` and `gap` are null if the member is not on the board.
    """

    epoch: Annotated[str, meaning.EPOCH]
    offset: Annotated[int, meaning.OFFSET]
    member: Annotated[str, meaning.MEMBER] = msgspec.field(name="key")
    rank_count: Annotated[int, meaning.RANK_COUNT]
    score: Annotated[int | None, meaning.SCORE] = None
    rank: Annotated[int | None, meaning.RANK] = None
    gap: Annotated[int | None, meaning.GAP] = None
    records: Annotated[Sequence[Record], meaning.RECORDS] = ()


class Alive(msgspec.Struct, frozen=True, tag="alive", tag_field="type"):
    """A sign that the connection is alive, and the time of the server.

    The server sends it after about 5 seconds without another message.
    """

    time: Annotated[str, meaning.SERVER_TIME]
