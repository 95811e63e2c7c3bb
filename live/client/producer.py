"""Send events in batches in the background."""

import asyncio
import logging
import secrets
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count, repeat
from types import TracebackType
from typing import Final, Literal, Self

import msgspec
from msgspec import UNSET

from live.client.errors import OutcomeUnknownError
from live.client.events import Event, decode_event, encode_event, with_identity
from live.client.sender import MAX_BYTES, MAX_EVENTS, Sender, ndjson
from live.domain.event import Answer, EventRecord, Rejection

LINGER: Final = 0.01  # seconds
MAX_BUFFER: Final = 8 << 20  # bytes
# Events in a batch that asks for records; the server returns at most 1,000 records, one for each board of an event.
_MAX_RANKED: Final = 100
_log = logging.getLogger("live.client")

OnRejected = Callable[[Event, Rejection], None]


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The results of the events of a producer so far.

    Attributes:
        accepted: number of events that were counted.
        duplicate: number of events that the server had counted before. Either the first response to their batch was
            lost, or they were sent earlier with the same ids.
        rejected: number of refused events, by code.
        lost: number of lost responses. After each of them, the batch was sent again.
    """

    accepted: int = 0
    duplicate: int = 0
    rejected: dict[str, int] = {}
    lost: int = 0


class EventResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one event.

    Attributes:
        event: the event as it was sent, with its id. If a rejection is `retryable`, you can send the event again
            later, and each board counts it once.
        outcome: `accepted`; `duplicate` if the server had counted the event before; or `rejected`.
        rejections: why boards refused the event, each with a code and a detail. Another board may have counted it.
        records: the records of its member after the event, one for each board. Only a producer with `rank` has them.
    """

    event: Event
    outcome: Literal["accepted", "duplicate", "rejected"]
    rejections: tuple[Rejection, ...] = ()
    records: tuple[EventRecord, ...] = ()


class _Waiting:
    """Encoded events that wait for a batch, which has up to `most` events.

    `some` is set while events wait. `enough` is set when they should be sent without further delay.
    """

    def __init__(self, most: int) -> None:
        self.lines: deque[bytes] = deque()
        self.some = asyncio.Event()
        self.enough = asyncio.Event()
        self._most = most
        self._size = 0  # bytes
        self.all_bytes = 0  # bytes of all events that `put` has ever received

    def put(self, line: bytes) -> None:
        self.lines.append(line)
        self._size += len(line)
        self.all_bytes += len(line)
        self.some.set()
        if self._is_full():
            self.enough.set()

    def take(self) -> list[bytes]:
        batch: list[bytes] = []
        size = 0
        while self.lines and len(batch) < self._most and size < MAX_BYTES:
            batch.append(self.lines.popleft())
            size += len(batch[-1])
        self._size -= size
        if not self.lines:
            self.some.clear()
        if not self._is_full():
            self.enough.clear()
        return batch

    def _is_full(self) -> bool:
        return len(self.lines) >= self._most or self._size >= MAX_BYTES


class Producer:
    """Sends events in batches of up to 1,000, in the given order. Use it as an asynchronous context manager.

    An event without an id gets a new id. So each event counts once, even if a response is lost and the batch is sent
    again. A batch is sent when it is full, when its first event is `linger` seconds old, or on `flush`. Meanwhile the
    next batch fills. When the server responds with 429, the producer waits for as long as the server asks.

    If a batch can't be sent, the producer fails. Then `send`, `flush` and the end of the `with` block raise the error,
    and `unsent` returns the events that have no response. Send only these events again: other events may have counted,
    and count twice if they get new ids.
    """

    def __init__(
        self,
        sender: Sender,
        *,
        linger: float = LINGER,
        max_bytes: int = MAX_BUFFER,
        on_rejected: OnRejected | None = None,
        rank: bool = False,
    ) -> None:
        self._sender = sender
        self._rank = rank
        # The futures of results, each by the number of bytes that were queued before its event.
        self._awaited: dict[int, asyncio.Future[EventResult]] = {}
        self._linger = linger
        self._max_bytes = max_bytes
        self._on_rejected = on_rejected or _log_rejected
        self._ids = zip(repeat(f"client:{secrets.token_hex(8)}".encode()), count(), strict=False)  # thread-safe
        self._waiting = _Waiting(_MAX_RANKED if rank else MAX_EVENTS)
        self._turn = asyncio.Lock()  # first come, first served: small events do not take the room of a large event
        self._batch: list[bytes] = []  # the events that are being sent
        self._totals = Totals()
        self.settled_bytes = 0  # bytes of the events that have a response
        self._progress = asyncio.Event()  # replaced after each batch
        self._failure: Exception | None = None
        self._sending: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None or issubclass(kind, Exception):  # other exceptions end the program, which should not wait
                await self.flush()
        finally:
            await self.stop()

    def start(self) -> None:
        """Start sending. The context manager does this for you."""
        self._sending = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop at once, without waiting for a response. `unsent` returns the events that have no response."""
        if self._sending is not None:
            self._sending.cancel()
            with suppress(asyncio.CancelledError):
                await self._sending

    @property
    def totals(self) -> Totals:
        """The results of the events that have a response."""
        return msgspec.structs.replace(self._totals, lost=self._sender.lost)

    @property
    def pending(self) -> int:
        """Number of events without a response."""
        return len(self._batch) + len(self._waiting.lines)

    @property
    def pending_bytes(self) -> int:
        """Bytes of JSON of the events without a response."""
        return self._waiting.all_bytes - self.settled_bytes

    def unsent(self) -> list[Event]:
        """Return the events without a response, with their ids. Sent again with the same API key, each counts once."""
        return [decode_event(line) for line in (*self._batch, *self._waiting.lines)]

    async def send(self, event: Event) -> None:
        """Queue an event. Wait while the events without a response would take more than `max_bytes`."""
        line = self.encode(event)
        async with self._turn:
            await self.await_room(line)
            self.put(line)

    async def post(self, event: Event) -> EventResult:
        """Send an event, and return what became of it. The event shares a batch with other events.

        Raises:
            OutcomeUnknownError: the producer was closed before the response. `unsent` returns the event with its id.
        """
        line = self.encode(event)
        async with self._turn:
            await self.await_room(line)
            result = self._put_awaited(line)
        return await result

    async def await_room(self, line: bytes) -> int:
        """Wait until there is room for an encoded event. Return how many bytes were queued before the event."""
        before = self._waiting.all_bytes
        await self.await_settled(self.least_settled(before, line))
        self.check()
        return before

    def least_settled(self, before: int, line: bytes) -> int:
        """Return the least `settled_bytes` that leave room for `line`, if `before` bytes were queued before it."""
        return before - max(0, self._max_bytes - len(line))

    async def result_of(self, line: bytes) -> EventResult:
        """Queue an encoded event, and return what became of it."""
        self.check()
        return await self._put_awaited(line)

    def _put_awaited(self, line: bytes) -> asyncio.Future[EventResult]:
        result: asyncio.Future[EventResult] = asyncio.get_running_loop().create_future()
        self._awaited[self._waiting.all_bytes] = result
        self.put(line)
        return result

    def encode(self, event: Event) -> bytes:
        """Encode an event with an id, as `put` takes it. This is thread-safe."""
        line = encode_event(event)
        if event.id is not None:
            return line
        return with_identity(line, *next(self._ids), has_source=event.source is not None)

    def put(self, line: bytes) -> None:
        """Queue an encoded event, even if there is no room for it."""
        self._waiting.put(line)

    async def flush(self) -> Totals:
        """Wait until every queued event has a response."""
        await self.await_settled(self._waiting.all_bytes)
        self.check()
        return self.totals

    async def await_settled(self, size: int) -> None:
        """Wait until `settled_bytes` is at least `size`."""
        while self.settled_bytes < size:
            self.check()
            self._waiting.enough.set()  # send the queued events without lingering
            await self._progress.wait()

    def check(self) -> None:
        """Raise the error of the producer, if it has failed."""
        if self._failure is not None:
            raise self._failure
        if self._sending is None or self._sending.done():
            raise RuntimeError("the producer is closed, or was not entered as a context manager")

    async def _run(self) -> None:
        try:
            while True:
                await self._waiting.some.wait()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._linger):
                        await self._waiting.enough.wait()
                self._batch = self._waiting.take()  # the batch is full or old enough
                answer = await self._sender.send(ndjson(self._batch, repeatable=True, rank=self._rank))
                codes = Counter(self._totals.rejected)
                codes.update(rejection.code for rejection in answer.rejected)
                self._totals = Totals(
                    accepted=self._totals.accepted + answer.accepted,
                    duplicate=self._totals.duplicate + answer.duplicate,
                    rejected=dict(codes),
                )
                batch, self._batch = self._batch, []
                for index, line in enumerate(batch):
                    result = self._awaited.pop(self.settled_bytes, None)
                    self.settled_bytes += len(line)
                    if result is not None and not result.done():
                        result.set_result(_result_of(decode_event(line), answer, index))
                for rejection in answer.rejected:
                    self._on_rejected(decode_event(batch[rejection.index]), rejection)
                self._progress.set()
                self._progress = asyncio.Event()
        except Exception as error:  # noqa: BLE001 - the next call raises it
            self._failure = error
        finally:
            self._progress.set()
            for result in self._awaited.values():
                if not result.done():
                    result.set_exception(
                        self._failure or OutcomeUnknownError("the producer is closed; the event may have been counted")
                    )


def _result_of(event: Event, answer: Answer, index: int) -> EventResult:
    rejections = tuple(rejection for rejection in answer.rejected if rejection.index == index)
    records = () if answer.records is UNSET else tuple(one for one in answer.records if one.index == index)
    if rejections and rejections[0].counted is UNSET:
        return EventResult(event=event, outcome="rejected", rejections=rejections)
    is_duplicate = not answer.accepted if answer.duplicates is UNSET else index in answer.duplicates
    outcome: Literal["accepted", "duplicate"] = "duplicate" if is_duplicate else "accepted"
    return EventResult(event=event, outcome=outcome, rejections=rejections, records=records)


def _log_rejected(event: Event, rejection: Rejection) -> None:
    _log.warning("the server rejected %r: %s: %s", event, rejection.code, rejection.detail)
