"""What the clients of a process hold: connections, bodies, viewers, recordings, and turns. A client is a network.

Each resource has the same rule. Nobody may hold more than half of it. When it is used up, the client that holds most
loses something if it holds more than the client that asks. Otherwise the client that asks is refused.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from live.errors import ProblemError
from live.settings import Settings

_GRAIN: Final = 16 * 1024  # bytes; bodies are compared in steps of this size
_RECORDINGS: Final = 16  # boards that a process delays
_DRAWINGS_WAITING: Final = 1000
PAST_AT_ONCE: Final = 2  # processes that run queries of the past
_PAST_WAITING: Final = 32
_MOST_FOUND: Final = 64  # clients that hold equally much


class Resource:
    """One resource, and how much of it each client holds."""

    def __init__(self, most: int, grain: int = 1) -> None:
        """Share out `most`. Amounts that differ by less than `grain` count as equal."""
        self.most = most
        self.held = 0
        self._grain = grain
        self._held_by: dict[str, int] = {}
        self._alike: dict[int, dict[str, None]] = {}  # the clients, by how much they hold

    def of(self, client: str) -> int:
        """Return how much a client holds."""
        return self._held_by.get(client, 0)

    def add(self, client: str, amount: int) -> None:
        """Note that a client holds more, or less if `amount` is negative."""
        before = self._held_by.pop(client, 0)
        now = before + amount
        self.held += amount
        if now:
            self._held_by[client] = now
        old, new = -(-before // self._grain), -(-now // self._grain)
        if old != new:
            if old:
                alike = self._alike[old]
                del alike[client]
                if not alike:
                    del self._alike[old]
            if new:
                self._alike.setdefault(new, {})[client] = None

    def has_room(self, more: int = 1) -> bool:
        """Tell whether so much is left. One thing always has room, whatever its size."""
        return (not self.held and self.most > 0) or self.held + more <= self.most

    def is_within_half(self, client: str, more: int = 1) -> bool:
        """Tell whether a client may hold more. A client that holds nothing may always hold one thing."""
        held = self.of(client)
        return not held or held + more <= self.most // 2

    def largest(self, least: int) -> Iterator[str]:
        """Find the clients that hold more than `least`: first those that hold most, and each time others of them.

        The caller takes a few, so that this costs the same however many clients there are.
        """
        for size in sorted((size for size in self._alike if size * self._grain > least), reverse=True):
            alike = self._alike[size]
            for client in list(islice(alike, _MOST_FOUND)):
                alike[client] = alike.pop(client)
                if self._held_by[client] > least:
                    yield client


class Turns:
    """Gives turns to clients, one after another. The number of waiting requests of a client does not matter.

    A client has one turn at a time.
    """

    def __init__(self, at_once: int, most_waiting: int) -> None:
        """Give `at_once` turns at a time, each to another client."""
        self._free = at_once
        self._places = Resource(most_waiting)
        self._served: set[str] = set()  # the clients that have a turn
        self._waiters: dict[str, deque[asyncio.Future[None]]] = {}  # by client; the client whose turn is next is first

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return self._places.held

    async def enter(self, client: str) -> None:
        """Wait for a turn of a client. The turn lasts until `leave`. A cancelled request leaves the queue.

        Raises:
            ProblemError: `overloaded`, when too many requests wait.
        """
        # If a turn is free, only clients that have a turn already can be waiting.
        if self._free and client not in self._served:
            self._serve(client)
            return
        places = self._places
        full = ProblemError("overloaded", "too many requests wait for their turn: try again later", retry_after=1)
        if not places.is_within_half(client):
            raise full
        if not places.has_room():
            greediest = next(places.largest(places.of(client) + 1), None)
            if greediest is None:
                raise full
            newest = self._waiters[greediest][-1]
            self._forget(greediest, newest)
            if not newest.done():  # the request may have been cancelled
                newest.set_exception(full)
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(client, deque()).append(waiter)
        places.add(client, 1)
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
            self._places.add(client, -1)
            if not waiters:
                del self._waiters[client]


class ClientLedger:
    """What each client of a process holds of each resource.

    `is_proxy` tells whether many clients share an address. The address of a proxy may hold more than half.
    """

    def __init__(self, settings: Settings, is_proxy: Callable[[str], bool]) -> None:
        self.is_proxy = is_proxy
        self.connections = Resource(settings.max_connections)
        self.bodies = Resource(settings.max_unanswered, _GRAIN)  # bytes of bodies that are not answered
        self.viewers = Resource(settings.max_viewers)
        self.recordings = Resource(_RECORDINGS)
        self.drawings = Turns(1, _DRAWINGS_WAITING)
        self.metrics = Turns(1, _DRAWINGS_WAITING)
        self.past = Turns(PAST_AT_ONCE, _PAST_WAITING)
