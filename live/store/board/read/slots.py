"""Reads the amounts of members in each slot of a board's window, for sparklines and charts."""

import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from live.domain.window import Rolling, Slot, fold_size, folded_slots
from live.store.board.read.reader import BoardReader
from live.store.board.read.single_flight import VersionCache
from live.store.board.requests import SlotsRequest
from live.store.board.state import AGAIN, MOST_REPLANS, BoardState

TOP_RECORDS: Final = 100
TOP_POINTS: Final = 49  # the last point is the open slot

_MOST_VALUES: Final = 2500  # values in one request; the store reads them in about a millisecond


class SlotValues(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """The amounts of members in the slots of a window, added up to points.

    A point is read at one instant, or in a few pieces if it has many slots.
    """

    epoch: str
    offset: int  # the offset of the board when the last piece was read
    slots: Sequence[Slot]  # the time of each point, the oldest first; the last one is the slot that is still open
    members: Sequence[str]  # the members, in the order of the request
    # For each member, the sum of its values in the slots of each point. It is None if no event of the member is in
    # these slots. A hidden member has None instead of values.
    values: Sequence[Sequence[int | None] | None]


class TopSlots:
    """The slots of the first records of each board. Each new point causes one read, for all requests."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._reads: VersionCache[SlotValues] = VersionCache()

    async def of(self, reader: BoardReader) -> SlotValues:
        """Return the slots of the first `TOP_RECORDS` records in `TOP_POINTS` points, read once for each new point."""
        state, window = reader.state, reader.state.board.window
        newest = state.clock.newest  # the clock as last read, without asking the store
        if state.board.clock == "server":
            newest = max(newest or 0, window.slot_at(int(self._now())).start)
        if newest is not None and isinstance(window, Rolling):
            newest //= window.slot * fold_size(window, TOP_POINTS)
        return await self._reads.of(reader, newest, lambda: _read_top(reader))


async def read_slots(state: BoardState, members: Sequence[str], most: int) -> SlotValues:
    """Read what members hold in the slots of the window, folded into at most `most` points."""
    await state.open()
    for _ in range(MOST_REPLANS):
        clock, ruled = state.planned(), state.ruled
        groups = () if clock.current is None else folded_slots(state.board.window, clock.current, most)
        values: list[list[int | None]] = [[None] * len(groups) for _ in members]
        for piece in _pieces(groups, max(1, _MOST_VALUES // len(members))):
            known = state.known
            keys = [
                state.keys.meta,
                state.keys.hidden,
                *(state.keys.slot(slot.start) for _, part in piece for slot in part),
            ]
            request = SlotsRequest(
                clock=clock, members=list(members), sizes=[len(part) for _, part in piece], ruled=ruled
            )
            reply = await state.run(state.scripts.slots, keys, request)
            if reply[0] in AGAIN:
                break
            epoch, offset, hidden, columns = reply
            state.check_epoch(epoch)
            state.check_offset(offset, known)
            for (point, _), column in zip(piece, columns, strict=True):
                for row, value in zip(values, column, strict=True):
                    if value is not None:
                        row[point] = (row[point] or 0) + int(value)
        else:
            times = [Slot(group[0].start, group[-1].end) for group in groups]
            shown = [None if hides is not None else row for hides, row in zip(hidden, values, strict=True)]
            return SlotValues(epoch.decode(), int(offset), times, members, shown)
    raise state.moved_too_often()


def _pieces(groups: Sequence[Sequence[Slot]], most: int) -> list[list[tuple[int, Sequence[Slot]]]]:
    """Divide groups of slots into pieces of at most `most` slots: whole groups or parts, each with its number."""
    pieces: list[list[tuple[int, Sequence[Slot]]]] = [[]]
    room = most
    for number, group in enumerate(groups):
        left = group
        while left:
            if room == 0:
                pieces.append([])
                room = most
            part, left = left[:room], left[room:]
            pieces[-1].append((number, part))
            room -= len(part)
    return pieces


async def _read_top(reader: BoardReader) -> SlotValues:
    page = await reader.read(TOP_RECORDS)
    members = [record.member for record in page.records]
    if not members:
        return SlotValues(page.epoch, page.offset, (), (), ())
    return await read_slots(reader.state, members, TOP_POINTS)
