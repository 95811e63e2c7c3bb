"""Read a board piece by piece: each piece at one instant, with the last entry of the journal at that instant."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from live.domain.board import Board
from live.domain.window import EVER, Sliding
from live.errors import StoreUnavailableError
from live.store.board.keys import Keys
from live.store.board.read.reader import TAG
from live.store.board.rotation import BoardRotator, catch_up
from live.store.board.state import BoardState
from live.store.connection.scripts import Script, Text, text


class PieceRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Read a piece of the data under one of a board's store keys."""

    epoch: str
    cursor: str  # the cursor of the last piece, or `0`
    count: int  # about how many names to return
    names: list[Text] | None = None  # the names to return, in place of a cursor
    sorted: bool = False  # whether the store key holds a sorted set
    tagged: bool = False  # whether the names are members, and the store key holds their tags before them
    whole: bool = False  # whether to return everything under all store keys, in place of a piece
    by_event: bool = False  # whether the board's clock shows the time of the newest event
    window: int | None = None  # the length of a sliding window in milliseconds, to return the events that have left it
    most_due: int  # the most of these events to return; if there are more, the script returns only their number


PIECE: Final = Script("piece", PieceRequest, waits=False)

MOST_NAMES: Final = 1000  # names in one piece, which takes the store about a millisecond
_MOST_DUE: Final = 5000  # events that may wait to be subtracted while a piece is read
_ATTEMPTS: Final = 20

Kind = Literal["log", "taken", "slot", "hidden", "votes", "metadata", "entrants", "reached", "record", "level", "total"]
_SUMS: Final = ("reached", "record", "level", "total")  # follow from all slots that the store holds


class Place(msgspec.Struct, frozen=True):
    """A store key of a board."""

    kind: Kind
    key: str
    start: int | None = None  # the start of its slot, or of its period; None if it belongs to no slot
    suffix: str = ""  # the suffix that the store keys of its ranking have
    tags: str = ""  # the store key of the tags that are in its names; empty if its names have no tags

    @property
    def is_sorted(self) -> bool:
        """Whether the store key holds a sorted set."""
        return self.kind in ("log", "record", "level")

    def member_of(self, name: bytes) -> bytes:
        """Return the name without its tag."""
        return name[TAG:] if self.tags else name


def places_of(board: Board, keys: Keys, starts: Iterable[int]) -> Iterator[Place]:
    """Yield the store keys that hold a board whose slots have these starts."""
    sliding = isinstance(board.window, Sliding)
    if sliding:
        yield Place("log", keys.log)
        yield Place("taken", keys.taken)
    wanted = [EVER.start] if sliding else sorted(starts)
    periods: list[int | None] = [*wanted] if board.window.tables else [None]
    for start in wanted:
        yield Place("slot", keys.slot(start), start, keys.table(start if board.window.tables else None).suffix)
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
        yield Place("record", table.ranking, period, table.suffix, "" if board.tags == "key" else table.reached)
        if board.ranks == "dense":
            yield Place("level", table.levels, period, table.suffix)
        if board.summed:
            yield Place("total", keys.meta, period, table.suffix)


class Piece(msgspec.Struct, frozen=True):
    """A piece of the data under one of a board's store keys."""

    # The id, time, writer and sequence of the last entry of the journal. Without a journal, it has the board's offset
    # in place of the id, and nothing else.
    link: str
    offset: int
    newest: int | None
    now: int  # the time by the board's clock, in milliseconds since 1970
    due: list[bytes]  # the events that have left a sliding window, and wait to be subtracted
    starts: list[int]  # the starts of all slots, in their order
    cursor: str = "0"  # where the next piece begins; `0` at the end
    pairs: list[tuple[bytes, bytes | None]] = []  # names and values; None for a name that is not there
    # What the slots that leave the window, and wait to be subtracted, hold of each of these members.
    leaving: dict[str, int] = {}


async def read_piece(
    state: BoardState, place: Place, *, cursor: str = "0", names: Sequence[bytes] | None = None
) -> Piece:
    """Read a piece from a cursor on, or read the values of some names."""
    keys, leaving, waiting = state.keys, list[int](), 0
    request = _request(state)
    request.cursor, request.sorted = cursor, place.is_sorted
    request.names, request.tagged = None if names is None else [text(name) for name in names], bool(place.tags)
    for _ in range(_ATTEMPTS):
        given = [keys.meta, keys.slots, keys.log, place.tags or place.key, place.key, *map(keys.slot, leaving)]
        reply = await state.run(PIECE, given, request)
        if reply[0] == b"due":
            waiting = int(reply[1])
            await catch_up(BoardRotator(state))
            continue
        piece = _piece(reply)
        wanted = leaving_of(state.board, piece) if place.kind in _SUMS else []
        if wanted and place.kind in ("level", "total"):  # all members of these slots count
            waiting = len(wanted)
            await catch_up(BoardRotator(state))
        elif wanted == leaving:
            pairs, held = list(zip(reply[8][::2], reply[8][1::2], strict=True)), dict[str, int]()
            members = [place.member_of(name).decode(errors="replace") for name, _ in pairs]
            for values in reply[9]:
                for member, value in zip(members, values, strict=True):
                    if value is not None:
                        held[member] = held.get(member, 0) + int(value)
            return msgspec.structs.replace(piece, cursor=reply[7].decode(), pairs=pairs, leaving=held)
        else:
            leaving = wanted
    what = "events" if isinstance(state.board.window, Sliding) else "slots"
    raise StoreUnavailableError(f"board {state.board.id}: {waiting:,} {what} wait to be subtracted")


async def read_whole(state: BoardState, names: Sequence[str]) -> tuple[Piece, list[dict[bytes, bytes]]]:
    """Read everything under some store keys with one script, which blocks the store for a second per million members.

    Return a piece without pairs, and the names and values of each store key.
    """
    keys, request = state.keys, _request(state)
    request.whole = True
    for _ in range(_ATTEMPTS):
        reply = await state.run(PIECE, [keys.meta, keys.slots, keys.log, keys.meta, *names], request)
        if reply[0] != b"due":
            return _piece(reply), [dict(zip(held[::2], held[1::2], strict=True)) for held in reply[7]]
        await catch_up(BoardRotator(state))
    raise StoreUnavailableError(f"board {state.board.id}: {int(reply[1]):,} events wait to be subtracted")


def _request(state: BoardState) -> PieceRequest:
    window = state.board.window
    return PieceRequest(
        epoch=state.epoch or state.born,
        cursor="0",
        count=MOST_NAMES,
        by_event=state.board.clock == "event",
        window=window.length * 1000 if isinstance(window, Sliding) else None,
        most_due=_MOST_DUE,
    )


def _piece(reply: Sequence[Any]) -> Piece:
    _, offset, journal, newest, now, due, starts, *_ = reply
    return Piece(
        link=journal.decode().rpartition(" ")[0] or f"{int(offset)}-0",
        offset=int(offset),
        newest=int(newest) if newest else None,
        now=int(now),
        due=due,
        starts=[int(start) for start in starts],
    )


def leaving_of(board: Board, piece: Piece) -> list[int]:
    """Return the starts of the slots that wait to be subtracted from the only ranking of a board."""
    newest = piece.newest if board.clock == "event" else board.window.slot_at(piece.now // 1000).start
    if newest is None or board.window.tables:
        return []
    oldest = board.window.oldest(newest)
    return [start for start in piece.starts if start < oldest]
