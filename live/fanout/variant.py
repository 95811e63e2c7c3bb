"""A variant: the top of one board with one number of records and one interval. It chooses each viewer's next frame."""

import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from live.domain.board import Board
from live.domain.ranking import Page
from live.fanout.cohort import BoardStatus, Subscribers, ViewerPosition
from live.fanout.frames import Frame, is_surely_smaller, sync_frame, update_frame
from live.fanout.intervals import interval_of, viewer_interval
from live.fanout.subscription import Subscription

HISTORY: Final = 100  # pages of a board that are kept, so that viewers can resume after ten seconds of frames
_TOTALS: Final = 10  # intervals between two frames in which only totals change, because hardly anybody needs them
_TIMELY: Final = 1.0  # seconds for which a frame with the time of the server is sent


class PageHistory:
    """The newest pages of one epoch, by offset. It keeps at most `size` pages."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._epoch = ""
        self._pages: OrderedDict[int, Page] = OrderedDict()

    def add(self, page: Page) -> None:
        """Add a page. A new epoch, or an offset that went back, clears the history first.

        Of two pages with the same offset, keep the longer one.
        """
        if page.epoch != self._epoch or (self._pages and page.offset < next(reversed(self._pages))):
            self.clear()
            self._epoch = page.epoch
        held = self._pages.get(page.offset)
        if held is None or len(held.records) < len(page.records):
            self._pages[page.offset] = page
            if len(self._pages) > self._size:
                self._pages.popitem(last=False)

    def find(self, epoch: str | None, offset: int, size: int) -> Page | None:
        """Find the page at a position, if the history has it with at least the top `size`."""
        page = self._pages.get(offset) if epoch == self._epoch else None
        if page is None or len(page.records) < min(size, page.rank_count):
            return None
        return page

    def clear(self) -> None:
        """Forget all pages."""
        self._pages.clear()


class Variant(Subscribers):
    """The top `size` of a board. `advance` sets a newer page, and `next_frame` returns the frame that a viewer lacks.

    A viewer at the position of the previous page receives the update, which is encoded once for all. A viewer that
    reconnects at a position in the history receives the changes it missed. Any other viewer (new, slow, or of another
    epoch) receives the whole top. So no viewer has a backlog, and a slow viewer skips states.
    """

    def __init__(self, of: "Variants", size: int, interval: int) -> None:
        """Serve viewers of a board, with an interval in milliseconds."""
        super().__init__(of.status)
        self._of = of
        self.size = size
        self.interval = interval
        self.viewers = 0
        self.due: int | None = None  # when the next read is due, by the loop's clock; None if the variant is up to date
        self.totals_sent_at = 0  # when the current page was set, by the loop's clock
        self.are_totals_held = False  # whether the next read only serves to send totals
        self._read = 0
        self._old: Page | None = None
        self._page: Page | None = None
        # The frames made from the current page: the update, and those with the time of the server, which are made again
        # after a second: the whole top by None, and the updates for returning viewers by their offsets.
        self._update: Frame | None = None
        self._timed: dict[int | None, Frame] = {}
        self._timed_at = 0.0

    def forget(self) -> None:
        """Let every viewer receive the whole top next, because the board was redefined or data was lost."""
        self._old = self._page = None
        self._update, self._timed = None, {}
        for cohort in self.cohorts:
            cohort.position.reset()
        for viewer in self.loose:
            viewer.position.reset()

    @property
    def is_empty(self) -> bool:
        """Whether the variant has no page yet."""
        return self._page is None

    def hold(self, page: Page, now: int) -> bool:
        """Tell whether to hold a page back: nothing in the top changed, and totals were sent a moment ago.

        Do not give such a page to `advance`, because viewers stay at the position of the current page. The variant is
        due when the totals may be sent, or when the board changes again.
        """
        held = self._page
        if held is not None:
            if held.epoch == page.epoch and held.offset >= page.offset:
                return False
            release = self.totals_sent_at + self._of.totals_interval
            is_same_board = (held.epoch, held.period) == (page.epoch, page.period)
            if is_same_board and now < release and held.records[: self.size] == page.records[: self.size]:
                # Round up, so that all variants with this interval send totals at the same instant.
                self.due, self.are_totals_held = -(-release // self.interval) * self.interval, True
                return True
        self.totals_sent_at = now
        return False

    def advance(self, page: Page, read: int = 1) -> None:
        """Make a page, of the read number `read`, the current one, unless the current page is at least as new."""
        held = self._page
        self._read = max(read, self._read)
        if held is not None and held.epoch == page.epoch and held.offset >= page.offset:
            return
        self._old, self._page = held, page
        self._update, self._timed = None, {}

    def next_frame(self, position: ViewerPosition) -> Frame | None:
        """Return the records that a viewer at a position lacks, or None. The position moves past the frame."""
        page, old, frame = self._page, self._old, None
        if page is None:
            return None
        if position.returns:  # send the changes that the viewer has missed, if the history still has them
            is_ahead = position.epoch == page.epoch and position.offset > page.offset
            if is_ahead and self._read <= position.last_read:
                return None
            known = self._of.history.find(position.epoch, position.offset, self.size)
            if known is not None and position.epoch == page.epoch and position.offset <= page.offset:
                self._renew_timed()
                frame = self._timed.get(position.offset)
                if frame is None:
                    frame = self._timed[position.offset] = self._smaller(known, page, recovered=True)
            position.returns = False
        elif position.epoch == page.epoch and position.offset == page.offset:
            return None
        elif old is not None and old.epoch == page.epoch == position.epoch and old.offset == position.offset:
            if self._update is None:
                self._update = self._smaller(old, page)
            frame = self._update
        position.epoch, position.offset = page.epoch, page.offset
        return frame or self._whole(page)

    def _smaller(self, old: Page, page: Page, *, recovered: bool = False) -> Frame:
        """Return the update from an old page, or the whole top if the whole top is smaller.

        A new period begins with the whole top, which says when the period begins and ends.
        """
        if old.period == page.period:
            update = update_frame(old, page, self.size, returning=self._of.board if recovered else None)
            if is_surely_smaller(update, page, self.size):
                return update
            if len(update.payload) <= len(self._whole(page).payload):
                return update
        return sync_frame(self._of.board, page, self.size, recovered=True) if recovered else self._whole(page)

    def _renew_timed(self) -> None:
        """Forget the frames that have a time, unless they were made within the last second."""
        now = time.monotonic()
        if now - self._timed_at > _TIMELY:
            self._timed_at, self._timed = now, {}

    def _whole(self, page: Page) -> Frame:
        self._renew_timed()
        frame = self._timed.get(None)
        if frame is None:
            frame = self._timed[None] = sync_frame(self._of.board, page, self.size)
        return frame


class Variants:
    """The variants that have viewers, and the `history` of pages that they share, for viewers that reconnect."""

    def __init__(self, board: Board, default_interval: float, status: BoardStatus) -> None:
        """Serve a board. Intervals are in seconds. The default applies to boards without an interval of their own."""
        self.board = board
        self.status = status
        self._default = default_interval
        self.totals_interval = round(_TOTALS * default_interval * 1000)  # the minimum between two updates of totals
        self.interval = interval_of(board, default_interval)
        self.history = PageHistory(HISTORY)
        self._variants: dict[tuple[int, int], Variant] = {}

    def __iter__(self) -> Iterator[Variant]:
        """Go through all variants."""
        return iter(self._variants.values())

    @property
    def are_settled(self) -> bool:
        """Whether no variant waits for a tick."""
        return all(variant.due is None for variant in self)

    @property
    def next_due(self) -> int | None:
        """When the next variant is due, in milliseconds of the loop's clock; None if no variant is due."""
        return min((variant.due for variant in self if variant.due is not None), default=None)

    def find(self, subscription: Subscription) -> Variant | None:
        """Find the variant of a subscription. Return None if nobody watches the variant."""
        return self._variants.get((subscription.size, viewer_interval(self.interval, subscription.interval)))

    def find_or_add(self, subscription: Subscription) -> Variant:
        """Find the variant of a subscription, or make it."""
        variant = self.find(subscription)
        if variant is None:
            interval = viewer_interval(self.interval, subscription.interval)
            variant = self._variants[subscription.size, interval] = Variant(self, subscription.size, interval)
        return variant

    def remove(self, variant: Variant) -> None:
        """Remove a variant without viewers."""
        del self._variants[variant.size, variant.interval]

    def take_due(self, now: int) -> list[Variant]:
        """Take the variants that are due. They are then no longer due, until something marks them again."""
        taken = [variant for variant in self if variant.due is not None and variant.due <= now]
        for variant in taken:
            variant.due, variant.are_totals_held = None, False
        return taken

    def renew(self, board: Board) -> None:
        """Replace the definition of the board: every viewer receives a sync."""
        before, self.interval = self.interval, interval_of(board, self._default)
        self.board = board
        for variant in self:
            variant.interval = variant.interval // before * self.interval
        self._variants = {(variant.size, variant.interval): variant for variant in self}
        self.forget()

    def forget(self) -> None:
        """Forget everything that was read: every viewer receives a sync, and none resumes from an earlier position."""
        self.history.clear()
        for variant in self:
            variant.forget()
