"""The top of a board as this process knows it: the last page, and the notices since."""

from collections.abc import Sequence
from typing import Final

from live.domain.board import Board
from live.domain.ranking import Page
from live.store.board.changes import is_carried
from live.store.board.reader import BoardReader

_SURPLUS: Final = 8  # records behind those that viewers see, so that a record that drops out needs no read
_MOST_NOTICES: Final = 8  # to follow more changes costs as much as a read


class Top:
    """The last page of a board and the notices that arrived since. `page` is None before the first read.

    While every notice carries its change, the page of the next tick follows from the last one. Otherwise it has to be
    read.
    """

    __slots__ = ("_board", "_is_invalid", "_notices", "page")

    def __init__(self) -> None:
        self.page: Page | None = None
        self._board: Board | None = None  # by which the page was read
        self._notices: list[bytes] = []
        self._is_invalid = True

    @property
    def position(self) -> tuple[str, int] | None:
        """The epoch and offset of the last page."""
        return None if self.page is None else (self.page.epoch, self.page.offset)

    def add_notice(self, notice: bytes) -> None:
        """Take a notice."""
        if not self._is_invalid:
            if len(self._notices) < _MOST_NOTICES and is_carried(notice):
                self._notices.append(notice)
            else:
                self.invalidate()

    def invalidate(self) -> None:
        """Read the next page, because the notices do not carry every change."""
        self._is_invalid = True
        self._notices.clear()

    def follow(self, reader: BoardReader, sizes: Sequence[int]) -> Page | None:
        """The page after all notices, with the records for tops of these sizes. None if it has to be read."""
        if self._is_invalid or self.page is None or reader.state.board is not self._board:
            return None
        most = max(sizes) + 2 * _SURPLUS
        page = reader.follow(self.page, self._notices, most) if self._notices else self.page
        self._notices.clear()
        return page if page is not None and len(page.records) >= min(max(sizes), page.rank_count) else None

    def begin_read(self, reader: BoardReader, sizes: Sequence[int]) -> int:
        """How many records to read for tops of these sizes. Notices that arrive from now on follow, or are old."""
        self._board, self._is_invalid = reader.state.board, False
        self._notices.clear()
        return max(sizes) + _SURPLUS
