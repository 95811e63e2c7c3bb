"""Send the load of a test over connections that send each request when it is due."""

import asyncio
import random
import time
from itertools import accumulate
from typing import Final

import msgspec

from live.client.errors import AccessRefusedError, RequestRefusedError
from live.client.events import Event, encode_event
from live.client.sender import Body, Sender, ndjson, open_session
from live.domain.event import Answer
from live.errors import SetupError
from live.load.latencies import Acknowledged
from live.load.options import Schedule

_TIMEOUT: Final = 10.0
_GRACE: Final = 1.0  # seconds after the end in which overdue requests are still sent
_JSON: Final = {"Content-Type": "application/json"}


class Counts(msgspec.Struct):
    """Numbers of likes by their outcome. `unsent` likes were due, but no connection was free to send them."""

    sent: int = 0
    accepted: int = 0
    rejected: int = 0
    failed: int = 0
    unsent: int = 0


class Producers:
    """Connections that share a schedule.

    The load is open-loop: a request is due at its time, however long the responses to earlier ones take. If all
    connections wait for responses, the request is sent late, but its latency counts from the time when it was due. So a
    server that stalls can't hide the delay by slowing down the sender (coordinated omission).
    """

    def __init__(self, url: str, board: str, members: int, key: str | None = None, *, seed: int = 7) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.waited: list[float] = []  # for each request that was never sent, the seconds that it had waited at the end
        self.counts = Counts()
        self.last_offset = 0
        self._url = url
        self._board = board
        self._key = key
        self._members = [f"post-{number}" for number in range(1, members + 1)]
        self._weights = list(accumulate(1 / rank for rank in range(1, members + 1)))
        self._chance = random.Random(seed)  # noqa: S311 - the same likes every time

    async def run(
        self, connections: int, schedule: Schedule, started: float, *, process: int = 0, processes: int = 1
    ) -> None:
        """Send this process's share of a schedule. The schedule starts at `started`, a time of `time.perf_counter`.

        Raises:
            SetupError: the server requires an API key, or does not accept this one.
        """
        due = schedule.share(process, processes)
        end = started + schedule.seconds + _GRACE

        async def send(sender: Sender) -> None:
            for offset in due:  # the connections take turns
                at = started + offset
                if time.perf_counter() > end:
                    self._skip(schedule.batch, end - at)
                    return
                await asyncio.sleep(max(0.0, at - time.perf_counter()))
                await self._send(sender, schedule.batch, at)

        async with open_session(self._key, connections=connections) as session:
            sender = Sender(session, self._url, self._key, timeout=_TIMEOUT)
            try:
                async with asyncio.TaskGroup() as tasks:
                    for _ in range(connections):
                        tasks.create_task(send(sender))
            except* AccessRefusedError as group:
                raise SetupError(str(group.exceptions[0])) from None
        for offset in due:
            self._skip(schedule.batch, end - started - offset)

    def _skip(self, batch: int, waited: float) -> None:
        self.counts.unsent += batch
        self.waited.append(waited)

    async def _send(self, sender: Sender, batch: int, due: float) -> None:
        members = self._chance.choices(self._members, cum_weights=self._weights, k=batch)
        lines = [encode_event(Event(member, board=self._board)) for member in members]
        body = Body(lines[0], _JSON, 1, repeatable=True) if batch == 1 else ndjson(lines, repeatable=True)
        self.counts.sent += batch
        sent = time.perf_counter()
        try:
            answer = await sender.attempt(body)
        except AccessRefusedError:
            raise
        except RequestRefusedError:
            self.counts.failed += batch
            return
        at = time.perf_counter()
        if not isinstance(answer, Answer):
            self.counts.failed += batch
            return
        self.counts.accepted += answer.accepted
        self.counts.rejected += batch - answer.accepted
        if answer.accepted:
            offset = answer.offsets[self._board]
            self.last_offset = max(self.last_offset, offset)
            self.acknowledged.append(Acknowledged(offset, due, sent, at, answer.accepted))
