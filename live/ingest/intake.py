"""The intake: what every way in does with a request. Who is it, is it within its rate, what does it send, what counted?

The head of a request is judged before its body is read. `submit` makes no task and awaits nothing, so that a protocol
can call it for tens of thousands of small bodies a second; `receive` is the same for everybody else.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec import UNSET

from live.auth.authenticator import Authenticator
from live.auth.client import Client
from live.auth.rate_limiter import RateLimiter
from live.domain.board import Boards
from live.domain.cloudevent import decode_binary
from live.domain.decoding import Body, Steps, decode_json, decode_plain, finish
from live.domain.event import Entry, Identities, entry_of
from live.domain.json_text import STEP
from live.domain.producer import Producer
from live.errors import ProblemError, StoreUnavailableError
from live.ingest.bodies import Decoder, decoder_of, is_packed, too_large, unpack
from live.ingest.committer import Committed, Committer, Share
from live.ingest.posting import Answer, OnResult, Posting, limit_of, takers_of
from live.ingest.replies import Reply, json_reply, problem_reply
from live.settings import Settings
from live.store.registry.idempotency import Answers

Headers = Sequence[tuple[bytes, bytes]]
_T = TypeVar("_T")
Done = Callable[[Reply], None]

_TURN: Final = 0.002  # seconds of decoding after which others have their turn
_BYTES_OF_AN_EVENT: Final = 256  # of a body that is refused as a whole: what is charged as one event
_STORED_FOR_AN_EVENT: Final = 256  # bytes of an answer that is kept: what is charged as one event
_CLOUDEVENTS: Final = b"application/cloudevents"  # the types of the modes in which the event is the body

_encode = msgspec.json.Encoder().encode
_decoder_of = lru_cache(maxsize=64)(decoder_of)
# A string of RFC 9651, or the same without its quotes, which many clients leave out.
_ONCE: Final = re.compile(rb'"([\x21\x23-\x5b\x5d-\x7e]{1,255})"|([\x21\x23-\x5b\x5d-\x7e]{1,255})')


class Head(msgspec.Struct, frozen=True):
    """What the head of a request says of its body; `once` is the key that makes the whole body idempotent.

    `sole` is the one board that takes plain likes of this producer, where there is one and bodies are plain JSON; of
    the `boards` that there were when the head was read.
    """

    producer: Producer
    decode: Decoder
    packed: bool
    once: str | None
    identities: Identities
    sole: str | None
    boards: Boards


class PlainShare(Share, Protocol):
    """A share that is given its one entry late."""

    entries: Sequence[Entry]


class Intake:
    """Takes in the bodies that producers send."""

    def __init__(
        self,
        settings: Settings,
        boards: Boards,
        committers: dict[str, Committer],
        authenticator: Authenticator,
        rate_limiter: RateLimiter,
        answers: Answers,
    ) -> None:
        self._settings = settings
        self._authenticator = authenticator
        self._rate_limiter = rate_limiter
        self._boards = boards
        self._committers = committers
        self._answers = answers
        self._tasks: set[asyncio.Task[Any]] = set()
        self._decoding = asyncio.Lock()
        self._outcome: Committed | None = None  # what the last plain bodies were told, and how
        self._reply = json_reply(b"")

    def take_over(self, boards: Boards, committers: dict[str, Committer]) -> None:
        """Take events for these boards from now on; whoever remembers what was said of a head has to ask again."""
        self._boards, self._committers = boards, committers
        self._authenticator.generation += 1

    def read_head(self, producer: Producer, headers: Headers, named: Mapping[bytes, bytes]) -> Head:
        """Judge what is to come; of a header field that stands twice `named` has the first.

        Raises:
            ProblemError: `unsupported_media_type`, `body_too_large` or `idempotency_key_invalid`.
        """
        decode: Decoder
        media_type = named.get(b"content-type", b"")
        if b"ce-specversion" in named and not media_type.lower().startswith(_CLOUDEVENTS):
            decode = _decoder_of_binary(headers)
        else:
            decode = _decoder_of(media_type.decode("latin-1"))
        packed = b"content-encoding" in named and is_packed(named[b"content-encoding"].decode("latin-1"))
        declared = named.get(b"content-length", b"")
        self.check_length(int(declared[:20]) if declared.isdigit() else 0)
        once = _once_of(headers) if b"idempotency-key" in named else None
        sole = self._sole_of(producer) if decode is decode_json and not packed and once is None else None
        return Head(producer, decode, packed, once, Identities(producer.id), sole, self._boards)

    def check_length(self, declared: int) -> None:
        """Refuse a body that is too large by what its head says.

        Raises:
            ProblemError: `body_too_large`.
        """
        if declared > self._settings.max_body:
            raise too_large(self._settings.max_body)

    def submit_plain(self, head: Head, body: bytes, share: PlainShare) -> bool:
        """Have a body counted that is one plain like, on the shortest way there is; False when it is anything else.

        Raises:
            ProblemError: `overloaded`.
        """
        if head.sole is None or head.boards is not self._boards:
            return False
        event = decode_plain(body)
        if event is None or event.board is not UNSET or event.type is not UNSET or event.category is not UNSET:
            return False
        if event.amount is not UNSET and abs(event.amount) > limit_of(self._boards.by_id[head.sole], head.producer):
            return False
        identity = None
        if event.id is not UNSET:
            identity = head.identities.of(event)
        share.entries = (entry_of(event, identity),)
        self._committers[head.sole].submit(share)
        return True

    def reply_to_plain(self, head: Head, body: bytes, outcome: Committed | Exception) -> Reply:
        """The answer to a body that `submit_plain` took; one and the same for all that a batch has counted."""
        if outcome is self._outcome:
            return self._reply
        if isinstance(outcome, Committed) and not outcome.refused:
            answer = Answer(1, 0, (), {head.sole or "": outcome.offset or 0})
            self._outcome, self._reply = outcome, json_reply(_encode(answer))
            return self._reply
        replies: list[Reply] = []
        decoded = finish(head.decode(body, self._settings.max_events))
        Posting(head.boards, head.producer, head.identities, decoded, _replying(replies.append)).receive(outcome)
        return replies[0]

    def submit(self, head: Head, body: bytes, done: Done) -> None:
        """Count the events of a body; `done` is called once, maybe at once, with the answer to it."""
        if head.once is not None:
            self.spawn(self._receive_once(head, body), done)
            return
        steps = self._decode(head, body)
        try:
            next(steps)
        except StopIteration as end:  # as most bodies do at once
            self._posting(head, end.value, _replying(done)).send(self._committers)
        except Exception as error:  # noqa: BLE001 - `problem_reply` logs what is not foreseen
            done(problem_reply(error))
        else:
            self.spawn(self._receive_slowly(head, steps), done)

    async def receive(self, headers: Headers, client: Client, body: AsyncIterator[bytes]) -> Reply:
        """Take in one request from its head to its answer; the body is read only when the head is good."""
        named = dict(reversed(headers))
        try:
            producer = self._authenticator.authorize(named.get(b"authorization"), client)
            await self._rate_limiter.admit(producer)
            head = self.read_head(producer, headers, named)
            whole = await self.collect(body)
        except (ProblemError, StoreUnavailableError) as error:
            return problem_reply(error)
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.submit(head, whole, lambda reply: None if answer.done() else answer.set_result(reply))
        return await answer

    def spawn(self, work: Coroutine[object, object, _T], done: Callable[[_T], None]) -> None:
        """Run what has to wait in a task of its own, and hand on what it gives."""

        def finish(task: asyncio.Task[_T]) -> None:
            self._tasks.discard(task)
            if not task.cancelled():
                done(task.result())

        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(finish)

    async def collect(self, body: AsyncIterator[bytes]) -> bytes:
        """The whole of a body.

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

    def _decode(self, head: Head, body: bytes) -> Steps:
        """Decode a body in steps, and charge its producer for what it holds, or at least for the work that it was."""
        steps, work = _read(head, body, self._settings), 0
        while True:
            try:
                next(steps)
            except StopIteration as end:
                decoded: Body = end.value
                self._rate_limiter.charge(head.producer, max(work, len(decoded.events) + len(decoded.rejections)))
                return decoded
            except ProblemError:
                self._rate_limiter.charge(head.producer, work + len(body) // _BYTES_OF_AN_EVENT)
                raise
            work += STEP
            yield

    async def _take(self, steps: Steps) -> Body:
        """Decode a body that takes many steps, and let others have their turn in between; one such body at a time."""
        clock = asyncio.get_running_loop().time
        async with self._decoding:
            until = clock() + _TURN
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    decoded: Body = end.value
                    return decoded
                if clock() >= until:
                    await asyncio.sleep(0)
                    until = clock() + _TURN

    async def _receive_slowly(self, head: Head, steps: Steps) -> Reply:
        """Count a body that takes many steps to decode."""
        try:
            return json_reply(_encode(await self._count(head, await self._take(steps))))
        except Exception as error:  # noqa: BLE001 - `problem_reply` logs what is not foreseen
            return problem_reply(error)

    def _posting(self, head: Head, decoded: Body, on_result: OnResult) -> Posting:
        return Posting(self._boards, head.producer, head.identities, decoded, on_result, head.once)

    def _sole_of(self, producer: Producer) -> str | None:
        takers = takers_of(self._boards, producer.boards, UNSET, UNSET, UNSET)
        return takers[0][0].id if not isinstance(takers, str) and len(takers) == 1 and takers[0][0].bare else None

    async def _receive_once(self, head: Head, body: bytes) -> Reply:
        """Count a body whose sender may send it again, and give the same answer each time."""
        once, producer = head.once or "", head.producer.id
        try:
            decoded = await self._take(self._decode(head, body))  # first: a body that can't be read claims no key
            said = _encode((decoded.events, decoded.rejections)) + body  # in binary mode the event is not in the body
            known = await self._answers.begin(producer, once, hashlib.sha256(said).digest())
            if known is not None:
                return json_reply(known)
            answer = await self._count(head, decoded)
            reply = _encode(answer)
            if all(rejection.code != "board_unavailable" for rejection in answer.rejected):  # or it may be had yet
                reply, size = await self._answers.finish(producer, once, reply)
                self._rate_limiter.charge(head.producer, 1 + size // _STORED_FOR_AN_EVENT)
        except Exception as error:  # noqa: BLE001 - `problem_reply` logs what is not foreseen
            return problem_reply(error)
        return json_reply(reply)

    async def _count(self, head: Head, decoded: Body) -> Answer:
        """Count the events of a body; raises what the boards raise when none has counted."""
        result: asyncio.Future[Answer | Exception] = asyncio.get_running_loop().create_future()
        self._posting(head, decoded, result.set_result).send(self._committers)
        outcome = await result
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def _read(head: Head, body: bytes, settings: Settings) -> Steps:
    """Unpack and decode a body."""
    if head.packed:
        body = yield from unpack(body, settings.max_body)
    return (yield from head.decode(body, settings.max_events))


def _replying(done: Done) -> OnResult:
    """Makes a reply of what became of a body."""

    def on_result(outcome: Answer | Exception) -> None:
        done(problem_reply(outcome) if isinstance(outcome, Exception) else json_reply(_encode(outcome)))

    return on_result


def _decoder_of_binary(headers: Headers) -> Decoder:
    """What reads an event in the headers; the body is its data, which no board looks at."""
    return lambda _body, _most: decode_binary(headers)


def _once_of(headers: Headers) -> str:
    """The key that makes a body idempotent.

    Raises:
        ProblemError: `idempotency_key_invalid`.
    """
    values = [value for name, value in headers if name == b"idempotency-key"]
    match = _ONCE.fullmatch(values[0].strip()) if len(values) == 1 else None
    if match is None:
        raise ProblemError("idempotency_key_invalid", "Idempotency-Key is one string of 1 to 255 visible characters")
    found: bytes = match[1] or match[2]
    return found.decode()
