"""Readers of boards, and the gate: code gets the data of a board only with a reader who may read it.

No I/O and no clock. For a reader who may not read a private board, the board does not exist.
"""

import math
from collections.abc import Collection, Iterable
from typing import Final, Generic, TypeVar

import msgspec

from live.domain.board import Board
from live.domain.text import nearest
from live.errors import BOARD_DELETED, ProblemError, StoreUnavailableError

_T = TypeVar("_T")
_MOST_COMPARED: Final = 100  # maximum boards among which the nearest name is searched


class BoardScope(msgspec.Struct, frozen=True):
    """A set of board ids: the ids that are named, and all ids that begin with a prefix."""

    ids: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    @classmethod
    def of(cls, patterns: Iterable[str]) -> "BoardScope":
        """Read patterns: ids such as `posts`, and prefixes such as `acme-*`."""
        several = tuple(patterns)
        prefixes = tuple(sorted(pattern[:-1] for pattern in several if pattern.endswith("*")))
        return cls(frozenset(pattern for pattern in several if not pattern.endswith("*")), prefixes)

    def __contains__(self, board: str) -> bool:
        """Tell whether the set has the id of a board."""
        return board in self.ids or board.startswith(self.prefixes)


NO_BOARDS: Final = BoardScope()
ALL_BOARDS: Final = BoardScope.of(("*",))


class Reader(msgspec.Struct, weakref=True, eq=False):
    """The reader of a request.

    `opens` are the private boards that it may read, in addition to all public boards. When the credentials end, `opens`
    shrinks, so that connections of the reader can end too. `sees_more` is true if the reader ever had a private board:
    then no cache may share a response to it. `fault` says what is wrong with the credentials, for the refusal of a
    board. If `is_sure` is false, the credentials can't be checked now. `member` is the member of a viewer token,
    and `ends` is when the credentials end, in seconds since 1970, if they do. Connections of the reader end with
    `end_code`. `api_key` is the id of a valid API key, or empty. The reader may like members of the boards in `likes`,
    and `voter` tells the reader apart from other voters there. `signer` names the key that has signed a viewer token.
    """

    opens: BoardScope = NO_BOARDS
    fault: str = ""
    api_key: str = ""
    member: str | None = None
    is_sure: bool = True
    likes: BoardScope = NO_BOARDS
    voter: str = ""
    signer: str = ""
    ends: float = math.inf
    end_code: int = BOARD_DELETED
    sees_more: bool = False

    def __post_init__(self) -> None:
        """Note whether the reader has a private board."""
        self.sees_more = self.opens is not NO_BOARDS

    def may_read(self, board: Board) -> bool:
        """Tell whether a board exists for this reader."""
        return not board.is_private or board.id in self.opens

    def end(self, fault: str) -> None:
        """Take all private boards and likes from the reader, and set the reason."""
        self.opens = self.likes = NO_BOARDS
        self.fault = fault

    def refusal(self, wanted: str = "", visible: Collection[str] = ()) -> Exception:
        """Make the error for a board that does not exist for this reader.

        The error depends only on the reader, on the `wanted` id, and on the boards that are `visible` to the reader.
        """
        if not self.is_sure:
            return StoreUnavailableError("can't read the API keys")
        near = nearest(wanted, visible) if 0 < len(visible) <= _MOST_COMPARED else None
        detail = f"{f'did you mean `{near}`? ' if near else ''}GET /v1/boards lists the boards"
        path = f"/boards/{near}" if near else None
        return ProblemError("board_not_found", f"{detail}; {self.fault}" if self.fault else detail, near=path)

    def require_sure(self) -> None:
        """Refuse a list of boards while it could lack some boards of the reader."""
        if not self.is_sure:
            raise StoreUnavailableError("can't read the API keys")


NOBODY: Final = Reader()  # a request without credentials
SERVER: Final = Reader(ALL_BOARDS)  # the server's own work, never for a request


class Gated(Generic[_T]):
    """One object for each board. Only a reader of the board can get it: code without a reader does not type-check."""

    def __init__(self) -> None:
        self._all: dict[str, _T] = {}
        self._public: dict[str, _T] = {}

    def put(self, board: Board, thing: _T) -> None:
        """Add or replace the object of a board. The definition of the board says who may get it."""
        self._all[board.id] = thing
        if board.is_private:
            self._public.pop(board.id, None)
        else:
            self._public[board.id] = thing

    def remove(self, board: str, reader: Reader) -> _T | None:
        """Remove and return the object of a board. Return None if the board does not exist for the reader."""
        found = self.find(board, reader)
        if found is not None:
            del self._all[board]
            self._public.pop(board, None)
        return found

    def find(self, board: str, reader: Reader) -> _T | None:
        """Return the object of a board, or None if the board does not exist for the reader."""
        found = self._public.get(board)
        if found is None and board in reader.opens:
            found = self._all.get(board)
        return found

    def all(self, reader: Reader) -> list[_T]:
        """Return the objects of all boards that the reader may read, in the order of the boards."""
        if reader.opens is NO_BOARDS and len(self._public) == len(self._all):
            return list(self._all.values())
        return [thing for board, thing in self._all.items() if board in self._public or board in reader.opens]

    def __len__(self) -> int:
        """Count all boards."""
        return len(self._all)

    @property
    def has_private(self) -> bool:
        """Whether one of the boards is private."""
        return len(self._public) < len(self._all)
