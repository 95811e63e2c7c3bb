"""Limits HTTP connections: how many a process holds, how many of each client, and how long it waits for each of them.

A connection has a deadline while its client is expected to do something: to send the rest of a request, to read an
answer, to send the next request, or to close after its last answer. For a new connection at the limit of its address, a
connection of the same address is closed. At the limit of the process, the client with the most connections loses a
connection. An idle connection is closed first, and then the slowest. So a client can slow down only itself.

Only a few connections are looked at for each new one, however many there are: some of the clients with the most, each
time others, and then those that have been idle for longest.
"""

import time
from collections.abc import Iterable
from enum import Enum
from itertools import islice
from typing import Final, Protocol

from live.errors import ProblemError
from live.metrics import DROPPED_CONNECTIONS
from live.network.hosts import network_of
from live.settings import Settings
from live.system.ledger import ClientLedger

SMALL: Final = 64 * 1024  # bytes of answers; if at most so many wait for the kernel, they do not count as unread
HEALTH_PLACES: Final = 16  # further connections beyond the limits, for health and metrics requests only
_HEALTH_TIMEOUT: Final = 1.0  # seconds in which a connection beyond the limits must send its request
# Seconds from the first byte of a request to its last. Bodies are small: only a client that sends a byte now and then
# needs more. Below ten seconds, because load balancers and clients often give up then.
REQUEST_TIMEOUT: Final = 8.0
GRACE: Final = 0.5  # seconds before a connection counts as slow
_LINGER: Final = 10.0  # seconds that a client has to stop sending after it has read its last answer
_LOOK_AT: Final = 32  # connections of a client, or idle ones, that are looked at for a new connection
_MOST_LOOKED_AT: Final = 64  # connections of all clients


class Admission(Enum):
    """How a new connection is admitted."""

    FULL = "full"  # any request
    HEALTH = "health"  # a request about health or metrics
    NONE = "none"


class Limited(Protocol):
    """A connection as its limits see it; `received` is the number of bytes of the current request."""

    received: int

    @property
    def address(self) -> str:
        """The address of the TCP peer."""

    @property
    def buffered(self) -> int:
        """Bytes of answers that the kernel has not accepted."""

    @property
    def unsent(self) -> int:
        """Bytes of answers that the client has not acknowledged, including those in the kernel."""

    def refuse(self, problem: ProblemError) -> None:
        """Answer the current request with a problem, then close."""

    def answers_read(self) -> None:
        """Check whether the connection is idle, now that the client has read its answers."""

    def close_idle(self) -> None:
        """Close an idle connection."""

    def abort(self) -> None:
        """Close immediately."""


class ConnectionLimits:
    """The HTTP connections of one process. Viewers have separate limits."""

    def __init__(self, settings: Settings, ledger: ClientLedger) -> None:
        self._settings = settings
        self.request_timeout = REQUEST_TIMEOUT
        self._ledger = ledger
        self._places = ledger.connections
        self._open: dict[str, dict[Limited, None]] = {}  # by client
        self._health: set[Limited] = set()
        self._refused: set[Limited] = set()  # refused connections that linger without a place
        self._receiving: dict[Limited, float] = {}  # since when the server waits for a request, longest first
        self._idle: dict[Limited, float] = {}
        self._lingering: dict[Limited, float] = {}
        self._unread: dict[Limited, tuple[float, int]] = {}  # the time of the last progress, and the bytes that wait
        self._unread_bytes = 0

    # Admission

    def opened(self, connection: Limited) -> Admission:
        """Admit a new connection. If necessary, close another connection."""
        places, own = self._places, network_of(connection.address)
        held, is_proxy = places.of(own), self._ledger.is_proxy(connection.address)
        if not (is_proxy or places.is_within_half(own)):
            has_room = self._make_room(own, GRACE)
        else:
            # A new connection from a proxy counts as the first of its client, because nobody knows how many the client
            # has. At last, a client can replace a connection of its own.
            has_room = (
                places.has_room()
                or self._replace_of_most(0 if is_proxy else held)
                or (held > 0 and self._make_room(own, GRACE))
            )
        if has_room:
            self._open.setdefault(own, {})[connection] = None
            places.add(own, 1)
        elif len(self._health) < HEALTH_PLACES:
            self._health.add(connection)
        else:
            return Admission.NONE
        self._receiving[connection] = time.monotonic()
        return Admission.FULL if has_room else Admission.HEALTH

    def closed(self, connection: Limited) -> None:
        """Forget a connection that is closed, that no longer speaks HTTP, or that a viewer uses."""
        client = network_of(connection.address)
        held = self._open.get(client)
        if held is not None and connection in held:
            del held[connection]
            self._places.add(client, -1)
            if not held:
                del self._open[client]
        self._health.discard(connection)
        self._refused.discard(connection)
        for queue in (self._receiving, self._idle, self._lingering):
            queue.pop(connection, None)
        self._forget_unread(connection)

    # Activity of a connection

    def busy(self, connection: Limited) -> None:
        """End the client's deadlines: its request is complete, and it waits for the server."""
        self._idle.pop(connection, None)
        self._receiving.pop(connection, None)

    def receiving(self, connection: Limited) -> None:
        """Start the deadline of a request, with its first byte."""
        self._idle.pop(connection, None)
        self._receiving.setdefault(connection, time.monotonic())

    def idle(self, connection: Limited) -> None:
        """Wait for the next request. While the client still has large answers to read, the connection is not idle."""
        if connection not in self._unread:
            self._idle[connection] = time.monotonic()

    def start_lingering(self, connection: Limited) -> bool:
        """Keep the connection open while its client reads the last answer. Return False to close it now.

        The caller drops all bytes that the client still sends. A few connections that were not admitted may linger too.
        """
        self.busy(connection)
        has_place = connection in self._open.get(network_of(connection.address), ()) or connection in self._health
        if not has_place:
            if len(self._refused) >= HEALTH_PLACES:
                return False
            self._refused.add(connection)
        self._lingering.setdefault(connection, time.monotonic())
        return True

    def unread(self, connection: Limited) -> None:
        """Count the bytes of answers that a client has yet to read. The answers to all clients share one budget.

        While there are more bytes than the budget, close the connection that has made no progress for longest.
        """
        size = connection.unsent
        since, before = self._unread.get(connection, (time.monotonic(), 0))
        self._unread[connection] = (since, size)
        self._unread_bytes += size - before
        while self._unread_bytes > self._settings.max_unread:
            self._drop(min(self._unread, key=lambda waiting: self._unread[waiting][0]), "unread")

    def _forget_unread(self, connection: Limited) -> None:
        _, size = self._unread.pop(connection, (0.0, 0))
        self._unread_bytes -= size

    # Deadlines

    def sweep(self, now: float) -> None:
        """Close every connection that is past its deadline."""
        timeout = self.request_timeout
        for connection in [each for each in self._health if self._receiving.get(each, now) < now - _HEALTH_TIMEOUT]:
            connection.refuse(too_many_connections())
        for connection in _before(self._receiving, now - timeout):
            self._receiving.pop(connection)
            connection.refuse(ProblemError("request_timeout", f"a request may take {timeout:g} s"))
        for connection in _before(self._idle, now - self._settings.idle_timeout):
            self.closed(connection)
            connection.close_idle()
        for connection in _before(self._lingering, now - _LINGER):
            del self._lingering[connection]
            if connection.unsent:
                self._lingering[connection] = now  # the time to linger starts when the client has the whole answer
            else:
                self._drop(connection, "lingering")
        for connection in list(self._unread):
            since, before = self._unread[connection]
            size = connection.unsent
            if size < before:  # the client makes progress
                self._forget_unread(connection)
                if size:
                    self.unread(connection)
                elif connection not in self._receiving and connection not in self._lingering:
                    connection.answers_read()
            elif now - since > self._settings.slow_timeout:
                self._drop(connection, "unread")

    # Closing connections to make room

    def _replace_of_most(self, least: int) -> bool:
        """Close a connection of a client that has more than `least`. Return False if none was found.

        A client with more than twice as many as the client of the new connection gets no grace period.
        """
        left = _MOST_LOOKED_AT
        for client in self._places.largest(least):
            held = self._places.of(client)
            if self._make_room(client, 0.0 if held > 2 * (least + 1) else GRACE):
                return True
            left -= min(held, _LOOK_AT)
            if left <= 0:
                break
        for connection in islice(self._idle, _LOOK_AT):
            if self._places.of(network_of(connection.address)) > least:
                return self._close_idle(connection)
        return False

    def _make_room(self, client: str, grace: float) -> bool:
        """Close the longest idle connection of a client, or else its slowest one. Return False if there is neither."""
        held = self._open[client]
        some = list(islice(held, _LOOK_AT))
        for connection in some:
            held[connection] = held.pop(connection)
        idle = [connection for connection in some if connection in self._idle]
        if idle:
            return self._close_idle(min(idle, key=lambda each: self._idle[each]))
        return self.drop_slowest(some, grace)

    def _close_idle(self, connection: Limited) -> bool:
        self.closed(connection)
        connection.close_idle()
        return True

    def drop_slowest(self, held: Iterable[Limited], grace: float) -> bool:
        """Close the slowest of some connections. Return False if none of them is slow.

        A connection is slow if it lingers, or if the server has waited for its client for longer than `grace` seconds.
        """
        now = time.monotonic()
        speeds: dict[Limited, float] = {}  # bytes per second
        for connection in held:
            if connection in self._lingering:
                speeds[connection] = 0.0
            elif (since := self._receiving.get(connection)) is not None and now - since > grace:
                speeds[connection] = connection.received / (now - since)
            elif (waiting := self._unread.get(connection)) is not None and now - waiting[0] > grace:
                speeds[connection] = 0.0
        if speeds:
            self._drop(min(speeds, key=lambda each: speeds[each]), "slow")
        return bool(speeds)

    def _drop(self, connection: Limited, reason: str) -> None:
        DROPPED_CONNECTIONS.labels(reason).inc()
        self.closed(connection)
        connection.abort()


def too_many_connections() -> ProblemError:
    """Make the problem for a connection that is refused because a limit is reached."""
    detail = "the limit is the setting max_connections, and half of it for one address"
    return ProblemError("too_many_connections", detail, retry_after=1)


def _before(queue: dict[Limited, float], moment: float) -> list[Limited]:
    """Find the connections that entered a queue before a moment. A queue is ordered by time."""
    found = []
    for connection, since in queue.items():
        if since > moment:
            break
        found.append(connection)
    return found
