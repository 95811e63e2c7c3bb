"""Who reads boards, and the gate: only with a reader can code get hold of what belongs to a board. No I/O and no clock.

For someone who may not read a private board, it does not exist.
"""

from collections.abc import Collection, Iterable
from typing import Final, Generic, TypeVar

import msgspec

from live.domain.board import Board
from live.domain.text import nearest
from live.errors import BOARD_DELETED, ProblemError, StoreUnavailableError

_T = TypeVar("_T")
_MOST_COMPARED: Final = 100  # boards, to find the one that was meant


class BoardScope(msgspec.Struct, frozen=True):
    """A set of board ids: those that are named, and those that begin with a prefix."""

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


class Reader:
    """Who reads: everybody may read public boards, and `opens` are the private boards that this reader may read too.

    `opens` shrinks when the credentials of a reader end, so that what the reader has open can end as well. `sees_more`
    says whether it ever had a board: only this reader may keep a response to it. `fault` is what is wrong with the
    credentials, for the refusal of a board. If the reader is not `sure`, the credentials can't be checked now. `member`
    is the member that a viewer is, and `ends` the time in seconds since 1970 at which the credentials end, if they do.
    What a reader watches ends with `end_code`. `api_key` is the id of a valid API key, or empty.
    """

    __slots__ = ("__weakref__", "api_key", "end_code", "ends", "fault", "is_sure", "member", "opens", "sees_more")

    def __init__(
        self,
        opens: BoardScope = NO_BOARDS,
        fault: str = "",
        *,
        api_key: str = "",
        member: str | None = None,
        is_sure: bool = True,
    ) -> None:
        self.opens = opens
        self.api_key = api_key
        self.member = member
        self.ends: int | None = None
        self.end_code = BOARD_DELETED
        self.sees_more = opens is not NO_BOARDS
        self.fault = fault
        self.is_sure = is_sure

    def may_read(self, board: Board) -> bool:
        """Tell whether a board exists for this reader."""
        return not board.is_private or board.id in self.opens

    def end(self, fault: str) -> None:
        """Take from the reader all that it opens, and say why."""
        self.opens = NO_BOARDS
        self.fault = fault

    def refusal(self, wanted: str = "", visible: Collection[str] = ()) -> Exception:
        """Make the error for a board that does not exist for this reader.

        It depends only on the reader, on the id that it `wanted` and on the boards that are `visible` to it.
        """
        if not self.is_sure:
            return StoreUnavailableError("can't read the API keys")
        near = nearest(wanted, visible) if 0 < len(visible) <= _MOST_COMPARED else None
        detail = f"{f'did you mean `{near}`? ' if near else ''}GET /v1/boards lists the boards"
        return ProblemError("board_not_found", f"{detail}; {self.fault}" if self.fault else detail)

    def require_sure(self) -> None:
        """Refuse to make a list of boards while it might lack some.

        Raises:
            StoreUnavailableError: the credentials can't be checked now.
        """
        if not self.is_sure:
            raise StoreUnavailableError("can't read the API keys")


NOBODY: Final = Reader()  # a request without credentials
SERVER: Final = Reader(ALL_BOARDS)  # the server's own work, never for a request


class Gated(Generic[_T]):
    """What belongs to each board. Only who may read a board can get hold of it.

    There is no other way in, so code that has no reader does not type-check.
    """

    def __init__(self) -> None:
        self._all: dict[str, _T] = {}
        self._public: dict[str, _T] = {}

    def put(self, board: Board, thing: _T) -> None:
        """Add what belongs to a board, or replace it. The definition of the board says who may get hold of it."""
        self._all[board.id] = thing
        if board.is_private:
            self._public.pop(board.id, None)
        else:
            self._public[board.id] = thing

    def remove(self, board: str, reader: Reader) -> _T | None:
        """Remove and return what belongs to a board."""
        found = self.find(board, reader)
        if found is not None:
            del self._all[board]
            self._public.pop(board, None)
        return found

    def find(self, board: str, reader: Reader) -> _T | None:
        """Return what belongs to a board, or None if the board does not exist for the reader."""
        found = self._public.get(board)
        if found is None and board in reader.opens:
            found = self._all.get(board)
        return found

    def all(self, reader: Reader) -> list[_T]:
        """Return what belongs to each board that the reader may read, in the order of the boards."""
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
