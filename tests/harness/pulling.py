"""A viewer of a hub from which a test takes frame by frame, without a connection."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from live.errors import CLOSE_CODES
from live.fanout.engine.delivery import Subscribers, ViewerPosition
from live.fanout.frames import Frame
from live.fanout.hub import Hub
from live.fanout.subscription import Subscription
from live.fanout.viewer import Source, Viewer


class ChannelEndedError(Exception):
    """The viewer must disconnect. `code` is one of `CLOSE_CODES`."""

    def __init__(self, code: int) -> None:
        super().__init__(CLOSE_CODES[code].reason)
        self.code = code


class PullViewer(Viewer):
    """A viewer that asks for each frame with `next_frame`. A slow viewer skips to the latest state."""

    def __init__(self, channel: Source, group: Subscribers, position: ViewerPosition) -> None:
        super().__init__(channel, group, position)
        self._ended: int | None = None
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Let `next_frame` check again."""
        self._woken.set()

    def end(self, code: int) -> None:
        """Make `next_frame` raise `ChannelEndedError`."""
        self._ended = code
        self._woken.set()

    async def next_frame(self) -> Frame:
        """Wait for the next frame. Raise `ChannelEndedError` if the viewer must disconnect."""
        while True:
            if self._ended is not None:
                raise ChannelEndedError(self._ended)
            if (frame := self.due_frame()) is not None:
                return frame
            self._woken.clear()
            await self._woken.wait()


@contextmanager
def pulling(hub: Hub, board: str, subscription: Subscription, address: str = "") -> Iterator[PullViewer]:
    """Watch a board in the `with` block."""
    channel = hub.admit(board, subscription, address)
    source = hub._source(channel, subscription, address)
    viewer = PullViewer(source, *source.place_of(subscription))
    hub._enter(viewer, channel, subscription, address)
    try:
        yield viewer
    finally:
        hub.leave(viewer, address)
