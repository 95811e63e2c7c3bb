"""A board: its window, operator, sort order, ties, ranks and clock, and the events that feed it."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import Final
from zlib import crc32

import msgspec

from live.domain.choices import Choices, ClockKind
from live.domain.event import MAX_SCORE
from live.domain.limits import PrefixLimits
from live.domain.packing import MAX_VALUES, Packing, SumPacking
from live.domain.text import ScoreFormat
from live.domain.window import Forever, Rolling, Sliding, Window, make_window, parse_duration

DEFAULT_MAX_AMOUNT: Final = 10**9
MOST_REMEMBERED: Final = 8 * 86_400  # maximum seconds for which a board with a like button remembers likes
DEFAULT_RETENTION: Final = 30 * 86_400  # seconds for which the journal keeps events, unless something else is chosen
MOST_BUCKETS: Final = 1000  # maximum number of buckets in which a board looks for identities
# Slots that may wait to be subtracted, in addition to those in the window, on boards with the clock of the store.
_SLOTS_IN_TIME: Final = 64
# The same for boards with the clock of events. On such a board, each event can open a slot, and a batch has up to 3,000
# events.
_SLOTS_IN_BATCHES: Final = 8192
# In a sliding window, events leave one by one. The absolute amounts of a field that adds up are at most this many times
# its widest total.
_TOTALS_IN_EVENTS: Final = 64


class Rules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rules of a board's rankings."""

    operation: str  # how an amount changes a value: `incr`, `set`, `max` or `min`
    order: str  # how the ranking is read, and so which records are last: `forward`, `backward` or `turned`
    # Whether the tags of names grow (`rising`) or shrink (`falling`) with time; None if names have no tags.
    ties: str | None = None
    dense: bool = False  # whether to keep the set of all scores
    summed: bool = False  # whether to keep the total of all scores
    cap: int | None = None  # the most records that a ranking keeps
    per_key: int | None = None  # the most votes of an actor for one member
    per_actor: int | None = None  # the most votes of an actor
    registered: bool = False  # whether only registered members can receive votes
    zeros: bool = False  # whether a sum of zero is a score
    # Whether the journal must be told when members get or lose tags without an event, because a score adds up several
    # slots, or events that leave one by one.
    told: bool = False


class Board(Choices, frozen=True, kw_only=True, dict=True):
    """A board: its choices, and what follows from them.

    `owner` is the id of the API key that created the board, if that API key is limited to some boards. `limits` are the
    limits of the prefix of the board's id, if there are any. On a server, `visibility` is decided and `max_members` is
    within the limits.
    """

    owner: str = ""
    limits: PrefixLimits | None = None

    @cached_property
    def window(self) -> Window:
        """The window. Raises `ValueError` if the choice is invalid."""
        return make_window(self.window_choice)

    @cached_property
    def packing(self) -> Packing | None:
        """How fields become a score, if the score has fields. Raises `ValueError` if they do not fit into one."""
        if not self.score:
            return None
        if self.operator != "incr":
            return Packing(self.score)
        # In a sliding window, the absolute amounts of a field are at most so many times its widest total.
        is_sliding = isinstance(self.window, Sliding)
        return SumPacking(self.score, _TOTALS_IN_EVENTS if is_sliding else max(1, self.most_slots))

    @cached_property
    def source(self) -> frozenset[str]:
        """The types of the events that the board takes. A union takes none."""
        return frozenset() if self.union else frozenset(self.types)

    @cached_property
    def categories(self) -> frozenset[str]:
        """The categories of the events that the board takes. If it is empty, the board takes all."""
        return frozenset(self.category)

    @cached_property
    def parts(self) -> Mapping[str, int]:
        """The weight of each board that a union adds up."""
        return dict(zip(self.union, self.weights or (1,) * len(self.union), strict=True))

    @cached_property
    def largest_amount(self) -> int:
        """The largest absolute amount, on boards that add up amounts. The default of a union grows with its weights."""
        heaviest = max(1, *map(abs, self.weights or ()), 1)
        return self.max_amount or min(MAX_SCORE, DEFAULT_MAX_AMOUNT * heaviest)

    @cached_property
    def score_format(self) -> ScoreFormat | None:
        """How people read scores, or None for whole numbers."""
        chosen = ScoreFormat(self.unit, self.scale, self.format)
        return None if chosen == ScoreFormat() else chosen

    @cached_property
    def dedupe_seconds(self) -> int:
        """The least number of seconds for which the board remembers ids, by choice."""
        return math.ceil(parse_duration(self.dedupe_window or "0s"))

    @cached_property
    def idle_seconds(self) -> int | None:
        """After so many seconds, a board that nobody uses is deleted; None means never."""
        return None if self.idle_ttl is None else int(parse_duration(self.idle_ttl))

    @cached_property
    def conflation(self) -> int | None:
        """The least time between two messages to a viewer, in milliseconds. None means the setting of the server."""
        interval = self.conflation_interval
        return None if interval is None else round(parse_duration(interval) * 1000)

    @cached_property
    def definition_tag(self) -> str:
        """A text that is another one when the definition of the board is another one, in all processes."""
        return f"{crc32(msgspec.json.encode(msgspec.structs.asdict(self))):08x}"

    @property
    def is_private(self) -> bool:
        """Whether the board is not open to everybody. A board whose visibility is not decided yet counts as private."""
        return self.visibility != "public"

    @cached_property
    def operation(self) -> str:
        """How an amount changes a value. Scripts know these words: `incr`, `set`, `max` and `min`."""
        if self.operator == "best":
            return "max" if self.sort_order == "desc" else "min"
        return self.operator

    @cached_property
    def tags(self) -> str:
        """How the tags in the ranking change with time: `rising` or `falling`.

        Tags put the first or the last member to reach a score ahead. `key` means that there are no tags.
        """
        if self.ties == "key":
            return "key"
        return "rising" if (self.ties == "first") == (self.sort_order == "asc") else "falling"

    @cached_property
    def reading(self) -> str:
        """How to read the sorted set: `forward`, `backward`, or `turned` (backward, with equal scores forward)."""
        if self.sort_order == "asc":
            return "forward"
        return "turned" if self.ties == "key" else "backward"

    @cached_property
    def bare(self) -> bool:
        """Whether the board uses only the member, amount, time and identity of an event."""
        return self.packing is None and self.votes is None and self.operator == "incr"

    @cached_property
    def adds(self) -> bool:
        """Whether scores are sums of amounts."""
        return self.packing is None and self.operator == "incr"

    @cached_property
    def has_pace(self) -> bool:
        """Whether pages say by how much scores grow in an hour.

        If the board uses the time of events, an hour of its clock can pass in a second, so pages do not show a pace.
        """
        return self.adds and self.clock == "server"

    @cached_property
    def summed(self) -> str:
        """`1` if scores are amounts with a meaningful sum, otherwise empty. Scripts take this text."""
        return "1" if self.packing is None else ""

    @cached_property
    def most_slots(self) -> int:
        """Maximum number of slots that hold a part of one score. 0 means that the window has a single slot.

        Slots that wait to be subtracted are included.
        """
        if self.window.live == 1:
            return 0
        return 2 * self.window.live + (_SLOTS_IN_BATCHES if self.clock == "event" else _SLOTS_IN_TIME)

    @cached_property
    def most(self) -> int:
        """The largest absolute value of a member in one slot. With this limit, every sum over slots is exact.

        Where amounts are added up, the limit for the whole score is 2^53 - 1. So a double can tell whether a sum is out
        of this range.
        """
        return (MAX_VALUES - 1) // max(1, self.most_slots) if self.operator == "incr" else MAX_VALUES

    @cached_property
    def sums(self) -> SumPacking | None:
        """How totals of several fields become a score, if the board adds them up."""
        return self.packing if isinstance(self.packing, SumPacking) else None

    def below_zero(self, amount: int) -> int:
        """Return the negative part of an amount, without its sign: of each field, where fields add up."""
        return max(0, -amount) if self.sums is None else self.sums.below(amount)

    @cached_property
    def rules(self) -> Rules:
        """The rules of the board's rankings."""
        votes = self.votes
        return Rules(
            operation=self.operation,
            order=self.reading,
            ties=None if self.tags == "key" else self.tags,
            dense=self.ranks == "dense",
            summed=self.packing is None,
            cap=self.cap,
            per_key=None if votes is None else votes.per_key,
            per_actor=None if votes is None else votes.per_actor,
            registered=votes is not None and votes.registered,
            zeros=self.zeros,
            told=self.tags != "key" and not (self.window.tables or isinstance(self.window, Forever)),
        )

    @cached_property
    def described(self) -> bool:
        """Whether records can have metadata."""
        return self.votes is not None or self.operator != "incr"

    @cached_property
    def remembers(self) -> int:
        """The least number of seconds for which the board remembers identities.

        With a like button, a like counts once in a window. A union has the same window as its parts. Boards that count
        votes remember the votes instead.
        """
        if not (self.like_button or self.union):
            return self.dedupe_seconds
        match self.window:
            case Rolling(length, slot):
                return max(self.dedupe_seconds, length + slot)
            case Sliding(length):
                return max(self.dedupe_seconds, length)
            case _:
                return self.dedupe_seconds

    def buckets(self, dedupe_window: float, span: int) -> int:
        """Return in how many buckets of `span` seconds the identities are that the board remembers.

        `dedupe_window` is the setting of the server.
        """
        return min(MOST_BUCKETS, math.ceil(max(dedupe_window, self.remembers) / span) + 1)

    def takes_likes(self, now: float) -> bool:
        """Tell whether visitors may like members at the time `now`, in milliseconds since 1970."""
        if self.frozen or not self.like_button:
            return False
        opens, closes = (None, None) if self.votes is None else (self.votes.opens_at, self.votes.closes_at)
        return (opens is None or opens <= now) and (closes is None or now < closes)

    @cached_property
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
            fields=None if not self.score else list(map(msgspec.structs.asdict, self.score)),
            clock=self.clock,
            zeros=self.zeros,
        )


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


DEFAULT_BOARD: Final = Board(id="posts", title="Most liked")


class Boards:
    """The boards of a server by id, the boards that each event type feeds, the unions, and the ids of private boards.

    The object never changes. A copy shares the feeds that stay the same.
    """

    def __init__(
        self,
        boards: Iterable[Board],
        detached: AbstractSet[tuple[str, str]] = frozenset(),
        limits: Sequence[PrefixLimits] = (),
        before: "Boards | None" = None,
        deleted: Collection[str] = (),
    ) -> None:
        """Index boards. `detached` has pairs of a union and a part that the union no longer adds up.

        `limits` are the limits in a boards file, for all boards. With `before`, the object is a copy with new or
        changed `boards`, and without the `deleted` boards.
        """
        self.limits = limits
        self.by_id: dict[str, Board] = {} if before is None else dict(before.by_id)
        self.feeds: dict[str, dict[str, Board]] = {} if before is None else dict(before.feeds)
        self.unions: dict[str, Board] = {} if before is None else dict(before.unions)
        self.private: set[str] = set() if before is None else before.private.difference(deleted)
        left: set[tuple[str, str]] = set()  # pairs of an event type and a board that it feeds no more
        fed: dict[str, dict[str, Board]] = {}
        for name in deleted:
            self.unions.pop(name, None)
            left |= {(event_type, name) for event_type in self.by_id.pop(name).source}
        for board in boards:
            if board.id in self.by_id:
                left |= {(event_type, board.id) for event_type in self.by_id[board.id].source - board.source}
            for event_type in board.source:
                fed.setdefault(event_type, {})[board.id] = board
            self.unions.pop(board.id, None)
            self.private.discard(board.id)
            if board.is_private:
                self.private.add(board.id)
            if board.union:
                self.unions[board.id] = board
            self.by_id[board.id] = board
        for event_type in {event_type for event_type, _ in left}:
            kept = {name: board for name, board in self.feeds.pop(event_type).items() if (event_type, name) not in left}
            if kept:
                self.feeds[event_type] = kept
        self.feeds.update({event_type: self.feeds.get(event_type, {}) | more for event_type, more in fed.items()})
        self._parts: dict[str, list[Board]] = {}
        for union in self.unions.values():
            for part in union.union:
                if (union.id, part) not in detached:
                    self._parts.setdefault(part, []).append(union)

    def __iter__(self) -> Iterator[Board]:
        """Go through all boards."""
        return iter(self.by_id.values())

    def fed_by(self, event_type: str, category: str | None) -> list[Board]:
        """Return the boards that take events of this type and category."""
        boards = self.feeds.get(event_type, {}).values()
        return [board for board in boards if not board.categories or category in board.categories]

    def with_unions(self, boards: Sequence[Board]) -> list[tuple[Board, int]]:
        """Return some boards, each with weight 1, and the unions that have them as parts, each with its weight."""
        weights: dict[str, int] = {}
        if self._parts:
            for board in boards:
                for union in self._parts.get(board.id, ()):
                    weights[union.id] = weights.get(union.id, 0) + union.parts[board.id]
        return [(board, 1) for board in boards] + [(self.by_id[union], weight) for union, weight in weights.items()]
