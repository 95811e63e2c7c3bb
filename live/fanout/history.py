"""The last pages of a board, so that a viewer that reconnects receives only the changes it missed."""

from collections import OrderedDict

from live.domain.ranking import Page


class History:
    """The newest pages of one epoch, by offset; at most `size` of them."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._epoch = ""
        self._pages: OrderedDict[int, Page] = OrderedDict()

    def add(self, page: Page) -> None:
        """Add a page. A new epoch, or an offset that went back, clears the history first."""
        if page.epoch != self._epoch or (self._pages and page.offset < next(reversed(self._pages))):
            self.clear()
            self._epoch = page.epoch
        held = self._pages.get(page.offset)
        if held is None or len(held.records) < len(page.records):
            self._pages[page.offset] = page
            if len(self._pages) > self._size:
                self._pages.popitem(last=False)

    def find(self, epoch: str | None, offset: int, size: int) -> Page | None:
        """The page at a position, if the history has it with at least the top `size`."""
        page = self._pages.get(offset) if epoch == self._epoch else None
        if page is None or len(page.records) < min(size, page.rank_count):
            return None
        return page

    def clear(self) -> None:
        """Forget all pages."""
        self._pages.clear()
