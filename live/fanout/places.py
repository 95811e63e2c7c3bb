"""The keys that the viewers of a feed asked for: one for each topic, key and number of neighbours."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from live.errors import ProblemError
from live.fanout.place import Place
from live.fanout.subscription import Subscription
from live.fanout.topic import Topic
from live.fanout.viewer import Viewer
from live.ranking import Page
from live.store.placing import Spot

_MOST: Final = 10_000  # that are read in every tick
_BATCH: Final = 200  # that are read at once; then those who asked are told, and the event loop has its turn


class Places:
    """The places of a feed, while somebody asks for them."""

    def __init__(self) -> None:
        self._places: dict[tuple[Topic, str, int], Place] = {}
        self._new: set[Place] = set()

    @property
    def are_new(self) -> bool:
        """Whether some were never read: they are due at once."""
        return bool(self._new)

    def require_room(self, topic: Topic | None, asked: Subscription) -> None:
        """Refuse one more key than are looked up; `topic` is None for one that nobody watches yet.

        Raises:
            ProblemError: `too_many_viewers`.
        """
        if asked.key is None or (topic, asked.key, asked.around) in self._places or len(self._places) < _MOST:
            return
        raise ProblemError("too_many_viewers", f"{_MOST} keys of this board are watched already", retry_after=5)

    def find(self, topic: Topic, asked: Subscription) -> Place | None:
        """The place that a viewer asks for who is about to enter, if it asks for one."""
        if asked.key is None:
            return None
        name = (topic, asked.key, asked.around)
        return self._places.setdefault(name, Place(asked.key, asked.around))

    def enter(self, viewer: Viewer) -> None:
        """Keep what a viewer asks for up to date."""
        place = viewer.position.place
        if place is not None:
            place.askers.add(viewer)
            if place.frame is None:
                self._new.add(place)

    def leave(self, viewer: Viewer) -> None:
        """A viewer is gone; what nobody asks for is not looked up."""
        place = viewer.position.place
        if place is None:
            return
        place.askers.discard(viewer)
        if not place.askers:
            self._new.discard(place)
            del self._places[viewer.topic, place.key, place.around]

    def forget(self) -> None:
        """The board was changed, or has another life: look at everything again."""
        for place in self._places.values():
            place.forget()

    def due(self, topics: Collection[Topic]) -> Iterator[Sequence[Place]]:
        """Those of topics, and those that are new, in batches."""
        due = [place for (topic, _, _), place in self._places.items() if topic in topics or place in self._new]
        for first in range(0, len(due), _BATCH):
            yield due[first : first + _BATCH]

    def take(self, batch: Sequence[Place], spots: Sequence[Spot], page_of: Callable[[Spot], Page]) -> list[Place]:
        """Take what was read of a batch; gives those of which there is something to tell."""
        self._new.difference_update(batch)
        return [place for place, spot in zip(batch, spots, strict=True) if place.take(spot, page_of)]
