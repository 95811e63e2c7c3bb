"""The responses of the API to readers. The server makes these structs, and the Python client reads them."""

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import msgspec
from msgspec import UNSET, UnsetType

from live.domain.board import Board, ClockKind, JournalLevel, Operator, SortOrder, Ties, Visibility
from live.domain.board_file import FieldChoice, VotesChoice
from live.domain.event import rfc3339
from live.domain.item import Item
from live.domain.ranking import Ranks, Record
from live.domain.score_format import NumberFormat

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

    boards: Sequence[BoardSummary]


class ScoreFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How people read the whole numbers of a board, if not as plain numbers."""

    unit: str | UnsetType = UNSET
    scale: int | UnsetType = UNSET
    format: NumberFormat | UnsetType = UNSET


class BoardFacts(ScoreFacts, frozen=True, kw_only=True):
    """The facts that a page or a `sync` has of its board.

    `period_start` and `period_end` bound the period of a calendar board. `opens` and `closes` bound the voting of a
    contest, whose result is final at `final_at`. Scores are whole numbers; `unit`, `scale` and `format` say how people
    read them.
    """

    period_start: str | UnsetType = UNSET
    period_end: str | UnsetType = UNSET
    opens: str | UnsetType = UNSET
    closes: str | UnsetType = UNSET
    final_at: str | UnsetType = UNSET


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

    board: str
    title: str
    epoch: str
    offset: int
    period: str | None
    rank_count: int
    total_score: int | None
    entrant_count: int | None
    viewer_count: int
    records: Sequence[Record]
    next_cursor: str | None
    prev_cursor: str | None
    definition: str | UnsetType = UNSET
    as_of: str | UnsetType = UNSET
    final: bool | UnsetType = UNSET
    revision: int | UnsetType = UNSET


class RecordView(ScoreFacts, frozen=True):
    """One record.

    `gap` is the number of points behind the next rank, and null for the first record. `percentile` is the percentage of
    the other records that come after this record in the ranking. A contestant without votes has the score 0, and no
    rank or percentile. `as_of` is the time of a record of the past. `final` is true if the board does not keep the
    period any more; `revision` says how often the period became final. Scores and gaps are whole numbers. If the board
    has `unit`, `scale` and `format`, they say how people read these numbers.
    """

    board: str
    epoch: str
    offset: int
    period: str | None
    rank_count: int
    member: str = msgspec.field(name="key")
    score: int
    rank: int | None
    percentile: float | None
    gap: int | None
    records: Sequence[Record]
    fields: dict[str, int] | UnsetType = UNSET
    metadata: msgspec.Raw | UnsetType = UNSET
    as_of: str | UnsetType = UNSET
    final: bool | UnsetType = UNSET
    revision: int | UnsetType = UNSET


class RecordList(msgspec.Struct, frozen=True):
    """Records of several members, in the order of the request. Members that are not on the board are omitted.

    A reply to a `prefix` has the members that were found, by rank. Its `next_cursor` is null if all names were
    searched.
    """

    board: str
    period: str | None
    records: Sequence[RecordView]
    next_cursor: str | UnsetType | None = UNSET


class MemberRecords(msgspec.Struct, frozen=True):
    """The records of one member on all boards."""

    member: str = msgspec.field(name="key")
    records: Sequence[RecordView]


class HistoryStep(msgspec.Struct, frozen=True):
    """The score and rank of a member at one time. Both are null if the member was not on the board then.

    `fields` make up the score.
    """

    at: str
    score: int | None
    rank: int | None
    fields: dict[str, int] | UnsetType = UNSET


class RecordHistory(msgspec.Struct, frozen=True):
    """The scores and ranks of one member over time."""

    member: str = msgspec.field(name="key")
    steps: Sequence[HistoryStep]


class HistoryList(msgspec.Struct, frozen=True):
    """The scores and ranks of several members at the same times, in the order of the members.

    `since` is the first time for which the journal has the board. Only a response to a request without `key` has it.
    """

    board: str
    records: Sequence[RecordHistory]
    since: str | UnsetType | None = UNSET


class Entrant(msgspec.Struct, frozen=True):
    """A registered member of a contest. `score` is the number of its votes, and `metadata` is a JSON object."""

    member: str = msgspec.field(name="key")
    score: int
    metadata: Any  # encoded in the server, and decoded in the client


class EntrantList(msgspec.Struct, frozen=True):
    """Registered members of a contest, in no particular order. `next_cursor` is null on the last page."""

    board: str
    epoch: str
    entrants: Sequence[Entrant]
    next_cursor: str | None


class ItemList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Items of several members. Members without an item are omitted."""

    items: Sequence[Item]
