"""The sending side of the load test: keep-alive connections that send likes at a steady rate."""

import asyncio
import random
import time
from itertools import accumulate
from typing import Final

from live.client.answers import Answer
from live.client.errors import AccessRefusedError, RequestRefusedError
from live.client.events import Event, encode_event
from live.client.sender import Body, Sender, open_session
from live.errors import SetupError
from live.load.measure import Acknowledged

_TIMEOUT: Final = 10.0
_JSON: Final = {"Content-Type": "application/json"}


class Producers:
    """Producers that share a rate. Each one waits for its response before it sends again."""

    def __init__(self, url: str, board: str, members: int, key: str | None = None) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.sent = self.accepted = self.rejected = self.failed = 0
        self.last_offset = 0
        self._url = url
        self._board = board
        self._key = key
        self._members = [f"post-{number}" for number in range(1, members + 1)]
        self._weights = list(accumulate(1 / rank for rank in range(1, members + 1)))
        self._chance = random.Random(7)  # noqa: S311 - the same likes every time

    async def run(self, producers: int, rate: float, seconds: float) -> None:
        """Send `rate` likes per second, in total, for a number of seconds.

        Raises:
            SetupError: the server requires an API key, or does not accept this one.
        """
        async with open_session(self._key, connections=producers) as session:
            sender = Sender(session, self._url, self._key, timeout=_TIMEOUT)
            started = time.perf_counter()
            try:
                async with asyncio.TaskGroup() as tasks:
                    for number in range(producers):
                        first = started + number / rate
                        tasks.create_task(self._produce(sender, first, producers / rate, started + seconds))
            except* AccessRefusedError as group:
                raise SetupError(str(group.exceptions[0])) from None

    async def _produce(self, sender: Sender, first: float, pause: float, end: float) -> None:
        """Send likes at fixed times. A late like is sent at once, and missed likes are not sent later."""
        due = first
        while due < end:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await self._like(sender)
            due = max(due + pause, time.perf_counter())

    async def _like(self, sender: Sender) -> None:
        member = self._chance.choices(self._members, cum_weights=self._weights)[0]
        body = Body(encode_event(Event(member, board=self._board)), _JSON, 1, repeatable=True)
        sent = time.perf_counter()
        self.sent += 1
        try:
            answer = await sender.attempt(body)
        except AccessRefusedError:
            raise
        except RequestRefusedError:
            self.failed += 1
            return
        at = time.perf_counter()
        if not isinstance(answer, Answer):
            self.failed += 1
            return
        self.accepted += answer.accepted
        self.rejected += 1 - answer.accepted
        if answer.accepted:
            offset = answer.offsets[self._board]
            self.last_offset = max(self.last_offset, offset)
            self.acknowledged.append(Acknowledged(offset, sent, at))
