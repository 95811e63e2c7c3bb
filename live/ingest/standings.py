"""The records of members after their events were counted, for `?rank=true`."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import UNSET

from live.domain.event import EventRecord
from live.domain.ranking import Page
from live.errors import EpochLostError, StoreUnavailableError
from live.ingest.committer import Committer
from live.store.board.read.reader import BoardReader
from live.store.board.write.slot_assignment import Placement

"""Maximum records in the response to one body."""
_AT_ONCE: Final = 100  # members in one call, which takes the store some milliseconds


class Counted(msgspec.Struct, frozen=True):
    """An event that a board has counted, now or before: its index in the body, its board and its member.

    `placement` is None for a duplicate.
    """

    index: int
    board: str
    member: str
    placement: Placement | None


async def read_records(committers: Mapping[str, Committer], counted: Sequence[Counted]) -> list[EventRecord]:
    """Read the record of the member of each event, in the period in which the event counted.

    For a duplicate, read the record in the current period. Every read begins after the events were counted. Boards that
    can't be read any more are left out.
    """
    found: list[EventRecord] = []
    periods: dict[tuple[str, int | None], list[Counted]] = {}
    for one in counted:
        committer = committers.get(one.board)
        if committer is not None:
            period = one.placement.slot if one.placement and committer.state.board.window.tables else None
            periods.setdefault((one.board, period), []).append(one)
    for (board, period), events in periods.items():
        with suppress(StoreUnavailableError, EpochLostError):
            found += await _read(BoardReader(committers[board].state), period, events)
    return sorted(found, key=lambda record: record.index)


async def _read(reader: BoardReader, period: int | None, events: Sequence[Counted]) -> list[EventRecord]:
    members, found = list(dict.fromkeys(event.member for event in events)), dict[str, Page]()
    for first in range(0, len(members), _AT_ONCE):
        some = members[first : first + _AT_ONCE]
        found |= dict(zip(some, await reader.find_pages(some, 0, period=period), strict=True))
    records = []
    for event in events:
        page, placement = found[event.member], event.placement
        own = next((record for record in page.records if record.member == event.member), None)
        records.append(
            EventRecord(
                index=event.index,
                board=event.board,
                member=event.member,
                score=None if own is None else own.score,
                rank=None if own is None else own.rank,
                best=None if placement is None else placement.is_best,
                period=page.period,
                rank_count=page.rank_count,
                epoch=page.epoch,
                offset=page.offset,
                fields=UNSET if own is None else own.fields,
            )
        )
    return records
