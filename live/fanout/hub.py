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
from live.store.notices import Away, Changed, Channels, Gap, listen

log = structlog.get_logger()


class FeedEndedError(Exception):
    """The board that is watched is no more."""


class Viewer:
    """One open connection: `next_frame` waits for what it is to be sent next."""

    def __init__(self, feed: "Feed", topic: Topic) -> None:
        self._feed = feed
        self._topic = topic
        self._position = Position()
        self.woken = asyncio.Event()
        self.woken.set()

    async def next_frame(self) -> Frame:
        """Wait for the next frame; a viewer that is slow to ask skips to the latest state.

        Raises:
            FeedEndedError: there will be none.
        """
        while True:
            await self.woken.wait()
            if self._feed.ended:
                raise FeedEndedError
            if self._position.stale != self._feed.stale:
                self._position.stale = self._feed.stale
                return status_frame(self._feed.stale)
            frame = self._topic.next_frame(self._position)
            if frame is not None:
                return frame
            self.woken.clear()

    def forget(self) -> None:
        """Begin again with the whole top."""
        stale, self._position = self._position.stale, Position()
        self._position.stale = stale


class Feed:
    """One board in this process: its viewers, and a topic for each size that they watch."""

    def __init__(self, ledger: Ledger, interval: float) -> None:
        self.ledger = ledger
        self.stale: str | None = None
        self.ended = False
        self._interval = interval
        self._viewers: set[Viewer] = set()
        self._topics: dict[int, Topic] = {}
        self._changed = asyncio.Event()
        self._renewals = 0

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

    def renew(self, ledger: Ledger) -> None:
        """Go on with the board as it is defined now, or with another life of it: every viewer gets the whole top."""
        self.ledger = ledger
        self._renewals += 1
        for topic in self._topics.values():
            topic.forget(ledger.board.ranks)
        for viewer in self._viewers:
            viewer.forget()
        self._changed.set()

    def end(self) -> None:
        """Let the viewers go, for the board is no more."""
        self.ended = True
        self._wake()

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
            renewals = self._renewals
            page = await self.ledger.read(max(topic.size for topic in topics))
        except (StoreUnavailableError, EpochLostError) as error:
            self.set_stale(_reason(error))
            self._changed.set()  # look again after the interval
            return
        if renewals != self._renewals:
            return  # read by a definition that is over; what renewed the feed has it read again
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
        self.feeds: dict[str, Feed] = {}
        self._client = client
        self._interval = settings.conflation_interval
        self._max_viewers = settings.max_viewers
        self._channels = Channels({})
        self._group: asyncio.TaskGroup | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        for ledger in ledgers:
            self.add(ledger)

    def add(self, ledger: Ledger) -> None:
        """Feed one more board; one that is fed already goes on with this ledger."""
        board = ledger.board.id
        if board in self.feeds:
            self.feeds[board].renew(ledger)
            return
        self.feeds[board] = Feed(ledger, self._interval)
        self._channels.add(ledger.keys.channel, board)
        if self._group is not None:
            self._tasks[board] = self._group.create_task(self.feeds[board].run())

    def remove(self, board: str) -> None:
        """Let go of a board that is no more, and of its viewers."""
        feed = self.feeds.pop(board)
        self._channels.remove(feed.ledger.keys.channel)
        feed.end()
        if board in self._tasks:
            self._tasks.pop(board).cancel()

    @contextmanager
    def watch(self, board: str, size: int) -> Iterator[Viewer]:
        """Be a viewer of a board's top `size` while in the context.

        Raises:
            ProblemError: `too_many_viewers`, or `board_not_found`.
        """
        if board not in self.feeds:
            raise ProblemError("board_not_found", f"board {board} was removed")
        viewers = sum(feed.viewers for feed in self.feeds.values())
        if viewers >= self._max_viewers:
            detail = f"{viewers} viewers watch; the setting max_viewers allows {self._max_viewers}"
            raise ProblemError("too_many_viewers", detail, retry_after=5)
        with self.feeds[board].watch(size) as viewer:
            yield viewer

    async def run(self) -> None:
        """Hear notices and refresh feeds, for ever."""
        async with asyncio.TaskGroup() as tasks:
            self._group = tasks
            tasks.create_task(self._hear())
            self._tasks = {board: tasks.create_task(feed.run()) for board, feed in self.feeds.items()}

    async def _hear(self) -> None:
        async for notice in listen(self._client, self._channels):
            match notice:
                case Changed(board) if board in self.feeds:
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
