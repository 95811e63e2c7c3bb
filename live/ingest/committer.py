"""Group commit: requests that arrive while the store is busy share the next script call."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Final, Protocol

import msgspec
import structlog

from live.domain.event import Entry, join
from live.domain.meaning import says
from live.errors import EpochLostError, ProblemError, StoreUnavailableError
from live.http.parameters import Parameters
from live.metrics import COMMIT_EVENTS, COMMIT_SECONDS, EVENTS_ACCEPTED, RANGE_LEFT
from live.store.board.rotation import BoardRotator, catch_up
from live.store.board.write.slot_assignment import Placement
from live.store.board.write.writer import Added, BoardWriter
from live.system.tracing import record_span

log = structlog.get_logger()

# More events in one script call hold the store up for longer than the call saves: 1,000 take about 10 ms.
BATCH_SIZE: Final = 1000
# After a large batch, so long may a call wait for the next requests of its senders: about the time of a fsync.
COMMIT_DELAY: Final = 0.001
# Events of a board that may wait in a process: seconds of work of a store, so clients had better wait themselves.
MOST_WAITING: Final = 100_000
_LOW_RANGE: Final = 0.1  # the server warns when less than this part of the range of exact scores is left
_DELAY_FROM: Final = 5  # the next batch is delayed if a batch has at least this many shares


class Committed(msgspec.Struct, frozen=True):
    """The result for one request."""

    offset: int | None  # of the board; None if nothing counted
    refused: Mapping[int, str]  # the refusals, by index
    placements: Mapping[int, Placement] = {}  # by index where entries counted, if a request of the batch asks for it


MOST_RECORDS: Final = 1000


class Wants(Parameters, frozen=True, kw_only=True):
    """The options of a request."""

    records: Annotated[
        bool,
        says(
            "Return the record of the member of each event that counted or is a duplicate, on each board. "
            f"A body that needs more than {MOST_RECORDS:,} records is refused."
        ),
    ] = msgspec.field(name="rank", default=False)
    strict: Annotated[
        bool, says("Refuse the request with 422 if an event is refused. Each board counts all of its events, or none.")
    ] = False


PLAIN: Final = Wants()


class Share(Protocol):
    """The entries of one request of a producer for one board. The committer calls `resolve` or `reject` once."""

    entries: Sequence[Entry]
    producer: str

    def resolve(self, committed: Committed) -> None:
        """Report that the entries are counted and fsynced, except for refused entries."""

    def reject(self, error: Exception) -> None:
        """Report that the entries are not counted. `error.unknown` is true if some of the entries may have counted."""


class _AwaitedShare:
    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self.producer = ""
        self.answer: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()

    def resolve(self, committed: Committed) -> None:
        if not self.answer.done():  # the caller may have been cancelled meanwhile
            self.answer.set_result(committed)

    def reject(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Committer:
    """Collects the shares of concurrent requests for a board, and commits them in batches.

    If the store does not have the board, the committer calls `on_missing`, which may retire the committer.
    """

    def __init__(
        self,
        writer: BoardWriter,
        rotator: BoardRotator,
        on_missing: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.state = writer.state
        self._writer = writer
        self._rotator = rotator
        self._on_missing = on_missing
        self._retired = False
        # Look the counter up once, here: after the board is deleted, a look-up would begin a new series.
        self._accepted = EVENTS_ACCEPTED.labels(self.state.board.id)
        self._waiting: deque[Share] = deque()
        self._wants: dict[Share, Wants] = {}  # the options of waiting shares that have any
        self.events_waiting = 0
        self._wanted = 1  # the number of waiting shares at which the next batch starts
        self._arrived = asyncio.Event()
        self._delay: asyncio.TimerHandle | None = None  # ends the group-commit delay
        self._range_left = RANGE_LEFT.labels(self.state.board.id)
        self._range_left.set(1)
        self._warned = False  # whether a score near the end of its range was logged

    def submit(self, share: Share, wants: Wants = PLAIN) -> None:
        """Queue a share for the next batch, without I/O."""
        count = len(share.entries)
        if self._retired:
            _reject_deleted([share])
            return
        if self.events_waiting + count > MOST_WAITING:
            detail = f"{self.events_waiting} events of the board wait; at most {MOST_WAITING} may"
            raise ProblemError("overloaded", detail, retry_after=1)
        self._waiting.append(share)
        if wants is not PLAIN:
            self._wants[share] = wants
        self.events_waiting += count
        if len(self._waiting) >= self._wanted:
            self._arrived.set()

    async def commit(self, entries: Sequence[Entry]) -> Committed:
        """Count entries, and return when they are fsynced. If the store lost the board, raise EpochLostError."""
        share = _AwaitedShare(entries)
        self.submit(share)
        return await share.answer

    def retire(self) -> None:
        """End `run` and refuse the waiting entries: the board is deleted."""
        self._retired = True
        self._end_delay()
        while self._waiting:
            _reject_deleted(self._take())
        self._wants.clear()
        self._arrived.set()  # wakes `run`

    async def run(self) -> None:
        """Commit batches until retired."""
        while True:
            await self._arrived.wait()
            if self._retired:
                return
            batch = self._take()
            self._end_delay()
            try:
                added = await self._add(batch)
            except StoreUnavailableError as error:
                _reject(batch, error)
                while self._waiting:  # otherwise each batch would wait for the same store until its deadline
                    _reject(self._take(), StoreUnavailableError(str(error)))
                self._wants.clear()
            except EpochLostError as error:
                await self._handle_missing(batch, error)
            except BaseException as error:
                _reject(batch, StoreUnavailableError(f"the commit ended: {error!r}", unknown=True))
                raise
            else:
                try:
                    # If the batch moved the event clock, a read after the answer must see the new window.
                    if added.clock_moved and self.state.board.clock == "event":
                        with suppress(StoreUnavailableError, EpochLostError):  # the rotation task tries again
                            await catch_up(self._rotator)
                finally:
                    _resolve(batch, added)
                    self._delay_next_batch(len(batch))

    async def _handle_missing(self, batch: Sequence[Share], error: EpochLostError) -> None:
        is_deleted = True
        with suppress(StoreUnavailableError, EpochLostError):
            # Ask this before `on_missing`, which forgets a board that was deleted.
            is_deleted = await self.state.is_deleted()
            if self._on_missing is not None:
                await self._on_missing()
        if self._retired:
            _reject_deleted(batch)
            return
        if not is_deleted:
            self.state.lose(error)
        _reject(batch, error)

    def _delay_next_batch(self, answered: int) -> None:
        """Delay the next batch if the last batch was large, so that the same senders can add their next requests to it.

        A batch costs the store and its disk almost the same, whatever its size. In PostgreSQL, such a delay is called
        commit_delay.
        """
        if self._retired:
            return
        self._wanted = answered + len(self._waiting) if answered >= _DELAY_FROM else 1
        if len(self._waiting) < self._wanted:
            self._arrived.clear()
            self._delay = asyncio.get_running_loop().call_later(COMMIT_DELAY, self._delay_over)

    def _end_delay(self) -> None:
        """End the group-commit delay. If its timer went on, it would cut the next delay short."""
        self._wanted = 1
        if self._delay is not None:
            self._delay.cancel()
            self._delay = None

    def _delay_over(self) -> None:
        self._end_delay()
        if self._waiting:
            self._arrived.set()

    def _take(self) -> list[Share]:
        batch: list[Share] = []
        size = 0
        while self._waiting and (not batch or size + len(self._waiting[0].entries) <= BATCH_SIZE):
            batch.append(self._waiting.popleft())
            size += len(batch[-1].entries)
        self.events_waiting -= size
        if not self._waiting:
            self._arrived.clear()
        return batch

    async def _add(self, batch: Sequence[Share]) -> Added:
        entries = join([share.entries for share in batch])
        wants = [self._wants.pop(share, PLAIN) for share in batch] if self._wants else ()
        started = time.perf_counter()
        senders = [(share.producer, len(share.entries)) for share in batch]
        strict, first = [], 0  # the indexes of the entries of each strict request
        for one, wanted in zip(batch, wants, strict=False):  # `wants` is empty if no share has options
            if wanted.strict:
                strict.append(range(first, first + len(one.entries)))
            first += len(one.entries)
        added = await self._writer.add(entries, senders, places=any(each.records for each in wants), strict=strict)
        COMMIT_SECONDS.observe(time.perf_counter() - started)
        record_span("commit", started, board=self.state.board.id, events=len(entries))
        COMMIT_EVENTS.observe(len(entries))
        self._accepted.inc(len(entries) - len(added.refused))
        board = self.state.board
        if added.offset is not None and board.operator == "incr":
            left = 1 - added.widest / board.most
            self._range_left.set(left)
            if left < _LOW_RANGE and not self._warned:
                self._warned = True
                log.warning(
                    "a score is near the end of its range; beyond it events are refused as score_out_of_range",
                    board=board.id, value=added.widest, limit=board.most,
                )  # fmt: skip
        return added


def _resolve(batch: Sequence[Share], added: Added) -> None:
    refused, placements = added.refused, added.placements
    own, first = Committed(added.offset, {}), 0
    for share in batch:
        if refused or placements:
            size = len(share.entries)
            here = {i: refused[first + i] for i in range(size) if first + i in refused}
            places = {i: placements[first + i] for i in range(size) if first + i in placements}
            first += size
            own = Committed(None if len(here) == size else added.offset, here, places)
        try:
            share.resolve(own)
        except Exception:  # the other shares need their answers too
            log.exception("sending an answer failed")


def _reject_deleted(batch: Sequence[Share]) -> None:
    refused = dict.fromkeys(range(sum(len(share.entries) for share in batch)), "board_unknown")
    _resolve(batch, Added(None, refused, clock_moved=False))


def _reject(batch: Sequence[Share], error: Exception) -> None:
    for share in batch:
        try:
            share.reject(error)
        except Exception:  # the other shares need their answers too
            log.exception("sending an answer failed")
