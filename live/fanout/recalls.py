"""Finds the positions of returning viewers among the recorded frames, if this process has not seen them itself."""

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec
import structlog

from live.domain.ranking import Page, Ranks, Record, apply
from live.domain.recording import RecordingPiece
from live.errors import StoreUnavailableError
from live.fanout.channel import Channel
from live.fanout.frames import Sync, Update
from live.fanout.playback import Archive
from live.fanout.viewer import Viewer

log = structlog.get_logger()

_MOST: Final = 64  # positions at once; viewers at others receive the whole top
_PATIENCE: Final = 2.0  # seconds


class Recalls:
    """The positions that viewers wait for. Viewers at the same position share one look into the archive."""

    def __init__(self, archive: Archive | None) -> None:
        self._archive = archive
        self._waiting: dict[tuple[Channel, str, int], list[Viewer]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def hold(self, channel: Channel, viewer: Viewer) -> None:
        """Let a viewer that enters a channel wait, if the archive may know its position and the channel does not."""
        state, position = channel.reader.state, viewer.position
        if self._archive is None or state.board.replay is None or not position.returns or position.epoch is None:
            return
        if state.epoch not in (None, position.epoch) or channel.knows(viewer):
            return
        name = channel, position.epoch, position.offset
        if name not in self._waiting:
            if len(self._waiting) >= _MOST:
                return
            self._waiting[name] = []
            task = asyncio.create_task(self._recall(self._archive, *name))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        position.waits = True
        self._waiting[name].append(viewer)

    async def _recall(self, archive: Archive, channel: Channel, epoch: str, offset: int) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                page = page_at(await archive.until(channel.reader.state.board.id, epoch, offset), epoch, offset)
            if page is not None:
                channel.recall(page)
        except (StoreUnavailableError, TimeoutError) as error:
            log.warning("can't look for the position of a viewer", reason=str(error))
        finally:
            for viewer in self._waiting.pop((channel, epoch, offset)):
                viewer.position.waits = False
                viewer.wake()


def page_at(pieces: Iterable[RecordingPiece], epoch: str, offset: int) -> Page | None:
    """What a viewer knew at a position, by the frames that it had received; None if they do not lead there."""
    page: Page | None = None
    ranks: Ranks = "ordinal"
    for recorded in (recorded for piece in pieces for recorded in piece.frames):
        if recorded.type == "sync":
            sync = msgspec.json.decode(recorded.payload, type=Sync)
            page, ranks = _page(sync, tuple(sync.records)), sync.ranks or "ordinal"
        elif recorded.type == "update" and page is not None:
            update = msgspec.json.decode(recorded.payload, type=Update)
            if (update.epoch, update.since) != (page.epoch, page.offset):
                page = None  # frames are missing
                continue
            applied = apply(page.records, update.changed, update.removed, ranks)
            page = _page(update, tuple(applied))
        if page is not None and (page.epoch, page.offset) == (epoch, offset):
            return page
    return None


def _page(message: Sync | Update, records: tuple[Record, ...]) -> Page:
    return Page(
        epoch=message.epoch,
        offset=message.offset,
        rank_count=message.rank_count,
        total_score=message.total_score,
        start=0,
        records=records,
        period=message.period or None,
    )
