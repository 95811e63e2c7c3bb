"""A board: its window, operator, sort order, ties, ranks and clock, and the events that feed it."""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Literal, NamedTuple

import msgspec

from live.domain.limits import PrefixLimits
from live.domain.packing import MAX_VALUES, Packing, SumPacking
from live.domain.ranking import Ranks
from live.domain.score_format import ScoreFormat
from live.domain.window import Rolling, Sliding, Window, parse_duration

BOARD_ID: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")

DEFAULT_MAX_AMOUNT: Final = 10**9
DEFAULT_MAX_MEMBERS: Final = 10_000_000
MOST_REMEMBERED: Final = 8 * 86_400  # maximum seconds for which a board with a like button remembers likes
LEAST_RETENTION: Final = 3600  # minimum seconds in `journal_events` and `journal_periods`
DEFAULT_RETENTION: Final = 30 * 86_400  # seconds for which the journal keeps events, unless something else is chosen
MOST_BUCKETS: Final = 1000  # maximum number of buckets in which a board looks for identities
MOST_RETENTION: Final = 36_500 * 86_400  # maximum seconds in `journal_events` and `journal_periods`
# Slots that may wait to be subtracted, in addition to those in the window, on boards with the clock of the store.
_SLOTS_IN_TIME: Final = 64
# The same for boards with the clock of events. On such a board, each event can open a slot, and a batch has up to 3,000
# events.
_SLOTS_IN_BATCHES: Final = 8192
# In a sliding window, events leave one by one. The absolute amounts of a field that adds up are at most this many times
# its widest total.
_TOTALS_IN_EVENTS: Final = 64

Operator = Literal["incr", "set", "best"]
SortOrder = Literal["desc", "asc"]
Ties = Literal["first", "last", "key"]
ClockKind = Literal["server", "event"]
DEFAULT_VOTES_GRACE: Final = 5000  # ms
JournalLevel = Literal["events", "off"]
Visibility = Literal["public", "private"]
BaselineAge = Literal["hour", "day", "week"]


class Votes(msgspec.Struct, frozen=True, kw_only=True):
    """Rules of a contest: the most votes of an actor for one member (`per_key`) and for all members (`per_actor`).

    `opens` and `closes` are in milliseconds since 1970. A vote that says that its time is before `closes` may arrive
    `grace` milliseconds later. If `registered` is true, only registered members receive votes. If `changes` is false,
    nobody can take a vote back or change it. If `tickets` is true, only votes with a viewer token count.
    """

    per_key: int | None = None
    per_actor: int | None = None
    opens: int | None = None
    closes: int | None = None
    registered: bool = False
    changes: bool = True
    tickets: bool = False
    grace: int = DEFAULT_VOTES_GRACE

    @property
    def final_at(self) -> int | None:
        """When the result is final, in milliseconds since 1970; None if voting has no end."""
        return None if self.closes is None else self.closes + self.grace

    def final_in(self, start: int, end: int) -> int:
        """Return `final_at` if voting ends in or at the end of a period; otherwise, a time before any period."""
        return -1 if self.closes is None or not start < self.closes <= end else self.closes + self.grace


class Journaling(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the journal keeps a board, and for how long it keeps every event and the final periods.

    `events` and `periods` are the seconds for which the journal keeps them. None means the setting of the server.
    """

    level: JournalLevel = "events"
    events: int | None = None
    periods: int | None = None


def parse_retention(text: str) -> int:
    """Parse a duration such as `7d` or `400d` into seconds.

    Raises:
        ValueError: the text is not a duration, or it is too short or too long.
    """
    seconds = parse_duration(text)
    if seconds < LEAST_RETENTION:
        raise ValueError(f"{text!r} is less than 1h")
    if seconds > MOST_RETENTION:
        raise ValueError(f"{text!r} is more than {MOST_RETENTION // 86_400}d")
    return int(seconds)


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """A board with valid choices.

    `categories` lists the categories of events that the board takes. If it is empty, the board takes events of all
    categories. `union` has the weight of each part, if the board is a union. With `zeros`, a sum of zero is a score.
    `cap` is the maximum number of records.
    `max_amount` is the largest absolute amount, on boards that add up amounts. `max_members` is the maximum number of
    members. The board remembers identities for at least `dedupe_window` seconds. `conflation` is the minimum time
    between two messages to a viewer, in milliseconds. None means the setting of the server. Only run-time boards can be
    `frozen` or have an `idle_ttl`. A frozen board refuses events. A board that nobody uses for `idle_ttl` seconds is
    deleted. `owner` is the id of the API key that created the board, if that API key is limited to some boards. With
    `like_button`, visitors of the board's pages can add likes without an API key. `baseline` says whether movement is
    measured over an hour, or since the start of the day or week. `journal` says what the journal keeps. `visibility`
    says who may read the board. None means the setting of the server. With a `score_format`, scores are not shown as
    whole numbers. `limits` are the limits of the prefix of the board's id, if there are any.
    """

    id: str
    title: str
    source: frozenset[str] = frozenset()
    categories: frozenset[str] = frozenset()
    union: Mapping[str, int] = {}
    window: Window = Rolling(86_400, 3600)
    operator: Operator = "incr"
    sort_order: SortOrder = "desc"
    zeros: bool = False
    ties: Ties = "first"
    ranks: Ranks = "ordinal"
    score: Packing | None = None
    votes: Votes | None = None
    cap: int | None = None
    max_amount: int = DEFAULT_MAX_AMOUNT
    max_members: int = DEFAULT_MAX_MEMBERS
    clock: ClockKind = "server"
    dedupe_window: int = 0
    conflation: int | None = None
    like_button: bool = False
    baseline: BaselineAge = "hour"
    journal: Journaling = Journaling()
    frozen: bool = False
    idle_ttl: int | None = None
    owner: str = ""
    visibility: Visibility | None = "public"
    score_format: ScoreFormat | None = None
    limits: PrefixLimits | None = None

    @property
    def is_private(self) -> bool:
        """Whether the board is not open to everybody. A board whose visibility is not decided yet counts as private."""
        return self.visibility != "public"

    @property
    def operation(self) -> str:
        """How an amount changes a value. Scripts know these words: `incr`, `set`, `max` and `min`."""
        if self.operator == "best":
            return "max" if self.sort_order == "desc" else "min"
        return self.operator

    @property
    def tags(self) -> str:
        """How the tags in the ranking change with time: `rising` or `falling`.

        Tags put the first or the last member to reach a score ahead. `key` means that there are no tags.
        """
        if self.ties == "key":
            return "key"
        return "rising" if (self.ties == "first") == (self.sort_order == "asc") else "falling"

    @property
    def reading(self) -> str:
        """How to read the sorted set: `forward`, `backward`, or `turned` (backward, with equal scores forward)."""
        if self.sort_order == "asc":
            return "forward"
        return "turned" if self.ties == "key" else "backward"

    @property
    def bare(self) -> bool:
        """Whether the board uses only the member, amount, time and identity of an event."""
        return self.score is None and self.votes is None and self.operator == "incr"

    @property
    def adds(self) -> bool:
        """Whether scores are sums of amounts."""
        return self.score is None and self.operator == "incr"

    @property
    def has_pace(self) -> bool:
        """Whether pages say by how much scores grow in an hour.

        If the board uses the time of events, an hour of its clock can pass in a second, so pages do not show a pace.
        """
        return self.adds and self.clock == "server"

    @property
    def summed(self) -> str:
        """`1` if scores are amounts with a meaningful sum, otherwise empty. Scripts take this text."""
        return "1" if self.score is None else ""

    @property
    def most_slots(self) -> int:
        """Maximum number of slots that hold a part of one score. 0 means that the window has a single slot.

        Slots that wait to be subtracted are included.
        """
        return most_slots_of(self.window, self.clock)

    @property
    def most(self) -> int:
        """The largest absolute value of a member in one slot. With this limit, every sum over slots is exact.

        Where amounts are added up, the limit for the whole score is 2^53 - 1. So a double can tell whether a sum is out
        of this range.
        """
        return (MAX_VALUES - 1) // max(1, self.most_slots) if self.operator == "incr" else MAX_VALUES

    @property
    def sums(self) -> SumPacking | None:
        """How totals of several fields become a score, if the board adds them up."""
        return self.score if isinstance(self.score, SumPacking) else None

    def below_zero(self, amount: int) -> int:
        """Return the negative part of an amount, without its sign: of each field, where fields add up."""
        return max(0, -amount) if self.sums is None else self.sums.below(amount)

    @property
    def described(self) -> bool:
        """Whether records can have metadata."""
        return self.votes is not None or self.operator != "incr"

    @property
    def remembers(self) -> int:
        """The least number of seconds for which the board remembers identities.

        With a like button, a like counts once in a window. A union has the same window as its parts. Boards that count
        votes remember the votes instead.
        """
        if not (self.like_button or self.union):
            return self.dedupe_window
        match self.window:
            case Rolling(length, slot):
                return max(self.dedupe_window, length + slot)
            case Sliding(length):
                return max(self.dedupe_window, length)
            case _:
                return self.dedupe_window

    def buckets(self, dedupe_window: float, span: int) -> int:
        """Return in how many buckets of `span` seconds the identities are that the board remembers.

        `dedupe_window` is the setting of the server.
        """
        return min(MOST_BUCKETS, math.ceil(max(dedupe_window, self.remembers) / span) + 1)

    def takes_likes(self, now: float) -> bool:
        """Tell whether visitors may like members at the time `now`, in milliseconds since 1970."""
        votes = self.votes or Votes()
        is_open = (votes.opens is None or votes.opens <= now) and (votes.closes is None or now < votes.closes)
        return self.like_button and not self.frozen and is_open

    @property
    def shape(self) -> "Shape":
        """The choices that can't change while the board has data."""
        window = msgspec.to_builtins(self.window)
        for name in ("keep", "grace"):
            window.pop(name, None)
        return Shape(
            window={"kind": type(self.window).__name__.lower(), **window},
            tables=self.window.tables,
            operation=self.operation,
            tags=self.tags,
            levels=self.ranks == "dense",
            fields=None if self.score is None else msgspec.to_builtins(self.score.fields),
            clock=self.clock,
            zeros=self.zeros,
        )


def most_slots_of(window: Window, clock: ClockKind) -> int:
    """Return the `most_slots` of a board with a window and a clock."""
    if window.live == 1:
        return 0
    return 2 * window.live + (_SLOTS_IN_BATCHES if clock == "event" else _SLOTS_IN_TIME)


def parts_of_sums(window: Window, clock: ClockKind) -> int:
    """Return how many times its widest total the digit of a field must hold, on boards that add up fields."""
    return _TOTALS_IN_EVENTS if isinstance(window, Sliding) else max(1, most_slots_of(window, clock))


class Shape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The choices that determine the meaning of the stored data. They are stored with the data."""

    window: dict[str, int | str | None]
    tables: bool
    operation: str
    tags: str
    levels: bool
    fields: list[dict[str, int | str]] | None
    clock: ClockKind
    zeros: bool = False

    def encode(self) -> str:
        """Return one line of JSON, always the same for the same choices."""
        return msgspec.json.encode(self, order="sorted").decode()


DEFAULT_BOARD: Final = Board(id="posts", title="Most liked", source=frozenset({"like"}))


class Boards:
    """The boards of a server by id, and the boards that an event feeds. The object never changes."""

    def __init__(
        self,
        boards: Iterable[Board],
        detached: AbstractSet[tuple[str, str]] = frozenset(),
        index: "_Index | None" = None,
        limits: Sequence[PrefixLimits] = (),
    ) -> None:
        """Index boards. `detached` has pairs of a union and a part that the union no longer adds up.

        With `index`, `boards` has only new or changed boards. The other boards are in the index. `limits` are the
        limits in a boards file, for all boards.
        """
        self.limits = limits
        self._index = (index or _Index({}, {}, {}, frozenset())).added(boards)
        self._parts: dict[str, list[Board]] = {}
        for union in self._index.unions.values():
            for part in union.union:
                if (union.id, part) not in detached:
                    self._parts.setdefault(part, []).append(union)

    def __iter__(self) -> Iterator[Board]:
        """Go through all boards."""
        return iter(self._index.by_id.values())

    @property
    def by_id(self) -> Mapping[str, Board]:
        """All boards by id."""
        return self._index.by_id

    def limits_of(self, board: str) -> PrefixLimits | None:
        """Return the limits of the prefix of a board, or None. Prefixes do not overlap, so at most one fits."""
        return next((limits for limits in self.limits if board.startswith(limits.prefix)), None)

    @property
    def private(self) -> AbstractSet[str]:
        """The ids of the private boards."""
        return self._index.private

    def changed(
        self, boards: Iterable[Board], deleted: Collection[str], detached: AbstractSet[tuple[str, str]]
    ) -> "Boards":
        """Return a copy with new or changed boards, and without the `deleted` boards."""
        return Boards(boards, detached, self._index.removed(deleted), self.limits)

    def fed_by(self, event_type: str, category: str | None) -> list[Board]:
        """Return the boards that take events of this type and category."""
        boards = self._index.feeds.get(event_type, {}).values()
        return [board for board in boards if not board.categories or category in board.categories]

    def with_unions(self, boards: Sequence[Board]) -> list[tuple[Board, int]]:
        """Return some boards, each with weight 1, and the unions that have them as parts, each with its weight."""
        weights: dict[str, int] = {}
        if self._parts:
            for board in boards:
                for union in self._parts.get(board.id, ()):
                    weights[union.id] = weights.get(union.id, 0) + union.union[board.id]
        return [(board, 1) for board in boards] + [(self.by_id[union], weight) for union, weight in weights.items()]


class _Index(NamedTuple):
    """All boards by id, all boards by the event types that they take, the unions by id, and the ids of private boards.

    The index never changes. A copy shares the feeds that stay the same.
    """

    by_id: dict[str, Board]
    feeds: dict[str, dict[str, Board]]
    unions: dict[str, Board]
    private: frozenset[str]

    def removed(self, names: Collection[str]) -> "_Index":
        """Return the index without some boards."""
        if not names:
            return self
        by_id, unions, left = dict(self.by_id), dict(self.unions), set[tuple[str, str]]()
        for name in names:
            unions.pop(name, None)
            left |= {(event_type, name) for event_type in by_id.pop(name).source}
        return _Index(by_id, self._feeds_without(left), unions, self.private.difference(names))

    def added(self, boards: Iterable[Board]) -> "_Index":
        """Return the index with new or changed boards."""
        by_id, unions, left = dict(self.by_id), dict(self.unions), set[tuple[str, str]]()
        private = set(self.private)
        fed: dict[str, dict[str, Board]] = {}
        for board in boards:
            if board.id in by_id:
                left |= {(event_type, board.id) for event_type in by_id[board.id].source - board.source}
            for event_type in board.source:
                fed.setdefault(event_type, {})[board.id] = board
            unions.pop(board.id, None)
            private.discard(board.id)
            if board.is_private:
                private.add(board.id)
            if board.union:
                unions[board.id] = board
            by_id[board.id] = board
        feeds = self._feeds_without(left)
        feeds.update({event_type: feeds.get(event_type, {}) | more for event_type, more in fed.items()})
        return _Index(by_id, feeds, unions, frozenset(private))

    def _feeds_without(self, left: Collection[tuple[str, str]]) -> dict[str, dict[str, Board]]:
        """Copy the feeds. Leave out the pairs `left` of an event type and a board id."""
        feeds = dict(self.feeds)
        for event_type in {event_type for event_type, _ in left}:
            feeds[event_type] = {
                name: board for name, board in feeds[event_type].items() if (event_type, name) not in left
            }
            if not feeds[event_type]:
                del feeds[event_type]
        return feeds
