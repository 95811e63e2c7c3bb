"""The guard: how many HTTP connections a process holds, and for how long it waits for each.

Connections stand in two queues, each in the order of time: those that owe us a request, or the rest of one, and those
that are idle between two requests. So the oldest stand ahead, and a sweep looks no further than at those it ends.
"""

import asyncio
import time
from typing import Final, Protocol

from live.errors import ProblemError
from live.settings import Settings

_SWEEP: Final = 0.5  # seconds


class Guarded(Protocol):
    """A connection, as the guard sees it."""

    def refuse(self, problem: ProblemError) -> None:
        """Answer with a problem, and close."""

    def leave(self) -> None:
        """Close without a word: nothing is under way."""


class Guard:
    """Watches over the HTTP connections of one process, and counts producers' sockets; viewers are none of its."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._open: set[Guarded] = set()
        self._owing: dict[Guarded, float] = {}
        self._idle: dict[Guarded, float] = {}

    def opened(self, connection: Guarded) -> bool:
        """A connection was made; False when there is no place for it, not even that of an idle one."""
        if len(self._open) >= self._settings.max_connections:
            if not self._idle:
                return False
            longest = next(iter(self._idle))
            self.closed(longest)
            longest.leave()
        self._open.add(connection)
        self._owing[connection] = time.monotonic()
        return True

    def closed(self, connection: Guarded) -> None:
        """A connection is no more, or no longer speaks HTTP."""
        self._open.discard(connection)
        self._owing.pop(connection, None)
        self._idle.pop(connection, None)

    def lent(self, connection: Guarded) -> None:
        """A viewer watches on it: it takes no place until it is `returned`."""
        self.closed(connection)

    def returned(self, connection: Guarded) -> bool:
        """The viewer is done; False when there is no place for it. No idle one goes: it may be a producer's."""
        if len(self._open) >= self._settings.max_connections:
            return False
        self._open.add(connection)
        return True

    def busy(self, connection: Guarded) -> None:
        """A request has come whole: now it waits for us."""
        self._idle.pop(connection, None)
        self._owing.pop(connection, None)

    def owes(self, connection: Guarded) -> None:
        """A part of a request has come; the clock runs from its first byte."""
        self._idle.pop(connection, None)
        if connection in self._open:
            self._owing.setdefault(connection, time.monotonic())

    def rests(self, connection: Guarded) -> None:
        """All requests are answered."""
        if connection in self._open:
            self._idle[connection] = time.monotonic()

    async def run(self) -> None:
        """Close, for ever, what has owed us a request or has been idle for too long."""
        while True:
            await asyncio.sleep(_SWEEP)
            self._sweep(time.monotonic())

    def _sweep(self, now: float) -> None:
        timeout = self._settings.request_timeout
        for connection in _older(self._owing, now - timeout):
            self.closed(connection)
            connection.refuse(
                ProblemError("request_timeout", f"the setting request_timeout allows {timeout:g} s for a request")
            )
        for connection in _older(self._idle, now - self._settings.idle_timeout):
            self.closed(connection)
            connection.leave()


def _older(queue: dict[Guarded, float], than: float) -> list[Guarded]:
    """Those at the head of a queue that have stood in it since before a time."""
    found = []
    for connection, since in queue.items():
        if since > than:
            break
        found.append(connection)
    return found
