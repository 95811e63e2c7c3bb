"""Group commit: requests that arrive while the store is busy share the next script call."""

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from live.errors import EpochLostError, ProblemError, StoreUnavailableError
from live.event import Entry
from live.metrics import COMMIT_EVENTS, COMMIT_SECONDS, EVENTS_ACCEPTED
from live.rotation import catch_up
from live.settings import Settings
from live.store.ledger import Added, Ledger


class Committed(msgspec.Struct, frozen=True):
    """What became of one request's entries: where the board stands (None: nothing counted), and refusals by index."""

    offset: int | None
    refused: Mapping[int, str]


class _Waiting(msgspec.Struct, frozen=True, gc=False):
    entries: Sequence[Entry]
    answer: "asyncio.Future[Committed]"


class Committer:
    """Gathers the entries of concurrent requests for one board, and applies them a batch at a time."""

    def __init__(self, ledger: Ledger, settings: Settings) -> None:
        self.ledger = ledger
        self._settings = settings
        self._waiting: deque[_Waiting] = deque()
        self._events_waiting = 0
        self._arrived = asyncio.Event()

    async def commit(self, entries: Sequence[Entry]) -> Committed:
        """Count the entries of one request; returns once they are fsynced.

        Raises:
            StoreUnavailableError: the store is away.
            EpochLostError: the store lost the board.
            ProblemError: `overloaded`, when too many events wait already.
        """
        if self._events_waiting + len(entries) > self._settings.max_waiting:
            detail = f"{self._events_waiting} events wait; the setting max_waiting allows {self._settings.max_waiting}"
            raise ProblemError("overloaded", detail, retry_after=1)
        answer: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(entries, answer))
        self._events_waiting += len(entries)
        self._arrived.set()
        return await answer

    async def run(self) -> None:
        """Commit what arrives, for ever."""
        while True:
            await self._arrived.wait()
            batch = self._take()
            try:
                added = await self._add([entry for waiting in batch for entry in waiting.entries])
            except StoreUnavailableError as error:
                _fail(batch, error)
                self._fail_waiting(str(error))
            except EpochLostError as error:
                _fail(batch, error)
            except BaseException as error:
                _fail(batch, StoreUnavailableError(f"the commit ended: {error!r}", unknown=True))
                raise
            else:
                try:
                    await self._catch_up(added)
                finally:
                    _answer(batch, added)

    def _fail_waiting(self, reason: str) -> None:
        """Refuse all that waits: it would only meet the same store, each batch a deadline later than the last."""
        while self._waiting:
            _fail(self._take(), StoreUnavailableError(reason))

    def _take(self) -> list[_Waiting]:
        """The next batch: whole requests, at least one, up to the batch size."""
        batch: list[_Waiting] = []
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
        added = await self.ledger.add(entries)
        COMMIT_SECONDS.observe(time.perf_counter() - started)
        COMMIT_EVENTS.observe(len(entries))
        EVENTS_ACCEPTED.labels(self.ledger.board.id).inc(len(entries) - len(added.refused))
        return added

    async def _catch_up(self, added: Added) -> None:
        """Let a reader who has the answer see the window of an event clock that the batch moved."""
        if added.clock_moved and self.ledger.board.clock == "event":
            with suppress(StoreUnavailableError, EpochLostError):  # the batch is safe; the rotation task goes on
                await catch_up(self.ledger)


def _answer(batch: Sequence[_Waiting], added: Added) -> None:
    """Give each request what became of its own entries."""
    first = 0
    for waiting in batch:
        size = len(waiting.entries)
        refused = {}
        if added.refused:
            refused = {i: added.refused[first + i] for i in range(size) if first + i in added.refused}
        first += size
        if not waiting.answer.done():  # a client that left has cancelled its own
            waiting.answer.set_result(Committed(None if len(refused) == size else added.offset, refused))


def _fail(batch: Sequence[_Waiting], error: Exception) -> None:
    for waiting in batch:
        if not waiting.answer.done():
            waiting.answer.set_exception(error)
