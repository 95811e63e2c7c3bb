"""The channel of one board in one process: reads the top once a tick, and takes every viewer there."""

import asyncio
import time
from collections.abc import Iterable
from typing import Final

from live.domain.board import Board
from live.domain.ranking import Page
from live.errors import EpochLostError
from live.fanout.frames import Frame, status_frame, viewers_frame
from live.fanout.history import History
from live.fanout.lookups import RankLookups
from live.fanout.position import Position
from live.fanout.schedule import Schedule
from live.fanout.subscription import Subscription
from live.fanout.variant import Variant
from live.fanout.viewer import PushViewer, Viewer, count_frames
from live.metrics import CONFLATED, SEND_LAG_SECONDS, VIEWERS
from live.settings import Settings
from live.store.board.ledger import Ledger

_MOST_AT_ONCE: Final = 256  # frames between two turns of the event loop
_RETRY: Final = 500  # milliseconds between two reads that fail


class Channel:
    """One board in this process: its viewers, and a variant for each size and pace that they watch."""

    def __init__(self, ledger: Ledger, settings: Settings, schedule: "Schedule[Channel]") -> None:
        self.ledger = ledger
        self.stale: str | None = None
        self.ended: int | None = None  # the code with which viewers are let go
        self.viewer_count: int | None = None  # in all processes, as last heard
        self.position: tuple[str, int] | None = None  # of the last read
        self._default = settings.conflation_interval
        self._interval = interval_of(ledger.board, self._default)
        self._schedule = schedule
        self._history = History(settings.history_size)
        self._viewers: set[Viewer] = set()
        self._variants: dict[tuple[int, int], Variant] = {}
        self._lookups = RankLookups()
        self._reads = 0
        self._renewed = False
        self._taking: list[Variant] = []  # the variants of the tick that is under way
        self._busy = False
        self._poked = False
        self._heard: float | None = None  # when the first change was heard, or suspected, that is not shown yet
        self._changed = False  # whether a change was heard that is not shown yet
        self._asked_for: float | None = None  # the same, of the changes that this tick shows
        self._gauge = VIEWERS.labels(ledger.board.id)

    @property
    def viewers(self) -> int:
        """How many watch."""
        return len(self._viewers)

    @property
    def is_settled(self) -> bool:
        """Whether it was read, and neither is being read nor waits for its tick."""
        return (
            self.position is not None
            and not self._busy
            and not any(variant.dirty for variant in self._variants.values())
        )

    # Viewers

    def variant_of(self, asked: Subscription) -> Variant:
        """The variant of a size and pace."""
        interval = asked.pace(self._interval)
        variant = self._variants.get((asked.size, interval))
        if variant is None:
            board = self.ledger.board
            variant = Variant(board.id, asked.size, interval, self._history, board.ranks)
            self._variants[asked.size, interval] = variant
        return variant

    def require_room(self, asked: Subscription) -> None:
        """Refuse a viewer that asks for one more key than are looked up.

        Raises:
            ProblemError: `too_many_viewers`.
        """
        self._lookups.require_room(self._variants.get((asked.size, asked.pace(self._interval))), asked)

    def position_of(self, asked: Subscription) -> Position:
        """Where a viewer stands that begins, or comes back."""
        return Position(asked.epoch, asked.offset, self._reads, self._lookups.find(self.variant_of(asked), asked))

    def enter(self, viewer: Viewer) -> None:
        """Take in a viewer; it is woken as soon as there is something for it."""
        variant = viewer.variant
        if not self._viewers:
            self.stale = self._heard = None  # whatever was told last; what holds now comes with the read
            self._changed = False
        self._viewers.add(viewer)
        self._gauge.inc()
        variant.viewers += 1
        variant.loose.add(viewer)
        is_new = self._lookups.enter(viewer)
        viewer.wake()
        if viewer.position.epoch is None or viewer.position.returns:  # what there is does not serve it
            self._mark(variant)
        if is_new:
            self._call_soon()

    def leave(self, viewer: Viewer) -> None:
        """Let a viewer go; a variant without viewers is not kept up to date."""
        if viewer not in self._viewers:
            return
        self._viewers.discard(viewer)
        self._gauge.dec()
        variant = viewer.variant
        if isinstance(viewer, PushViewer):
            viewer.leave_cohort()
        variant.loose.discard(viewer)
        variant.viewers -= 1
        self._lookups.leave(viewer)
        if not variant.viewers:
            del self._variants[variant.size, variant.interval]

    def renew(self, ledger: Ledger) -> None:
        """Go on with the board as it is defined now, or with another life of it: every viewer gets the whole top."""
        self.ledger = ledger
        before, self._interval = self._interval, interval_of(ledger.board, self._default)
        self._renewed = True
        for variant in self._variants.values():
            variant.interval = variant.interval // before * self._interval
        self._variants = {(variant.size, variant.interval): variant for variant in self._variants.values()}
        self._begin_anew()
        self.look_again()

    def _begin_anew(self) -> None:
        """Forget what was read: every viewer gets the whole top, and nobody is told of changes since before."""
        self._history.clear()
        for variant in self._variants.values():
            variant.forget(self.ledger.board.ranks)
        self._lookups.forget()

    def end(self, code: int) -> None:
        """Let the viewers go, with one of `CLOSE_CODES`."""
        self.ended = code
        for viewer in list(self._viewers):
            viewer.end(code)

    # What is heard

    def changed(self) -> None:
        """Note that the board changed."""
        if self._viewers and self._changed:
            CONFLATED.inc()
        self._changed = True
        self.look_again()

    def look_again(self) -> None:
        """Have the board read, for it may have changed."""
        if not self._viewers:
            return  # whoever comes has it read
        if self._heard is None:
            self._heard = time.monotonic()
        for variant in self._variants.values():
            self._mark(variant)

    def set_stale(self, reason: str | None) -> None:
        """Tell the viewers that what they see is stale for a reason, or (None) no longer."""
        if reason != self.stale:
            self.stale = reason
            self._poke()

    def set_viewer_count(self, count: int) -> None:
        """Tell the viewers how many watch in all processes."""
        if count != self.viewer_count:
            self.viewer_count = count
            self._poke()

    def due_frame(self, variant: Variant, position: Position) -> Frame | None:
        """The frame that is due at a position, which moves with it; None when there is none."""
        frame = variant.next_frame(position) or position.next_around()
        if frame is not None:
            return frame
        if position.stale != self.stale:
            position.stale = self.stale
            return status_frame(self.stale)
        if self.viewer_count is not None and position.viewers != self.viewer_count and position.epoch is not None:
            position.viewers = self.viewer_count
            return viewers_frame(self.viewer_count)
        return None

    # Ticks

    def begin_tick(self, now: int) -> bool:
        """Begin a tick; False when the last one is still under way: what is due will be seen at its end."""
        if self._busy or self.ended is not None:
            return False
        self._busy = True
        self._taking = [variant for variant in self._variants.values() if variant.dirty and variant.due <= now]
        for variant in self._taking:  # one that comes while we read may want more than we ask for
            variant.dirty = False
        if self._taking:
            self._reads += 1
            self._asked_for, self._renewed = self._heard, False
            self._heard, self._changed = None, False
        return True

    @property
    def wanted(self) -> int:
        """How many records are to be read at this tick."""
        return max((variant.size for variant in self._taking), default=0)

    def take(self, page: Page | Exception) -> None:
        """Take what was read, or why it could not be."""
        if isinstance(page, Exception):
            for variant in self._taking:
                variant.dirty = True
                variant.due = self._schedule.now() + _RETRY
            self.stale = reason_of(page)
            self._asked_for = None
        elif not self._renewed:  # or it was read by a definition that is over, and what renewed us has it read again
            if self.position is not None and page.epoch == self.position[0] and page.offset < self.position[1]:
                self._begin_anew()  # the store went back: what viewers have seen is not there any more
            self.position = (page.epoch, page.offset)
            self._history.add(page)
            if self.stale is not None:
                self.stale = None
                self._poked = True
            for variant in self._taking:
                variant.advance(page, self._reads)

    async def spread(self) -> None:
        """Take every viewer to where its variant stands."""
        told = list(self._variants.values()) if self._poked or self.stale is not None else self._taking
        self._poked = False
        await self._spread(told)
        if self._asked_for is not None:
            SEND_LAG_SECONDS.observe(time.monotonic() - self._asked_for)
            self._asked_for = None

    def end_tick(self) -> bool:
        """The next may come; whether there are keys to `look_up`."""
        self._busy = False
        if self.stale is None and self.position is not None:
            self._lookups.mark(self._taking, *self.position)
        self._taking = []
        waiting = [variant.due for variant in self._variants.values() if variant.dirty]
        if self._poked and self._viewers:
            waiting.append(self._schedule.now())
        if waiting:
            self._schedule.add(min(waiting), self)
        return self._lookups.are_waiting

    async def look_up(self) -> None:
        """Look up the keys that are due, beside the ticks: nobody else waits for it."""
        if not await self._lookups.look_up(lambda: self.ledger):
            self._schedule.add(self._schedule.now() + _RETRY, self)

    def _mark(self, variant: Variant) -> None:
        """See to it that a variant is read at its next tick; at once if it waits for its first page."""
        now = self._schedule.now()
        if not variant.dirty:
            variant.dirty = True
            variant.due = now if variant.is_empty else self._schedule.after(now, variant.interval)
        if not self._busy:
            self._schedule.add(variant.due, self)

    def _poke(self) -> None:
        """See to it that viewers are told what is not read."""
        self._poked = True
        if self._viewers:
            self._call_soon()

    def _call_soon(self) -> None:
        if not self._busy:
            self._schedule.add(self._schedule.now(), self)

    async def _spread(self, variants: Iterable[Variant]) -> None:
        """Take every viewer of variants to where they stand; the event loop has its turn in between."""
        sent = 0
        for variant in variants:
            for cohort in list(variant.cohorts):
                while (frame := self.due_frame(variant, cohort.position)) is not None:
                    sent += len(cohort)
                    count_frames(frame, len(cohort), len(frame.wire))
                    for member in cohort.send(frame):
                        assert isinstance(member, PushViewer), "only push viewers are in cohorts"  # noqa: S101
                        member.fall_out(cohort.position)
                if sent >= _MOST_AT_ONCE:
                    sent = 0
                    await asyncio.sleep(0)
            variant.drop_empty_cohorts()
            for viewer in list(variant.loose):
                if viewer in variant.loose:
                    viewer.wake()
                    sent += 1
                if sent >= _MOST_AT_ONCE:
                    sent = 0
                    await asyncio.sleep(0)


def reason_of(error: Exception) -> str:
    """What viewers are told; the details are for the log."""
    return "the store lost the board's data" if isinstance(error, EpochLostError) else "store unreachable"


def interval_of(board: Board, default: float) -> int:
    """The least time between two frames of a board, in milliseconds."""
    return max(1, round(default * 1000)) if board.conflation is None else board.conflation
