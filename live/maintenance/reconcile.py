"""Compare a board in the store with its journal while both are in use.

The store is read in pieces. The script that reads a piece also returns which journal entry was the last entry of the
board at that moment. The piece is compared with the contents that the journal gives after this entry. The entry is in
SQL, or still waits in the store.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, Final, Literal

import msgspec

from live.domain.board import Board
from live.domain.window import EVER, Sliding
from live.errors import SetupError
from live.journal.database import existing_journal
from live.journal.log.reader import Follower, StoreBehindError
from live.journal.state.snapshot import Logged, Ranking, Snapshot, add, logged_of, name_of, tag_of
from live.settings import Settings
from live.store.board.keys import Keys
from live.store.board.pieces import MOST_NAMES, Piece, read_piece
from live.store.board.state import BoardState
from live.store.connection.client import Store

_START: Final = -(2**63)
_NONE_GONE: Final = (_START, 0, 0)


class EventSums:
    """Sums of the events of a sliding window, as the store holds them.

    Attributes:
        slot: the sum of each member's amounts.
        taken: the sum of each member's negative amounts, as a positive number. With `zeros`, also the number of each
            member's events, under a zero byte and the member.
    """

    def __init__(self, board: Board) -> None:
        self.slot: dict[str, int] = {}
        self.taken: dict[str, int] = {}
        self._board = board

    def count(self, event: Logged, sign: int) -> None:
        """Add an event, or subtract it if `sign` is -1."""
        member = event.member
        if below := self._board.below_zero(event.amount):
            add(self.taken, member, sign * below)
        if not self._board.zeros:
            add(self.slot, member, sign * event.amount)
            return
        add(self.taken, f"\0{member}", sign)
        self.slot[member] = self.slot.get(member, 0) + sign * event.amount
        if f"\0{member}" not in self.taken:
            del self.slot[member]


class LiveLog:
    """The events that are in a sliding window, and their sums.

    Attributes:
        events: the time of each event, by its name in the log of the store.
        sums: the sums of the events.
        left: events up to this time (milliseconds since 1970) have left the window.
    """

    def __init__(self, board: Board) -> None:
        self.events: dict[bytes, int] = {}
        self.sums = EventSums(board)
        self._board = board
        self._heap: list[tuple[int, bytes]] = []
        self._log: list[Logged] = []
        self._read = 0  # how many events of the log were read
        self.left = _START

    def move(self, data: Snapshot, left: int, gone: tuple[int, int, int] | None = None) -> None:
        """Keep only the events of a log that are later than `left` (milliseconds since 1970).

        `gone` is the `place` of an event. That event and all events before it have also left the window, even if the
        clock was set back since. None means that no such event is known.
        """
        gone = gone or _NONE_GONE
        if data.log is not self._log or left < self.left:  # a correction replaced the log, or the clock was set back
            self.__init__(self._board)  # type: ignore[misc]
            self._log = data.log
        self.left = left
        for event in data.log[self._read :]:
            if event.time > left and event.place > gone:
                name = name_of(event)
                self.events[name] = event.time
                heappush(self._heap, (event.time, name))
                self.sums.count(event, 1)
        self._read = len(data.log)
        while self._heap:
            time, name = self._heap[0]
            event = logged_of(name, time)
            if time > left and event.place > gone:
                break
            heappop(self._heap)
            if self.events.pop(name, None) is not None:
                self.sums.count(event, -1)


Progress = Callable[[int, int], None]

_AHEAD: Final = 64  # pieces to read before they are compared together
_SHOWN: Final = 20  # maximum number of differences that a report names
Kind = Literal["log", "taken", "slot", "hidden", "votes", "metadata", "entrants", "reached"]

_TEXTS: Final = ("metadata", "entrants", "reached")
_RAW: Final = ("log", "votes")  # store keys whose names can be any bytes


class Place(msgspec.Struct, frozen=True):
    """A store key that is compared.

    Attributes:
        kind: the kind of data that it holds.
        key: the name of the store key.
        start: the start of its slot, or of its period; None if it belongs to no slot.
        suffix: the suffix that the store keys of its ranking have.
    """

    kind: Kind
    key: str
    start: int | None = None
    suffix: str = ""


def places_of(board: Board, keys: Keys, starts: Iterable[int]) -> Iterator[Place]:
    """Yield all store keys of a board that are compared."""
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
    """The data that the store should hold at the instant of a piece, according to the journal."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._data = Snapshot()
        self._log = LiveLog(board)
        self._is_sliding = isinstance(board.window, Sliding)
        self._waiting = EventSums(board)  # of events that wait to be subtracted
        self._oldest: int | None = None
        self._live: list[Mapping[str, int]] = []  # the contents of each slot in the window

    def move(self, data: Snapshot, piece: Piece) -> None:
        """Move to the instant at which a piece was read. `data` has the contents after the piece's entry."""
        window = self._board.window
        self._data = data
        self._oldest = None if piece.newest is None else window.oldest(piece.newest)
        self._live = [slot for start, slot in data.slots.items() if self.is_live(start)]
        if isinstance(window, Sliding):
            self._log.move(data, piece.now - window.length * 1000, piece.gone)
            self._waiting = EventSums(self._board)
            for name in piece.due:
                self._waiting.count(logged_of(name, 0), 1)

    def is_live(self, start: int | None) -> bool:
        """Return whether a slot is in the window. A slot that has begun to expire is not compared."""
        return start is None or self._oldest is None or start >= self._oldest

    def is_compared(self, place: Place, name: bytes, held: bytes | None) -> bool:
        """Return whether a value that the store holds can be compared."""
        if place.kind == "log":
            return name in self._log.events or (held is not None and int(float(held)) > self._log.left)
        if place.kind == "reached":  # compare only tags of members that are in the window
            return held is not None and self._counts(name.decode(errors="replace"), place.start)
        return True

    def value(self, place: Place, name: bytes) -> bytes | None:
        """Return the value that the store should hold."""
        held = self._held(place)
        key: Any = name if place.kind in _RAW else name.decode(errors="replace")
        if place.kind == "hidden":
            return b"1" if key in held else None
        value = held.get(key)
        waiting = getattr(self._waiting, place.kind, {}).get(key)
        if waiting is not None:
            value = (value or 0) + waiting
            if not value and not self._board.zeros:
                value = None
        if value is None or place.kind in _TEXTS:
            return tag_of(self._board, value) if value and place.kind == "reached" else value
        return b"%d" % value

    def names(self, place: Place) -> Iterator[bytes]:
        """Yield the names that the store should hold."""
        for name in list(self._held(place)) if place.kind != "reached" else ():
            yield name if place.kind in _RAW else name.encode()

    def _held(self, place: Place) -> Any:  # noqa: ANN401 - values by name, or a set of names
        data, log = self._data, self._log
        match place.kind:
            case "log":
                return log.events
            case "taken":
                return log.sums.taken
            case "slot":
                return log.sums.slot if self._is_sliding else data.slots.get(place.start or 0, {})
            case "hidden" | "entrants":
                return getattr(data, place.kind)
        return getattr(data.rankings.get(place.suffix, _NONE), place.kind)

    def _counts(self, member: str, period: int | None) -> bool:
        """Return whether a member is in a slot of the window."""
        if self._is_sliding:
            return member in self._log.sums.slot
        if period is not None:
            return member in self._data.slots.get(period, {})
        return any(member in slot for slot in self._live)


def same(place: Place, held: bytes | None, right: bytes | None) -> bool:
    """Return whether two values are the same."""
    if held == right or held is None or right is None or place.kind in _TEXTS:
        return held == right
    return int(float(held)) == int(right) if place.kind == "log" else int(held) == int(right)


_NONE: Final = Ranking()


class Difference(msgspec.Struct, frozen=True):
    """A value that differs: its `kind`, the `start` of its slot or period, and its name as `key`.

    `store` and `journal` are the two values. None means that a side has no value.
    """

    kind: Kind
    start: int | None
    key: str
    store: int | str | None
    journal: int | str | None


class Report(msgspec.Struct, kw_only=True):
    """The result of a comparison.

    Attributes:
        board: the id of the board.
        epoch: its epoch.
        offset: the board's offset at the last piece.
        compared: how many values of each kind were compared.
        drifted: how many values differ.
        drift: the first values that differ.
        fault: why the values could not be compared; empty on success.
        repaired: whether the wrong side was replaced.
    """

    board: str
    epoch: str
    offset: int = 0
    compared: dict[Kind, int] = {}
    drifted: int = 0
    drift: list[Difference] = []
    fault: str = ""
    repaired: bool = False


_Wanted = dict[Place, dict[bytes, None]]
"""Names to compare, by their store key."""


class Reconciler:
    """Compare one board. Call `progress` with the number of compared values and their approximate total."""

    def __init__(self, state: BoardState, follower: Follower, progress: Progress) -> None:
        self._state = state
        self._follower = follower
        self._progress = progress
        self._expected = Expected(state.board)
        self._report = Report(board=state.board.id, epoch=state.epoch or state.born)
        self._known: set[tuple[str, bytes]] = set()  # the differences by name, because a scan may return a name twice
        self._size = 0

    async def compare(self) -> Report:
        """Compare every value that the store or the journal has.

        Raises:
            SetupError: entries of the journal are missing, the journal is damaged, or the journal has more than the
                store.
            EpochLostError: the board has another epoch by now.
        """
        state = self._state
        first = await read_piece(state, state.keys.hidden)
        data = await self._follower.advance(first.link)
        places = list(places_of(state.board, state.keys, {*first.starts, *data.slots}))
        sizes = [(place.key, ("ZCARD" if place.kind == "log" else "HLEN", place.key)) for place in places]
        self._size = sum(reply for reply in await self._state.client.calls(sizes) if isinstance(reply, int))
        missing: _Wanted = {}
        seen: set[bytes] = set()
        burst: list[tuple[Place, Piece]] = []
        for place in places:
            async for piece in self._pieces(place):
                burst.append((place, piece))
                if len(burst) >= _AHEAD:
                    await self._settle(burst, seen, missing)
                    burst = []
        await self._settle(burst, seen, missing)
        again: list[tuple[Place, Piece]] = []  # names that the walk did not return are compared again
        for place, wanted in missing.items():
            left = list(wanted)
            for start in range(0, len(left), MOST_NAMES):
                names = left[start : start + MOST_NAMES]
                again.append((place, await read_piece(state, place.key, is_sorted=place.kind == "log", names=names)))
        await self._settle(again)
        return self._report

    async def _pieces(self, place: Place) -> AsyncIterator[Piece]:
        """Yield all names and values under a store key."""
        cursor = "0"
        while True:
            piece = await read_piece(self._state, place.key, is_sorted=place.kind == "log", cursor=cursor)
            yield piece
            cursor = piece.cursor
            if cursor == "0":
                return

    async def _settle(
        self, pieces: Sequence[tuple[Place, Piece]], seen: set[bytes] | None = None, missing: _Wanted | None = None
    ) -> None:
        """Compare each piece with the state of the journal at its instant.

        `seen` collects the names under a store key. After the last piece of a store key, `missing` receives the names
        that the store key lacks.
        """
        for place, piece in pieces:
            data = await self._follower.advance(piece.link)
            await asyncio.sleep(0)  # let other tasks of the event loop run
            self._expected.move(data, piece)
            self._report.offset = piece.offset
            if self._expected.is_live(place.start):
                self._compare(place, piece)
            if seen is not None and missing is not None:
                seen.update(name for name, _ in piece.pairs)
                if piece.cursor == "0":
                    absent = [name for name in self._expected.names(place) if name not in seen]
                    if absent and self._expected.is_live(place.start):
                        missing[place] = dict.fromkeys(absent)
                    seen.clear()

    def _compare(self, place: Place, piece: Piece) -> None:
        expected, report, count = self._expected, self._report, 0
        for name, held in piece.pairs:
            right = expected.value(place, name)
            is_same = same(place, held, right)
            count += is_same or expected.is_compared(place, name, held)
            if not is_same and (place.key, name) not in self._known and expected.is_compared(place, name, held):
                self._known.add((place.key, name))
                report.drifted += 1
                if len(report.drift) < _SHOWN:
                    report.drift.append(_described(place, name, held, right))
        report.compared[place.kind] = report.compared.get(place.kind, 0) + count
        done = sum(report.compared.values())
        self._progress(done, max(done, self._size))


def _described(place: Place, name: bytes, held: bytes | None, right: bytes | None) -> Difference:
    if place.kind == "log":
        event = logged_of(name, 0)
        key = f"{event.member} {event.amount:+}"
    else:
        key = name.hex() if place.kind == "votes" else name.decode(errors="replace")
    return Difference(place.kind, place.start, key, _shown(place, held), _shown(place, right))


def _shown(place: Place, value: bytes | None) -> int | str | None:
    if value is None:
        return None
    if place.kind == "reached":
        return value.hex()
    if place.kind in ("metadata", "entrants"):
        return value.decode(errors="replace")
    return int(float(value)) if place.kind == "log" else int(value)


async def compare_board(
    client: Store,
    settings: Settings,
    board: Board,
    epoch: str,
    show: Progress,
) -> tuple[Report, bool]:
    """Compare a board in the store with its journal.

    Return the report, and whether the store lacks entries that SQL has.
    """
    state = BoardState(client, board, settings, born=epoch)
    await state.open()
    with existing_journal(settings, writes=False) as database:
        follower = Follower(client, database, settings.key_prefix, board.id, epoch)
        try:
            await follower.begin(show)
            return await Reconciler(state, follower, show).compare(), False
        except SetupError as error:
            report = Report(board=board.id, epoch=epoch, fault=str(error))
            return report, isinstance(error, StoreBehindError)
