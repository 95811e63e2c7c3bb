"""Send events and other requests. Retry until the server responds or the patience is over."""

import asyncio
import gzip
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple, TypeVar

import aiohttp
import msgspec
from yarl import URL

from live.client.errors import (
    LiveBoardError,
    NotALiveBoardError,
    OutcomeUnknownError,
    RequestRefusedError,
    read_problem,
)
from live.client.target import ACCESS_REFUSED, Patience, access_refused, authorization
from live.domain.event import Answer

MAX_EVENTS: Final = 1000  # per request, the default limit of the server
MAX_BYTES: Final = 128 * 1024  # a batch that has so many takes no more events; one more event fits the server's limit
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
_TIMEOUT: Final = 20.0
_LAST_TIMEOUT: Final = 60.0  # seconds to wait for the response to a body that is not repeatable
_CONNECT_TIMEOUT: Final = 4.0
_COMPRESSED: Final = 1024  # bytes; longer bodies are compressed
_OK: Final = 200
_SUCCESS: Final = range(200, 300)
_NO_SUCH_ROUTE: Final = frozenset({404, 405, 501})
_TOO_MANY: Final = 429
_NOT_TAKEN: Final = frozenset({408, _TOO_MANY, 503})  # nothing was counted, so it is safe to retry
# A server that failed, or a proxy, sends these statuses. The server may have counted the events.
_LOST: Final = frozenset({500, 502, 504})
_MAX_PAUSE: Final = 86_400.0
_MAX_SHOWN: Final = 300
_T = TypeVar("_T")
_decode_answer = msgspec.json.Decoder(Answer).decode
_log = logging.getLogger("live.client")


class Body(NamedTuple):
    """A request body with `events` events. A `repeatable` body counts once, however often it is sent.

    With `rank`, the response has the records of the members.
    """

    data: bytes
    headers: Mapping[str, str]
    events: int
    repeatable: bool
    rank: bool = False


class Response(NamedTuple):
    """A response. `retry_after` is the value of the header, or empty."""

    status: int
    body: bytes
    retry_after: str


class SendingStoppedError(LiveBoardError):
    """Sending ended because `stop` was set while the sender waited between two attempts."""


def ndjson(lines: Sequence[bytes], *, repeatable: bool, rank: bool = False) -> Body:
    """Make a body with one event per line."""
    data = b"\n".join(lines)
    headers = {"Content-Type": "application/x-ndjson"}
    if len(data) >= _COMPRESSED:
        data = gzip.compress(data, compresslevel=1)
        headers["Content-Encoding"] = "gzip"
    return Body(data, headers, len(lines), repeatable, rank)


@asynccontextmanager
async def open_session(
    api_key: str | None, *, keep_alive: bool = True, connections: int = 100
) -> AsyncIterator[aiohttp.ClientSession]:
    """Open an HTTP session that sends the API key with every request."""
    connector = aiohttp.TCPConnector(force_close=not keep_alive, limit=connections)
    async with aiohttp.ClientSession(connector=connector, headers=authorization(api_key)) as session:
        yield session


class FailedAttempt(NamedTuple):
    """An attempt failed, and the sender may retry.

    `retry_after` is the number of seconds that the server asks to wait. If `lost` is true, the events may have been
    counted. If `paced` is true, the server works but wants fewer events.
    """

    problem: str
    retry_after: float | None = None
    lost: bool = False
    paced: bool = False


class Backoff:
    """Exponential back-off with full jitter, so that clients do not all reconnect at the same time.

    Pauses are in seconds. Each pause is random. The first pause is at most `base`. The maximum doubles with each
    pause, up to `longest`.
    """

    def __init__(self, base: float, longest: float) -> None:
        self._base = base
        self._longest = longest
        self._limit = base

    def next(self) -> float:
        """Return the pause before the next attempt."""
        pause = random.uniform(0, self._limit)  # noqa: S311 - spreads load, protects nothing
        self._limit = min(2 * self._limit, self._longest)
        return pause

    def after(self, seconds: float) -> float:
        """Return the pause for a server that asks for `seconds`: this time, plus a random time of up to `base`."""
        return seconds + random.uniform(0, self._base)  # noqa: S311 - the same

    def reset(self) -> None:
        """Begin with short pauses again. Call this when an attempt has worked."""
        self._limit = self._base


class Sender:
    """Sends bodies to one server, one at a time. `lost` is the number of lost responses.

    `patience` says for how long the server may be unavailable. `timeout` is the number of seconds to wait for the
    response to a repeatable body. Set `stop` to end a wait between two attempts.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        api_key: str | None = None,
        *,
        patience: Patience | None = None,
        timeout: float | None = None,
        stop: asyncio.Event | None = None,
    ) -> None:
        self.lost = 0
        self._session = session
        self._url = url
        self._root = str(URL(url)).rstrip("/")  # percent-encoded
        self._api_key = api_key
        self._patience = patience or Patience()
        self._stop = stop or asyncio.Event()
        total = _TIMEOUT if timeout is None else timeout
        self._timeout = aiohttp.ClientTimeout(total=total, sock_connect=_CONNECT_TIMEOUT)
        self._last_timeout = aiohttp.ClientTimeout(total=_LAST_TIMEOUT, sock_connect=_CONNECT_TIMEOUT)
        self._under_way = False
        self._in_doubt = False

    @property
    def in_doubt(self) -> bool:
        """Whether the last body may have been counted although its response was lost."""
        return self._under_way or self._in_doubt

    async def send(self, body: Body) -> Answer:
        """Send a body, and retry until the patience is over.

        After a 429, wait for as long as the server asks. This wait does not use up the patience.
        """

        async def attempt() -> Answer | FailedAttempt:
            outcome = await self.attempt(body)
            if isinstance(outcome, FailedAttempt) and outcome.lost and not body.repeatable:
                raise OutcomeUnknownError(
                    f"the response to {body.events} events was lost ({outcome.problem}), so they may have been counted"
                )
            return outcome

        return await self._repeated(attempt)

    async def call(self, method: str, path: str, data: bytes | None = None) -> bytes:
        """Send a request that may be repeated, retry as `send` does, and return the body of the response."""
        verb = "read" if method == "GET" else "admin"

        async def attempt() -> bytes | FailedAttempt:
            headers = {} if data is None else {"Content-Type": "application/json"}
            reply = await self._exchange(method, path, data, headers, self._timeout)
            if isinstance(reply, FailedAttempt):
                return reply
            return reply.body if reply.status in _SUCCESS else refusal(reply, self._url, self._api_key, verb)

        return await self._repeated(attempt)

    async def _repeated(self, attempt: Callable[[], Awaitable[_T | FailedAttempt]]) -> _T:
        clock, patience = asyncio.get_running_loop().time, self._patience
        started, backoff = clock(), Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while isinstance(outcome := await attempt(), FailedAttempt):
            pause = backoff.next() if outcome.retry_after is None else backoff.after(outcome.retry_after)
            if outcome.paced:
                started = clock() + pause
            if clock() + pause > started + patience.seconds:
                raise patience.over(self._url, outcome.problem, in_doubt=self._in_doubt)
            _log.info("trying again in %.1f s: %s", pause, outcome.problem)
            if await stopped_within(self._stop, pause):
                raise SendingStoppedError
        return outcome

    async def attempt(self, body: Body) -> Answer | FailedAttempt:
        """Send a body once."""
        timeout = self._timeout if body.repeatable else self._last_timeout
        self._under_way = True
        path = "/v1/events?rank=true" if body.rank else "/v1/events"
        reply = await self._exchange("POST", path, body.data, body.headers, timeout)
        self._under_way = False
        if isinstance(reply, Response) and reply.status == _OK:
            answer = decoded(_decode_answer, reply.body, self._url)
            self._in_doubt = False
            return answer
        outcome = reply if isinstance(reply, FailedAttempt) else refusal(reply, self._url, self._api_key)
        if outcome.lost:
            self.lost += 1
            self._in_doubt = True
        return outcome

    async def _exchange(
        self, method: str, path: str, data: bytes | None, headers: Mapping[str, str], times: aiohttp.ClientTimeout
    ) -> "Response | FailedAttempt":
        """Send one request. The path is percent-encoded."""
        url = URL(self._root + path, encoded=True)
        try:
            async with self._session.request(method, url, data=data, headers=headers, timeout=times) as response:
                body = await response.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return FailedAttempt(str(error))
        except (aiohttp.ClientError, TimeoutError) as error:
            # Do not use the `repr` of the error. Some errors show the request's headers there, and these contain the
            # API key. A server that does not speak HTTP causes a ClientResponseError.
            if not isinstance(error, aiohttp.ClientResponseError):
                self._patience.has_answer = True  # the server accepted the connection
            return FailedAttempt(f"{type(error).__name__} {error}".strip(), lost=True)
        self._patience.has_answer = True
        return Response(response.status, body, response.headers.get("Retry-After", ""))


async def stopped_within(stop: asyncio.Event, seconds: float) -> bool:
    """Wait until `stop` is set, for at most `seconds`. Return whether `stop` was set."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return False
    return True


def decoded(decode: Callable[[bytes], _T], body: bytes, url: str) -> _T:
    """Decode the body of a response."""
    try:
        return decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise NotALiveBoardError(f"the server at {url} is not a Live Board server") from None


def refusal(reply: Response, url: str, api_key: str | None, verb: str = "post") -> FailedAttempt:
    """Return the reason why a request that needs `verb` failed, if it may succeed later. Otherwise raise the error."""
    status, body, retry_after = reply
    text = f"{status}: {body[:_MAX_SHOWN].decode(errors='replace')}"
    pause = parse_retry_after(retry_after)
    if status in _LOST or b'"outcome_unknown"' in body:
        return FailedAttempt(text, pause, lost=True)
    if status in _NOT_TAKEN:
        return FailedAttempt(text, pause, paced=status == _TOO_MANY)
    if status in ACCESS_REFUSED:
        raise access_refused(status, body, api_key, verb)
    if (status in _SUCCESS or status in _NO_SUCH_ROUTE) and not read_problem(body).code:
        raise NotALiveBoardError(f"{url} is not a Live Board server: {RequestRefusedError(status, body)}")
    raise RequestRefusedError(status, body)


def parse_retry_after(value: str) -> float | None:
    """Parse a `Retry-After` header, a number of seconds or a date, into seconds, at most a day. None means invalid."""
    if value.isdecimal():
        return min(float(value), _MAX_PAUSE)
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    return min(max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds()), _MAX_PAUSE)
