"""Reading the places of many keys at once, each with its neighbours."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from live.domain.board import Board
from live.domain.ranking import Page
from live.store.board.reader import Question, Reading
from live.store.board.requests import LookupRequest

_MOST_WORK: Final = 1500  # of one call, which holds the store up for a millisecond or two
_WORK: Final = 20  # to find a key: as much as to read so many records
_AT_ONCE: Final = 2  # calls that are under way, so that the store need not wait for us; it answers all before others

Wanted = tuple[str, int]


class Spot(msgspec.Struct, frozen=True):
    """A key's place and neighbours as the store told of them, not yet taken apart: mostly they are what they were."""

    head: list[Any]
    place: list[Any]
    board: Board
    period: int | None

    @property
    def position(self) -> tuple[str, int]:
        """The epoch and offset of the board when this was read."""
        return self.head[0].decode(), int(self.head[1])

    def is_same(self, other: "Spot") -> bool:
        """Whether nothing but the offset is other."""
        ours, theirs = self.head, other.head
        return ours[0] == theirs[0] and ours[2] == theirs[2] and self.place == other.place


class Placing(Reading):
    """A board in which keys are looked up."""

    async def places(self, wanted: Sequence[Wanted]) -> list[Spot]:
        """The places of keys, in that order, each with so many neighbours on each side.

        They are read at a few instants, one for each call: where a place stands is said in its page.

        Raises:
            StoreUnavailableError: the store is away.
            EpochLostError: the store lost the board.
        """
        chunks = list(_chunks(wanted))
        found: list[Spot] = []
        for first in range(0, len(chunks), _AT_ONCE):
            for spots in await asyncio.gather(*(self._places(chunk) for chunk in chunks[first : first + _AT_ONCE])):
                found += spots
        return found

    def page(self, spot: Spot) -> Page:
        """A key's record with its neighbours; there are no records when the key is not on the board."""
        return self._page([*spot.head, *spot.place, None], spot.board, spot.period)

    async def find_all(self, keys: Sequence[str], around: int, *, period: int | None = None) -> list[Page | None]:
        """The records of keys, in that order and all at one instant, each with so many neighbours on each side.

        There is None for a key that is not on the board.

        Raises:
            StoreUnavailableError: the store is away.
            EpochLostError: the store lost the board.
        """
        pages = [self.page(spot) for spot in await self._places([(key, around) for key in keys], period)]
        return [page if page.records else None for page in pages]

    async def _places(self, wanted: Sequence[Wanted], period: int | None = None) -> list[Spot]:
        """The places of keys, read in one call."""
        members, neighbours = [member for member, _ in wanted], [number for _, number in wanted]

        def request(question: Question) -> LookupRequest:
            return LookupRequest(
                clock=question.clock,
                suffix=question.suffix,
                view=question.view,
                members=members,
                neighbours=neighbours,
            )

        reply, board, slot = await self._ask(self._scripts.places, request, period)
        *head, places = reply
        return [Spot(head, place, board, slot) for place in places]


def _chunks(wanted: Sequence[Wanted]) -> Iterator[Sequence[Wanted]]:
    """Parts of which each is no more work than one call may be."""
    first, work = 0, 0
    for place, (_, neighbours) in enumerate(wanted):
        more = _WORK + 2 * neighbours
        if work + more > _MOST_WORK:
            yield wanted[first:place]
            first, work = place, 0
        work += more
    if wanted:
        yield wanted[first:]
