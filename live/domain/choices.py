"""The choices of a board: each with its type, its limits, its default and what it means.

Boards files, requests, stored definitions, the API, its contract and the schema of boards files all follow from the
structs in this module.
"""

import re
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from live.domain.event import MAX_SCORE, milliseconds
from live.domain.meaning import says
from live.domain.packing import Field
from live.domain.ranking import Ranks
from live.domain.text import PATTERN, NumberFormat
from live.domain.window import Duration, WindowChoice, parse_duration

BOARD_ID: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
DEFAULT_TYPE: Final = "like"
DEFAULT_TYPES: Final = (DEFAULT_TYPE,)
DEFAULT_MAX_MEMBERS: Final = 10_000_000

Operator = Literal["incr", "set", "best"]
SortOrder = Literal["desc", "asc"]
Ties = Literal["first", "last", "key"]
ClockKind = Literal["server", "event"]
JournalLevel = Literal["events", "off"]
Visibility = Literal["public", "private"]
BaselineAge = Literal["hour", "day", "week"]

_READABLE: Final = {"pattern": PATTERN}  # for the contracts only: `text_mistakes` checks the texts
_Title = Annotated[str, Meta(min_length=1, max_length=200, extra_json_schema=_READABLE)]
_EventType = Annotated[str, Meta(min_length=1, max_length=64, extra_json_schema=_READABLE)]
_Category = Annotated[str, Meta(min_length=1, max_length=256, extra_json_schema=_READABLE)]
_Unit = Annotated[str, Meta(max_length=16, extra_json_schema=_READABLE)]
_Count = Annotated[int, Meta(ge=1)]
_Cap = Annotated[int, Meta(ge=1, le=100_000)]
_Amount = Annotated[int, Meta(ge=1, le=MAX_SCORE)]
_Weight = Annotated[int, Meta(ge=-MAX_SCORE, le=MAX_SCORE)]
_Time = Annotated[datetime, Meta(tz=True)]


def _lasts(meaning: str, **limits: str | bool) -> Meta:
    """Describe a duration, with its `least` and its `most`, and whether it is a `whole` number of seconds."""
    return Meta(description=meaning, extra={"least": "0s", **limits})


class Votes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """The rules of a contest. Each rule is optional."""

    # fmt: off
    per_key: Annotated[_Count | None, says("Maximum votes per actor for one member.")] = None
    per_actor: Annotated[_Count | None, says("Maximum votes per actor in total.")] = None
    opens: Annotated[_Time | None, says("Start of voting.")] = None
    closes: Annotated[_Time | None, says("End of voting.")] = None
    registered: Annotated[bool, says("Whether only registered members count.")] = False
    changes: Annotated[bool, says("Whether votes can be taken back and changed. Default true.")] = True
    tickets: Annotated[bool, says(
        "Whether only votes with a viewer token, such as that of a ticket, count. Default false.")] = False
    grace: Annotated[Duration, _lasts(
        "How long after `closes` a vote may arrive that says that its `time` is before.", most="24h")] = "5s"
    # fmt: on

    @cached_property
    def opens_at(self) -> int | None:
        """When voting begins, in milliseconds since 1970; None if it has no beginning."""
        return None if self.opens is None else milliseconds(self.opens)

    @cached_property
    def closes_at(self) -> int | None:
        """When voting ends, in milliseconds since 1970; None if it has no end."""
        return None if self.closes is None else milliseconds(self.closes)

    @cached_property
    def final_at(self) -> int | None:
        """When the result is final, in milliseconds since 1970; None if voting has no end."""
        return None if self.closes_at is None else self.closes_at + round(parse_duration(self.grace) * 1000)

    def final_in(self, start: int, end: int) -> int:
        """Return `final_at` if voting ends in or at the end of a period; otherwise, a time before any period."""
        if self.closes_at is None or self.final_at is None or not start < self.closes_at <= end:
            return -1
        return self.final_at


class ShownChoices(msgspec.Struct, frozen=True, kw_only=True):
    """The choices that the summary of a board shows as they are."""

    # fmt: off
    title: Annotated[_Title, says("Name for people. Default: the id.")] = ""
    operator: Annotated[Operator, says(
        "How an event changes a score: `incr` adds, `set` replaces, `best` keeps the best.")] = "incr"
    sort_order: Annotated[SortOrder, says("Whether high scores (`desc`) or low scores (`asc`) come first.")] = "desc"
    ties: Annotated[Ties, says(
        "Among equal scores, `first` puts the earliest ahead, `last` the latest, and `key` sorts by name.")] = "first"
    ranks: Annotated[Ranks, says(
        "How equal scores are ranked: `ordinal` 1 2 3, `dense` 1 1 2, `competition` 1 1 3.")] = "ordinal"
    clock: Annotated[ClockKind, says("The source of the current time: the server or the newest event.")] = "server"
    votes: Annotated[Votes | None, says("Makes the board a contest and limits votes.")] = None
    cap: Annotated[_Cap | None, says(
        "Keep exactly this many of the best records. Needs `set` or `best`. Default: all.")] = None
    max_members: Annotated[int, says(
        "Maximum number of members. Default 10,000,000.", ge=1, le=1_000_000_000)] = DEFAULT_MAX_MEMBERS
    like_button: Annotated[bool, says(
        "Whether visitors of the board's pages can like its members, without an API key.")] = False
    journal: Annotated[JournalLevel, says(
        "What the journal keeps: every event (`events`), or nothing (`off`).")] = "events"
    frozen: Annotated[bool, says("Whether the board refuses events.")] = False
    unit: Annotated[_Unit, says("What people read after a score, such as `€`.")] = ""
    scale: Annotated[int, says("How many decimals people read: with 2, the score 123 is `1.23`.", ge=0, le=9)] = 0
    format: Annotated[NumberFormat, says(
        "How people read scores: as a `number`, or as a `duration` such as `1:23`.")] = "number"
    # fmt: on


_NAMES: Final = {"window_choice": "window"}  # `Board.window` is the window that the choice makes


class Choices(ShownChoices, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename=_NAMES):
    """The choices of a board. Each choice except the id has a default."""

    # fmt: off
    id: Annotated[str, says("Name of the board in addresses: lower-case letters, digits, `_` and `-`.",
        extra_json_schema={"pattern": f"^{BOARD_ID.pattern}$"})]
    types: Annotated[tuple[_EventType, ...], says(
        "Event types that feed the board. Default `like`.", min_length=1)] = DEFAULT_TYPES
    category: Annotated[tuple[_Category, ...], says(
        "Event categories that the board takes. Default: all.", min_length=1)] = ()
    union: Annotated[tuple[str, ...], says("Ids of boards that this board adds up.", min_length=2)] = ()
    weights: Annotated[tuple[_Weight, ...] | None, says("Weight of each board in `union`. Default 1.")] = None
    window_choice: Annotated[WindowChoice | Literal["forever"], says(
        "The time range that the board covers. Default: the last 24 hours in slots of one hour.",
        )] = WindowChoice(rolling="24h", slot="1h")
    zeros: Annotated[bool, says("Whether a member whose amounts add up to zero has a record. Default false.")] = False
    score: Annotated[tuple[Field, ...], says(
        "Fields that make up the score, in order of weight.", min_length=1)] = ()
    max_amount: Annotated[_Amount | None, says(
        "Maximum distance of an amount from zero, where amounts are added. Default 10^9.")] = None
    dedupe_window: Annotated[Duration | None, _lasts(
        "Minimum time for which the board remembers ids, such as `30d`. Default: `LIVE_DEDUPE_WINDOW`.")] = None
    conflation_interval: Annotated[Duration | None, _lasts(
        "Minimum time between two messages to a viewer, `1ms` to `60s`. Default: `LIVE_CONFLATION_INTERVAL`.",
        least="1ms", most="60s")] = None
    baseline: Annotated[BaselineAge, says(
        "From when on pages measure movement: an `hour` ago, or the start of the `day` or `week`.")] = "hour"
    journal_events: Annotated[Duration | None, _lasts(
        "How long the journal keeps every event, such as `30d`. Default: `LIVE_JOURNAL_EVENTS`.",
        least="1h", most="36500d")] = None
    journal_periods: Annotated[Duration | None, _lasts(
        "How long the journal keeps periods that the board drops, such as `400d`. Default: `LIVE_JOURNAL_PERIODS`.",
        least="1h", most="36500d")] = None
    visibility: Annotated[Visibility | None, says(
        "Who may read the board: everybody, or clients with an API key for it. Default: `LIVE_VISIBILITY`.")] = None
    idle_ttl: Annotated[Duration | None, _lasts(
        "The board deletes itself after nobody has used it for this long.", least="1s", whole=True)] = None
    # fmt: on

    def __post_init__(self) -> None:
        """Take the id as the title of a board without a title."""
        if not self.title:
            msgspec.structs.force_setattr(self, "title", self.id)

    @property
    def definition(self) -> dict[str, Any]:
        """The choices that define the board, as in JSON. Choices with their default, and the id, are left out."""
        plain = Choices(id=self.id)
        chosen = {
            written: getattr(self, name)
            for name, written in zip(Choices.__struct_fields__, Choices.__struct_encode_fields__, strict=True)
            if getattr(self, name) != getattr(plain, name)
        }
        return msgspec.json.decode(msgspec.json.encode(chosen), type=dict[str, Any])
