"""Group commit: requests that arrive while the store is busy share the next script call."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

import msgspec
import structlog

from live.domain.event import Entry, join
from live.errors import EpochLostError, ProblemError, StoreUnavailableError
from live.metrics import COMMIT_EVENTS, COMMIT_SECONDS, EVENTS_ACCEPTED, RANGE_LEFT
from live.settings import Settings
from live.store.board.rotation import catch_up
from live.store.board.rotator import BoardRotator
from live.store.board.writer import Added, BoardWriter

log = structlog.get_logger()

_LITTLE: Final = 0.1  # of the range of exact scores: what is left then is worth a warning
_COMPANY: Final = 5  # shares in a batch from which on the next one waits for company


class Committed(msgspec.Struct, frozen=True):
    """What became of one request's entries: where the board stands (None: nothing counted), and refusals by index."""

    offset: int | None
    refused: Mapping[int, str]


class Share(Protocol):
    """What one request wants counted on one board; it is told once, by one of the two methods, what became of it."""

    @property
    def entries(self) -> Sequence[Entry]:
        """What to count."""

    def resolve(self, committed: Committed) -> None:
        """The store has answered, and what was counted is fsynced."""

    def reject(self, error: Exception) -> None:
        """The store has not; `error` tells whether some of it may have been counted."""


class _Awaited:
    """A share whose outcome is awaited."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self.answer: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()

    def resolve(self, committed: Committed) -> None:
        if not self.answer.done():  # whoever waited may have been cancelled
            self.answer.set_result(committed)

    def reject(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Committer:
    """Gathers the shares of concurrent requests for one board, and applies them a batch at a time.

    `look_again` finds out what became of a board that is not found in the store; it may retire the committer.
    """

    def __init__(
        self,
        writer: BoardWriter,
        rotator: BoardRotator,
        settings: Settings,
        look_again: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.state = writer.state
        self._writer = writer
        self._rotator = rotator
        self._look_again = look_again
        self._retired = False
        self._accepted = EVENTS_ACCEPTED.labels(self.state.board.id)  # once: a board that is no more gets no new series
        self._settings = settings
        self._waiting: deque[Share] = deque()
        self._events_waiting = 0
        self._enough = 1  # shares that make a batch worth a call
        self._arrived = asyncio.Event()
        self._company: asyncio.TimerHandle | None = None  # ends the wait for company
        self._range_left = RANGE_LEFT.labels(self.state.board.id)
        self._range_left.set(1)
        self._warned = False  # that a score is near the end of its range

    def submit(self, share: Share) -> None:
        """Have a share counted with the next batch; no I/O here.

        Raises:
            ProblemError: `overloaded`, when too many events wait already.
        """
        count = len(share.entries)
        if self._retired:
            _dismiss([share])
            return
        if self._events_waiting + count > self._settings.max_waiting:
            detail = f"{self._events_waiting} events wait; the setting max_waiting allows {self._settings.max_waiting}"
            raise ProblemError("overloaded", detail, retry_after=1)
        self._waiting.append(share)
        self._events_waiting += count
        if len(self._waiting) >= self._enough:
            self._arrived.set()

    async def commit(self, entries: Sequence[Entry]) -> Committed:
        """Count entries; returns once they are fsynced.

        Raises:
            StoreUnavailableError: the store is away.
            EpochLostError: the store lost the board.
            ProblemError: `overloaded`, when too many events wait already.
        """
        share = _Awaited(entries)
        self.submit(share)
        return await share.answer

    def retire(self) -> None:
        """The board is no more: whatever was not given to the store yet is refused, and `run` ends."""
        self._retired = True
        self._end_wait()
        while self._waiting:
            _dismiss(self._take())
        self._arrived.set()  # so that `run` sees it

    async def run(self) -> None:
        """Commit what arrives, until it is retired."""
        while True:
            await self._arrived.wait()
            if self._retired:
                return
            batch = self._take()
            self._end_wait()
            try:
                added = await self._add(join([share.entries for share in batch]))
            except StoreUnavailableError as error:
                _reject(batch, error)
                self._reject_waiting(str(error))
            except EpochLostError as error:
                await self._give_up(batch, error)
            except BaseException as error:
                _reject(batch, StoreUnavailableError(f"the commit ended: {error!r}", unknown=True))
                raise
            else:
                try:
                    await self._catch_up(added)
                finally:
                    _resolve(batch, added)
                    self._await_company(len(batch))

    async def _give_up(self, batch: Sequence[Share], error: EpochLostError) -> None:
        """The store does not hold the board: it was removed, or else lost."""
        left = True
        with suppress(StoreUnavailableError, EpochLostError):
            left = await self.state.has_left()  # before the look: what is removed meanwhile is not defined any more
            if self._look_again is not None:
                await self._look_again()
        if self._retired:
            _dismiss(batch)
            return
        if not left:
            self.state.lose(error)
        _reject(batch, error)

    def _await_company(self, answered: int) -> None:
        """Let those that have just been answered send again and share the next call, if they are many.

        A call costs the store, and its disk, much the same for few as for many: PostgreSQL's commit_delay.
        """
        if self._retired:
            return
        self._enough = answered + len(self._waiting) if answered >= _COMPANY else 1
        if len(self._waiting) < self._enough:
            self._arrived.clear()
            self._company = asyncio.get_running_loop().call_later(self._settings.commit_delay, self._wait_no_longer)

    def _end_wait(self) -> None:
        """Wait for no company; a timer that went on would end a later wait too soon."""
        self._enough = 1
        if self._company is not None:
            self._company.cancel()
            self._company = None

    def _wait_no_longer(self) -> None:
        self._end_wait()
        if self._waiting:
            self._arrived.set()

    def _reject_waiting(self, reason: str) -> None:
        """Refuse all that waits: it would only meet the same store, each batch a deadline later than the last."""
        while self._waiting:
            _reject(self._take(), StoreUnavailableError(reason))

    def _take(self) -> list[Share]:
        """The next batch: whole shares, at least one, up to the batch size."""
        batch: list[Share] = []
        size = 0
        while self._waiting and (not batch or size + len(self._waiting[0].entries) <= self._settings.batch_size):
            batch.append(self._waiting.popleft())
            size += len(batch[-1].entries)
        self._events_waiting -= size
        if not self._waiting:
            self._arrived.clear()
        return batch

    async def _add(self, entries: Sequence[Entry]) -> Added:
        started = time.perf_counter()
        added = await self._writer.add(entries)
        COMMIT_SECONDS.observe(time.perf_counter() - started)
        COMMIT_EVENTS.observe(len(entries))
        self._accepted.inc(len(entries) - len(added.refused))
        if added.offset is not None:
            self._watch_range(added.widest)
        return added

    def _watch_range(self, widest: int) -> None:
        """Show how much of the range of exact scores is left, and warn once when little is."""
        board = self.state.board
        if board.operator != "incr":
            return
        left = 1 - widest / board.most
        self._range_left.set(left)
        if left < _LITTLE and not self._warned:
            self._warned = True
            log.warning(
                "a score is near the end of its range; beyond it events are refused as score_out_of_range",
                board=board.id, value=widest, limit=board.most,
            )  # fmt: skip

    async def _catch_up(self, added: Added) -> None:
        """Let a reader who has the answer see the window of an event clock that the batch moved."""
        if added.clock_moved and self.state.board.clock == "event":
            with suppress(StoreUnavailableError, EpochLostError):  # the batch is safe; the rotation task goes on
                await catch_up(self._rotator)


def _resolve(batch: Sequence[Share], added: Added) -> None:
    """Tell each share what became of its own entries."""
    if not added.refused:
        whole = Committed(added.offset, {})
        for share in batch:
            _tell(share, whole)
        return
    first = 0
    for share in batch:
        size = len(share.entries)
        refused = {i: added.refused[first + i] for i in range(size) if first + i in added.refused}
        first += size
        _tell(share, Committed(None if len(refused) == size else added.offset, refused))


def _dismiss(batch: Sequence[Share]) -> None:
    """Refuse every entry, for the board is no more."""
    for share in batch:
        _tell(share, Committed(None, dict.fromkeys(range(len(share.entries)), "board_unknown")))


def _reject(batch: Sequence[Share], error: Exception) -> None:
    for share in batch:
        _tell(share, error)


def _tell(share: Share, outcome: Committed | Exception) -> None:
    """Tell one share; should it fail to hear, that is no reason to leave the others without an answer."""
    try:
        if isinstance(outcome, Committed):
            share.resolve(outcome)
        else:
            share.reject(outcome)
    except Exception:
        log.exception("an answer could not be given")
