"""The top of one board in one size and pace: where it stands, and which frame takes a viewer there. Pure: no I/O."""

from typing import Protocol

from live.domain.ranking import Page, Ranks
from live.fanout.cohort import MOST, Cohort
from live.fanout.frames import Frame, is_surely_smaller, sync_frame, update_frame
from live.fanout.history import History
from live.fanout.position import Position


class Loose(Protocol):
    """A viewer that stands in no cohort."""

    @property
    def position(self) -> Position:
        """Where it stands."""

    def wake(self) -> None:
        """There may be something to send."""


class Variant:
    """A board's top `size`; `advance` gives it a newer page, `next_frame` moves a viewer on.

    A viewer that stands where the last page stood gets the update, which is encoded once for all; one that returns to a
    position which the history knows gets what it missed; any other (new, slow, or of another epoch) gets the whole top.
    So a viewer never has a backlog, and skips what it was too slow for.
    """

    def __init__(self, board: str, size: int, interval: int, history: History, ranks: Ranks = "ordinal") -> None:
        self.size = size
        self.interval = interval  # milliseconds
        self.viewers = 0
        self.due: int | None = None  # when to read it next, in milliseconds of the loop's clock; None: up to date
        self.cohorts: list[Cohort] = []
        self.loose: set[Loose] = set()  # those that stand in no cohort
        self._board = board
        self._ranks = ranks
        self._history = history
        self._read = 0
        self._old: Page | None = None
        self._page: Page | None = None
        self._sync: Frame | None = None
        self._update: Frame | None = None
        self._recoveries: dict[int, Frame] = {}

    def forget(self, ranks: Ranks) -> None:
        """Begin again, for the board was changed or has another life: every viewer gets the whole top."""
        self._ranks = ranks
        self._old = self._page = None
        self._drop_frames()
        for cohort in self.cohorts:
            cohort.position.begin_anew()
        for viewer in self.loose:
            viewer.position.begin_anew()

    @property
    def is_empty(self) -> bool:
        """Whether it waits for its first page."""
        return self._page is None

    def cohort_at(self, position: Position) -> Cohort:
        """A cohort at a position that has room."""
        for cohort in self.cohorts:
            if len(cohort) < MOST and cohort.position.is_same(position):
                return cohort
        cohort = Cohort(position)
        self.cohorts.append(cohort)
        return cohort

    def drop_empty_cohorts(self) -> None:
        """Forget cohorts that nobody stands in."""
        self.cohorts = [cohort for cohort in self.cohorts if cohort]

    def advance(self, page: Page, read: int = 1) -> None:
        """Take a page that came of a read of this number; one that is not newer changes nothing."""
        held = self._page
        self._read = max(read, self._read)
        if held is not None and held.epoch == page.epoch and held.offset >= page.offset:
            return
        self._old, self._page = held, page
        self._drop_frames()

    def next_frame(self, position: Position) -> Frame | None:
        """The frame that brings a viewer up to date, or None when it is; the position moves with it."""
        page = self._page
        if page is None:
            return None
        if position.returns:
            if self._is_overtaken(position, page):
                return None
            frame = self._recovery(position, page) or self._whole(page)
            position.returns = False
        elif position.epoch == page.epoch and position.offset == page.offset:
            return None
        else:
            frame = self._next_update(position, page) or self._whole(page)
        position.epoch, position.offset = page.epoch, page.offset
        return frame

    def page_elsewhere(self, position: Position) -> Page | None:
        """The top, when it is another than at a position; the position stays."""
        page = self._page
        if page is None or (position.epoch == page.epoch and position.offset == page.offset):
            return None
        return None if self._is_overtaken(position, page) else page.top(self.size)

    def _is_overtaken(self, position: Position, page: Page) -> bool:
        """Whether another process may have been ahead of us, and have shown a viewer what we have not read yet."""
        return position.epoch == page.epoch and position.offset > page.offset and self._read <= position.asked

    def _next_update(self, position: Position, page: Page) -> Frame | None:
        old = self._old
        if old is None or not old.epoch == page.epoch == position.epoch or old.offset != position.offset:
            return None
        if self._update is None:
            self._update = self._smaller(update_frame(old, page, self.size), page)
        return self._update

    def _recovery(self, position: Position, page: Page) -> Frame | None:
        """What a viewer missed that was away, if that is still known."""
        known = self._history.find(position.epoch, position.offset, self.size)
        if known is None or position.epoch != page.epoch or position.offset > page.offset:
            return None
        frame = self._recoveries.get(position.offset)
        if frame is None:
            update = update_frame(known, page, self.size, recovered=True)
            frame = self._smaller(update, page, recovered=True)
            self._recoveries[position.offset] = frame
        return frame

    def _smaller(self, update: Frame, page: Page, *, recovered: bool = False) -> Frame:
        """An update, or the whole top where that is no larger."""
        if is_surely_smaller(update, page, self.size):
            return update
        whole = self._whole(page)
        if len(update.payload) <= len(whole.payload):
            return update
        return sync_frame(self._board, page, self.size, self._ranks, recovered=True) if recovered else whole

    def _whole(self, page: Page) -> Frame:
        if self._sync is None:
            self._sync = sync_frame(self._board, page, self.size, self._ranks)
        return self._sync

    def _drop_frames(self) -> None:
        self._sync = self._update = None
        self._recoveries = {}
