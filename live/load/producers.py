"""The sending side of the load test: keep-alive connections that like at a steady rate."""

import asyncio
import random
import time
from itertools import accumulate

import aiohttp
import msgspec

from live.client.sender import KEY_REFUSED, authorization, key_refused
from live.errors import SetupError
from live.load.measure import Acknowledged


class _Answer(msgspec.Struct):
    accepted: int
    offsets: dict[str, int]


class Producers:
    """Producers that share a rate; each waits for its answer before it sends again."""

    def __init__(self, url: str, board: str, keys: int, key: str | None = None) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.sent = self.accepted = self.rejected = self.failed = 0
        self.last_offset = 0
        self._url = f"{url}/v1/events"
        self._board = board
        self._key = key
        self._keys = [f"post-{number}" for number in range(1, keys + 1)]
        self._weights = list(accumulate(1 / rank for rank in range(1, keys + 1)))
        self._chance = random.Random(7)  # noqa: S311 - the same likes every time

    async def run(self, producers: int, rate: float, seconds: float) -> None:
        """Send `rate` likes a second, in all, for a time.

        Raises:
            SetupError: the server does not take the key, or wants one.
        """
        connector = aiohttp.TCPConnector(limit=producers)
        timeout = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, headers=authorization(self._key)
        ) as session:
            started = time.perf_counter()
            try:
                async with asyncio.TaskGroup() as tasks:
                    for number in range(producers):
                        first = started + number / rate
                        tasks.create_task(self._produce(session, first, producers / rate, started + seconds))
            except* SetupError as group:
                raise group.exceptions[0] from None

    async def _produce(self, session: aiohttp.ClientSession, first: float, pause: float, end: float) -> None:
        """Like at fixed times; one that is late sends at once, and does not try to catch up on what it missed."""
        due = first
        while due < end:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await self._like(session)
            due = max(due + pause, time.perf_counter())

    async def _like(self, session: aiohttp.ClientSession) -> None:
        key = self._chance.choices(self._keys, cum_weights=self._weights)[0]
        body = msgspec.json.encode({"key": key, "board": self._board})
        sent = time.perf_counter()
        self.sent += 1
        try:
            async with session.post(self._url, data=body, headers={"Content-Type": "application/json"}) as response:
                text = await response.read()
        except (aiohttp.ClientError, TimeoutError):
            self.failed += 1
            return
        at = time.perf_counter()
        if response.status in KEY_REFUSED:
            raise key_refused(response.status, text, self._key)
        if response.status != 200:  # noqa: PLR2004
            self.failed += 1
            return
        answer = msgspec.json.decode(text, type=_Answer)
        self.accepted += answer.accepted
        self.rejected += 1 - answer.accepted
        if answer.accepted:
            offset = answer.offsets[self._board]
            self.last_offset = max(self.last_offset, offset)
            self.acknowledged.append(Acknowledged(offset, sent, at))
