"""Brings the viewers of groups up to date: each frame is written to the sockets of a whole cohort at once.

The frames of many boards are made first and then written together, because work in between slows down each write.
"""

import asyncio
import math
from collections.abc import Iterable
from typing import Final

from live.fanout.engine.subscribers import Cohort, Subscribers
from live.fanout.viewer import PushViewer, Source, count_frames

_MOST_AT_ONCE: Final = 256  # frames; then other tasks of the event loop run


class Outbox:
    """Frames that wait to be written. No other task may run before `flush`: a new member of a cohort misses them."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Cohort, bytes]] = []
        self._size = 0

    @property
    def is_full(self) -> bool:
        """Whether to write now."""
        return self._size >= _MOST_AT_ONCE

    def add(self, cohort: Cohort, data: bytes) -> None:
        """Add data for all members of a cohort, whose position has moved already. Call this once for each cohort."""
        self._waiting.append((cohort, data))
        self._size += len(cohort)

    def flush(self) -> None:
        """Write everything."""
        waiting, self._waiting, self._size = self._waiting, [], 0
        for cohort, data in waiting:
            for member in cohort.send(data):
                assert isinstance(member, PushViewer), "only push viewers are in cohorts"  # noqa: S101
                member.fall_out(cohort.position)


async def deliver(source: Source, groups: Iterable[Subscribers], silent_since: float = math.inf) -> None:
    """Send what is due to the viewers of a source that received nothing since a time (default: to all of them).

    Other tasks of the event loop run in between.
    """
    wanted, outbox = list(groups), Outbox()
    await collect(source, wanted, outbox, silent_since)
    outbox.flush()
    await wake(wanted, silent_since)


async def collect(
    source: Source, groups: Iterable[Subscribers], outbox: Outbox, silent_since: float = math.inf
) -> None:
    """Put the frames that are due to cohorts into an outbox. When that is full, it is flushed, and other tasks run."""
    for group in groups:
        for cohort in list(group.cohorts):
            if cohort.position.sent_at > silent_since:
                continue
            data = []
            while (frame := source.due_frame(group, cohort.position)) is not None:
                data.append(cohort.position.encode(frame))
                count_frames(frame, len(cohort), len(data[-1]))
            if data:
                outbox.add(cohort, data[0] if len(data) == 1 else b"".join(data))
            if outbox.is_full:
                outbox.flush()
                await asyncio.sleep(0)


async def wake(groups: Iterable[Subscribers], silent_since: float = math.inf) -> None:
    """Bring the viewers up to date that are in no cohort. Call this after the outbox was flushed."""
    sent = 0
    for group in groups:
        group.merge_cohorts()
        for viewer in list(group.loose):
            if viewer in group.loose and viewer.position.sent_at <= silent_since:
                viewer.wake()
                sent += 1
            if sent >= _MOST_AT_ONCE:
                sent = 0
                await asyncio.sleep(0)
