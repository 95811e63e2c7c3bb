"""The intake: checks heads, limits, decodes and counts bodies.

The head of a request is checked before its body is read. `submit` starts no task and awaits nothing, unless a request
asks for the records of its members, so that a protocol can call it tens of thousands of times per second.
"""

import asyncio
import re
import time
import zlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus
from itertools import islice
from typing import Final, TypeAlias

import msgspec
from msgspec import UNSET
from starlette.datastructures import QueryParams

from live.auth.authenticator import Authenticator
from live.auth.rates import RateLimiter
from live.auth.requester import Requester
from live.domain.board import Boards
from live.domain.decoding import DecodedBody, decode_batch, decode_json, decode_ndjson, decode_plain, decode_structured
from live.domain.event import Answer, EventRecord, Identities, IncomingEvent, entry_of
from live.domain.producer import Principal
from live.domain.ranking import Page
from live.errors import EpochLostError, ProblemError, StoreUnavailableError
from live.http.parser import RequestHead
from live.http.reply import Reply, json_reply, problem_reply
from live.ingest.committer import PLAIN, Committed, Committer, Share, Wants
from live.ingest.refusals import Refusals
from live.ingest.routing import Counted, Kind, OnResult, Posting, boards_for, limit_of
from live.settings import Settings
from live.store.board.read.reader import BoardReader

Decoder: TypeAlias = Callable[[bytes, int], DecodedBody]
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


_AT_ONCE: Final = 100  # members whose records one call reads, which takes the store some milliseconds
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
_MOST_MEMBERS: Final = 100  # zlib copies the rest of its input after each
_MOST_KNOWN: Final = 1024
_LONGEST_KNOWN: Final = 256  # bytes of a header field
_CHECKED_EACH_TIME: Final = (b"idempotency-key", b"prefer")
_HeadKind = tuple[bytes, bytes | None, bytes | None]


class CheckedHead(msgspec.Struct, frozen=True):
    """The result of checking the head of a request."""

    producer: Principal
    decode: Decoder
    gzip: bool
    wants: Wants  # the options of the request
    idempotency_key: str | None  # makes each event of a body count once
    identities: Identities
    # The board that takes plain likes of this producer. None if the body can't take the fastest path: for example,
    # there may be several such boards, or the body is not plain JSON.
    only_board: str | None
    boards: Boards  # at the time of the check


class _Refused:
    """The kinds of events that were refused a moment ago, so that the store is not asked about them again."""

    def __init__(self) -> None:
        self._until: dict[Kind, float] = {}

    def add(self, kinds: AbstractSet[Kind]) -> None:
        """Remember kinds for a moment: a limited number with short texts, because producers choose them."""
        if kinds:
            until = time.monotonic() + _REFUSED_FOR
            if len(self._until) + len(kinds) > _MOST_REFUSED:
                self._until.clear()
            for kind in islice(kinds, _MOST_REFUSED):
                if all(part is UNSET or len(part) <= _LONGEST_REFUSED for part in kind):
                    self._until[kind] = until

    def has_all(self, kinds: AbstractSet[Kind]) -> bool:
        now = time.monotonic() if kinds else 0.0
        return all(self._until.get(kind, 0.0) > now for kind in kinds)


class Intake:
    """Receives the bodies that producers send."""

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
        self._refused = _Refused()
        self._known: dict[_HeadKind, CheckedHead] = {}
        self._generation = -1  # of the API keys and boards for which the results in `_known` are valid
        self._tasks: set[asyncio.Task[None]] = set()
        self._outcome: Committed | None = None  # the last outcome of a plain body; `_reply` is its reply
        self._reply = json_reply(b"")

    def set_boards(self, boards: Boards) -> None:
        """Use these boards from now on. Cached heads become invalid."""
        self._boards = boards
        self._refused = _Refused()
        self._authenticator.generation += 1

    def known(self, head: RequestHead) -> CheckedHead | None:
        """Return the result of `check` for the same credentials and the same kind of body, or None if it is not known.

        Most producers send both each time, so the result is remembered until API keys or boards change. Do not await
        while you check a request, so that its producer and its head are checked against the same API keys and boards.
        """
        if self._generation != self._authenticator.generation:
            self._known.clear()
            self._generation = self._authenticator.generation
        kind = _kind_of(head)
        return None if kind is None or (head.length or 0) > self._settings.max_body else self._known.get(kind)

    def producer_of(self, head: RequestHead, requester: Requester) -> Principal:
        """Find the producer of a request."""
        return self._authenticator.authorize(_first_values(head).get(b"authorization"), requester)

    def check(self, head: RequestHead, producer: Principal) -> CheckedHead:
        """Check the head of a request that is within the rate of its producer."""
        headers, named, query = head.fields, _first_values(head), head.target.partition(b"?")[2]
        wants = Wants.read(QueryParams(query.decode())) if query else PLAIN
        decode = decoder_of(named.get(b"content-type", b"").decode("latin-1"))
        gzip = b"content-encoding" in named and is_gzip(named[b"content-encoding"].decode("latin-1"))
        if (head.length or 0) > self._settings.max_body:
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
        checked = CheckedHead(
            producer, decode, gzip, wants, idempotency_key, _identities_of(producer.id), only_board, self._boards
        )
        if (kind := _kind_of(head)) is not None:
            if len(self._known) >= _MOST_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[kind] = checked
        return checked

    def submit_plain(self, head: CheckedHead, body: bytes, share: Share) -> bool:
        """Submit a single plain like on the fastest path: fill its share. Return False for any other body."""
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
        """Return the answer to a body that `submit_plain` accepted. If a whole batch counted, its bodies share it."""
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
            task = asyncio.get_running_loop().create_task(self._count_with_records(head, body, done))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        try:
            decoded = self._decode(head, body)
            self._send(head, decoded, _replying(done, strict=head.wants.strict), [])
        except Exception as error:  # noqa: BLE001 - `problem_reply` logs unexpected errors
            done(problem_reply(error))

    async def count(self, producer: Principal, event: IncomingEvent) -> Answer:
        """Count an event of the server itself, such as a visitor's like. A lost board raises EpochLostError."""
        result: asyncio.Future[Answer | Exception] = asyncio.get_running_loop().create_future()
        body = DecodedBody([event], [0], [])
        posting = Posting(self._boards, producer, Identities(producer.id), body, result.set_result, self.refusals)
        posting.route()
        posting.send(self._committers, self._rate_limiter)
        return _answer_of(await result)

    async def collect(self, body: AsyncIterator[bytes]) -> bytes:
        """Read a whole body."""
        parts: list[bytes] = []
        size = 0
        async for part in body:
            size += len(part)
            if size > self._settings.max_body:
                raise too_large(self._settings.max_body)
            parts.append(part)
        return b"".join(parts)

    def _decode(self, head: CheckedHead, body: bytes) -> DecodedBody:
        try:
            if head.gzip:
                body = decompress(body, self._settings.max_body)
            decoded = head.decode(body, MOST_EVENTS)
        except ProblemError:
            self._rate_limiter.charge(head.producer, len(body) // _BYTES_OF_AN_EVENT)
            raise
        self._rate_limiter.charge(head.producer, len(decoded.events) + len(decoded.rejections))
        return decoded

    async def _count_with_records(self, head: CheckedHead, body: bytes, done: Done) -> None:
        result: asyncio.Future[Answer | Exception] = asyncio.get_running_loop().create_future()
        counted: list[Counted] = []
        try:
            self._send(head, self._decode(head, body), result.set_result, counted)
            answer = _answer_of(await result)
            self._rate_limiter.charge(head.producer, len(counted))
            answer = msgspec.structs.replace(answer, records=await read_records(self._committers, counted))
        except Exception as error:  # noqa: BLE001 - `problem_reply` logs unexpected errors
            done(problem_reply(error))
        else:
            done(_reply_of(_encode(answer), refused=head.wants.strict and bool(answer.rejected)))

    def _send(self, head: CheckedHead, decoded: DecodedBody, on_result: OnResult, counted: list[Counted]) -> None:
        """Give the events to their boards. If no board takes one, look for new boards before refusing it."""

        def new_posting() -> Posting:
            made = Posting(
                self._boards, head.producer, head.identities, decoded, on_result, self.refusals, head.idempotency_key
            )
            made.wants, made.counted = head.wants, counted
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
        if self._refused.has_all(unknown):
            posting.send(self._committers, self._rate_limiter)
        else:
            self._ask_soon(send_after_asking)


def _answer_of(outcome: Answer | Exception) -> Answer:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


async def read_records(committers: Mapping[str, Committer], counted: Sequence[Counted]) -> list[EventRecord]:
    """Read the record of the member of each event, in the period in which the event counted, or now for a duplicate.

    Every read begins after the events were counted. Boards that can't be read any more are left out.
    """
    found: list[EventRecord] = []
    periods: dict[tuple[str, int | None], list[Counted]] = {}
    for one in counted:
        committer = committers.get(one.board)
        if committer is not None:
            period = one.placement.slot if one.placement and committer.state.board.window.tables else None
            periods.setdefault((one.board, period), []).append(one)
    for (board, period), events in periods.items():
        with suppress(StoreUnavailableError, EpochLostError):
            found += await _read_some(BoardReader(committers[board].state), period, events)
    return sorted(found, key=lambda record: record.index)


async def _read_some(reader: BoardReader, period: int | None, events: Sequence[Counted]) -> list[EventRecord]:
    members, found = list(dict.fromkeys(event.member for event in events)), dict[str, Page]()
    for first in range(0, len(members), _AT_ONCE):
        some = members[first : first + _AT_ONCE]
        found |= dict(zip(some, await reader.find_pages(some, 0, period=period), strict=True))
    records = []
    for event in events:
        page, placement = found[event.member], event.placement
        own = next((record for record in page.records if record.member == event.member), None)
        records.append(
            EventRecord(
                index=event.index,
                board=event.board,
                member=event.member,
                score=None if own is None else own.score,
                rank=None if own is None else own.rank,
                best=None if placement is None else placement.is_best,
                period=page.period,
                rank_count=page.rank_count,
                epoch=page.epoch,
                offset=page.offset,
                fields=UNSET if own is None else own.fields,
            )
        )
    return records


def _replying(done: Done, *, strict: bool = False) -> OnResult:
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
    """Return the decoder for a content type."""
    media_type, _, parameters = content_type.partition(";")
    decode = _DECODERS.get(media_type.strip().lower())
    charset = parameters.strip().lower().removeprefix("charset=").strip('"')
    if decode is None or charset not in {"", "utf-8", "utf8"}:
        wanted = ", ".join(_DECODERS)
        raise ProblemError("unsupported_media_type", f"send one of {wanted} in UTF-8, and name it in Content-Type")
    return decode


def _kind_of(head: RequestHead) -> _HeadKind | None:
    """Return what the check of a head depends on, or None to check this head each time."""
    authorization = media_type = coding = None
    for name, value in head.fields:
        if name == b"authorization":
            authorization = value if authorization is None else authorization
        elif name == b"content-type":
            media_type = value if media_type is None else media_type
        elif name == b"content-encoding":
            coding = value if coding is None else coding
        elif name in _CHECKED_EACH_TIME:
            return None
    if not authorization or b"?" in head.target or len(authorization) + len(media_type or b"") > _LONGEST_KNOWN:
        return None
    return authorization, media_type, coding


def _first_values(head: RequestHead) -> dict[bytes, bytes]:
    return dict(reversed(head.fields))


def is_gzip(content_encoding: str) -> bool:
    """Tell whether a content encoding is gzip."""
    encoding = content_encoding.strip().lower()
    if encoding not in {"", "identity", "gzip"}:
        raise ProblemError("unsupported_media_type", "send the body as it is, or with Content-Encoding: gzip")
    return encoding == "gzip"


def decompress(body: bytes, most: int) -> bytes:
    """Decompress gzip, up to a limit. RFC 1952 allows several members in a row."""
    output, rest = bytearray(), body
    try:
        for _ in range(_MOST_MEMBERS):
            if not rest:
                break
            member = zlib.decompressobj(_GZIP_WINDOW)
            output += member.decompress(rest, most + 1 - len(output))
            if len(output) > most:
                raise too_large(most)
            if not member.eof:
                raise ProblemError("malformed_body", "the gzip body is cut short")
            rest = member.unused_data
    except zlib.error as error:
        raise ProblemError("malformed_body", f"not gzip: {error}") from None
    if rest:
        raise ProblemError("malformed_body", f"the gzip body has more than {_MOST_MEMBERS} members")
    return bytes(output)


def too_large(most: int) -> ProblemError:
    """Make the problem for a body of more than `most` bytes."""
    return ProblemError("body_too_large", f"the setting max_body allows {most} bytes after decompression")
