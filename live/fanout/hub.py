"""The hub of one process: hears that a board changed, waits for the tick, reads the top once, wakes the viewers."""

import asyncio
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import structlog

from live.errors import EpochLostError, ProblemError, StoreUnavailableError
from live.fanout.frames import Frame, status_frame
from live.fanout.topic import Position, Topic
from live.metrics import STORE_STALE, VIEWERS
from live.settings import Settings
from live.store.client import Store
from live.store.ledger import Ledger
from live.store.notices import Away, Changed, Gap, listen

log = structlog.get_logger()


class Viewer:
    """One open connection: `next_frame` waits for what it is to be sent next."""

    def __init__(self, feed: "Feed", topic: Topic) -> None:
        self._feed = feed
        self._topic = topic
        self._position = Position()
        self.woken = asyncio.Event()
        self.woken.set()

    async def next_frame(self) -> Frame:
        """Wait for the next frame; a viewer that is slow to ask skips to the latest state."""
        while True:
            await self.woken.wait()
            if self._position.stale != self._feed.stale:
                self._position.stale = self._feed.stale
                return status_frame(self._feed.stale)
            frame = self._topic.next_frame(self._position)
            if frame is not None:
                return frame
            self.woken.clear()


class Feed:
    """One board in this process: its viewers, and a topic for each size that they watch."""

    def __init__(self, ledger: Ledger, interval: float) -> None:
        self.ledger = ledger
        self.stale: str | None = None
        self._interval = interval
        self._viewers: set[Viewer] = set()
        self._topics: dict[int, Topic] = {}
        self._changed = asyncio.Event()

    @property
    def viewers(self) -> int:
        """How many watch."""
        return len(self._viewers)

    @contextmanager
    def watch(self, size: int) -> Iterator[Viewer]:
        """Be a viewer of the top `size` while in the context."""
        topic = self._topics.get(size)
        if topic is None:
            topic = self._topics[size] = Topic(self.ledger.board.id, size, self.ledger.board.ranks)
        topic.viewers += 1
        viewer = Viewer(self, topic)
        self._viewers.add(viewer)
        gauge = VIEWERS.labels(self.ledger.board.id)
        gauge.inc()
        self._changed.set()
        try:
            yield viewer
        finally:
            gauge.dec()
            self._viewers.discard(viewer)
            topic.viewers -= 1
            if not topic.viewers:
                del self._topics[size]

    def changed(self) -> None:
        """Note that the board changed."""
        self._changed.set()

    def set_stale(self, reason: str | None) -> None:
        """Tell the viewers that what they see is stale for a reason, or (None) no longer."""
        if reason != self.stale:
            self.stale = reason
            self._wake()

    async def run(self) -> None:
        """Read the top after each change, at most once an interval, for ever."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            started = time.monotonic()
            if self._viewers:
                await self._refresh()
            else:
                self.stale = None  # nobody to tell; whoever comes next finds out
            await asyncio.sleep(max(0.0, started + self._interval - time.monotonic()))

    async def _refresh(self) -> None:
        topics = list(self._topics.values())  # one that comes while we read may want more than we ask for
        try:
            page = await self.ledger.read(max(topic.size for topic in topics))
        except (StoreUnavailableError, EpochLostError) as error:
            self.set_stale(_reason(error))
            self._changed.set()  # look again after the interval
            return
        for topic in topics:
            topic.advance(page)
        self.stale = None
        self._wake()

    def _wake(self) -> None:
        for viewer in self._viewers:
            viewer.woken.set()


class Hub:
    """All feeds of the process, and the one connection that hears their notices."""

    def __init__(self, client: Store, ledgers: Iterable[Ledger], settings: Settings) -> None:
        self.feeds = {ledger.board.id: Feed(ledger, settings.conflation_interval) for ledger in ledgers}
        self._client = client
        self._max_viewers = settings.max_viewers

    @contextmanager
    def watch(self, board: str, size: int) -> Iterator[Viewer]:
        """Be a viewer of a board's top `size` while in the context.

        Raises:
            ProblemError: `too_many_viewers`.
        """
        viewers = sum(feed.viewers for feed in self.feeds.values())
        if viewers >= self._max_viewers:
            detail = f"{viewers} viewers watch; the setting max_viewers allows {self._max_viewers}"
            raise ProblemError("too_many_viewers", detail, retry_after=5)
        with self.feeds[board].watch(size) as viewer:
            yield viewer

    async def run(self) -> None:
        """Hear notices and refresh feeds, for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._hear())
            for feed in self.feeds.values():
                tasks.create_task(feed.run())

    async def _hear(self) -> None:
        channels = {feed.ledger.keys.channel: board for board, feed in self.feeds.items()}
        async for notice in listen(self._client, channels):
            match notice:
                case Changed(board):
                    self.feeds[board].changed()
                case Gap():
                    STORE_STALE.set(0)
                    for feed in self.feeds.values():
                        feed.changed()
                case Away(reason):
                    STORE_STALE.set(1)
                    log.warning("the store is away", reason=reason)
                    for feed in self.feeds.values():
                        feed.set_stale(_reason(StoreUnavailableError(reason)))


def _reason(error: Exception) -> str:
    """What viewers are told; the details are for the log."""
    return "the store lost the board's data" if isinstance(error, EpochLostError) else "store unreachable"
