"""The top of one board in one size: where it stands, and which frame takes a viewer there. Pure: no I/O, no clock."""

from live.fanout.frames import Frame, sync_frame, update_frame
from live.ranking import Page, Ranks


class Position:
    """How far one viewer has come: an epoch and an offset, or nothing yet; and what it was last told of staleness."""

    __slots__ = ("epoch", "offset", "stale")

    def __init__(self) -> None:
        self.epoch: str | None = None
        self.offset = -1
        self.stale: str | None = None


class Topic:
    """A board's top `size`; `advance` gives it a newer page, `next_frame` moves a viewer on.

    A viewer that stands where the last page stood gets the update, which is encoded once for all; any other (new, slow,
    or of another epoch) gets the whole top. So a viewer never has a backlog, and skips what it was too slow for.
    """

    def __init__(self, board: str, size: int, ranks: Ranks = "ordinal") -> None:
        self.size = size
        self.viewers = 0
        self._board = board
        self._ranks = ranks
        self._old: Page | None = None
        self._page: Page | None = None
        self._sync: Frame | None = None
        self._update: Frame | None = None

    def forget(self, ranks: Ranks) -> None:
        """Begin again, for the board was changed or has another life."""
        self._ranks = ranks
        self._old = self._page = None
        self._sync = self._update = None

    def advance(self, page: Page) -> None:
        """Take a newer page; one that is not newer changes nothing."""
        held = self._page
        if held is not None and held.epoch == page.epoch and held.offset >= page.offset:
            return
        self._old, self._page = held, page
        self._sync = self._update = None

    def next_frame(self, position: Position) -> Frame | None:
        """The frame that brings a viewer up to date, or None when it is; the position moves with it."""
        page, old = self._page, self._old
        if page is None or (position.epoch == page.epoch and position.offset == page.offset):
            return None
        current = old is not None and old.epoch == page.epoch == position.epoch and old.offset == position.offset
        position.epoch, position.offset = page.epoch, page.offset
        if current and old is not None:
            if self._update is None:
                self._update = update_frame(old, page, self.size)
            return self._update
        if self._sync is None:
            self._sync = sync_frame(self._board, page, self.size, self._ranks)
        return self._sync
