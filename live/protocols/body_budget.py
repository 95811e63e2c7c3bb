"""Limits the memory of bodies: how many unanswered bytes a process holds, and which connections must wait.

A body is admitted by its declared length before it is read. It counts until it is answered, even if its client leaves
before that. The server reads hardly anything of a waiting body, so there is memory to complete and answer every
admitted body. The client with the fewest unanswered bytes goes first. One client may have half of all bytes, and a
proxy more.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from live.errors import ProblemError
from live.network.hosts import network_of
from live.protocols.connection_limits import GRACE, ConnectionLimits, Limited
from live.system.ledger import ClientLedger
from live.system.processes import return_memory

SMALL_BODIES: Final = 16 * 1024  # bytes; a connection counts only if its bodies have more bytes than this
_LOT: Final = 16 * 1024**2  # bytes; if all bodies together had more than this, their memory later returns to the system
_QUIET: Final = 5.0  # seconds without large bodies after which their memory returns to the system
_ONE_READ: Final = 256 * 1024  # bytes that a connection may have received before it is paused
_SWEEP: Final = 0.5  # seconds between two checks of the deadlines


class BodySender(Limited, Protocol):
    """A connection that sends bodies."""

    @property
    def held(self) -> int:
        """Bytes of the bodies that were admitted and are not answered."""

    @property
    def wanted(self) -> int:
        """Bytes of the body that waits to be admitted, or 0."""

    def admit_body(self) -> None:
        """Begin to read the body that waits. It is part of `held` from now on."""


class _Wait(NamedTuple):
    client: str
    since: float
    is_proxy: bool


class BodyBudget:
    """The bodies of the HTTP connections of one process."""

    def __init__(self, limits: ConnectionLimits, ledger: ClientLedger) -> None:
        self._timeout = limits.request_timeout
        self._limits = limits
        self._is_proxy = ledger.is_proxy
        self._bytes = ledger.bodies
        self._counted: dict[BodySender, int] = {}
        self._waiting: dict[BodySender, _Wait] = {}  # the longest wait first
        self._is_full = False  # whether a body waits for room that other clients hold
        self._used: float | None = None  # when bodies last took much memory; None after the memory was returned

    @property
    def waiting(self) -> int:
        """The number of bodies that wait."""
        return len(self._waiting)

    def admit(self, connection: BodySender, size: int) -> bool:
        """Count a body that is about to be read. Return False if the body must wait for `admit_body`.

        Raises:
            ProblemError: `overloaded`, when too many connections wait already.
        """
        client, held = network_of(connection.address), connection.held + size
        more = held - self._counted.get(connection, 0)
        is_proxy = self._is_proxy(connection.address)
        if not self._is_full and self._bytes.has_room(more) and (is_proxy or self._bytes.is_within_half(client, more)):
            self._count(connection, client, held)
            return True
        waiting = [wait.client for wait in self._waiting.values()]
        if max(len(waiting), 2 * waiting.count(client)) * _ONE_READ >= self._bytes.most:
            raise self._overloaded()
        self._waiting[connection] = _Wait(client, time.monotonic(), is_proxy)
        self._admit_waiting()
        return False

    def update(self, connection: BodySender) -> bool:
        """Update the sums after a body was answered or withdrawn.

        Return whether the connection still has bodies that count or wait.
        """
        if not connection.wanted:
            self._waiting.pop(connection, None)
        self._count(connection, network_of(connection.address), connection.held)
        self._admit_waiting()
        return connection in self._counted or connection in self._waiting

    async def run(self) -> None:
        """Check the deadlines of connections and bodies until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP)
            now = time.monotonic()
            self._limits.sweep(now)
            self.sweep(now)

    def sweep(self, now: float) -> None:
        """Refuse bodies that have waited for too long. If large bodies have gone, return their memory to the system."""
        for connection in [each for each, wait in self._waiting.items() if wait.since < now - self._timeout]:
            connection.refuse(self._overloaded())
        self._admit_waiting()
        if self._bytes.held > _LOT:
            self._used = now
        elif self._used is not None and now > self._used + _QUIET:
            self._used = None
            return_memory()

    def _count(self, connection: BodySender, client: str, held: int) -> None:
        """Set the bytes that a connection holds."""
        counted = held if held > SMALL_BODIES else 0
        more = counted - self._counted.pop(connection, 0)
        if counted:
            self._counted[connection] = counted
        self._bytes.add(client, more)

    def _admit_waiting(self) -> None:
        """Admit bodies while there is room, always the first body of the client that holds least."""
        self._is_full = False
        while (found := min(self._admissible(), key=lambda each: each[0], default=None)) is not None:
            _, more, connection, client = found
            if not self._bytes.has_room(more):
                # Slow bodies may take all the room. Then the client that holds most loses its slowest connection, if
                # the client of the waiting body holds less. If it holds more than twice as much as that client, it gets
                # no grace period.
                self._is_full = True
                held = self._bytes.of(client)
                most = next(self._bytes.largest(held), client)
                if most != client:
                    slow = [each for each in self._counted if network_of(each.address) == most]
                    self._limits.drop_slowest(slow, 0.0 if self._bytes.of(most) > 2 * held else GRACE)
                return
            del self._waiting[connection]
            self._count(connection, client, connection.held + connection.wanted)
            connection.admit_body()

    def _admissible(self) -> Iterator[tuple[tuple[int, float], int, BodySender, str]]:
        """Find the waiting bodies that fit into the shares of their clients.

        Yield the rank of each body in the order of admission, the bytes that it adds, its connection and its client.
        """
        for connection, (client, since, is_proxy) in self._waiting.items():
            more = connection.held + connection.wanted - self._counted.get(connection, 0)
            if is_proxy or self._bytes.is_within_half(client, more):
                yield (self._bytes.of(client), since), more, connection, client

    def _overloaded(self) -> ProblemError:
        held, most = self._bytes.held, self._bytes.most
        detail = f"bodies of {held:,} bytes are not answered; the setting max_unanswered allows {most:,}"
        return ProblemError("overloaded", detail, retry_after=1)
