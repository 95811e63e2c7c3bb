"""Read a board piece by piece: each piece at one instant, with the last entry of the journal at that instant."""

from collections.abc import Sequence
from typing import Final

import msgspec

from live.domain.window import Sliding
from live.errors import StoreUnavailableError
from live.store.board.rotation import BoardRotator, catch_up
from live.store.board.state import BoardState
from live.store.connection.scripts import Script, Text, text


class PieceRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Read a piece of the data under one of a board's store keys.

    Attributes:
        epoch: the epoch that the caller knows.
        cursor: the cursor of the last piece, or `0`.
        count: about how many names to return.
        names: the names to return, in place of a cursor.
        sorted: whether the store key holds a sorted set.
        by_event: whether the board's clock shows the time of the newest event.
        window: the length of a sliding window in milliseconds, to return the events that have left it.
        most_due: the most of these events to return; if there are more, the script returns only their number.
    """

    epoch: str
    cursor: str
    count: int
    names: list[Text] | None = None
    sorted: bool = False
    by_event: bool = False
    window: int | None = None
    most_due: int


PIECE: Final = Script("piece", PieceRequest, waits=False)

MOST_NAMES: Final = 1000  # names in one piece, which takes the store about a millisecond
_MOST_DUE: Final = 5000  # events that may wait to be subtracted while a piece is read
_ATTEMPTS: Final = 20


class Piece(msgspec.Struct, frozen=True):
    """A piece of the data under one of a board's store keys.

    Attributes:
        link: the id, time, writer and sequence of the last entry of the journal.
        offset: the board's offset.
        newest: the newest slot; None if there is none.
        now: the time by the board's clock, in milliseconds since 1970.
        cursor: where the next piece begins; `0` at the end.
        pairs: names and values; None for a name that is not there.
        due: the events that have left a sliding window, and wait to be subtracted.
        starts: the starts of all slots, in their order.
        gone: the time, offset and number of the last event that has left a sliding window. They are zero if the
            journal knows all events that have left. None if the board does not record this.
    """

    link: str
    offset: int
    newest: int | None
    now: int
    cursor: str
    pairs: list[tuple[bytes, bytes | None]]
    due: list[bytes]
    starts: list[int]
    gone: tuple[int, int, int] | None


async def read_piece(
    state: BoardState, key: str, *, is_sorted: bool = False, cursor: str = "0", names: Sequence[bytes] | None = None
) -> Piece:
    """Read a piece from a cursor on, or read the values of some names.

    Raises:
        StoreUnavailableError: rotation is far behind.
    """
    window, keys = state.board.window, state.keys
    request = PieceRequest(
        epoch=state.epoch or state.born,
        cursor=cursor,
        count=MOST_NAMES,
        names=None if names is None else [text(name) for name in names],
        sorted=is_sorted,
        by_event=state.board.clock == "event",
        window=window.length * 1000 if isinstance(window, Sliding) else None,
        most_due=_MOST_DUE,
    )
    for _ in range(_ATTEMPTS):
        reply = await state.run(PIECE, [keys.meta, keys.slots, keys.log, key], request)
        if reply[0] != b"due":
            _, offset, journal, newest, now, next_cursor, found, due, starts, left = reply
            gone = None
            if left:  # the place of the last event that has left
                _, time, its_offset, number = map(int, left.split())
                gone = (time, its_offset, number)
            return Piece(
                link=journal.decode().rpartition(" ")[0],
                offset=int(offset),
                newest=int(newest) if newest else None,
                now=int(now),
                cursor=next_cursor.decode(),
                pairs=list(zip(found[::2], found[1::2], strict=True)),
                due=due,
                starts=[int(start) for start in starts],
                gone=gone,
            )
        await catch_up(BoardRotator(state))
    raise StoreUnavailableError(f"board {state.board.id}: {int(reply[1]):,} events wait to be subtracted")
