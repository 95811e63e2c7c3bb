"""The hub of one process: it receives the notices of boards, and lets their channels update the viewers."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import structlog

from live.domain.ranking import Page
from live.errors import BOARD_DELETED, REPLACED, SHUTTING_DOWN, EpochLostError, ProblemError, StoreUnavailableError
from live.fanout.channel import Channel, Tick, reason_of
from live.fanout.cohort import Outbox, Sink, Source, Viewer, collect
from live.fanout.delays import Recording
from live.fanout.intervals import TickSchedule
from live.fanout.subscription import Subscription
from live.metrics import DROPPED_VIEWERS, STORE_STALE, TICK_SECONDS
from live.settings import Settings
from live.store.board.read.reader import BoardReader, read_positions, read_tops
from live.store.connection.client import Store
from live.store.connection.notices import Away, Changed, Channels, Missed, listen
from live.store.registry.presence import BEAT, Presence
from live.system.processes import share_of
from live.system.resources import Resources
from live.system.tracing import record_span

log = structlog.get_logger()

_CHECK_INTERVAL: Final = 0.5  # seconds between two comparisons of positions
_BOARDS_A_CALL: Final = 64
_LINGER: Final = 30.0  # seconds for which a process receives the notices of a board after the last viewer left
_KEEP_ALIVE_INTERVAL: Final = 1.0  # seconds between two checks for viewers that received nothing for a while
_GRACE: Final = 5.0  # seconds for which data waits before its viewer counts as slow, where another needs the place

_Found = tuple[Channel, Tick, Page | Exception | None]


class Hub:
    """All channels of the process, and the subscriptions to their notices.

    `revision` grows with every change of a board's definition. If the store does not have a board, `explain` is called
    before the viewers learn this. If the board was deleted, `explain` removes the board from the hub.
    """

    def __init__(
        self,
        client: Store,
        settings: Settings,
        presence: Presence,
        resources: Resources,
    ) -> None:
        self.channels: dict[str, Channel] = {}
        self.revision = 0
        self.explain: Callable[[str, EpochLostError], Awaitable[object]] | None = None
        self._client = client
        self._settings = settings
        self._presence = presence
        self._recordings: dict[Channel, Recording] = {}
        self._notices = Channels({})
        # For each board whose notices this process receives: since when `run` has found it without viewers. The value
        # is infinity if the last look found viewers, and before the first look.
        self._subscribed: dict[str, float] = {}
        self._away: dict[str, str] = {}  # the boards whose server of the store is unavailable, and the reason
        self.schedule: TickSchedule[Channel] = TickSchedule(self._tick)
        self._resources = resources
        self._resources.viewers.lose = self._replace
        self._by_pattern = Counter[str]()  # the viewers of boards with limits, by their pattern, such as `acme-*`
        self.draining = False
        self._tasks: asyncio.TaskGroup | None = None

    # Boards

    def add(self, reader: BoardReader) -> None:
        """Add a board. If the hub has the board already, its channel continues with the new reader."""
        self.revision += 1
        board = reader.state.board.id
        channel = self.channels.get(board)
        if channel is not None:
            channel.renew(reader)
            if (recording := self._recordings.get(channel)) is not None:
                recording.renew(reader)
        else:
            channel = self.channels[board] = Channel(reader, self._settings, self.schedule)
        self.recheck(board)

    def remove(self, board: str) -> None:
        """Remove a deleted board and disconnect its viewers."""
        self.revision += 1
        self._unsubscribe(board)
        self.channels.pop(board).end(BOARD_DELETED)

    def recheck(self, board: str | None = None) -> None:
        """Disconnect the viewers that may no longer read their board. `None` checks all boards."""
        for channel in list(self.channels.values()) if board is None else [self.channels[board]]:
            if channel.reader.state.board.is_private:
                recording = self._recordings.get(channel)
                for viewer in (*channel.watchers, *(recording.viewers if recording is not None else ())):
                    if not viewer.reader.may_read(channel.reader.state.board):
                        viewer.end(viewer.reader.end_code)

    def drain(self) -> None:
        """Disconnect all viewers and accept no new viewers, because the process stops."""
        if not self.draining:
            self.draining = True
            for channel in self._watched():
                channel.end(SHUTTING_DOWN)

    # Viewers

    def add_viewer(self, channel: Channel, subscription: Subscription, sink: Sink) -> Viewer:
        """Add a viewer of a channel from `admit`: frames are written to its connection until it calls `leave`."""
        source = self._source(channel, subscription)
        viewer = Viewer(source, *source.place_of(subscription), sink)
        self._enter(viewer, channel, subscription)
        return viewer

    @property
    def viewers(self) -> int:
        """The number of viewers of all boards."""
        return self._resources.viewers.held

    def leave(self, viewer: Viewer) -> None:
        """Remove a viewer."""
        self._resources.viewers.set(viewer.address, viewer, 0)
        self._resources.replaced.set(viewer.address, viewer, 0)
        self._by_pattern[viewer.prefix] -= 1
        if not self._by_pattern[viewer.prefix]:
            del self._by_pattern[viewer.prefix]
        viewer.channel.leave(viewer)

    def require_running(self) -> None:
        """Check that the server is not shutting down."""
        if self.draining:
            raise ProblemError(
                "stopping", "the server is shutting down: connect again after the restart", retry_after=1
            )

    def find(self, board: str, subscription: Subscription) -> Channel:
        """Find the channel of a board for a viewer."""
        self.require_running()
        channel = self.channels.get(board)
        if channel is None or not subscription.reader.may_read(channel.reader.state.board):
            raise subscription.reader.refusal()
        return channel

    def admit(self, board: str, subscription: Subscription) -> Channel:
        """Find the channel of a board, and make room for a viewer, which must enter at once."""
        channel, settings, address = self.find(board, subscription), self._settings, subscription.address
        if channel.viewers >= settings.max_board_viewers:
            raise _too_many(
                f"{channel.viewers} viewers watch this board; "
                f"the setting max_board_viewers allows {settings.max_board_viewers}"
            )
        limits = channel.reader.state.board.limits
        if limits is not None and limits.viewers is not None:
            viewers, most = self._by_pattern[limits.pattern], share_of(limits.viewers, settings.workers)
            if viewers >= most:
                raise _too_many(
                    f"{viewers} viewers watch the boards `{limits.pattern}`; {limits.name('viewers')} allows {most}. "
                    "Close some, or let an operator raise the limit"
                )
        channel.require_room(subscription)
        recordings = self._resources.recordings
        is_recorded = not subscription.delay or channel in self._recordings
        if not (is_recorded or recordings.make_room(address, is_shared=not address)):
            raise _too_many(
                f"a process delays {recordings.most} boards at most, and half of them for one address. "
                "Watch this board without `delay`, or try again later"
            )
        self._make_room(address)
        return channel

    def _make_room(self, address: str) -> None:
        viewers, most = self._resources.viewers, self._settings.max_viewers
        if viewers.make_room(address) if address else viewers.has_room():
            return
        if not address or viewers.is_within_half(address):
            raise _too_many(f"{viewers.held} viewers watch; the setting max_viewers allows {most}")
        raise _too_many(
            f"{viewers.of(address)} viewers watch from your address; one may have half of max_viewers, which is {most}"
        )

    def _replace(self, address: str, asks: int) -> bool:
        """Disconnect the slowest viewer of a client. If none is slow, a client with many viewers loses any of them.

        Few replaced viewers are still connected, because each has a descriptor.
        """
        viewers, replaced = self._resources.viewers, self._resources.replaced
        if not replaced.has_room():
            return False
        slowest: Viewer = min(viewers.some_of(address), key=lambda viewer: viewer.sink.blocked_since or math.inf)
        is_slow = (slowest.sink.blocked_since or math.inf) < time.monotonic() - _GRACE
        if not is_slow and viewers.of(address) <= 2 * asks:
            return False
        viewers.set(address, slowest, 0)
        replaced.set(address, slowest, 1)
        DROPPED_VIEWERS.labels("replaced").inc()
        slowest.end(REPLACED)
        return True

    def _source(self, channel: Channel, subscription: Subscription) -> Source:
        if not subscription.delay:
            return channel
        recording = self._recordings.get(channel)
        if recording is None:
            recording = self._recordings[channel] = Recording(channel, subscription.address)
            self._resources.recordings.set(recording.address, recording, 1)
            self._running.create_task(self._record(recording))
        return recording

    async def _record(self, recording: Recording) -> None:
        try:
            await recording.run()
        finally:
            del self._recordings[recording.channel]
            self._resources.recordings.set(recording.address, recording, 0)

    def _enter(self, viewer: Viewer, channel: Channel, subscription: Subscription) -> None:
        viewer.reader, viewer.address = subscription.reader, subscription.address
        self._resources.viewers.set(viewer.address, viewer, 1)
        board, limits = channel.reader.state.board.id, channel.reader.state.board.limits
        viewer.prefix = "" if limits is None else limits.pattern
        self._by_pattern[viewer.prefix] += 1
        if board not in self._subscribed:
            # Receive the notices of the board. The viewer causes a first read at once. When the store confirms the
            # subscription, the hub reads again, because a notice from before may be lost.
            self._subscribed[board] = math.inf
            self._notices.add(channel.reader.state.keys.channel, board)
        viewer.channel.enter(viewer)

    def _unsubscribe(self, board: str) -> None:
        if self._subscribed.pop(board, None) is not None:
            self._notices.remove(self.channels[board].reader.state.keys.channel)
            with self._counting_stale():
                self._away.pop(board, None)

    @contextmanager
    def _counting_stale(self) -> Iterator[None]:
        """Adjust the metric by what the `with` block changes. A later hub of the same process adds its own value."""
        was_stale = bool(self._away)
        yield
        STORE_STALE.inc(bool(self._away) - was_stale)

    def _watched(self) -> list[Channel]:
        """List the channels with viewers, and some whose viewers have just left."""
        return [self.channels[board] for board in self._subscribed]

    # Work

    async def run(self) -> None:
        """Receive notices, refresh channels, and send `alive` to quiet viewers, until cancelled.

        Boards that had no viewer for a while are unsubscribed.
        """
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self.schedule.start()
            tasks.create_task(self._receive_notices())
            tasks.create_task(self._check_positions())
            tasks.create_task(self._count_viewers())
            try:
                while True:
                    await asyncio.sleep(_KEEP_ALIVE_INTERVAL)
                    for board, empty_since in list(self._subscribed.items()):
                        if board not in self._subscribed:
                            continue  # removed meanwhile
                        if self.channels[board].viewers:  # scripts in browsers see no pings, but `alive`
                            self._subscribed[board] = math.inf
                            await self.channels[board].keep_alive()
                        elif math.isinf(empty_since):
                            self._subscribed[board] = time.monotonic()
                        elif time.monotonic() >= empty_since + _LINGER:
                            self._unsubscribe(board)
            finally:
                self.schedule.stop()  # first, because a task group that ends takes no task for a tick
                with self._counting_stale():
                    self._away.clear()

    @property
    def _running(self) -> asyncio.TaskGroup:
        assert self._tasks is not None, "nothing ticks before the hub runs"  # noqa: S101
        return self._tasks

    def _tick(self, channels: list[Channel], now: int) -> None:
        begun = [(channel, tick) for channel in channels if (tick := channel.begin(now)) is not None]
        for first in range(0, len(begun), _BOARDS_A_CALL):
            self._running.create_task(self._refresh(begun[first : first + _BOARDS_A_CALL]))

    async def _refresh(self, ticks: list[tuple[Channel, Tick]]) -> None:
        started = time.perf_counter()
        reading = [(channel.reader, tick.size) for channel, tick in ticks if tick.size]
        pages = iter(await read_tops(self._client, reading) if reading else ())
        found: list[_Found] = []
        for channel, tick in ticks:
            page = next(pages) if tick.size else None
            if isinstance(page, EpochLostError):  # handle it in a task, so that the other boards do not wait
                self._running.create_task(self._take_loss(channel, tick, page))
            else:
                found.append((channel, tick, page))
        await self._update(found)
        if reading:
            TICK_SECONDS.observe(time.perf_counter() - started)
            record_span("tick", started, boards=len(reading))

    async def _take_loss(self, channel: Channel, tick: Tick, error: EpochLostError) -> None:
        """Tell the viewers that the store does not have the board, unless the board was deleted or created again."""
        if self.explain is not None:
            await self.explain(channel.reader.state.board.id, error)
        if channel.ended is None:
            await self._update([(channel, tick, None if tick.is_outdated else error)])

    async def _update(self, found: list[_Found]) -> None:
        outbox = Outbox()
        for channel, tick, page in found:
            channel.take(tick, page, self._away.get(channel.reader.state.board.id))
            await collect(tick.variants, outbox)
        outbox.flush()
        for channel, tick, _ in found:
            if await channel.finish(tick):
                self._running.create_task(channel.look_up())

    async def _receive_notices(self) -> None:
        async for notice in listen(self._client, self._notices):
            match notice:
                case Changed(board) if board in self.channels:
                    self.channels[board].changed()
                case Missed(boards):
                    with self._counting_stale():
                        for board in self._away.keys() & boards:
                            del self._away[board]
                    for board in self._subscribed.keys() & boards:
                        self.channels[board].read_again()
                case Away(boards, reason):
                    log.warning("the store is unavailable", boards=len(boards), reason=reason)
                    with self._counting_stale():
                        for board in self._subscribed.keys() & boards:
                            self._away[board] = reason_of(StoreUnavailableError(reason))
                            self.channels[board].set_stale(self._away[board])

    async def _check_positions(self) -> None:
        """Compare the positions of the boards with those in the store, because a notice can get lost unnoticed."""
        while True:
            await asyncio.sleep(_CHECK_INTERVAL)
            settled = [each for each in self._watched() if each.is_settled]
            known = [channel.position for channel in settled]
            positions = await read_positions(self._client, [channel.reader for channel in settled]) if settled else []
            for channel, before, position in zip(settled, known, positions, strict=True):
                if isinstance(position, Exception):  # the next read reports the same error
                    continue
                if position != before == channel.position:
                    channel.read_again()

    async def _count_viewers(self) -> None:
        while True:
            with suppress(StoreUnavailableError):  # the next attempt reports the viewers again
                counts = {board: self.channels[board].viewers for board in self._subscribed}
                totals = await self._presence.report(counts)
                for board, count in totals.items():
                    if board in self.channels:
                        self.channels[board].set_viewer_count(count)
            await asyncio.sleep(BEAT)


def _too_many(detail: str) -> ProblemError:
    return ProblemError("too_many_viewers", detail, retry_after=5)
