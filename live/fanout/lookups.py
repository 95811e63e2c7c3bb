"""The keys that the viewers of a channel asked for: one for each variant, key and number of neighbours."""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from live.errors import EpochLostError, ProblemError, StoreUnavailableError
from live.fanout.lookup import RankLookup
from live.fanout.subscription import Subscription
from live.fanout.variant import Variant
from live.fanout.viewer import Viewer
from live.store.board.reader import BoardReader

_MOST: Final = 10_000  # that are read in every tick
_BATCH: Final = 200  # that are read at once; then those who asked are told, and the event loop has its turn


class RankLookups:
    """The rank lookups of a channel, while somebody asks for them."""

    def __init__(self) -> None:
        self._lookups: dict[tuple[Variant, str, int], RankLookup] = {}
        self._due: dict[RankLookup, tuple[str, int] | None] = {}  # at which position, or any; first come, first read
        self._reading = False
        self._renewals = 0

    @property
    def are_waiting(self) -> bool:
        """Whether some are to be read, and nobody does."""
        return bool(self._due) and not self._reading

    def require_room(self, variant: Variant | None, asked: Subscription) -> None:
        """Refuse one more key than are looked up; `variant` is None for one that nobody watches yet.

        Raises:
            ProblemError: `too_many_viewers`.
        """
        if asked.key is None or (variant, asked.key, asked.around) in self._lookups or len(self._lookups) < _MOST:
            return
        raise ProblemError("too_many_viewers", f"{_MOST} keys of this board are watched already", retry_after=5)

    def find(self, variant: Variant, asked: Subscription) -> RankLookup | None:
        """The lookup that a viewer asks for who is about to enter, if it asks for one."""
        if asked.key is None:
            return None
        name = (variant, asked.key, asked.around)
        return self._lookups.setdefault(name, RankLookup(asked.key, asked.around))

    def enter(self, viewer: Viewer) -> bool:
        """Keep what a viewer asks for up to date; True when it is a lookup that was never read."""
        lookup = viewer.position.lookup
        if lookup is None:
            return False
        lookup.askers.add(viewer)
        if lookup.frame is None:
            self._due[lookup] = None
        return lookup.frame is None

    def leave(self, viewer: Viewer) -> None:
        """A viewer is gone; what nobody asks for is not looked up."""
        lookup = viewer.position.lookup
        if lookup is None:
            return
        lookup.askers.discard(viewer)
        if not lookup.askers:
            self._due.pop(lookup, None)
            del self._lookups[viewer.variant, lookup.key, lookup.around]

    def forget(self) -> None:
        """The board was changed, or has another life: look at everything again."""
        self._renewals += 1
        for lookup in self._lookups.values():
            lookup.forget()

    def mark(self, variants: Collection[Variant], epoch: str, offset: int) -> None:
        """The lookups of these variants are to be read, as they stand at a position of the board or later."""
        self._due.update(
            (lookup, (epoch, offset)) for (variant, _, _), lookup in self._lookups.items() if variant in variants
        )

    async def look_up(self, reader_of: Callable[[], BoardReader]) -> bool:
        """Read those that are to be read, and tell who asked, until there are none; False when the store is away."""
        if self._reading:
            return True
        self._reading = True
        try:
            while batch := self._next_batch():
                await self._read(batch, reader_of())
        except (StoreUnavailableError, EpochLostError):  # whoever reads the top says so
            return False
        finally:
            self._reading = False
        return True

    def _next_batch(self) -> list[RankLookup]:
        batch: list[RankLookup] = []
        while self._due and len(batch) < _BATCH:
            lookup = next(iter(self._due))
            position = self._due.pop(lookup)
            if position is None or not lookup.is_read_at(*position):  # or it was read since it became due
                batch.append(lookup)
        return batch

    async def _read(self, batch: Sequence[RankLookup], reader: BoardReader) -> None:
        renewals, spots = self._renewals, None
        try:
            spots = await reader.places([lookup.wanted for lookup in batch])
        finally:
            if spots is None or renewals != self._renewals:  # not read, or by a definition that is over
                self._due.update((lookup, None) for lookup in batch if lookup.askers)
        if renewals == self._renewals:
            for lookup in [lookup for lookup, spot in zip(batch, spots, strict=True) if lookup.take(spot, reader.page)]:
                await lookup.tell()
