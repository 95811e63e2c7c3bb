"""Sends a batch until the server has said what became of it, or has been away for too long."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple

import aiohttp
import msgspec

from live.client.sender import KEY_REFUSED, authorization, key_refused
from live.errors import SetupError
from live.replay.batches import Batch
from live.replay.options import Options

_PATIENCE: Final = 60.0  # seconds for which a server may be away
_TIMEOUT: Final = 20.0
_LAST_TIMEOUT: Final = 60.0  # of a batch that can't be sent again
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
_LONGEST_TOLD: Final = 86400.0

_OK: Final = 200
_TOO_MANY: Final = 429
_NOT_TAKEN: Final = frozenset({408, _TOO_MANY, 503})  # nothing counted, come again
_LOST: Final = frozenset({500, 502, 504})  # what stood behind the answer may have counted: a fault, or a proxy's word


class Answer(msgspec.Struct):
    """The part of the server's answer that is used here."""

    accepted: int
    duplicate: int
    rejected: list[dict[str, Any]]


class _Setback(NamedTuple):
    """An attempt that did not do it: why, how long the server said to wait, and what it means."""

    problem: str
    told: float | None = None
    lost: bool = False  # it may have counted
    paced: bool = False  # the server is well, and wants to be sent less


@asynccontextmanager
async def open_sender(options: Options, stop: asyncio.Event) -> AsyncIterator["Sender"]:
    """A sender while in the context."""
    # A connection for each batch: on one that is kept, a server's stop can't be told from a lost answer.
    connector = aiohttp.TCPConnector(force_close=True)
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT if options.ids else _LAST_TIMEOUT)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, headers=authorization(options.key)
    ) as session:
        yield Sender(session, options, stop)


class Sender:
    """Sends batches, one at a time; `lost` is how many answers were lost so far."""

    def __init__(self, session: aiohttp.ClientSession, options: Options, stop: asyncio.Event) -> None:
        self.lost = 0
        self._session = session
        self._options = options
        self._stop = stop
        self._under_way = False
        self._in_doubt = False

    @property
    def doubtful(self) -> bool:
        """Whether the last batch may have been counted without our knowing."""
        return self._under_way or self._in_doubt

    def is_stopped(self) -> bool:
        """Whether somebody wants the replay to end."""
        return self._stop.is_set()

    async def pause(self, seconds: float) -> bool:
        """Wait; gives whether somebody stopped the replay meanwhile."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._stop.wait()
        except TimeoutError:
            return False
        return True

    async def send(self, batch: Batch) -> Answer | None:
        """Send a batch, again and again if need be; None when somebody stopped the replay between two attempts.

        Raises:
            SetupError: the server refuses the batch or stays away; or an answer was lost, and the events have no ids.
        """
        clock = asyncio.get_running_loop().time
        body = gzip.compress(batch.body(), compresslevel=1)
        give_up = clock() + _PATIENCE
        pause = _FIRST_PAUSE
        while True:
            outcome = await self._attempt(body)
            if isinstance(outcome, Answer):
                self._in_doubt = False
                return outcome
            if outcome.lost and not self._options.ids:
                raise _unknown(batch, outcome.problem)
            wait = pause if outcome.told is None else outcome.told
            if outcome.paced:
                give_up = clock() + wait + _PATIENCE
            if clock() + wait > give_up:
                raise self._away(outcome.problem)
            if await self.pause(wait):
                return None
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _attempt(self, body: bytes) -> Answer | _Setback:
        """Send a body once."""
        headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
        self._under_way = True
        try:
            async with self._session.post(f"{self._options.url}/v1/events", data=body, headers=headers) as response:
                text = await response.read()
        except aiohttp.ClientConnectorError as error:
            outcome: Answer | _Setback = _Setback(str(error))
        except (aiohttp.ClientError, TimeoutError) as error:
            # Not its repr: that of some has the header fields of the request in it, and so the key.
            outcome = _Setback(f"{type(error).__name__} {error}".strip(), lost=True)
        else:
            self._under_way = False
            outcome = self._read(response, text)
        self._under_way = False
        if isinstance(outcome, _Setback) and outcome.lost:
            self.lost += 1
            self._in_doubt = True
        return outcome

    def _read(self, response: aiohttp.ClientResponse, text: bytes) -> Answer | _Setback:
        """What an answer means."""
        status = response.status
        if status == _OK:
            try:
                return msgspec.json.decode(text, type=Answer)
            except (msgspec.DecodeError, UnicodeDecodeError):
                raise SetupError(f"what answers at {self._options.url} is not a Live Board") from None
        if status in KEY_REFUSED:
            raise key_refused(status, text, self._options.key)
        problem = f"{status}: {text[:300].decode(errors='replace')}"
        told = _told(response.headers.get("Retry-After", ""))
        if status in _LOST or b'"outcome_unknown"' in text:
            return _Setback(problem, told, lost=True)
        if status in _NOT_TAKEN:
            return _Setback(problem, told, paced=status == _TOO_MANY)
        raise SetupError(f"the server refused a batch with {problem}")

    def _away(self, problem: str) -> SetupError:
        once = " What may have been counted of the last batch counts once." if self._in_doubt else ""
        return SetupError(
            f"{self._options.url} stays away ({problem}); run the command again to go on from here.{once}"
        )


def _told(retry_after: str) -> float | None:
    """The seconds in a header field Retry-After, which may be a date."""
    if retry_after.isdecimal():
        return min(float(retry_after), _LONGEST_TOLD)
    try:
        date = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    return min(max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds()), _LONGEST_TOLD)


def _unknown(batch: Batch, why: str) -> SetupError:
    return SetupError(
        f"the answer to a batch of {len(batch.events)} events was lost ({why}): they may have been counted or not. "
        "Running the command again sends them again."
    )
