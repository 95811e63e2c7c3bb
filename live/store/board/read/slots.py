"""What members hold in each slot of a board's window: the data of sparklines and charts."""

import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from live.domain.window import Slot, newest_slots
from live.store.board.read.reader import BoardReader
from live.store.board.read.single_flight import VersionCache
from live.store.board.requests import SlotsRequest
from live.store.board.state import MOST_REPLANS, BoardState

TOP_RECORDS: Final = 100
TOP_SLOTS: Final = 25  # a window of a day has so many slots of an hour


class SlotValues(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """The values of members in slots, all read at one instant.

    Attributes:
        epoch: the epoch of the board.
        offset: the offset of the board.
        slots: the newest slots of the window, the oldest first; the last one is still open.
        members: the members, in the order of the request.
        values: for each member, its value in each slot. A value is None if the slot has no event of the member. A
            hidden member has None instead of values.
    """

    epoch: str
    offset: int
    slots: Sequence[Slot]
    members: Sequence[str]
    values: Sequence[Sequence[int | None] | None]


class TopSlots:
    """The slots of the first records of each board. Each new slot causes one read, for all requests."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._reads: VersionCache[SlotValues] = VersionCache()

    async def of(self, reader: BoardReader) -> SlotValues:
        """Return the newest `TOP_SLOTS` slots of the first `TOP_RECORDS` records, read once for each new slot."""
        state = reader.state
        newest = state.clock.newest  # as far as it is known without the store
        if state.board.clock == "server":
            newest = max(newest or 0, state.board.window.slot_at(int(self._now())).start)
        return await self._reads.of(reader, newest, lambda: _read_top(reader))


async def read_slots(state: BoardState, members: Sequence[str], most: int) -> SlotValues:
    """Read what members hold in each of the newest `most` slots of the window, at one instant."""
    await state.open()
    for _ in range(MOST_REPLANS):
        clock, known = state.planned(), state.known
        slots = [] if clock.current is None else newest_slots(state.board.window, clock.current, most)
        keys = [state.keys.meta, state.keys.hidden, *(state.keys.slot(slot.start) for slot in slots)]
        reply = await state.run(state.scripts.slots, keys, SlotsRequest(clock=clock, members=list(members)))
        if reply[0] == b"replan":
            state.update_clock(*reply[1:])
            continue
        epoch, offset, hidden, columns = reply
        state.check_epoch(epoch)
        state.check_offset(offset, known)
        values = [
            None
            if hidden[place] is not None
            else [None if column[place] is None else int(column[place]) for column in columns]
            for place in range(len(members))
        ]
        return SlotValues(epoch.decode(), int(offset), slots, members, values)
    raise state.moved_too_often()


async def _read_top(reader: BoardReader) -> SlotValues:
    page = await reader.read(TOP_RECORDS)
    members = [record.key for record in page.records]
    if not members:
        return SlotValues(page.epoch, page.offset, (), (), ())
    return await read_slots(reader.state, members, TOP_SLOTS)
