"""The rank lookups of a channel: one for each variant, member and number of neighbours."""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from live.errors import EpochLostError, ProblemError, StoreUnavailableError
from live.fanout.engine.lookup import RankLookup
from live.fanout.engine.subscribers import Subscribers
from live.fanout.engine.variant import Variant
from live.fanout.subscription import Subscription
from live.fanout.viewer import Viewer
from live.store.board.read.reader import BoardReader

_MOST: Final = 10_000  # lookups that every tick can read
_BATCH: Final = 200  # lookups per read; then their viewers receive the result, and other tasks of the event loop run


class RankLookups:
    """The rank lookups that viewers of a channel currently ask for."""

    def __init__(self) -> None:
        self._lookups: dict[tuple[Subscribers, str, int], RankLookup] = {}
        # The position to read at least, or None for any; in order of arrival.
        self._due: dict[RankLookup, tuple[str, int] | None] = {}
        self._reading = False
        self._renewals = 0

    @property
    def are_waiting(self) -> bool:
        """Whether lookups are due and no read is in progress."""
        return bool(self._due) and not self._reading

    def require_room(self, variant: Variant | None, subscription: Subscription) -> None:
        """Check that one more lookup is possible; `variant` is None if nobody watches it yet.

        Raises:
            ProblemError: `too_many_viewers`.
        """
        name = variant, subscription.key, subscription.around
        if subscription.key is None or name in self._lookups or len(self._lookups) < _MOST:
            return
        raise ProblemError("too_many_viewers", f"{_MOST} members of this board are watched already", retry_after=5)

    def find(self, variant: Variant, subscription: Subscription) -> RankLookup | None:
        """The lookup that a new viewer asks for, or None."""
        if subscription.key is None:
            return None
        name = (variant, subscription.key, subscription.around)
        return self._lookups.setdefault(name, RankLookup(subscription.key, subscription.around))

    def enter(self, viewer: Viewer) -> bool:
        """Add a viewer to the lookup that it asks for. Returns whether that lookup was never read."""
        lookup = viewer.position.lookup
        if lookup is None:
            return False
        lookup.viewers.add(viewer)
        if lookup.frame is None:
            self._due[lookup] = None
        return lookup.frame is None

    def leave(self, viewer: Viewer) -> None:
        """Remove a viewer, and the lookup if nobody else asks for it."""
        lookup = viewer.position.lookup
        if lookup is None:
            return
        lookup.viewers.discard(viewer)
        if not lookup.viewers:
            self._due.pop(lookup, None)
            del self._lookups[viewer.group, lookup.key, lookup.around]

    def forget(self) -> None:
        """Read all lookups again, because the board was redefined or has a new epoch."""
        self._renewals += 1
        for lookup in self._lookups.values():
            lookup.forget()

    def mark(self, variants: Collection[Variant], epoch: str, offset: int) -> None:
        """Read the lookups of some variants again, at a position of the board or later."""
        self._due.update(
            (lookup, (epoch, offset)) for (variant, _, _), lookup in self._lookups.items() if variant in variants
        )

    async def look_up(self, reader_of: Callable[[], BoardReader]) -> bool:
        """Read the lookups that are due and send the results, until none is due.

        Returns False if the store is unavailable.
        """
        if self._reading:
            return True
        self._reading = True
        try:
            while batch := self._next_batch():
                await self._read(batch, reader_of())
        except (StoreUnavailableError, EpochLostError):  # the read of the top reports it
            return False
        finally:
            self._reading = False
        return True

    def _next_batch(self) -> list[RankLookup]:
        batch: list[RankLookup] = []
        while self._due and len(batch) < _BATCH:
            lookup = next(iter(self._due))
            position = self._due.pop(lookup)
            if position is None or not lookup.is_read_at(*position):  # otherwise it was read after it became due
                batch.append(lookup)
        return batch

    async def _read(self, batch: Sequence[RankLookup], reader: BoardReader) -> None:
        renewals, pages = self._renewals, None
        try:
            pages = await reader.places([lookup.wanted for lookup in batch])
        finally:
            if pages is None or renewals != self._renewals:  # not read, or read under an old definition
                self._due.update((lookup, None) for lookup in batch if lookup.viewers)
        if renewals == self._renewals:
            for lookup in [lookup for lookup, page in zip(batch, pages, strict=True) if lookup.take(page, reader.page)]:
                await lookup.wake_viewers()
