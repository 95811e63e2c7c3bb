"""Read everything that a board holds at one instant, for boards without a journal."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from live.domain.window import Sliding
from live.journal.state.snapshot import Snapshot, logged_of, reached_of
from live.store.board.pieces import Piece, Place, leaving_of, places_of, read_piece, read_whole
from live.store.board.read.reader import TAG
from live.store.board.state import BoardState

_TRIES: Final = 3  # attempts to read all pieces of a board before it changes

TOTAL: Final = ("total", "high")
"""The fields of a total, in which `high` has the bits that `total` has no room for."""

_Held = dict[str, dict[bytes, bytes]]
"""By store key: names and values."""


class Dump(msgspec.Struct, frozen=True):
    """Everything that a board holds at one instant: its contents, and what each store key holds.

    `last` is the position of the board, and what all slots hold that wait to be subtracted.
    """

    contents: Snapshot
    last: Piece
    held: _Held

    async def advance(self, _link: str) -> Snapshot:
        """Return the contents, as `Follower.advance` does."""
        return self.contents

    async def read(self, place: Place, *, cursor: str = "0", names: Sequence[bytes] | None = None) -> Piece:
        """Return everything under a store key, or the values of some names, as `read_piece` does."""
        held, tags = self.held[place.key], self.held.get(place.tags, {})
        if names is None:
            return msgspec.structs.replace(self.last, cursor=cursor, pairs=list(held.items()))
        given = [tags.get(name, bytes(TAG)) + name for name in names] if place.tags else names
        return msgspec.structs.replace(self.last, cursor=cursor, pairs=[(name, held.get(name)) for name in given])


class Dumps:
    """The contents of a board without a journal. It stands in for a `Follower`."""

    def __init__(self, state: BoardState) -> None:
        self.contents = Snapshot(link="0-0")
        self._state = state

    async def advance(self, link: str) -> Snapshot:
        """Return what the board holds at a position, or at a later one if the board has changed meanwhile."""
        if self.contents.link != link:
            self.contents = (await dump(self._state)).contents
        return self.contents


async def dump(state: BoardState) -> Dump:
    """Read everything that a board holds, in pieces.

    If the board changes each time, one script reads everything, which blocks the store for about a second per million
    members.
    """
    for _ in range(_TRIES):
        if (found := await _in_pieces(state)) is not None:
            return found
    while True:
        starts, places = await _places(state)
        names = list(dict.fromkeys(place.key for place in places))
        last, held = await read_whole(state, names)
        if starts.issuperset(last.starts):
            return _dump(state, places, last, dict(zip(names, held, strict=True)))


async def unlisted(state: BoardState) -> list[int]:
    """Return the starts of slots that are missing from the list of slots, so rotation would never subtract them."""
    keys, first = state.keys, state.keys.slot("")
    names = [name async for name in state.client.names(keys.slot_pattern)]
    listed = {keys.slot(start.decode()) for start in await state.call("ZRANGE", keys.slots, 0, -1)}
    suspects = [name for name in names if name not in listed and name.removeprefix(first).lstrip("-").isdecimal()]
    # A slot may have left the window since it was found.
    return [int(name.removeprefix(first)) for name in suspects if await state.call("EXISTS", name)]


async def _places(state: BoardState) -> tuple[set[int], list[Place]]:
    """Return the starts of the slots of a board, and its store keys."""
    starts = {int(start) for start in await state.call("ZRANGE", state.keys.slots, 0, -1)}
    starts.update(await unlisted(state))
    return starts, list(places_of(state.board, state.keys, starts))


async def _in_pieces(state: BoardState) -> Dump | None:
    """Read a board in pieces. Return None if it changes meanwhile."""
    starts, places = await _places(state)
    totals = [f"{name}{place.suffix}".encode() for place in places if place.kind == "total" for name in TOTAL]
    held, offset = _Held(), None
    for place in places:
        if place.key in held:
            continue
        found = held[place.key] = {}
        names = totals if place.kind == "total" else None
        cursor = ""
        while cursor != "0":
            piece = await read_piece(state, place, cursor=cursor or "0", names=names)
            if piece.offset != (piece.offset if offset is None else offset) or not starts.issuperset(piece.starts):
                return None
            offset, cursor = piece.offset, piece.cursor
            found.update((name, value) for name, value in piece.pairs if value is not None)
    return _dump(state, places, piece, held)


def _dump(state: BoardState, places: Sequence[Place], last: Piece, held: _Held) -> Dump:
    board, keys = state.board, state.keys
    leaving = Counter[str]()
    for start in leaving_of(board, last):
        for member, value in held[keys.slot(start)].items():
            leaving[member.decode(errors="replace")] += int(value)
    last = msgspec.structs.replace(last, cursor="0", pairs=[], leaving=dict(leaving))
    return Dump(_contents(state, places, last, held), last, held)


def _contents(state: BoardState, places: Sequence[Place], last: Piece, held: _Held) -> Snapshot:
    board, keys, shape = state.board, state.keys, state.board.shape.encode()
    data = Snapshot(
        shape=shape, secret=state.secret, offset=last.offset, link=last.link, newest=last.newest,
        latest=last.now if board.clock == "event" else None,
        entrants={member.decode(): text for member, text in held.get(keys.entrants, {}).items()},
        hidden={member.decode() for member in held[keys.hidden]},
        log=[logged_of(name, int(float(time))) for name, time in held.get(keys.log, {}).items()],
    )  # fmt: skip
    data.log.sort(key=lambda event: (event.offset, event.number))
    for place in places:
        found, ranking = held[place.key], data.ranking(place.suffix)
        match place.kind:
            case "slot" if not isinstance(board.window, Sliding):
                data.slots[place.start or 0] = {member.decode(): int(value) for member, value in found.items()}
            case "reached":
                ranking.reached = {member.decode(): reached_of(shape, tag) for member, tag in found.items()}
            case "metadata":
                ranking.metadata = {member.decode(): text for member, text in found.items()}
            case "votes":
                ranking.votes = {digest: int(count) for digest, count in found.items()}
    return data
