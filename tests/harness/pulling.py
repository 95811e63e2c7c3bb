"""A viewer of a hub from which a test takes frame by frame, without a connection."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import msgspec

from live.domain.board import Board
from live.errors import CLOSE_CODES
from live.fanout.cohort import BoardStatus, Encoding, Sink, Source, Subscribers, Viewer, ViewerPosition
from live.fanout.frames import Frame
from live.fanout.hub import Hub
from live.fanout.subscription import Subscription
from live.fanout.variant import PageHistory, Variants
from tests.harness.boards import BOARD


class ChannelEndedError(Exception):
    """The viewer must disconnect. `code` is one of `CLOSE_CODES`."""

    def __init__(self, code: int) -> None:
        super().__init__(CLOSE_CODES[code].reason)
        self.code = code


def variants_of(history: PageHistory | None = None, *, board: Board = BOARD, totals_interval: int = 0) -> Variants:
    """The variants of a board, by default without a history, and with totals in every update."""
    made = Variants(board, 0.1, BoardStatus())
    made.history, made.totals_interval = history or PageHistory(0), totals_interval
    return made


class PullViewer(Viewer):
    """A viewer that asks for each frame with `next_frame`. A slow viewer skips to the latest state.

    A test sets `blocked_since`.
    """

    encoding: Encoding = "plain"
    blocked_since: float | None = None

    def __init__(self, channel: Source, group: Subscribers, position: ViewerPosition) -> None:
        super().__init__(channel, group, position, cast("Sink", self))
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
    subscription = msgspec.structs.replace(subscription, address=address)
    channel = hub.admit(board, subscription)
    source = hub._source(channel, subscription)
    viewer = PullViewer(source, *source.place_of(subscription))
    hub._enter(viewer, channel, subscription)
    try:
        yield viewer
    finally:
        hub.leave(viewer)
