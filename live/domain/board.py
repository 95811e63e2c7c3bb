"""What a board is: one choice each of window, operator, order, ties, ranks and clock, and what feeds it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Literal

import msgspec

from live.domain.packing import MAX_VALUES, Packing
from live.domain.ranking import Ranks
from live.domain.window import Rolling, Window

BOARD_ID: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")

DEFAULT_MAX_AMOUNT: Final = 10**9
DEFAULT_MAX_MEMBERS: Final = 10_000_000
_SLOTS_IN_TIME: Final = 64  # slots that may wait to be subtracted, at the least, where slots come with time
_SLOTS_IN_BATCHES: Final = 8192  # and where each event may open one: a batch holds 3,000

Operator = Literal["incr", "set", "best"]
SortOrder = Literal["desc", "asc"]
Ties = Literal["first", "last", "key"]
ClockKind = Literal["server", "event"]


class Votes(msgspec.Struct, frozen=True, kw_only=True):
    """Rules of a contest: how often an actor may vote, when (ms since 1970), and whether for registered keys only."""

    per_key: int | None = None
    per_actor: int | None = None
    opens: int | None = None
    closes: int | None = None
    registered: bool = False


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """A checked board.

    `categories` limits the events that it takes (empty: all); `union` gives the weight of each part, for a board that
    adds up others; `cap` is the number of records that it keeps. `max_amount` is how far from zero an amount may be,
    where amounts are added up; `max_members` is how many members it takes. `conflation` is the least time between two
    frames to a viewer, in milliseconds (None: that of the server). Only a board that is made at run time may be
    `frozen`, and takes no events then, or leave by itself when nobody has used it for `idle_ttl` seconds.
    `owner` is the producer with rights to some boards only that made it, if one did.
    """

    id: str
    title: str
    source: frozenset[str] = frozenset()
    categories: frozenset[str] = frozenset()
    union: Mapping[str, int] = {}
    window: Window = Rolling(86_400, 3600)
    operator: Operator = "incr"
    sort_order: SortOrder = "desc"
    ties: Ties = "first"
    ranks: Ranks = "ordinal"
    score: Packing | None = None
    votes: Votes | None = None
    cap: int | None = None
    max_amount: int = DEFAULT_MAX_AMOUNT
    max_members: int = DEFAULT_MAX_MEMBERS
    clock: ClockKind = "server"
    conflation: int | None = None
    frozen: bool = False
    idle_ttl: int | None = None
    owner: str = ""

    @property
    def operation(self) -> str:
        """How an amount changes a value, as the script takes it: `incr`, `set`, `max` or `min`."""
        if self.operator == "best":
            return "max" if self.sort_order == "desc" else "min"
        return self.operator

    @property
    def tags(self) -> str:
        """How the tags of names go with time, so that the first or last to reach a score is ahead; `key` for none."""
        if self.ties == "key":
            return "key"
        return "rising" if (self.ties == "first") == (self.sort_order == "asc") else "falling"

    @property
    def reading(self) -> str:
        """How the sorted set is read: `forward`, `backward`, or with equal scores `turned` round."""
        if self.sort_order == "asc":
            return "forward"
        return "turned" if self.ties == "key" else "backward"

    @property
    def bare(self) -> bool:
        """Whether it needs no more of an event than key, amount, time and identity."""
        return self.score is None and self.votes is None and self.operator == "incr"

    @property
    def summed(self) -> str:
        """`1` when scores are amounts, of which there is a sum, as scripts take it; otherwise empty."""
        return "1" if self.score is None else ""

    @property
    def most_slots(self) -> int:
        """How many slots may hold a part of one score, those that wait to be subtracted among them; 0 for just one."""
        live = self.window.live
        if live == 1:
            return 0
        return 2 * live + (_SLOTS_IN_BATCHES if self.clock == "event" else _SLOTS_IN_TIME)

    @property
    def most(self) -> int:
        """How far from zero the value of a member in one slot may be, so that every sum over slots is exact.

        One less than 2^53 where amounts are added up: a double can tell whether a sum has left that range.
        """
        return (MAX_VALUES - 1) // max(1, self.most_slots) if self.operator == "incr" else MAX_VALUES

    @property
    def described(self) -> bool:
        """Whether its records may have metadata."""
        return self.votes is not None or self.operator != "incr"

    @property
    def shape(self) -> "Shape":
        """What of it can't change while its data lives."""
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
        )


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The choices on which the meaning of what is stored depends; kept beside it."""

    window: dict[str, int | str | None]
    tables: bool
    operation: str
    tags: str
    levels: bool
    fields: list[dict[str, int | str]] | None
    clock: ClockKind

    def encode(self) -> str:
        """As one line of JSON, the same for the same choices."""
        return msgspec.json.encode(self, order="sorted").decode()


DEFAULT_BOARD: Final = Board(id="posts", title="Most liked", source=frozenset({"like"}))


class Boards:
    """The boards of this server, by id, and which of them an event feeds."""

    def __init__(self, boards: Iterable[Board], severed: AbstractSet[tuple[str, str]] = frozenset()) -> None:
        """Take the boards; `severed` are pairs of a union and a part that it no longer adds up."""
        self.by_id: Mapping[str, Board] = {board.id: board for board in boards}
        self._by_type: dict[str, list[Board]] = {}
        self._unions: dict[str, list[Board]] = {}
        for board in self.by_id.values():
            for event_type in board.source:
                self._by_type.setdefault(event_type, []).append(board)
            for part in board.union:
                if (board.id, part) not in severed:
                    self._unions.setdefault(part, []).append(board)

    def fed_by(self, event_type: str, category: str | None) -> list[Board]:
        """The boards that take events of a type and category."""
        boards = self._by_type.get(event_type, ())
        return [board for board in boards if not board.categories or category in board.categories]

    def with_unions(self, boards: Sequence[Board]) -> list[tuple[Board, int]]:
        """Boards, and those that add them up, each with the weight of an amount."""
        weights: dict[str, int] = {}
        if self._unions:
            for board in boards:
                for union in self._unions.get(board.id, ()):
                    weights[union.id] = weights.get(union.id, 0) + union.union[board.id]
        return [(board, 1) for board in boards] + [(self.by_id[union], weight) for union, weight in weights.items()]
