"""Other rules of a board: from an entry `swap` on, a board holds what it would hold if it had always had them.

The entries before stay as they are. A reader counts their events by the new rules (`conversion.py`). So the past before
the `swap` stays as it was, and changing the rules back loses nothing.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, Self

import msgspec

from live.domain.board import Board
from live.domain.board_file import make_board, read_table
from live.domain.choices import Choices
from live.domain.window import Forever, Sliding
from live.errors import SetupError

FOREVER: Final = -(2**53)  # seconds; earlier than any slot


class Ruled(msgspec.Struct, frozen=True, array_like=True):
    """Rules that a board gets with a swap."""

    name: str = ""  # tells this change from all others; empty for no change
    # The start of the oldest slot that counts by these rules at the time of the swap, in seconds since 1970.
    since: int = FOREVER
    choices: str = "{}"  # the choices of the board, as JSON
    earlier: tuple[str, ...] = ()  # the choices that the board had before, as JSON, the last ones at the end

    def __bool__(self) -> bool:
        """Return whether this is a change."""
        return bool(self.name)

    @classmethod
    def by(cls, name: str, board: Board, moment: int | None, earlier: Iterable[Board]) -> Self:
        """Return a change to the rules of a board, at a time in milliseconds by its clock; None for no time yet."""
        window, since = board.window, FOREVER
        if isinstance(window, Sliding) and moment is not None:
            since = moment // 1000 - window.length
        elif not isinstance(window, Forever) and moment is not None:
            since = window.oldest(window.slot_at(moment // 1000).start)
        return cls(name, since, _choices_of(board), tuple(map(_choices_of, earlier)))

    @property
    def board(self) -> Board:
        """The board with these rules."""
        return _board_of(self.choices)

    @property
    def before(self) -> Board:
        """The board with the rules before this change."""
        return _board_of(self.earlier[-1])

    def board_of(self, shape: str) -> Board:
        """Return the board as it was when its data had a shape."""
        for choices in (self.choices, *self.earlier):
            if (board := _board_of(choices)).shape.encode() == shape:
                return board
        raise SetupError(f"the journal does not say by which rules board {self.board.id!r} counted earlier events")


NO_CHANGE: Final = Ruled()


def _choices_of(board: Board) -> str:
    return msgspec.json.encode({**board.definition, "id": board.id}).decode()


@lru_cache(maxsize=256)
def _board_of(choices: str) -> Board:
    return make_board(read_table(msgspec.json.decode(choices, type=dict[str, Any]), Choices))
