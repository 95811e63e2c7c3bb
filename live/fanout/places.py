"""The keys that the viewers of a channel asked for: one for each variant, key and number of neighbours."""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from live.errors import EpochLostError, ProblemError, StoreUnavailableError
from live.fanout.place import Place
from live.fanout.subscription import Subscription
from live.fanout.variant import Variant
from live.fanout.viewer import Viewer
from live.store.board.ledger import Ledger

_MOST: Final = 10_000  # that are read in every tick
_BATCH: Final = 200  # that are read at once; then those who asked are told, and the event loop has its turn


class Places:
    """The places of a channel, while somebody asks for them."""

    def __init__(self) -> None:
        self._places: dict[tuple[Variant, str, int], Place] = {}
        self._due: dict[Place, tuple[str, int] | None] = {}  # at which position, or any; first come, first read
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
        if asked.key is None or (variant, asked.key, asked.around) in self._places or len(self._places) < _MOST:
            return
        raise ProblemError("too_many_viewers", f"{_MOST} keys of this board are watched already", retry_after=5)

    def find(self, variant: Variant, asked: Subscription) -> Place | None:
        """The place that a viewer asks for who is about to enter, if it asks for one."""
        if asked.key is None:
            return None
        name = (variant, asked.key, asked.around)
        return self._places.setdefault(name, Place(asked.key, asked.around))

    def enter(self, viewer: Viewer) -> bool:
        """Keep what a viewer asks for up to date; True when it is a place that was never read."""
        place = viewer.position.place
        if place is None:
            return False
        place.askers.add(viewer)
        if place.frame is None:
            self._due[place] = None
        return place.frame is None

    def leave(self, viewer: Viewer) -> None:
        """A viewer is gone; what nobody asks for is not looked up."""
        place = viewer.position.place
        if place is None:
            return
        place.askers.discard(viewer)
        if not place.askers:
            self._due.pop(place, None)
            del self._places[viewer.variant, place.key, place.around]

    def forget(self) -> None:
        """The board was changed, or has another life: look at everything again."""
        self._renewals += 1
        for place in self._places.values():
            place.forget()

    def mark(self, variants: Collection[Variant], epoch: str, offset: int) -> None:
        """The places of these variants are to be read, as they stand at a position of the board or later."""
        self._due.update(
            (place, (epoch, offset)) for (variant, _, _), place in self._places.items() if variant in variants
        )

    async def look_up(self, ledger_of: Callable[[], Ledger]) -> bool:
        """Read those that are to be read, and tell who asked, until there are none; False when the store is away."""
        if self._reading:
            return True
        self._reading = True
        try:
            while batch := self._next_batch():
                await self._read(batch, ledger_of())
        except (StoreUnavailableError, EpochLostError):  # whoever reads the top says so
            return False
        finally:
            self._reading = False
        return True

    def _next_batch(self) -> list[Place]:
        batch: list[Place] = []
        while self._due and len(batch) < _BATCH:
            place = next(iter(self._due))
            position = self._due.pop(place)
            if position is None or not place.is_read_at(*position):  # or it was read since it became due
                batch.append(place)
        return batch

    async def _read(self, batch: Sequence[Place], ledger: Ledger) -> None:
        renewals, spots = self._renewals, None
        try:
            spots = await ledger.places([place.wanted for place in batch])
        finally:
            if spots is None or renewals != self._renewals:  # not read, or by a definition that is over
                self._due.update((place, None) for place in batch if place.askers)
        if renewals == self._renewals:
            for place in [place for place, spot in zip(batch, spots, strict=True) if place.take(spot, ledger.page)]:
                await place.tell()
