"""Limits HTTP connections and their bodies: how much of both a process holds, and how long it waits for a client.

A connection has a deadline while its client is expected to do something: to send the rest of a request, to read an
answer, to send the next request, or to close after its last answer. For a new connection at the limit of its address, a
connection of the same address is closed. At the limit of the process, the client with the most connections loses a
connection. An idle connection is closed first, and then the slowest. So a client can slow down only itself.

A body is admitted by its declared length before it is read. It counts until it is answered, even if its client leaves
before that. The server reads hardly anything of a waiting body, so there is memory to complete and answer every
admitted body. The client with the fewest unanswered bytes goes first.
"""

import asyncio
import time
from collections.abc import Sequence
from enum import Enum
from itertools import islice
from typing import Final

from live.errors import ProblemError
from live.metrics import DROPPED_CONNECTIONS
from live.protocols.exchange import Connection
from live.settings import Settings
from live.system.processes import return_memory
from live.system.resources import Resources

SMALL: Final = 64 * 1024  # bytes of answers; if at most so many wait for the kernel, they do not count as unread
HEALTH_PLACES: Final = 16  # further connections beyond the limits, for health and metrics requests only
_HEALTH_TIMEOUT: Final = 1.0  # seconds in which a connection beyond the limits must send its request
# Seconds from the first byte of a request to its last. Bodies are small: only a client that sends a byte now and then
# needs more. Below ten seconds, because load balancers and clients often give up then.
REQUEST_TIMEOUT: Final = 8.0
GRACE: Final = 0.5  # seconds before a connection counts as slow
_LINGER: Final = 10.0  # seconds that a client has to stop sending after it has read its last answer
_LOOK_AT: Final = 32  # idle connections that are looked at for a new connection
SMALL_BODIES: Final = 16 * 1024  # bytes; a connection counts only if its bodies have more bytes than this
_LOT: Final = 16 * 1024**2  # bytes; if all bodies together had more than this, their memory later returns to the system
_QUIET: Final = 5.0  # seconds without large bodies after which their memory returns to the system
_SWEEP: Final = 0.5  # seconds between two checks of the deadlines


class Admission(Enum):
    """How a new connection is admitted."""

    FULL = "full"  # any request
    HEALTH = "health"  # a request about health or metrics
    NONE = "none"


class ConnectionLimits:
    """The HTTP connections of one process, and their bodies. Viewers have separate limits."""

    def __init__(self, settings: Settings, resources: Resources) -> None:
        self._settings = settings
        self._places = resources.connections
        self._places.lose = self._close_one
        self._health: set[Connection] = set()
        self._refused: set[Connection] = set()  # refused connections that linger without a place
        self._receiving: dict[Connection, float] = {}  # since when the server waits for a request, longest first
        self._idle: dict[Connection, float] = {}
        self._lingering: dict[Connection, float] = {}
        self._unread: dict[Connection, float] = {}  # when the client last read something of its answers
        self._answers = resources.answers
        self._answers.lose = self._drop_reader
        self._bodies = resources.bodies
        self._bodies.lose = self._drop_sender
        self._waiting = resources.bodies_waiting
        self._waiting.lose = self._refuse_newest
        self._since: dict[Connection, float] = {}  # since when bodies wait, longest first
        self._is_full = False  # whether a body waits for room that other clients hold
        self._used: float | None = None  # when bodies last took much memory; None after the memory was returned

    async def run(self) -> None:
        """Check the deadlines of connections and bodies until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP)
            now = time.monotonic()
            self.sweep(now)
            self.sweep_bodies(now)

    # Admission

    def opened(self, connection: Connection) -> Admission:
        """Admit a new connection. If necessary, close another connection."""
        places, own, is_shared = self._places, connection.network, connection.is_shared
        held = places.of(own)
        has_room = (
            places.make_room(own, is_shared=is_shared)
            or ((is_shared or places.is_within_half(own)) and self._close_idle_of_others(0 if is_shared else held))
            or (held > 0 and self._close_one(own, held))
        )
        if has_room:
            places.set(own, connection, 1)
        elif len(self._health) < HEALTH_PLACES:
            self._health.add(connection)
        else:
            return Admission.NONE
        self._receiving[connection] = time.monotonic()
        return Admission.FULL if has_room else Admission.HEALTH

    def closed(self, connection: Connection) -> None:
        """Forget a connection that is closed, that no longer speaks HTTP, or that a viewer uses."""
        self._places.set(connection.network, connection, 0)
        self._health.discard(connection)
        self._refused.discard(connection)
        for queue in (self._receiving, self._idle, self._lingering):
            queue.pop(connection, None)
        self._forget_unread(connection)

    # Activity of a connection

    def busy(self, connection: Connection) -> None:
        """End the client's deadlines: its request is complete, and it waits for the server."""
        self._idle.pop(connection, None)
        self._receiving.pop(connection, None)

    def receiving(self, connection: Connection) -> None:
        """Start the deadline of a request, with its first byte."""
        self._idle.pop(connection, None)
        self._receiving.setdefault(connection, time.monotonic())

    def idle(self, connection: Connection) -> None:
        """Wait for the next request. While the client still has large answers to read, the connection is not idle."""
        if connection not in self._unread:
            self._idle[connection] = time.monotonic()

    def start_lingering(self, connection: Connection) -> bool:
        """Keep the connection open while its client reads the last answer. Return False to close it now.

        The caller drops all bytes that the client still sends. A few connections that were not admitted may linger too.
        """
        self.busy(connection)
        has_place = self._places.size_of(connection.network, connection) or connection in self._health
        if not has_place:
            if len(self._refused) >= HEALTH_PLACES:
                return False
            self._refused.add(connection)
        self._lingering.setdefault(connection, time.monotonic())
        return True

    def unread(self, connection: Connection) -> None:
        """Count the bytes that a client has yet to read. If all clients have too many, the one with the most loses."""
        self._unread.setdefault(connection, time.monotonic())
        self._answers.set(connection.network, connection, connection.unsent)
        while self._answers.held > self._answers.most:
            self._answers.make_room(connection.network, 0, is_shared=True)

    def _forget_unread(self, connection: Connection) -> None:
        if self._unread.pop(connection, None) is not None:
            self._answers.set(connection.network, connection, 0)

    # Deadlines

    def sweep(self, now: float) -> None:
        """Close every connection that is past its deadline."""
        for connection in [each for each in self._health if self._receiving.get(each, now) < now - _HEALTH_TIMEOUT]:
            connection.refuse(too_many_connections())
        for connection in _before(self._receiving, now - REQUEST_TIMEOUT):
            self._receiving.pop(connection)
            connection.refuse(ProblemError("request_timeout", f"a request may take {REQUEST_TIMEOUT:g} s"))
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
            since, size = self._unread[connection], connection.unsent
            if size < self._answers.size_of(connection.network, connection):  # the client makes progress
                self._forget_unread(connection)
                if size:
                    self.unread(connection)
                elif connection not in self._receiving and connection not in self._lingering:
                    connection.report()
            elif now - since > self._settings.slow_timeout:
                self._drop(connection, "unread")

    # Bodies

    @property
    def waiting(self) -> int:
        """The number of bodies that wait."""
        return len(self._since)

    def admit(self, connection: Connection, size: int) -> bool:
        """Count a body that is about to be read. Return False if the body must wait for `admit_body`."""
        has_room = not self._is_full and self._bodies.has_room(self._more(connection, size))
        if has_room and self._may_hold(connection, size):
            self._count(connection, connection.held + size)
            return True
        if not self._waiting.make_room(connection.network, is_shared=connection.is_shared):
            raise self._overloaded()
        self._waiting.set(connection.network, connection, 1)
        self._since[connection] = time.monotonic()
        self._admit_waiting()
        return False

    def update(self, connection: Connection) -> bool:
        """Update the sums after a body was answered or withdrawn. Return whether bodies still count or wait."""
        if not connection.wanted:
            self._stop_waiting(connection)
        self._count(connection, connection.held)
        self._admit_waiting()
        return connection in self._since or self._bodies.size_of(connection.network, connection) > 0

    def sweep_bodies(self, now: float) -> None:
        """Refuse bodies that have waited for too long. If large bodies have gone, return their memory to the system."""
        for connection in _before(self._since, now - REQUEST_TIMEOUT):
            connection.refuse(self._overloaded())
        self._admit_waiting()
        if self._bodies.held > _LOT:
            self._used = now
        elif self._used is not None and now > self._used + _QUIET:
            self._used = None
            return_memory()

    def _count(self, connection: Connection, held: int) -> None:
        self._bodies.set(connection.network, connection, held if held > SMALL_BODIES else 0)

    def _more(self, connection: Connection, size: int) -> int:
        return connection.held + size - self._bodies.size_of(connection.network, connection)

    def _may_hold(self, connection: Connection, size: int) -> bool:
        more = self._more(connection, size)
        return connection.is_shared or self._bodies.is_within_half(connection.network, more)

    def _stop_waiting(self, connection: Connection) -> None:
        self._since.pop(connection, None)
        self._waiting.set(connection.network, connection, 0)

    def _admit_waiting(self) -> None:
        """Admit always the first body of the client that holds least."""
        self._is_full = False
        while (connection := self._next_body()) is not None:
            more = self._more(connection, connection.wanted)
            if not self._bodies.make_room(connection.network, more, is_shared=connection.is_shared):
                self._is_full = True
                return
            self._stop_waiting(connection)
            self._count(connection, connection.held + connection.wanted)
            connection.admit_body()

    def _next_body(self) -> Connection | None:
        """Find the next body to admit, among the first bodies of all clients that fit into the halves of the clients.

        Of clients that hold equally much, the client whose body has waited longest goes first.
        """
        firsts: list[Connection] = [next(iter(waiting)) for waiting in self._waiting.things.values()]
        fitting = [first for first in firsts if self._may_hold(first, first.wanted)]
        return min(fitting, key=lambda each: (self._bodies.of(each.network), self._since[each]), default=None)

    def _overloaded(self) -> ProblemError:
        held, most = self._bodies.held, self._bodies.most
        detail = f"bodies of {held:,} bytes are not answered; the setting max_unanswered allows {most:,}"
        return ProblemError("overloaded", detail, retry_after=1)

    # Making room

    def _close_one(self, client: str, asks: int) -> bool:
        some = self._places.some_of(client)
        idle = [connection for connection in some if connection in self._idle]
        if idle:
            return self._close_idle(min(idle, key=lambda each: self._idle[each]))
        return self._drop_slowest(some, is_hasty=self._places.of(client) > 2 * asks)

    def _close_idle_of_others(self, least: int) -> bool:
        """Close the connection that has been idle for longest of clients that have more than `least` connections.

        Many clients may have more busy connections, so that `make_room` does not come to the clients with idle ones.
        """
        for connection in islice(self._idle, _LOOK_AT):
            if self._places.of(connection.network) > least:
                return self._close_idle(connection)
        return False

    def _close_idle(self, connection: Connection) -> bool:
        self.closed(connection)
        connection.close_idle()
        return True

    def _drop_sender(self, client: str, asks: int) -> bool:
        """Drop the slowest connection whose bodies count. The room is free once it is lost."""
        return self._drop_slowest(self._bodies.some_of(client), is_hasty=self._bodies.of(client) > 2 * asks)

    def _drop_reader(self, client: str, _asks: int) -> bool:
        self._drop(min(self._answers.some_of(client), key=lambda each: self._unread[each]), "unread")
        return True

    def _refuse_newest(self, client: str, asks: int) -> bool:
        if self._waiting.of(client) <= asks:
            return False
        newest: Connection = next(reversed(self._waiting.things[client]))
        self._stop_waiting(newest)
        newest.refuse(self._overloaded())
        return True

    def _drop_slowest(self, some: Sequence[Connection], *, is_hasty: bool) -> bool:
        """Return False if no connection is slow: lingering, or waited for by the server for some time.

        The many connections of a proxy have many clients, so each client has the time of a client with few connections.
        """
        now, grace = time.monotonic(), 0.0 if is_hasty and not some[0].is_shared else GRACE
        speeds: dict[Connection, float] = {}  # bytes per second
        for connection in some:
            if connection in self._lingering:
                speeds[connection] = 0.0
            elif (since := self._receiving.get(connection)) is not None and now - since > grace:
                speeds[connection] = connection.received / (now - since)
            elif (waiting := self._unread.get(connection)) is not None and now - waiting > grace:
                speeds[connection] = 0.0
        if speeds:
            self._drop(min(speeds, key=lambda each: speeds[each]), "slow")
        return bool(speeds)

    def _drop(self, connection: Connection, reason: str) -> None:
        DROPPED_CONNECTIONS.labels(reason).inc()
        self.closed(connection)
        connection.abort()


def too_many_connections() -> ProblemError:
    """Make the problem for a connection that is refused because a limit is reached."""
    detail = "the limit is the setting max_connections, and half of it for one address"
    return ProblemError("too_many_connections", detail, retry_after=1)


def _before(queue: dict[Connection, float], moment: float) -> list[Connection]:
    found = []
    for connection, since in queue.items():
        if since > moment:
            break
        found.append(connection)
    return found
