"""A queue in which clients take turns. A client with many requests delays only itself."""

import asyncio
from collections import deque

from live.errors import ProblemError


class FairQueue:
    """Gives turns to clients, one after another. The number of waiting requests of a client does not matter.

    A client has one turn at a time. When the queue is full, the client with the most requests loses its newest
    request.
    """

    def __init__(self, at_once: int, most_waiting: int) -> None:
        """Make a queue that gives `at_once` turns at a time, each to another client."""
        self._free = at_once
        self._most_waiting = most_waiting
        self._served: set[str] = set()  # the clients that have a turn
        self._waiters: dict[str, deque[asyncio.Future[None]]] = {}  # by client; the client whose turn is next is first
        self.waiting = 0  # requests

    async def enter(self, client: str) -> None:
        """Wait for a turn of a client. The turn lasts until `leave`. A cancelled request leaves the queue.

        Raises:
            ProblemError: `overloaded`, when the queue is full.
        """
        # If a turn is free, only clients that have a turn already can be waiting.
        if self._free and client not in self._served:
            self._serve(client)
            return
        if self.waiting >= self._most_waiting:
            # Refuse the newest request of the client with the most requests. If the client of the new request would
            # then have as many requests or more, refuse the new request.
            greediest = max(self._waiters, key=lambda each: len(self._waiters[each]))
            full = ProblemError("overloaded", "too many requests wait for their turn: try again later", retry_after=1)
            if len(self._waiters[greediest]) <= len(self._waiters.get(client, ())) + 1:
                raise full
            newest = self._waiters[greediest][-1]
            self._forget(greediest, newest)
            if not newest.done():  # the request may have been cancelled
                newest.set_exception(full)
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(client, deque()).append(waiter)
        self.waiting += 1
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                self._forget(client, waiter)
            elif waiter.exception() is None:  # the request got its turn at the same moment
                self.leave(client)
            raise

    def leave(self, client: str) -> None:
        """End the turn of a client, and give the turn to the next client."""
        self._served.discard(client)
        self._free += 1
        while (following := next((each for each in self._waiters if each not in self._served), None)) is not None:
            waiters = self._waiters[following]
            waiter = waiters[0]
            self._forget(following, waiter)
            if waiters:  # the client's next request comes after those of all other clients
                self._waiters[following] = self._waiters.pop(following)
            if not waiter.done():  # the request may have been cancelled
                self._serve(following)
                waiter.set_result(None)
                return

    def _serve(self, client: str) -> None:
        self._free -= 1
        self._served.add(client)

    def _forget(self, client: str, waiter: asyncio.Future[None]) -> None:
        """Remove a request from the queue, if it is still there."""
        waiters = self._waiters.get(client, deque())
        if waiter in waiters:
            waiters.remove(waiter)
            self.waiting -= 1
            if not waiters:
                del self._waiters[client]
