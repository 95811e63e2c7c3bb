"""The responses of the API to readers. The server makes these structs, and the Python client reads them."""

from collections.abc import Sequence
from typing import Annotated, Any
from zlib import crc32

import msgspec
from msgspec import UNSET, Meta, UnsetType

from live.domain.board import Board, ClockKind, JournalLevel, Operator, SortOrder, Ties, Visibility
from live.domain.board_file import FieldChoice, VotesChoice
from live.domain.event import rfc3339
from live.domain.item import Item
from live.domain.ranking import Ranks, Record
from live.domain.score_format import NumberFormat
from live.domain.text import (
    BOARD,
    DEFINITION,
    EPOCH,
    FIELDS,
    FINAL,
    GAP,
    ITEMS,
    KEY,
    METADATA,
    NEXT_CURSOR,
    OFFSET,
    PERIOD,
    RANK_COUNT,
    RECORDS,
    REVISION,
    SCORE,
    SCORE_THEN,
    TOTAL_SCORE,
    VIEWER_COUNT,
)

_exact = msgspec.json.Encoder(order="deterministic")


class BoardSummary(msgspec.Struct, frozen=True):
    """The definition of a board. Lengths in `window` and `idle_ttl` are in seconds."""

    board: str
    title: str
    window: dict[str, int | str | None]
    operator: Operator
    sort_order: SortOrder
    ties: Ties
    ranks: Ranks
    clock: ClockKind
    types: Sequence[str]
    category: Sequence[str]
    union: dict[str, int]
    score: Sequence[FieldChoice]
    votes: VotesChoice | None
    cap: int | None
    max_amount: int | None
    max_members: int
    like_button: bool
    journal: JournalLevel
    frozen: bool
    idle_ttl: int | None
    visibility: Visibility
    unit: str = ""
    scale: int = 0
    format: NumberFormat = "number"


class BoardList(msgspec.Struct, frozen=True):
    """All boards that the reader may read."""

    boards: Annotated[Sequence[BoardSummary], Meta(description="All boards, in the order of the boards file.")]


class ScoreFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How people read the whole numbers of a board, if not as plain numbers."""

    unit: Annotated[str | UnsetType, Meta(description="What people read after a score, such as `€`.")] = UNSET
    scale: Annotated[
        int | UnsetType, Meta(description="How many decimals people read: with 2, the score 123 is `1.23`.")
    ] = UNSET
    format: Annotated[
        NumberFormat | UnsetType,
        Meta(description="How people read scores: as a `number`, or as a `duration` such as `1:23`."),
    ] = UNSET


class BoardFacts(ScoreFacts, frozen=True, kw_only=True):
    """The facts that a page or a `sync` has of its board.

    `period_start` and `period_end` bound the period of a calendar board. `opens` and `closes` bound the voting of a
    contest, whose result is final at `final_at`. Scores are whole numbers; `unit`, `scale` and `format` say how people
    read them.
    """

    period_start: Annotated[
        str | UnsetType,
        Meta(description="When the period begins, RFC 3339. Omitted on boards without a ranking for each period."),
    ] = UNSET
    period_end: Annotated[
        str | UnsetType,
        Meta(description="When the period ends, RFC 3339. Omitted on boards without a ranking for each period."),
    ] = UNSET
    opens: Annotated[
        str | UnsetType, Meta(description="Start of voting, RFC 3339. Omitted on boards whose voting has no start.")
    ] = UNSET
    closes: Annotated[
        str | UnsetType, Meta(description="End of voting, RFC 3339. Omitted on boards whose voting has no end.")
    ] = UNSET
    final_at: Annotated[
        str | UnsetType,
        Meta(
            description="When the result of the voting is final, RFC 3339. Omitted on boards whose voting has no end."
        ),
    ] = UNSET


def definition_tag(board: Board) -> str:
    """Return a text that is another one when the definition of a board is another one, in all processes."""
    return f"{crc32(_exact.encode(board)):08x}"


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
        for name in ("opens", "closes", "final_at"):
            time = getattr(board.votes, name)
            facts[name] = UNSET if time is None else rfc3339(time)
    return facts


class BoardPage(BoardFacts, frozen=True):
    """One page of a board.

    `next_cursor` is null on the last page, and `prev_cursor` on the first. `period` is the name of the period of a
    calendar board. `total_score` is null if scores are not amounts, and `entrant_count` is null on boards without
    registration. `viewer_count` is the number of viewers in all processes; the `ETag` does not depend on it.
    `definition` differs when the definition of the board differs, and a page of the past has none. `as_of` is the time
    of a page of the past. `final` is true on pages of a period that the board does not keep any more; `revision` says
    how often the period became final.
    """

    board: Annotated[str, BOARD]
    title: Annotated[str, Meta(description="Name for people.")]
    epoch: Annotated[str, EPOCH]
    offset: Annotated[int, OFFSET]
    period: Annotated[str | None, PERIOD]
    rank_count: Annotated[int, RANK_COUNT]
    total_score: Annotated[int | None, TOTAL_SCORE]
    entrant_count: Annotated[
        int | None, Meta(description="Number of registered members. Null on boards without registration.")
    ]
    viewer_count: Annotated[int, VIEWER_COUNT]
    records: Annotated[Sequence[Record], RECORDS]
    next_cursor: Annotated[str | None, NEXT_CURSOR]
    prev_cursor: Annotated[str | None, Meta(description="`cursor` of the previous page. Null on the first page.")]
    definition: Annotated[str | UnsetType, DEFINITION] = UNSET
    as_of: Annotated[
        str | UnsetType, Meta(description="The time of a page of the past, RFC 3339. Omitted on pages of the present.")
    ] = UNSET
    final: Annotated[bool | UnsetType, FINAL] = UNSET
    revision: Annotated[int | UnsetType, REVISION] = UNSET


class RecordView(ScoreFacts, frozen=True):
    """One record.

    `gap` is the number of points behind the next rank, and null for the first record. `percentile` is the percentage of
    the other records that come after this record in the ranking. A contestant without votes has the score 0, and no
    rank or percentile. `as_of` is the time of a record of the past. `final` is true if the board does not keep the
    period any more; `revision` says how often the period became final. Scores and gaps are whole numbers. If the board
    has `unit`, `scale` and `format`, they say how people read these numbers.
    """

    board: Annotated[str, BOARD]
    epoch: Annotated[str, EPOCH]
    offset: Annotated[int, OFFSET]
    period: Annotated[str | None, PERIOD]
    rank_count: Annotated[int, RANK_COUNT]
    member: Annotated[str, KEY] = msgspec.field(name="key")
    score: Annotated[int, SCORE]
    rank: Annotated[int | None, Meta(description="Place in the ranking, from 1. Null for a contestant without votes.")]
    percentile: Annotated[
        float | None, Meta(description="Percentage of the other records that come after this one in the ranking.")
    ]
    gap: Annotated[int | None, GAP]
    records: Annotated[Sequence[Record], Meta(description="The record with its neighbours.")]
    fields: Annotated[dict[str, int] | UnsetType, FIELDS] = UNSET
    metadata: Annotated[msgspec.Raw | UnsetType, METADATA] = UNSET
    as_of: Annotated[
        str | UnsetType,
        Meta(description="The time of a record of the past, RFC 3339. Omitted on records of the present."),
    ] = UNSET
    final: Annotated[bool | UnsetType, FINAL] = UNSET
    revision: Annotated[int | UnsetType, REVISION] = UNSET


class RecordList(msgspec.Struct, frozen=True):
    """Records of several members, in the order of the request. Members that are not on the board are omitted.

    A reply to a `prefix` has the members that were found, by rank. Its `next_cursor` is null if all names were
    searched.
    """

    board: Annotated[str, BOARD]
    period: Annotated[str | None, PERIOD]
    records: Annotated[Sequence[RecordView], RECORDS]
    next_cursor: Annotated[str | UnsetType | None, NEXT_CURSOR] = UNSET


class MemberRecords(msgspec.Struct, frozen=True):
    """The records of one member on all boards."""

    member: Annotated[str, KEY] = msgspec.field(name="key")
    records: Annotated[Sequence[RecordView], Meta(description="The record of the member on each board that has it.")]


class HistoryStep(msgspec.Struct, frozen=True):
    """The score and rank of a member at one time. Both are null if the member was not on the board then.

    `fields` make up the score.
    """

    at: Annotated[str, Meta(description="The time, RFC 3339.")]
    score: Annotated[int | None, SCORE_THEN]
    rank: Annotated[int | None, Meta(description="The rank at that time. Null if the member was not on the board.")]
    fields: Annotated[dict[str, int] | UnsetType, FIELDS] = UNSET


class RecordHistory(msgspec.Struct, frozen=True):
    """The scores and ranks of one member over time."""

    member: Annotated[str, KEY] = msgspec.field(name="key")
    steps: Annotated[Sequence[HistoryStep], Meta(description="The record at each time, the earliest time first.")]


class HistoryList(msgspec.Struct, frozen=True):
    """The scores and ranks of several members at the same times, in the order of the members.

    `since` is the first time for which the journal has the board. Only a response to a request without `key` has it.
    """

    board: Annotated[str, BOARD]
    records: Annotated[Sequence[RecordHistory], Meta(description="The members, in the order of the request.")]
    since: Annotated[
        str | UnsetType | None,
        Meta(description="The first time for which the journal has the board. Omitted if the request has `key`."),
    ] = UNSET


class Entrant(msgspec.Struct, frozen=True):
    """A registered member of a contest. `score` is the number of its votes, and `metadata` is a JSON object."""

    member: Annotated[str, KEY] = msgspec.field(name="key")
    score: Annotated[int, Meta(description="Votes of the member. 0 without votes.")]
    metadata: Annotated[Any, METADATA]  # encoded in the server, and decoded in the client


class EntrantList(msgspec.Struct, frozen=True):
    """Registered members of a contest, in no particular order. `next_cursor` is null on the last page."""

    board: Annotated[str, BOARD]
    epoch: Annotated[str, EPOCH]
    entrants: Annotated[Sequence[Entrant], Meta(description="Registered members, in no particular order.")]
    next_cursor: Annotated[str | None, NEXT_CURSOR]


class ItemList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Items of several members. Members without an item are omitted."""

    items: Annotated[Sequence[Item], ITEMS]
