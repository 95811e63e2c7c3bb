"""Report the state of the journals to every process, once a second, even while the drainer waits for SQL."""

import asyncio
import time
from typing import Final

import structlog

from live.errors import StoreUnavailableError
from live.metrics import JOURNAL_BACKLOG, JOURNAL_LAG
from live.store.board.journal_stream import journals, read_streams
from live.store.connection.client import Store
from live.store.registry.journals import JournalHealth, publish_health

log = structlog.get_logger()

_INTERVAL: Final = 1.0  # seconds between two reports
_MEASURE: Final = 5.0  # seconds between two measurements of the backlog
_BEHIND: Final = 2.0  # seconds of lag; above this, the backlog is measured
_BOARDS: Final = 256  # boards in one round trip


class HealthReport:
    """The state of the journals, as the drainer of this process knows it.

    Attributes:
        fault: why entries are not moved to SQL; empty if they are, or if another process moves them.
        writes: whether this process moves entries to SQL.
        waits: for each kind of work on data that belongs to no board, the reason why it can't be done now.
        delayed: for each journal, the reason why it can't be read from the store now.
        lost: for each journal of which SQL has more than the store, a sentence that says so.
        sql_away: whether SQL does not answer.
    """

    def __init__(self, client: Store) -> None:
        self.fault = ""
        self.writes = False
        self.waits: dict[str, str] = {}
        self.delayed: dict[tuple[str, str], str] = {}
        self.lost: dict[tuple[str, str], str] = {}
        self.sql_away = False
        self._client = client
        self._drained = time.monotonic()  # when SQL last had everything
        self._measured = float("-inf")
        self._waiting = 0
        self._fullest = ("", 0)

    def mark_drained(self, since: float) -> None:
        """Record that SQL has everything that was in the store at the time `since` of the monotonic clock."""
        self._drained, self.fault, self.sql_away = time.monotonic(), "", False
        JOURNAL_LAG.set(self._drained - since)

    async def run(self) -> None:
        """Publish the state of the journals until cancelled, while this process moves entries to SQL or has a fault."""
        while True:
            if self.writes or self.fault:
                try:
                    await self.publish()
                except StoreUnavailableError as error:
                    log.debug("can't publish the state of the journals", reason=str(error))
            await asyncio.sleep(_INTERVAL)

    async def publish(self) -> None:
        """Publish the state of the journals for all processes."""
        now = time.monotonic()
        lag = now - self._drained
        fault = self.fault or next(iter(self.waits.values()), "")
        if fault:
            JOURNAL_LAG.set(lag)
        if lag < _BEHIND:
            self._waiting, self._fullest = 0, ("", 0)
        elif now >= self._measured + _MEASURE:
            # Read from the store how many bytes of each journal wait.
            names = await journals(self._client)
            waiting: dict[str, int] = {}
            for first in range(0, len(names), _BOARDS):
                some = names[first : first + _BOARDS]
                for (name, _), stream in zip(some, await read_streams(self._client, some), strict=True):
                    if not isinstance(stream, StoreUnavailableError):
                        waiting[name] = max(stream.waiting, waiting.get(name, 0))
            self._waiting = sum(waiting.values())
            self._fullest = max(waiting.items(), key=lambda item: item[1], default=("", 0))
            JOURNAL_BACKLOG.set(self._waiting)
            self._measured = now
        board, most = self._fullest
        health = JournalHealth(
            lag=lag,
            waiting=self._waiting,
            fullest=board,
            most=most,
            delayed=len(self.delayed),
            why=next((f"the journal of board {name} waits: {why}" for (name, _), why in self.delayed.items()), ""),
            lost=len(self.lost),
            example=next(iter(self.lost.values()), ""),
            sql_away=self.sql_away,
        )
        await publish_health(self._client, health, fault)
