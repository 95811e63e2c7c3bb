"""Sends requests with events, each until the server has said what became of it or has been away for too long."""

import asyncio
import gzip
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import aiohttp

from live.client.answers import Answer, Setback, read_answer
from live.client.backoff import Backoff
from live.client.errors import LiveBoardError, OutcomeUnknownError, ServerUnavailableError
from live.client.target import authorization

PATIENCE: Final = 60.0  # seconds for which a server may be away
MAX_EVENTS: Final = 1000  # in one request, as the server's default allows
MAX_BYTES: Final = 512 * 1024  # of a request before it is compressed, at about which a batch is full
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
_TIMEOUT: Final = 20.0
_LAST_TIMEOUT: Final = 60.0  # of a request that can't be repeated
_COMPRESSED: Final = 1024  # bytes from which on a body is compressed
_log = logging.getLogger("live.client")


class Body(NamedTuple):
    """A request body with so many events; `repeatable` says that they count once however often it is sent."""

    data: bytes
    headers: Mapping[str, str]
    events: int
    repeatable: bool


class SendingStoppedError(LiveBoardError):
    """The event `stop` of a sender was set between two attempts."""


def ndjson(lines: Sequence[bytes], *, repeatable: bool) -> Body:
    """A body with an event on each line."""
    data = b"\n".join(lines)
    headers = {"Content-Type": "application/x-ndjson"}
    if len(data) >= _COMPRESSED:
        data = gzip.compress(data, compresslevel=1)
        headers["Content-Encoding"] = "gzip"
    return Body(data, headers, len(lines), repeatable)


@asynccontextmanager
async def open_session(
    api_key: str | None, *, keep_alive: bool = True, connections: int = 100
) -> AsyncIterator[aiohttp.ClientSession]:
    """An HTTP session that sends the API key with every request."""
    connector = aiohttp.TCPConnector(force_close=not keep_alive, limit=connections)
    async with aiohttp.ClientSession(connector=connector, headers=authorization(api_key)) as session:
        yield session


class Sender:
    """Sends bodies to one server; `lost` counts the answers that were lost so far.

    `patience` is for how many seconds the server may be away, `timeout` how many seconds an answer to a repeatable body
    may take. Set `stop` to end a wait between two attempts. `send` takes one body at a time.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        api_key: str | None = None,
        *,
        patience: float | None = None,
        timeout: float | None = None,
        stop: asyncio.Event | None = None,
    ) -> None:
        self.lost = 0
        self._session = session
        self._url = url
        self._api_key = api_key
        self._patience = PATIENCE if patience is None else patience
        self._stop = stop or asyncio.Event()
        self._timeout = aiohttp.ClientTimeout(total=_TIMEOUT if timeout is None else timeout)
        self._last_timeout = aiohttp.ClientTimeout(total=_LAST_TIMEOUT)
        self._under_way = False
        self._in_doubt = False

    @property
    def in_doubt(self) -> bool:
        """Whether the last body may have been counted without our knowledge."""
        return self._under_way or self._in_doubt

    async def send(self, body: Body) -> Answer:
        """Send a body, repeatedly if need be: on 429 for as long as the server asks, otherwise within the patience.

        Raises:
            ServerUnavailableError: the patience is over.
            OutcomeUnknownError: an answer was lost, and the body is not repeatable.
            SendingStoppedError: `stop` was set between two attempts.
            AccessRefusedError: the API key is missing or not accepted.
            RequestRefusedError: the server refuses the body for another reason.
            NotALiveBoardError: something else answers.
        """
        clock = asyncio.get_running_loop().time
        give_up = clock() + self._patience
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            outcome = await self.attempt(body)
            if isinstance(outcome, Answer):
                return outcome
            if outcome.lost and not body.repeatable:
                raise _unknown(body, outcome.problem)
            pause = backoff.next() if outcome.retry_after is None else backoff.after(outcome.retry_after)
            if outcome.paced:
                give_up = clock() + pause + self._patience
            if clock() + pause > give_up:
                message = f"{self._url} stays unavailable ({outcome.problem})"
                raise ServerUnavailableError(message, in_doubt=self._in_doubt)
            _log.info("trying again in %.1f s: %s", pause, outcome.problem)
            if await stopped_within(self._stop, pause):
                raise SendingStoppedError

    async def attempt(self, body: Body) -> Answer | Setback:
        """Send a body once.

        Raises:
            AccessRefusedError: the API key is missing or not accepted.
            RequestRefusedError: the server refuses the body for another reason.
            NotALiveBoardError: something else answers.
        """
        timeout = self._timeout if body.repeatable else self._last_timeout
        self._under_way = True
        try:
            async with self._session.post(
                f"{self._url}/v1/events", data=body.data, headers=body.headers, timeout=timeout
            ) as response:
                text = await response.read()
        except aiohttp.ClientConnectorError as error:
            outcome: Answer | Setback = Setback(str(error))
        except (aiohttp.ClientError, TimeoutError) as error:
            # Not its repr: that of some errors shows the header fields of the request, and so the API key.
            outcome = Setback(f"{type(error).__name__} {error}".strip(), lost=True)
        else:
            self._under_way = False
            retry_after = response.headers.get("Retry-After", "")
            outcome = read_answer(response.status, text, retry_after, self._url, self._api_key)
        self._under_way = False
        if isinstance(outcome, Answer):
            self._in_doubt = False
        elif outcome.lost:
            self.lost += 1
            self._in_doubt = True
        return outcome


def _unknown(body: Body, problem: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"the answer to {body.events} events was lost ({problem}): they may have been counted or not"
    )


async def stopped_within(stop: asyncio.Event, seconds: float) -> bool:
    """Wait for so many seconds; returns true as soon as `stop` is set."""
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await stop.wait()
    except TimeoutError:
        return False
    return True
