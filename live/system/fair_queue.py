"""A queue in which clients take turns. A client with many requests delays only itself."""

import asyncio
from collections import deque

from live.errors import ProblemError


class FairQueue:
    """Gives turns to clients, one after another. The number of waiting requests of a client does not matter.

    A client has one turn at a time. When the queue is full, the client with the most requests loses its newest one.
    """

    def __init__(self, at_once: int, most_waiting: int) -> None:
        """Make a queue that gives `at_once` turns at a time, each to another client."""
        self._free = at_once
        self._most_waiting = most_waiting
        self._served: set[str] = set()  # the clients that have a turn
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by client, in the order of their next turns
        self._count = 0  # requests that wait

    async def enter(self, client: str) -> None:
        """Wait for a turn of a client. The turn lasts until `leave`. A cancelled request leaves the queue.

        Raises:
            ProblemError: `overloaded`, when the queue is full.
        """
        if self._free and client not in self._served:  # then nobody waits but clients that have a turn
            self._serve(client)
            return
        if self._count >= self._most_waiting:
            # Refuse the newest request of the client with the most requests. If the client of the new request would
            # then have as many, refuse the new request.
            greediest = max(self._waiting, key=lambda each: len(self._waiting[each]))
            full = ProblemError("overloaded", "too many requests wait for their turn: try again later", retry_after=1)
            if len(self._waiting[greediest]) <= len(self._waiting.get(client, ())) + 1:
                raise full
            newest = self._waiting[greediest][-1]
            self._forget(greediest, newest)
            if not newest.done():  # otherwise it was cancelled
                newest.set_exception(full)
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(waiter)
        self._count += 1
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                self._forget(client, waiter)
            elif waiter.exception() is None:  # it got its turn in the same moment
                self.leave(client)
            raise

    def leave(self, client: str) -> None:
        """End the turn of a client, and give the turn to the next client."""
        self._served.discard(client)
        self._free += 1
        while (following := next((each for each in self._waiting if each not in self._served), None)) is not None:
            waiters = self._waiting[following]
            waiter = waiters[0]
            self._forget(following, waiter)
            if waiters:  # the others come after those of all other clients
                self._waiting[following] = self._waiting.pop(following)
            if not waiter.done():  # otherwise it was cancelled
                self._serve(following)
                waiter.set_result(None)
                return

    def _serve(self, client: str) -> None:
        self._free -= 1
        self._served.add(client)

    def _forget(self, client: str, waiter: asyncio.Future[None]) -> None:
        """Remove a request from the queue, if it is still there."""
        waiters = self._waiting.get(client, deque())
        if waiter in waiters:
            waiters.remove(waiter)
            self._count -= 1
            if not waiters:
                del self._waiting[client]
