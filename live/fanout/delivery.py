"""Brings the viewers of audiences up to date: each frame is written to the sockets of a whole cohort at once."""

import asyncio
import math
from collections.abc import Iterable
from typing import Final

from live.fanout.audience import Audience
from live.fanout.viewer import PushViewer, Source, count_frames

_MOST_AT_ONCE: Final = 256  # frames; then other tasks of the event loop run


async def deliver(source: Source, audiences: Iterable[Audience], silent_since: float = math.inf) -> None:
    """Send what is due to the viewers of a source that received nothing since a time (default: to all of them).

    Other tasks of the event loop run in between.
    """
    sent = 0
    for audience in audiences:
        for cohort in list(audience.cohorts):
            if cohort.position.sent_at > silent_since:
                continue
            while (frame := source.due_frame(audience, cohort.position)) is not None:
                sent += len(cohort)
                data = cohort.position.encode(frame)
                count_frames(frame, len(cohort), len(data))
                for member in cohort.send(data):
                    assert isinstance(member, PushViewer), "only push viewers are in cohorts"  # noqa: S101
                    member.fall_out(cohort.position)
            if sent >= _MOST_AT_ONCE:
                sent = 0
                await asyncio.sleep(0)
        audience.merge_cohorts()
        for viewer in list(audience.loose):
            if viewer in audience.loose and viewer.position.sent_at <= silent_since:
                viewer.wake()
                sent += 1
            if sent >= _MOST_AT_ONCE:
                sent = 0
                await asyncio.sleep(0)
