"""Check a board while it is in use: compare everything in the store with what the board should hold.

The store is read in pieces. The script that reads a piece also returns which journal entry was the last entry of the
board at that moment. The piece is compared with the contents that the journal gives after this entry. The entry is in
SQL, or still waits in the store. A board without a journal is compared with what its own slots, events and votes say.
"""

import asyncio
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import Any, Final, Literal

import msgspec
from msgspec import structs
from sqlalchemy import Connection

from live.domain.board import Board
from live.domain.window import Sliding
from live.errors import JournalBrokenError, SetupError
from live.journal.database import existing_journal
from live.journal.log.entries import FIRST
from live.journal.log.reader import Follower, Progress, StoreBehindError
from live.journal.log.timelines import find_timeline
from live.journal.state.difference import ContentsDifference
from live.journal.state.sliding_log import EventSums
from live.journal.state.snapshot import Snapshot, logged_of
from live.maintenance.count import Wrong, counted, miscounted
from live.maintenance.dump import TOTAL, Dumps, dump, unlisted
from live.maintenance.swap import swap
from live.settings import Settings
from live.store.board.pieces import MOST_NAMES, Kind, Piece, Place, places_of, read_piece
from live.store.board.read.reader import HIGH, TAG
from live.store.board.state import BoardState
from live.store.connection.client import Store

_AHEAD: Final = 64  # pieces to read before they are compared together
_SHOWN: Final = 20  # maximum number of differences that a report names

_REPLACE: Final = (
    "To replace the journal, stop the servers, move the database away, start a server and stop it again, and run "
    "`live journal --adopt`"
)

_TEXTS: Final = ("metadata", "entrants", "reached")
_RAW: Final = ("log", "votes")  # store keys whose names can be any bytes

_Value = int | bytes | tuple[float, bytes]
"""A value under a store key. A record is a score and a tag."""

_Pairs = list[tuple[bytes, bytes | None]]


class Difference(msgspec.Struct, frozen=True):
    """A value that differs: its `kind`, the `start` of its slot or period, and its name as `key`. None is no value.

    `store` is what the store holds, and `right` is what it should hold. For the kind `counted`, they are what the fold
    of the journal says, and what its entries add up to. Where the tags of a record differ, its score
    has its tag behind it.
    """

    kind: Kind | Literal["listed", "counted", "secret"]
    start: int | None
    key: str
    store: int | str | None
    right: int | str | None


class Report(msgspec.Struct, kw_only=True):
    """The result of a check: how many values were compared, by their kind, and how many of them have `drifted`.

    `journal` says whether the store was compared with a journal. `offset` is that of the last piece. `drift` has the
    first values that differ. `fault` says why they could not be compared. If one side was replaced, it is `repaired`.
    """

    board: str
    epoch: str
    journal: bool = False
    offset: int = 0
    compared: dict[str, int] = {}
    drifted: int = 0
    drift: list[Difference] = []
    fault: str = ""
    repaired: bool = False

    @property
    def clean(self) -> bool:
        """Whether everything was compared, and nothing differs."""
        return not self.drifted and not self.fault

    def add(self, found: Difference) -> None:
        """Add a value that differs."""
        self.drifted += 1
        if len(self.drift) < _SHOWN:
            self.drift.append(found)


class Expected:
    """What the store should hold at the instant of a piece."""

    def __init__(self, state: BoardState) -> None:
        self._board = state.board
        self._image = ContentsDifference(state.board, state.keys)
        self._waiting = EventSums(state.board)  # of events that wait to be subtracted
        self._more: Mapping[str, int] = {}  # what the store still holds of members, and waits to be subtracted

    def move(self, data: Snapshot, piece: Piece) -> None:
        """Move to the instant at which a piece was read. `data` has the contents after the piece's entry."""
        for _ in self._image.advance(data, piece.now):
            pass
        self._more = piece.leaving
        if isinstance(self._board.window, Sliding):
            self._waiting = EventSums(self._board)
            for name in piece.due:
                self._waiting.count(logged_of(name, 0), 1)
            self._more = self._waiting.slot

    @property
    def listed(self) -> set[int]:
        """The starts of the slots that hold something."""
        return self._image.listed

    def is_live(self, start: int | None) -> bool:
        """Return whether a slot is in the window. A slot that has begun to leave is not compared."""
        return start is None or self._image.oldest is None or start >= self._image.oldest

    def is_compared(self, place: Place, name: bytes, held: _Value | None) -> bool:
        """Return whether a value that the store holds can be compared: an event that waits to be subtracted can't."""
        if place.kind != "log" or not isinstance(held, int):
            return True
        return name in self._image.held(place.key) or self._image.left is None or held > self._image.left

    def values(self, place: Place, names: Collection[bytes]) -> dict[bytes, _Value]:
        """Return the values that the store should hold, among some names."""
        image = self._image
        match place.kind:
            case "record" | "reached" | "metadata":
                return self._records(place, names)
            case "hidden":
                return {name: 1 for name in names if name.decode(errors="replace") in image.hidden}
            case "level":
                levels, moved = image.levels(place.suffix), self._moved(place)
                wanted = [name for name in names if name.removeprefix(b"-").isdigit()]
                return {name: int(name) for name in wanted if levels[int(name)] + moved[int(name)] > 0}
            case "total":
                return {b"total": image.total(place.suffix) + sum(score * n for score, n in self._moved(place).items())}
        held, waiting, found = image.held(place.key), getattr(self._waiting, place.kind, {}), dict[bytes, _Value]()
        for name in names:
            key: Any = name if place.kind in _RAW else name.decode(errors="replace")
            value = held.get(key)
            if key in waiting:
                value = (value or 0) + waiting[key]
                value = value if value or self._board.zeros else None
            if value is not None:
                found[name] = value
        return found

    def missing(self, place: Place, seen: Container[bytes]) -> Iterator[bytes]:
        """Yield the names that the store should hold, without those that were seen."""
        names = (name for name in self._names(place) if name not in seen)
        while piece := list(islice(names, MOST_NAMES)):
            yield from self.values(place, piece)

    def _names(self, place: Place) -> Iterable[bytes]:
        """Return the names that can have a value."""
        match place.kind:
            case "record" | "reached" | "metadata":
                return map(str.encode, self._image.members(place.suffix))
            case "hidden":
                return map(str.encode, self._image.hidden)
            case "level":
                return (b"%d" % score for score in self._image.levels(place.suffix).keys() | self._moved(place).keys())
            case "total":
                return ()
        names = self._image.held(place.key)
        return names if place.kind in _RAW else map(str.encode, names)

    def _records(self, place: Place, names: Iterable[bytes]) -> dict[bytes, _Value]:
        """Return records, tags or metadata of members."""
        members = {name.decode(errors="replace") for name in names}
        found = self._image.records(place.suffix, members, self._more)
        if place.kind == "record":
            return dict(_record(place, name, score) for name, score in found.ranking.items())
        values = found.reached if place.kind == "reached" else found.metadata
        return {member.encode(): value for member, value in values.items()}

    def _moved(self, place: Place) -> Counter[int]:
        """Return by how much more members have each score, because something waits to be subtracted."""
        members = set(self._more)
        moved = Counter(self._image.records(place.suffix, members, self._more).ranking.values())
        moved.subtract(self._image.records(place.suffix, members, {}).ranking.values())
        return moved


_Wanted = dict[Place, list[bytes]]
"""Names to compare, by their store key."""


class Checker:
    """Check one board. Call `progress` with the number of compared values and their approximate total.

    `source` has the contents at each instant. Without it, the board is compared with itself, at one instant.
    """

    def __init__(self, state: BoardState, source: Follower | None, progress: Progress) -> None:
        self._state = state
        self._advance: Callable[[str], Awaitable[Snapshot]]
        self._read: Callable[..., Awaitable[Piece]]
        self._source = source
        self._progress = progress
        self._expected = Expected(state)
        self._report = Report(board=state.board.id, epoch=state.epoch or state.born, journal=source is not None)
        self._known: set[tuple[Place, bytes]] = set()  # the differences by name, because a scan may return a name twice
        self._size = 0

    async def check(self) -> Report:
        """Compare every value that the store has or should have. A new epoch of the board raises EpochLostError."""
        state = self._state
        if self._source is None:
            found = await dump(state)
            self._read, self._advance = found.read, found.advance
        else:
            self._read, self._advance = partial(read_piece, state), self._source.advance
        first = await self._read(Place("hidden", state.keys.hidden))
        data = await self._advance(first.link)
        self._expected.move(data, first)
        if self._source is not None and state.secret != data.secret:  # people could vote again
            self._report.add(Difference("secret", None, state.board.id, "another one", "that of the journal"))
        strays = self._expected.listed.difference(first.starts).union(await unlisted(state))
        for start in sorted(strays):
            self._report.add(Difference("listed", start, str(start), None, start))
        places = list(places_of(state.board, state.keys, {*first.starts, *data.slots, *strays}))
        sized = {place.key: "ZCARD" if place.is_sorted else "HLEN" for place in places if place.kind != "total"}
        sizes = await state.client.calls([(key, (command, key)) for key, command in sized.items()])
        self._size = sum(reply for reply in sizes if isinstance(reply, int))
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
            for start in range(0, len(wanted), MOST_NAMES):
                piece = await self._read(place, names=wanted[start : start + MOST_NAMES])
                again.append((place, piece))
        await self._settle(again)
        return self._report

    async def _pieces(self, place: Place) -> AsyncIterator[Piece]:
        if place.kind == "total":
            yield await self._read(place, names=[f"{name}{place.suffix}".encode() for name in TOTAL])
            return
        cursor = "0"
        while True:
            piece = await self._read(place, cursor=cursor)
            yield piece
            cursor = piece.cursor
            if cursor == "0":
                return

    async def _settle(
        self, pieces: Sequence[tuple[Place, Piece]], seen: set[bytes] | None = None, missing: _Wanted | None = None
    ) -> None:
        """Compare each piece with what the board should hold at its instant.

        `seen` collects the names under a store key. After the last piece of a store key, `missing` receives the names
        that the store key lacks.
        """
        for place, piece in pieces:
            data = await self._advance(piece.link)
            await asyncio.sleep(0)  # let other tasks of the event loop run
            self._expected.move(data, piece)
            self._report.offset = piece.offset
            if self._expected.is_live(place.start):
                self._compare(place, piece)
            if seen is not None and missing is not None:
                seen.update(place.member_of(name) for name, _ in piece.pairs)
                if piece.cursor == "0":
                    absent = list(self._expected.missing(place, seen)) if self._expected.is_live(place.start) else []
                    if absent:
                        missing[place] = absent
                    seen.clear()

    def _compare(self, place: Place, piece: Piece) -> None:
        expected, report, count = self._expected, self._report, 0
        pairs = [_held(place, name, value) for name, value in _whole_total(place, piece.pairs)]
        right = expected.values(place, {name for name, _ in pairs})
        for name, held in pairs:
            wanted = right.get(name)
            is_compared = held == wanted or expected.is_compared(place, name, held)
            count += is_compared
            if is_compared and held != wanted and (place, name) not in self._known:
                self._known.add((place, name))
                report.add(_described(place, name, held, wanted))
        report.compared[place.kind] = report.compared.get(place.kind, 0) + count
        done = sum(report.compared.values())
        self._progress(done, max(done, self._size))


def _whole_total(place: Place, pairs: _Pairs) -> _Pairs:
    """Return the two fields of a total as one."""
    if place.kind != "total":
        return pairs
    (_, low), (_, high) = pairs
    with suppress(ValueError):  # raised if the store holds damaged values
        return [(b"total", b"%d" % (int(low or 0) + (int(high or 0) << HIGH)))]
    return [(b"total", b"%b %b" % (low or b"", high or b""))]


def _held(place: Place, name: bytes, value: bytes | None) -> tuple[bytes, _Value | None]:
    """Return the name under which a value is compared, and the value."""
    if place.kind == "record":
        return (place.member_of(name), None) if value is None else _record(place, name, float(value))
    if value is None or place.kind in _TEXTS:
        return name, value
    with suppress(ValueError):
        return name, int(float(value)) if place.is_sorted else int(value)
    return name, value  # a damaged value, which equals no number


def _record(place: Place, name: bytes, score: float) -> tuple[bytes, _Value]:
    """Return the member of a record, and its score and tag."""
    return place.member_of(name), (float(score), name[:TAG] if place.tags else b"")


def _described(place: Place, name: bytes, held: _Value | None, right: _Value | None) -> Difference:
    key = name.hex() if place.kind == "votes" else name.decode(errors="replace")
    if place.kind == "log":
        with suppress(ValueError):  # the event is damaged
            event = logged_of(name, 0)
            key = f"{event.member} {event.amount:+}"
    has_tags = isinstance(held, tuple) and isinstance(right, tuple) and held[1] != right[1]
    return Difference(
        place.kind, place.start, key, _shown(place, held, has_tags=has_tags), _shown(place, right, has_tags=has_tags)
    )


def _shown(place: Place, value: _Value | None, *, has_tags: bool) -> int | str | None:
    match value:
        case (float(score), bytes(tag)):
            shown = int(score) if score.is_integer() else str(score)
            return f"{shown} {tag.hex()}" if has_tags else shown
        case bytes():
            return value.hex() if place.kind == "reached" else value.decode(errors="replace")
        case int() | None:
            return value
    raise AssertionError(value)


async def check_board(
    client: Store, settings: Settings, board: Board, epoch: str, show: Progress, *, deep: bool = False
) -> tuple[Report, bool]:
    """Check a board in the store. Also return whether one side can be replaced: not after a loss or damage.

    A board that has no journal, or whose journal is off for this command, is compared with itself. With `deep`, also
    count the entries in SQL plainly.
    """
    try:
        async with opened(client, settings, board, epoch) as (state, follower):
            wrong = list[Wrong]()
            if follower is not None:
                await follower.begin(show)
                if deep:
                    with existing_journal(settings, writes=False) as database:
                        wrong = await database.run(_miscounted, board, epoch, follower.contents)
            report = await Checker(state, follower, show).check()
            for start, member, held, right in wrong:
                report.add(Difference("counted", start, member, held, right))
            return report, True
    except (StoreBehindError, JournalBrokenError) as error:
        broken = isinstance(error, JournalBrokenError)
        fault = f"{error}. {_REPLACE if broken else advice_of(board.id, Side.JOURNAL)}"
        return Report(board=board.id, epoch=epoch, journal=True, fault=fault), False
    except SetupError as error:
        return Report(board=board.id, epoch=epoch, journal=settings.journal != "off", fault=str(error)), True


class Side(StrEnum):
    """A side that is right, or that a repair replaces."""

    JOURNAL = "journal"
    STORE = "store"


def advice_of(board: str, side: Side) -> str:
    """Say what helps a board of which the store lost data. `side` is right."""
    return f"Stop the servers, and run `live recover --from {side} --board {board}`"


def _miscounted(connection: Connection, board: Board, epoch: str, data: Snapshot) -> list[Wrong]:
    """Return what the fold of the entries in SQL has counted wrongly. `data` is its result."""
    timeline = find_timeline(connection, board.id, epoch)
    if timeline is None or data.link == FIRST:
        return []
    return list(miscounted(board, data, counted(connection, board, timeline, data.link, data.taken)))


async def replace_store(client: Store, settings: Settings, board: Board, epoch: str, show: Progress) -> None:
    """Make a board hold what it should hold, in one step."""
    async with opened(client, settings, board, epoch) as (state, follower):
        if follower is None and await state.call("HEXISTS", state.keys.meta, "journal"):
            raise SetupError(f"board {board.id!r} has a journal: set LIVE_JOURNAL, so that the board gets what it says")
        # List slots that rotation would never subtract, so that it takes them away.
        for start in await unlisted(state):
            await client.write(state.keys.slots, "ZADD", state.keys.slots, start, start)
        if follower is not None:
            await follower.begin(show)
            if secret := follower.contents.secret:
                await client.write(state.keys.meta, "HSET", state.keys.meta, "secret", secret)
        await swap(client, state.settings, board, epoch, follower or Dumps(state))


@asynccontextmanager
async def opened(
    client: Store, settings: Settings, board: Board, epoch: str
) -> AsyncIterator[tuple[BoardState, Follower | None]]:
    """Open a board, and its journal if it has one."""
    keys = client.keys_of(board.id)
    has_journal = settings.journal != "off" and await client.call(keys.meta, "HEXISTS", keys.meta, "journal")
    if not has_journal:
        settings = structs.replace(settings, journal="off")
    state = BoardState(client, board, settings, born=epoch)
    await state.open()
    if not has_journal:
        yield state, None
        return
    with existing_journal(settings, writes=False) as database:
        yield state, Follower(client, database, board.id, epoch)
