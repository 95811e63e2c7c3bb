"""Compares a board in the store with its journal while both are in use, and corrects one of them.

The store is read in pieces. Each piece names the last entry of the journal at its instant, so it is compared with the
journal's state of the same instant, once SQL has that entry.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Final, Literal

import msgspec

from live.domain.window import Sliding
from live.journal.compared import Expected, Kind, Place, places_of, same
from live.journal.corrections import logged_of
from live.journal.follower import Follower
from live.store.board.mending import BoardMender, Correction, Value
from live.store.board.moderation import BoardModeration
from live.store.board.pieces import MOST_NAMES, Piece, read_piece
from live.store.board.state import BoardState

Side = Literal["store", "journal"]
Progress = Callable[[int, int], None]

_AHEAD: Final = 64  # pieces to read while SQL does not have the entries of the first one
_SHOWN: Final = 20  # most differences that a report names
_ROUNDS: Final = 5  # of repair and comparison; events that come meanwhile can make another one necessary


class Difference(msgspec.Struct, frozen=True):
    """A value that differs: of what `kind`, in the slot or the period that begins at `start`, of which `key`.

    `store` and `journal` are the two values; None for none.
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
        drifted: how many values differ, or did so before they were repaired.
        drift: the first of them.
        repaired: how many corrections were made.
        left: how many values differ at the end.
    """

    board: str
    epoch: str
    offset: int = 0
    compared: dict[Kind, int] = {}
    drifted: int = 0
    drift: list[Difference] = []
    repaired: int = 0
    left: int = 0


class _Drift(msgspec.Struct, frozen=True):
    """A value that differs at the instant of a piece."""

    place: Place
    value: Value
    offset: int
    newest: int | None


_Wanted = dict[Place, dict[bytes, None]]
"""Names to look at, by their store key."""


class Reconciler:
    """Compares one board. Calls `progress` with the number of compared values and their approximate total."""

    def __init__(self, state: BoardState, follower: Follower, mender: BoardMender, progress: Progress) -> None:
        self._state = state
        self._follower = follower
        self._mender = mender
        self._progress = progress
        self._expected = Expected(state.board)
        self._report = Report(board=state.board.id, epoch=state.epoch or state.born)
        self._known: set[tuple[str, bytes]] = set()  # what has differed
        self._size = 0

    async def reconcile(self, repair: Side | None) -> Report:
        """Compare everything. With `repair`, correct the store or the journal, whichever is named.

        Raises:
            SetupError: SQL does not get the entries of the journal, or the journal is damaged.
            StoreUnavailableError: the store or the database is unavailable.
            EpochLostError: the board has another epoch by now.
        """
        report = self._report
        found = await self._sweep()
        rounds = 0
        while found and repair is not None and rounds < _ROUNDS:
            report.repaired += await self._repair(found, repair)
            found = await self._settle([piece async for piece in self._values_of(self._related(found))])
            rounds += 1
        report.left = len(found)
        return report

    async def _sweep(self) -> list[_Drift]:
        """Compare every value that the store or the journal has."""
        state = self._state
        first = await read_piece(state, state.keys.hidden)
        data = await self._follower.advance(first.link)
        places = list(places_of(state.board, state.keys, {*first.starts, *data.slots}))
        await self._measure(places)
        missing: _Wanted = {}
        found: list[_Drift] = []
        seen: set[bytes] = set()
        burst: list[tuple[Place, Piece]] = []
        for place in places:
            async for piece in self._pieces(place):
                burst.append((place, piece))
                if len(burst) >= _AHEAD:
                    found += await self._settle(burst, seen, missing)
                    burst = []
        found += await self._settle(burst, seen, missing)
        return found + await self._settle([piece async for piece in self._values_of(missing)])

    async def _measure(self, places: Sequence[Place]) -> None:
        """Count what there is, for the progress."""
        commands = [(place.key, ("ZCARD" if place.kind == "log" else "HLEN", place.key)) for place in places]
        replies = await self._state.client.calls(commands)
        self._size = sum(reply for reply in replies if isinstance(reply, int))

    async def _pieces(self, place: Place) -> AsyncIterator[Piece]:
        """Everything under a store key."""
        cursor = "0"
        while True:
            piece = await read_piece(self._state, place.key, is_sorted=place.kind == "log", cursor=cursor)
            yield piece
            cursor = piece.cursor
            if cursor == "0":
                return

    async def _values_of(self, wanted: _Wanted) -> AsyncIterator[tuple[Place, Piece]]:
        """The values of some names."""
        for place, names in wanted.items():
            left = list(names)
            for first in range(0, len(left), MOST_NAMES):
                some = left[first : first + MOST_NAMES]
                yield place, await read_piece(self._state, place.key, is_sorted=place.kind == "log", names=some)

    async def _settle(
        self, pieces: Sequence[tuple[Place, Piece]], seen: set[bytes] | None = None, missing: _Wanted | None = None
    ) -> list[_Drift]:
        """Compare pieces, each with the journal's state of its instant.

        With `seen` and `missing`, collects the names under a store key, and which ones are missing at its end.
        """
        found = []
        for place, piece in pieces:
            data = await self._follower.advance(piece.link)
            await asyncio.sleep(0)  # let other tasks of the event loop run
            self._expected.move(data, piece)
            self._report.offset = piece.offset
            if self._expected.is_live(place.start):
                found += self._compare(place, piece)
            if seen is not None and missing is not None:
                seen.update(name for name, _ in piece.pairs)
                if piece.cursor == "0":
                    absent = [name for name in self._expected.names(place) if name not in seen]
                    if absent and self._expected.is_live(place.start):
                        missing[place] = dict.fromkeys(absent)
                    seen.clear()
        return found

    def _compare(self, place: Place, piece: Piece) -> list[_Drift]:
        """Compare a piece."""
        expected, found, count = self._expected, [], 0
        for name, held in piece.pairs:
            count += 1
            right = expected.value(place, name)
            if same(place, held, right):
                continue
            if expected.is_compared(place, name, held):
                tag = expected.tag(place.suffix, name) if place.kind == "slot" else b""
                found.append(_Drift(place, Value(name, held, right, tag), piece.offset, piece.newest))
            else:
                count -= 1
        report = self._report
        report.compared[place.kind] = report.compared.get(place.kind, 0) + count
        done = sum(report.compared.values())
        self._progress(done, max(done, self._size))
        self._note(found)
        return found

    def _note(self, found: Iterable[_Drift]) -> None:
        """Count the values that differ, each once."""
        for drift in found:
            name = (drift.place.key, drift.value.name)
            if name not in self._known:
                self._known.add(name)
                self._report.drifted += 1
                if len(self._report.drift) < _SHOWN:
                    self._report.drift.append(_described(drift))

    async def _repair(self, found: Sequence[_Drift], side: Side) -> int:
        """Correct what differs, in the store or in the journal. Returns how many values were corrected."""
        done = 0
        by_place: dict[Place, list[_Drift]] = {}
        for drift in found:
            if self._is_mendable(drift, side):
                by_place.setdefault(drift.place, []).append(drift)
        for place, drifts in by_place.items():
            if side == "store" and place.kind == "hidden":
                moderation = BoardModeration(self._state)
                for drift in drifts:
                    await moderation.hide(drift.value.name.decode(), hidden=drift.value.right is not None)
                    done += 1
            else:
                done += await self._mender.mend(self._correction(place, drifts), teach=side == "journal")
        return done

    def _is_mendable(self, drift: _Drift, side: Side) -> bool:
        """Whether a correction is possible.

        The journal derives the sums of a sliding window from its events, and the store can't do without a tag.
        """
        kind = drift.place.kind
        if side == "store":
            return kind != "reached" or drift.value.right is not None
        return kind != "taken" and not (kind == "slot" and isinstance(self._state.board.window, Sliding))

    def _correction(self, place: Place, drifts: Sequence[_Drift]) -> Correction:
        adds_up = place.kind in ("votes", "taken") or (place.kind == "slot" and self._state.board.operation == "incr")
        return Correction(
            kind=place.kind,
            key=place.key,
            start=place.start,
            suffix=place.suffix,
            adds_up=adds_up,
            compared=min(drift.offset for drift in drifts),
            newest=drifts[-1].newest,
            values=[drift.value for drift in drifts],
        )

    def _related(self, found: Iterable[_Drift]) -> _Wanted:
        """What to check again after a repair: the same values, and those that follow from them."""
        state, wanted = self._state, _Wanted()
        for drift in found:
            place, name = drift.place, drift.value.name
            wanted.setdefault(place, {})[name] = None
            if place.kind == "log":
                name = logged_of(name, 0).member.encode()
                for other in places_of(state.board, state.keys, ()):
                    if other.kind in ("taken", "slot"):
                        wanted.setdefault(other, {})[name] = None
            if place.kind in ("slot", "log") and state.board.tags != "key":
                start = place.start if state.board.window.tables else None
                table = state.keys.table(start)
                wanted.setdefault(Place("reached", table.reached, start, table.suffix), {})[name] = None
        return wanted


def _described(drift: _Drift) -> Difference:
    """A difference for people and programs."""
    place, value = drift.place, drift.value
    name = value.name
    if place.kind == "log":
        event = logged_of(name, 0)
        key = f"{event.member} {event.amount:+}"
    else:
        key = name.hex() if place.kind == "votes" else name.decode(errors="replace")
    return Difference(place.kind, place.start, key, _shown(place, value.held), _shown(place, value.right))


def _shown(place: Place, value: bytes | None) -> int | str | None:
    if value is None:
        return None
    if place.kind == "reached":
        return value.hex()
    if place.kind in ("metadata", "entrants"):
        return value.decode(errors="replace")
    return int(float(value)) if place.kind == "log" else int(value)
