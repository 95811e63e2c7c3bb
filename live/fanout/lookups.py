"""Looks up ranks for the viewers of a channel, once for each variant, member and number of neighbours."""

import asyncio
from collections.abc import Callable, Collection
from typing import Any, Final, Protocol

import msgspec

from live.domain.ranking import Page, neighbourhood
from live.domain.views import Around
from live.errors import EpochLostError, ProblemError, StoreUnavailableError
from live.fanout.frames import Frame, frame_of
from live.fanout.subscription import Subscription
from live.store.board.read.reader import BoardReader, EncodedPage

_MOST: Final = 10_000  # lookups of one board, so that each tick can read them all
# Lookups per read. After each read, the viewers receive the results, and other tasks of the event loop run.
_BATCH: Final = 200
_MOST_AT_ONCE: Final = 256  # viewers that are woken before other tasks of the event loop run


class LookupViewer(Protocol):
    """A viewer that subscribed to the rank of a member. `group` is its variant."""

    group: Any

    def wake(self) -> None:
        """Check whether there is something to send."""


class RankLookup(msgspec.Struct, eq=False):
    """The rank of one member for a variant's viewers, with `around` neighbours on each side.

    `frame` is None before the first read. After that, it is replaced only if its content changes.
    """

    member: str
    around: int
    viewers: set[LookupViewer] = msgspec.field(default_factory=set)
    frame: Frame | None = None
    _sent: Around | None = None
    _encoded: EncodedPage | None = None

    @property
    def wanted(self) -> tuple[str, int]:
        """The member to read, and how many records on each side: at least one, because the gap needs the next rank."""
        return self.member, max(self.around, 1)

    def is_read_at(self, epoch: str, offset: int) -> bool:
        """Tell whether the last read is at least as new as a position of the board."""
        if self._encoded is None:
            return False
        read_epoch, read_offset = self._encoded.position
        return read_epoch == epoch and read_offset >= offset

    def take(self, encoded: EncodedPage, page_of: Callable[[EncodedPage], Page]) -> bool:
        """Take the page that was read. Return whether there is a new frame to send: a new offset alone is no reason."""
        before, self._encoded = self._encoded, encoded
        if before is not None and encoded.is_same(before):
            return False
        around = self._around(page_of(encoded))
        if self._sent is not None and msgspec.structs.replace(around, offset=self._sent.offset) == self._sent:
            return False
        self._sent, self.frame = around, frame_of(around)
        return True

    async def wake_viewers(self) -> None:
        """Wake all viewers of this member."""
        for number, viewer in enumerate(list(self.viewers), 1):
            if viewer in self.viewers:
                viewer.wake()
            if number % _MOST_AT_ONCE == 0:
                await asyncio.sleep(0)

    def forget(self) -> None:
        """Forget the page that was read, because its ranks may have another meaning now."""
        self._encoded = None

    def _around(self, page: Page) -> Around:
        bare = Around(epoch=page.epoch, offset=page.offset, member=self.member, rank_count=page.rank_count)
        if not page.records:
            return bare
        own, gap, records = neighbourhood(page.records, self.member, self.around)
        return msgspec.structs.replace(bare, score=own.score, rank=own.rank, gap=gap, records=records)


class RankLookups:
    """The rank lookups that viewers of a channel currently ask for."""

    def __init__(self) -> None:
        self._lookups: dict[tuple[object, str, int], RankLookup] = {}
        # The lookups that are due, in order of arrival. The value is the position that the lookup must reach, or None
        # if any position will do.
        self._due: dict[RankLookup, tuple[str, int] | None] = {}
        self._reading = False
        self._renewed = object()  # replaced by `forget`, so that `look_up` notices a `forget` during its read

    @property
    def are_waiting(self) -> bool:
        """Whether lookups are due and no read is in progress."""
        return bool(self._due) and not self._reading

    def require_room(self, variant: object | None, subscription: Subscription) -> None:
        """Check that one more lookup is possible. `variant` is None if nobody watches the variant yet."""
        name = variant, subscription.member, subscription.around
        if subscription.member is None or name in self._lookups or len(self._lookups) < _MOST:
            return
        raise ProblemError("too_many_viewers", f"{_MOST} members of this board are watched already", retry_after=5)

    def find(self, variant: object, subscription: Subscription) -> RankLookup | None:
        """Find or make the lookup that a new viewer asks for. Return None if the viewer asks for none."""
        if subscription.member is None:
            return None
        name = (variant, subscription.member, subscription.around)
        return self._lookups.setdefault(name, RankLookup(subscription.member, subscription.around))

    def enter(self, viewer: LookupViewer, lookup: RankLookup) -> bool:
        """Add a viewer to the lookup that it asks for. Returns whether that lookup was never read."""
        lookup.viewers.add(viewer)
        if lookup.frame is None:
            self._due[lookup] = None
        return lookup.frame is None

    def leave(self, viewer: LookupViewer, lookup: RankLookup) -> None:
        """Remove a viewer, and the lookup if nobody else asks for it."""
        lookup.viewers.discard(viewer)
        if not lookup.viewers:
            self._due.pop(lookup, None)
            del self._lookups[viewer.group, lookup.member, lookup.around]

    def forget(self) -> None:
        """Make the next ticks read all lookups again, because the board was redefined, or data was lost."""
        self._renewed = object()
        for lookup in self._lookups.values():
            lookup.forget()

    def mark(self, variants: Collection[object], epoch: str, offset: int) -> None:
        """Mark the lookups of some variants as due. They need a read that is at least as new as this position."""
        self._due.update(
            (lookup, (epoch, offset)) for (variant, _, _), lookup in self._lookups.items() if variant in variants
        )

    async def look_up(self, reader_of: Callable[[], BoardReader]) -> bool:
        """Read due lookups and send their results until none is due. Return False if the store can't answer."""
        if self._reading:
            return True
        self._reading = True
        try:
            while self._due:
                batch: list[RankLookup] = []
                while self._due and len(batch) < _BATCH:
                    lookup = next(iter(self._due))
                    position = self._due.pop(lookup)
                    # Skip a lookup that was read after it became due.
                    if position is None or not lookup.is_read_at(*position):
                        batch.append(lookup)
                if not batch:
                    continue
                reader, renewed, pages = reader_of(), self._renewed, None
                try:
                    pages = await reader.places([lookup.wanted for lookup in batch])
                finally:
                    if pages is None or renewed is not self._renewed:  # not read, or read under an old definition
                        self._due.update((lookup, None) for lookup in batch if lookup.viewers)
                if renewed is self._renewed:
                    read = zip(batch, pages, strict=True)
                    for lookup in [lookup for lookup, page in read if lookup.take(page, reader.page)]:
                        await lookup.wake_viewers()
        except (StoreUnavailableError, EpochLostError):  # the read of the top reports the same error
            return False
        finally:
            self._reading = False
        return True
