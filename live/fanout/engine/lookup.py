"""The rank of one member that viewers asked for."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from live.domain.ranking import Page, neighbourhood
from live.fanout.frames import Around, Frame, around_frame
from live.store.board.read.reader import EncodedPage

_MOST_AT_ONCE: Final = 256  # viewers; then other tasks of the event loop run


class LookupViewer(Protocol):
    """A viewer that subscribed to the rank of a member."""

    def wake(self) -> None:
        """Check whether there is something to send."""


class RankLookup:
    """The rank of one member for the viewers of a variant, with `around` neighbours on each side.

    `frame` is None before the first read. After that, it is replaced only if its content changes.
    """

    __slots__ = ("_encoded", "_sent", "around", "frame", "key", "viewers")

    def __init__(self, key: str, around: int) -> None:
        self.key = key
        self.around = around
        self.viewers: set[LookupViewer] = set()
        self.frame: Frame | None = None
        self._sent: Around | None = None
        self._encoded: EncodedPage | None = None

    @property
    def wanted(self) -> tuple[str, int]:
        """What to read: the member, and the number of records on each side. The gap needs the one above."""
        return self.key, max(self.around, 1)

    def is_read_at(self, epoch: str, offset: int) -> bool:
        """Whether the last read is at least as new as a position of the board."""
        if self._encoded is None:
            return False
        read_epoch, read_offset = self._encoded.position
        return read_epoch == epoch and read_offset >= offset

    def take(self, encoded: EncodedPage, page_of: Callable[[EncodedPage], Page]) -> bool:
        """Take what was read. Returns whether there is something to send; a new offset alone is not."""
        before, self._encoded = self._encoded, encoded
        if before is not None and encoded.is_same(before):
            return False
        around = self._around(page_of(encoded))
        if self._sent is not None and msgspec.structs.replace(around, offset=self._sent.offset) == self._sent:
            return False
        self._sent, self.frame = around, around_frame(around)
        return True

    async def wake_viewers(self) -> None:
        """Wake all viewers of this member."""
        for number, viewer in enumerate(list(self.viewers), 1):
            if viewer in self.viewers:
                viewer.wake()
            if number % _MOST_AT_ONCE == 0:
                await asyncio.sleep(0)

    def forget(self) -> None:
        """Forget what was read, because it may have another meaning now."""
        self._encoded = None

    def _around(self, page: Page) -> Around:
        bare = Around(epoch=page.epoch, offset=page.offset, key=self.key, rank_count=page.rank_count)
        if not page.records:
            return bare
        own, gap, records = neighbourhood(page.records, self.key, self.around)
        return msgspec.structs.replace(bare, score=own.score, rank=own.rank, gap=gap, records=records)
