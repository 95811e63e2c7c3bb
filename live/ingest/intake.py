"""The intake: checks heads, limits, decodes and counts bodies.

The head of a request is checked before its body is read. `submit` starts no task and awaits nothing, unless a request
asks for the records of its members, so that a protocol can call it tens of thousands of times per second.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from http import HTTPStatus
from itertools import islice
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET

from live.auth.authenticator import Authenticator
from live.auth.rate_limiter import RateLimiter
from live.domain.board import Boards
from live.domain.cloudevent import decode_batch, decode_structured
from live.domain.decoding import DecodedBody, decode_json, decode_ndjson, decode_plain
from live.domain.event import Answer, Entry, Identities, IncomingEvent, entry_of
from live.domain.producer import Principal
from live.errors import ProblemError
from live.ingest.committer import PLAIN, Committed, Committer, Share, Wants
from live.ingest.decompression import decompress, is_gzip, too_large
from live.ingest.refusals import Refusals
from live.ingest.replies import Reply, json_reply, problem_reply
from live.ingest.routing import Kind, OnResult, Posting, boards_for, limit_of
from live.ingest.standings import Counted, read_records
from live.settings import Settings

Decoder: TypeAlias = Callable[[bytes, int], DecodedBody]
Headers = Sequence[tuple[bytes, bytes]]
_T = TypeVar("_T")
Done = Callable[[Reply], None]
AskSoon = Callable[[Callable[[Exception | None], None]], None]
"""A function that reads changed boards, and calls back with None or the error."""

# Events of a body: the client packages count on it, and a batch of the committer has as many.
MOST_EVENTS: Final = 1000
_BYTES_OF_AN_EVENT: Final = 256  # bytes of a refused body that are charged as one event
_REFUSED_FOR: Final = 1.0  # seconds for which a refused kind of events is refused without reading new boards
_MOST_REFUSED: Final = 1024
_LONGEST_REFUSED: Final = 128  # characters of each part of a remembered kind
_STRICT: Final = re.compile(rb"(?:^|[,;])\s*handling\s*=\s*\"?strict\"?\s*(?:[,;]|$)", re.IGNORECASE)  # RFC 7240

_DECODERS: Final[dict[str, Decoder]] = {
    "application/json": decode_json,
    "application/x-ndjson": decode_ndjson,
    "application/cloudevents+json": lambda body, _most: decode_structured(body),
    "application/cloudevents-batch+json": decode_batch,
}

_encode = msgspec.json.Encoder().encode
# All heads of a producer share one `Identities`, which remembers sources.
_identities_of = lru_cache(maxsize=64)(Identities)
# A string of RFC 9651, or the same without its quotes, which many clients omit.
_IDEMPOTENCY_KEY: Final = re.compile(rb'"([\x21\x23-\x5b\x5d-\x7e]{1,255})"|([\x21\x23-\x5b\x5d-\x7e]{1,255})')


class CheckedHead(msgspec.Struct, frozen=True):
    """The result of checking the head of a request.

    `wants` has the options of the request. `idempotency_key` makes each event of a body count once. `only_board` is the
    board that takes plain likes of this producer. It is None if the body can't take the fastest path: for example,
    there may be several such boards, or the body is not plain JSON. `boards` are the boards at the time of the check.
    """

    producer: Principal
    decode: Decoder
    gzip: bool
    wants: Wants
    idempotency_key: str | None
    identities: Identities
    only_board: str | None
    boards: Boards


class PlainShare(Share, Protocol):
    """A share that gets its single entry and its producer from `Intake.submit_plain`."""

    entries: Sequence[Entry]
    producer: str


class _Refused:
    """The kinds of events that were refused a moment ago, after the process had asked the store for new boards.

    While a kind is remembered, further events of it are refused without asking the store again.
    """

    def __init__(self) -> None:
        self._until: dict[Kind, float] = {}

    def add(self, kinds: AbstractSet[Kind]) -> None:
        """Remember kinds for a moment.

        Producers choose the texts in a kind, so the process remembers a limited number of kinds with short texts.
        """
        if kinds:
            until = time.monotonic() + _REFUSED_FOR
            if len(self._until) + len(kinds) > _MOST_REFUSED:
                self._until.clear()
            for kind in islice(kinds, _MOST_REFUSED):
                if all(part is UNSET or len(part) <= _LONGEST_REFUSED for part in kind):
                    self._until[kind] = until

    def has_all(self, kinds: AbstractSet[Kind]) -> bool:
        """Tell whether all of some kinds were refused a moment ago."""
        now = time.monotonic() if kinds else 0.0
        return all(self._until.get(kind, 0.0) > now for kind in kinds)


class Intake:
    """Receives the bodies that producers send.

    With `is_retiring`, another application has replaced the application of this intake, perhaps with other boards. Each
    connection then ends after the answer to its next request.
    """

    def __init__(
        self,
        settings: Settings,
        boards: Boards,
        committers: dict[str, Committer],
        authenticator: Authenticator,
        rate_limiter: RateLimiter,
        ask_soon: AskSoon,
        *,
        refusals: Refusals,
    ) -> None:
        self._settings = settings
        self._authenticator = authenticator
        self._rate_limiter = rate_limiter
        self._boards = boards
        self._committers = committers
        self._ask_soon = ask_soon
        self.refusals = refusals
        self.is_retiring = False
        self._refused = _Refused()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._outcome: Committed | None = None  # the last outcome of a plain body; `_reply` is its reply
        self._reply = json_reply(b"")

    def set_boards(self, boards: Boards) -> None:
        """Use these boards from now on. Cached heads become invalid."""
        self._boards = boards
        self._refused = _Refused()
        self._authenticator.generation += 1

    def read_head(
        self, producer: Principal, headers: Headers, named: Mapping[bytes, bytes], wants: Wants = PLAIN
    ) -> CheckedHead:
        """Check the head of a request; `named` holds the first value of each header field.

        Raises:
            ProblemError: `unsupported_media_type`, `body_too_large` or `idempotency_key_invalid`.
        """
        media_type, declared = named.get(b"content-type", b""), named.get(b"content-length", b"")
        decode = decoder_of(media_type.decode("latin-1"))
        gzip = b"content-encoding" in named and is_gzip(named[b"content-encoding"].decode("latin-1"))
        if declared.isdigit() and int(declared[:20]) > self._settings.max_body:
            raise too_large(self._settings.max_body)
        idempotency_key = None
        if b"idempotency-key" in named:
            values = [value for name, value in headers if name == b"idempotency-key"]
            match = _IDEMPOTENCY_KEY.fullmatch(values[0].strip()) if len(values) == 1 else None
            if match is None:
                raise ProblemError(
                    "idempotency_key_invalid", "Idempotency-Key must be one string of 1 to 255 visible characters"
                )
            idempotency_key = str(match[1] or match[2], "ascii")
        only_board = None
        if b"prefer" in named and any(name == b"prefer" and _STRICT.search(value) for name, value in headers):
            wants = msgspec.structs.replace(wants, strict=True)
        # Use the object `PLAIN` in the usual case, because committers compare by identity.
        wants = PLAIN if wants == PLAIN else wants
        if decode is decode_json and not gzip and idempotency_key is None and wants is PLAIN:
            targets = boards_for(self._boards, producer, UNSET, UNSET, UNSET)
            if not isinstance(targets, str) and len(targets) == 1 and targets[0][0].bare:
                only = targets[0][0].id
                limits = targets[0][0].limits
                # Only `Posting` can answer producers that may not read a private board, and charge events to the rate
                # of a prefix.
                only_board = None if only in self._boards.private or (limits and limits.rate) else only
        return CheckedHead(
            producer, decode, gzip, wants, idempotency_key, _identities_of(producer.id), only_board, self._boards
        )

    def submit_plain(self, head: CheckedHead, body: bytes, share: PlainShare) -> bool:
        """Submit a body that is a single plain like, on the fastest path. Return False for any other body.

        Raises:
            ProblemError: `overloaded`.
        """
        if head.only_board is None or head.boards is not self._boards:
            return False
        event = decode_plain(body)
        if event is None or event.board is not UNSET or event.type is not UNSET or event.category is not UNSET:
            return False
        if event.amount is not UNSET and abs(event.amount) > limit_of(
            self._boards.by_id[head.only_board], head.producer
        ):
            return False
        share.entries = (entry_of(event, None if event.id is UNSET else head.identities.of(event)),)
        share.producer = head.producer.id
        self._committers[head.only_board].submit(share)
        return True

    def reply_to_plain(self, head: CheckedHead, body: bytes, outcome: Committed | Exception) -> Reply:
        """Return the answer to a body that `submit_plain` accepted.

        If all events of a batch counted, their bodies share one answer.
        """
        if outcome is self._outcome:
            return self._reply
        if isinstance(outcome, Committed) and outcome.offset is not None:  # the event was counted
            answer = Answer(1, 0, (), {head.only_board or "": outcome.offset})
            self._outcome, self._reply = outcome, json_reply(_encode(answer))
            return self._reply
        replies: list[Reply] = []
        decoded = head.decode(body, MOST_EVENTS)
        posting = Posting(
            head.boards, head.producer, head.identities, decoded, _replying(replies.append), self.refusals
        )
        posting.receive(outcome)
        return replies[0]

    def submit(self, head: CheckedHead, body: bytes, done: Done) -> None:
        """Count the events of a body. Calls `done` once with the answer, possibly before it returns."""
        if head.wants.records:
            self.spawn(self._reply_with_records(head, body), done)
            return
        try:
            decoded = self._decode(head, body)
            self._send(head, decoded, _replying(done, strict=head.wants.strict), [])
        except Exception as error:  # noqa: BLE001 - `problem_reply` logs unexpected errors
            done(problem_reply(error))

    async def count(self, producer: Principal, event: IncomingEvent) -> Answer:
        """Count an event that the server itself makes, such as the like of a visitor. Producers send bodies instead.

        Raises:
            ProblemError: `overloaded`.
            EpochLostError: the store lost the board.
        """
        result: asyncio.Future[Answer | Exception] = asyncio.get_running_loop().create_future()
        body = DecodedBody([event], [0], [])
        posting = Posting(self._boards, producer, Identities(producer.id), body, result.set_result, self.refusals)
        posting.route()
        posting.send(self._committers, self._rate_limiter)
        return _answer_of(await result)

    def spawn(self, work: Coroutine[object, object, _T], done: Callable[[_T], None]) -> None:
        """Run a coroutine in a task, and call `done` with its result."""

        def finish(task: asyncio.Task[_T]) -> None:
            self._tasks.discard(task)
            if not task.cancelled():
                done(task.result())

        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(finish)

    async def collect(self, body: AsyncIterator[bytes]) -> bytes:
        """Read a whole body.

        Raises:
            ProblemError: `body_too_large`.
        """
        parts: list[bytes] = []
        size = 0
        async for part in body:
            size += len(part)
            if size > self._settings.max_body:
                raise too_large(self._settings.max_body)
            parts.append(part)
        return b"".join(parts)

    def _decode(self, head: CheckedHead, body: bytes) -> DecodedBody:
        """Decode a body. Charge the producer for each event, or for the size of a refused body."""
        try:
            if head.gzip:
                body = decompress(body, self._settings.max_body)
            decoded = head.decode(body, MOST_EVENTS)
        except ProblemError:
            self._rate_limiter.charge(head.producer, len(body) // _BYTES_OF_AN_EVENT)
            raise
        self._rate_limiter.charge(head.producer, len(decoded.events) + len(decoded.rejections))
        return decoded

    async def _reply_with_records(self, head: CheckedHead, body: bytes) -> Reply:
        try:
            answer = await self._count(head, self._decode(head, body))
        except Exception as error:  # noqa: BLE001 - `problem_reply` logs unexpected errors
            return problem_reply(error)
        return _reply_of(_encode(answer), refused=head.wants.strict and bool(answer.rejected))

    def _send(self, head: CheckedHead, decoded: DecodedBody, on_result: OnResult, counted: list[Counted]) -> None:
        """Give the events of a body to their boards.

        If no board takes an event, look for new boards before refusing the event. While this application retires, the
        next application may have such a board. Then count nothing of the body, and ask the client to send it again.
        """

        def new_posting() -> Posting:
            made = Posting(
                self._boards, head.producer, head.identities, decoded, on_result, self.refusals, head.idempotency_key
            )
            if head.wants is not PLAIN:
                made.want(head.wants, counted)
            return made

        def send_after_asking(fault: Exception | None) -> None:
            if fault is not None:
                on_result(fault)
                return
            posting = new_posting()
            self._refused.add(posting.route())
            posting.send(self._committers, self._rate_limiter)

        posting = new_posting()
        unknown = posting.route()
        if unknown and self.is_retiring:
            on_result(ProblemError("stopping", "the server has read its boards again: send this again", retry_after=1))
        elif self._refused.has_all(unknown):
            posting.send(self._committers, self._rate_limiter)
        else:
            self._ask_soon(send_after_asking)

    async def _count(self, head: CheckedHead, decoded: DecodedBody) -> Answer:
        """Count the events of a body. Raise the error of a board if no board has counted an event."""
        result: asyncio.Future[Answer | Exception] = asyncio.get_running_loop().create_future()
        counted: list[Counted] = []
        self._send(head, decoded, result.set_result, counted)
        answer = _answer_of(await result)
        if not head.wants.records:
            return answer
        self._rate_limiter.charge(head.producer, len(counted))
        return msgspec.structs.replace(answer, records=await read_records(self._committers, counted))


def _answer_of(outcome: Answer | Exception) -> Answer:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _replying(done: Done, *, strict: bool = False) -> OnResult:
    """Return a function that turns the outcome of a body into a reply, and passes the reply to `done`."""

    def on_result(outcome: Answer | Exception) -> None:
        if isinstance(outcome, Exception):
            done(problem_reply(outcome))
        else:
            done(_reply_of(_encode(outcome), refused=strict and bool(outcome.rejected)))

    return on_result


def _reply_of(body: bytes, *, refused: bool) -> Reply:
    """Make the reply with an answer. `refused` is true if the request is strict and an event was refused."""
    reply = json_reply(body)
    return msgspec.structs.replace(reply, status=HTTPStatus.UNPROCESSABLE_ENTITY) if refused else reply


@lru_cache(maxsize=64)
def decoder_of(content_type: str) -> Decoder:
    """Return the decoder for a content type.

    Raises:
        ProblemError: `unsupported_media_type`.
    """
    media_type, _, parameters = content_type.partition(";")
    decode = _DECODERS.get(media_type.strip().lower())
    charset = parameters.strip().lower().removeprefix("charset=").strip('"')
    if decode is None or charset not in {"", "utf-8", "utf8"}:
        wanted = ", ".join(_DECODERS)
        raise ProblemError("unsupported_media_type", f"send one of {wanted} in UTF-8, and name it in Content-Type")
    return decode
