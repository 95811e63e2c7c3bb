"""The parts of a board that are compared with its journal, and what the store should hold according to the journal."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from live.domain.board import Board
from live.domain.window import EVER, Sliding
from live.journal.corrections import logged_of
from live.journal.state.fold import tag_of
from live.journal.state.sliding_log import LiveLog, add
from live.journal.state.snapshot import Ranking, Snapshot
from live.store.board.check.pieces import Piece
from live.store.board.keys import Keys

Kind = Literal["log", "taken", "slot", "hidden", "votes", "metadata", "entrants", "reached"]

_TEXTS: Final = ("metadata", "entrants", "reached")
_RAW: Final = ("log", "votes")  # their names can be any bytes


class Place(msgspec.Struct, frozen=True):
    """A store key that is compared.

    Attributes:
        kind: what it holds.
        key: its name.
        start: the start of its slot, or of its period; None if it belongs to no slot.
        suffix: the suffix of its ranking.
    """

    kind: Kind
    key: str
    start: int | None = None
    suffix: str = ""


def places_of(board: Board, keys: Keys, starts: Iterable[int]) -> Iterator[Place]:
    """All store keys of a board that are compared."""
    sliding = isinstance(board.window, Sliding)
    if sliding:
        yield Place("log", keys.log)
        yield Place("taken", keys.taken)
    wanted = [EVER.start] if sliding else sorted(starts)
    periods: list[int | None] = [*wanted] if board.window.tables else [None]
    for start in wanted:
        suffix = keys.table(start if board.window.tables else None).suffix
        yield Place("slot", keys.slot(start), start, suffix)
    yield Place("hidden", keys.hidden)
    if board.votes is not None:
        yield Place("entrants", keys.entrants)
    for period in periods:
        table = keys.table(period)
        if board.votes is not None:
            yield Place("votes", table.votes, period, table.suffix)
        if board.operation != "incr":
            yield Place("metadata", table.metadata, period, table.suffix)
        if board.tags != "key":
            yield Place("reached", table.reached, period, table.suffix)


class Expected:
    """What the store should hold at the instant of a piece, according to the journal."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._data = Snapshot()
        self._log = LiveLog()
        self._is_sliding = isinstance(board.window, Sliding)
        self._waiting: dict[str, dict[str, int]] = {}  # what events add up to that wait to be subtracted
        self._oldest: int | None = None
        self._live: list[Mapping[str, int]] = []  # what each slot in the window holds

    def move(self, data: Snapshot, piece: Piece) -> None:
        """Move to the instant of a piece. `data` is what the board held after the entry that the piece names."""
        window = self._board.window
        self._data = data
        self._oldest = None if piece.newest is None else window.oldest(piece.newest)
        self._live = [slot for start, slot in data.slots.items() if self.is_live(start)]
        if isinstance(window, Sliding):
            self._log.move(data, piece.now - window.length * 1000)
            self._waiting = {"slot": {}, "taken": {}}
            for name in piece.due:
                event = logged_of(name, 0)
                add(self._waiting["slot"], event.member, event.amount)
                add(self._waiting["taken"], event.member, max(0, -event.amount))

    def is_live(self, start: int | None) -> bool:
        """Whether a slot is in the window. A slot that has begun to expire is not compared."""
        return start is None or self._oldest is None or start >= self._oldest

    def is_compared(self, place: Place, name: bytes, held: bytes | None) -> bool:
        """Whether a value that the store holds can be compared."""
        if place.kind == "log":
            return name in self._log.events or (held is not None and self._is_in_window(held))
        if place.kind == "reached":  # only tags of members that count are read
            return held is not None and self._counts(name.decode(errors="replace"), place.start)
        return True

    def value(self, place: Place, name: bytes) -> bytes | None:
        """The value that the store should hold."""
        held = self._held(place)
        key: Any = name if place.kind in _RAW else name.decode(errors="replace")
        if place.kind == "hidden":
            return b"1" if key in held else None
        value = held.get(key)
        waiting = self._waiting.get(place.kind)
        if waiting is not None:
            value = (value or 0) + waiting.get(key, 0) or None
        if value is None or place.kind in _TEXTS:
            return tag_of(self._board, value) if value and place.kind == "reached" else value
        return b"%d" % value

    def names(self, place: Place) -> Iterator[bytes]:
        """The names that the store should hold."""
        for name in list(self._held(place)) if place.kind != "reached" else ():
            yield name if place.kind in _RAW else name.encode()

    def _held(self, place: Place) -> Any:  # noqa: ANN401 - values by name, or a set of names
        """The journal's data for a store key."""
        data, log = self._data, self._log
        match place.kind:
            case "log":
                return log.events
            case "taken":
                return log.taken
            case "slot":
                return log.sums if self._is_sliding else data.slots.get(place.start or 0, {})
            case "hidden" | "entrants":
                return getattr(data, place.kind)
        return getattr(data.rankings.get(place.suffix, _NONE), place.kind)

    def _is_in_window(self, time: bytes) -> bool:
        return int(float(time)) > self._log.left

    def _counts(self, member: str, period: int | None) -> bool:
        """Whether a slot in the window holds something of a member."""
        if self._is_sliding:
            return member in self._log.sums
        if period is not None:
            return member in self._data.slots.get(period, {})
        return any(member in slot for slot in self._live)


def same(place: Place, held: bytes | None, right: bytes | None) -> bool:
    """Whether two values are the same."""
    if held == right or held is None or right is None or place.kind in _TEXTS:
        return held == right
    return int(float(held)) == int(right) if place.kind == "log" else int(held) == int(right)


_NONE: Final = Ranking()
