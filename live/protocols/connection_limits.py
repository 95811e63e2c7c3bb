"""How many HTTP connections a process holds, from whom, and for how long it waits for each.

Every connection has a place and, whenever it owes something, a deadline. It owes the rest of a request that has begun;
it owes the reading of an answer; it may be idle between requests; and it may linger after its last answer. When no
place is free, the client with the most connections gives one up: an idle one first, then its slowest. So one client can
slow down only itself.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from enum import Enum
from ipaddress import IPv6Address, ip_address
from typing import Final, Protocol

from live.errors import ProblemError
from live.metrics import DROPPED_CONNECTIONS
from live.settings import Settings

SMALL: Final = 64 * 1024  # bytes of an answer that is on its way, and not yet called unread
HEALTH_PLACES: Final = 16  # beyond the limits, for requests about health and metrics alone
_SWEEP: Final = 0.5  # seconds between two looks at the deadlines
_HEALTH_TIMEOUT: Final = 1.0  # seconds
_GRACE: Final = 0.5  # seconds before a connection can be called slow
_LINGER: Final = 10.0  # seconds in which a client may read its last answer, and stop sending
_IPV6_NETWORK: Final = 64  # bits: one IPv6 client commonly has a whole network of addresses


class Place(Enum):
    """What a new connection gets."""

    FULL = "full"  # any request
    HEALTH = "health"  # a request about health or metrics
    NONE = "none"


class Limited(Protocol):
    """A connection, as its limits see it; `received` counts the bytes of the request that has begun."""

    received: int

    @property
    def address(self) -> str:
        """Of the TCP peer."""

    @property
    def buffered(self) -> int:
        """Bytes of answers that the kernel has not taken."""

    @property
    def unsent(self) -> int:
        """Bytes of answers that the client has not taken, those that the kernel holds among them."""

    def refuse(self, problem: ProblemError) -> None:
        """Answer the request that has begun with a problem, and close."""

    def answers_read(self) -> None:
        """The client has read its answers: check whether the connection is idle now."""

    def leave(self) -> None:
        """Close a connection on which nothing is under way."""

    def abort(self) -> None:
        """Close at once."""


class ConnectionLimits:
    """The HTTP connections of one process, and the sockets of its producers; viewers have limits of their own."""

    def __init__(self, settings: Settings, is_proxy: Callable[[str], bool]) -> None:
        """Limit connections; `is_proxy` tells the addresses behind which there are many clients."""
        self._settings = settings
        self._is_proxy = is_proxy
        self._open: dict[str, dict[Limited, None]] = {}  # by client, in the order of their coming
        self._count = 0
        self._health: set[Limited] = set()
        self._refused: set[Limited] = set()  # without a place, and lingering
        self._owing: dict[Limited, float] = {}  # since when; the longest first
        self._idle: dict[Limited, float] = {}
        self._lingering: dict[Limited, float] = {}
        self._unread: dict[Limited, tuple[float, int]] = {}  # since when not a byte was taken, and how many wait
        self._unread_bytes = 0

    # Places

    def opened(self, connection: Limited) -> Place:
        """Give a place to a new connection, at the cost of another one if need be."""
        settings, client = self._settings, client_of(connection.address)
        held = len(self._open.get(client, ()))
        if held >= settings.max_address_connections and not self._is_proxy(connection.address):
            has_room = self._make_room(client, _GRACE)
        else:
            has_room = self._count < settings.max_connections or self._make_room_anywhere(held)
        if has_room:
            self._take_place(connection)
        elif len(self._health) < HEALTH_PLACES:
            self._health.add(connection)
        else:
            return Place.NONE
        self._owing[connection] = time.monotonic()
        return Place.FULL if has_room else Place.HEALTH

    def closed(self, connection: Limited) -> None:
        """Forget a connection that is closed, or that no longer speaks HTTP."""
        client = client_of(connection.address)
        held = self._open.get(client)
        if held is not None and connection in held:
            del held[connection]
            self._count -= 1
            if not held:
                del self._open[client]
        self._health.discard(connection)
        self._refused.discard(connection)
        for queue in (self._owing, self._idle, self._lingering):
            queue.pop(connection, None)
        self._forget_unread(connection)

    def lent(self, connection: Limited) -> None:
        """A viewer watches on this connection: it takes no place until it is `returned`."""
        self.closed(connection)

    def returned(self, connection: Limited) -> bool:
        """The viewer is done; False when there is no place. No other is closed for it: that may be a producer's."""
        if self._count >= self._settings.max_connections:
            return False
        self._take_place(connection)
        return True

    def _take_place(self, connection: Limited) -> None:
        self._open.setdefault(client_of(connection.address), {})[connection] = None
        self._count += 1

    # What a connection is doing

    def busy(self, connection: Limited) -> None:
        """A request has come whole: now the client waits for the server."""
        self._idle.pop(connection, None)
        self._owing.pop(connection, None)

    def owes(self, connection: Limited) -> None:
        """Part of a request has come; its deadline runs from its first byte."""
        self._idle.pop(connection, None)
        self._owing.setdefault(connection, time.monotonic())

    def rests(self, connection: Limited) -> None:
        """All requests are answered; a client that has large answers to read is not idle."""
        if connection not in self._unread:
            self._idle[connection] = time.monotonic()

    def lingers(self, connection: Limited) -> bool:
        """The last answer is on its way, and what the client still sends is thrown away; False to close at once.

        Connections without a place may linger too, as long as they are few.
        """
        self.busy(connection)
        has_place = connection in self._open.get(client_of(connection.address), ()) or connection in self._health
        if not has_place:
            if len(self._refused) >= HEALTH_PLACES:
                return False
            self._refused.add(connection)
        self._lingering.setdefault(connection, time.monotonic())
        return True

    def unread(self, connection: Limited) -> None:
        """Answers wait for the client to take them; all answers that wait share one budget."""
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

    async def run(self) -> None:
        """Look at all deadlines again and again."""
        while True:
            await asyncio.sleep(_SWEEP)
            self.sweep(time.monotonic())

    def sweep(self, now: float) -> None:
        """Close what is past its deadline."""
        timeout = self._settings.request_timeout
        for connection in [each for each in self._health if self._owing.get(each, now) < now - _HEALTH_TIMEOUT]:
            connection.refuse(too_many_connections())
        for connection in _before(self._owing, now - timeout):
            self._owing.pop(connection)
            connection.refuse(
                ProblemError("request_timeout", f"the setting request_timeout allows {timeout:g} s for a request")
            )
        for connection in _before(self._idle, now - self._settings.idle_timeout):
            self.closed(connection)
            connection.leave()
        for connection in _before(self._lingering, now - _LINGER):
            del self._lingering[connection]
            if connection.unsent:
                self._lingering[connection] = now  # its time begins when the answer has left
            else:
                self._drop(connection, "lingering")
        for connection in list(self._unread):
            self._look_at_unread(connection, now)

    def _look_at_unread(self, connection: Limited, now: float) -> None:
        """See whether a client takes its answers: all, some, or none for too long."""
        since, before = self._unread[connection]
        size = connection.unsent
        if size < before:
            self._forget_unread(connection)
            if size:
                self.unread(connection)
            elif connection not in self._owing and connection not in self._lingering:
                connection.answers_read()
        elif now - since > self._settings.slow_timeout:
            self._drop(connection, "unread")

    # Room for others

    def _make_room_anywhere(self, held: int) -> bool:
        """Close one connection, for a client that has `held`: that of the client with the most, if one of its can go.

        Who has much more than the newcomer has no time to show that it is not slow.
        """
        clients = sorted(self._open, key=lambda client: len(self._open[client]), reverse=True)
        return any(
            self._make_room(client, 0.0 if len(self._open[client]) > 2 * (held + 1) else _GRACE) for client in clients
        )

    def _make_room(self, client: str, grace: float) -> bool:
        """Close one connection of a client: the one that is idle for longest, else the slowest one after `grace` s."""
        held = self._open[client]
        idle = next((connection for connection in self._idle if connection in held), None)
        if idle is not None:
            self.closed(idle)
            idle.leave()
            return True
        slowest = min(self._slow(held, grace), key=lambda pair: pair[0], default=None)
        if slowest is None:
            return False
        self._drop(slowest[1], "slow")
        return True

    def _slow(self, held: dict[Limited, None], grace: float) -> Iterator[tuple[float, Limited]]:
        """Connections that are waited for, each with the bytes a second at which it goes on."""
        now = time.monotonic()
        for connection in held:
            if connection in self._lingering:
                yield 0.0, connection
            elif (since := self._owing.get(connection)) is not None and now - since > grace:
                yield connection.received / (now - since), connection
            elif (waiting := self._unread.get(connection)) is not None and now - waiting[0] > grace:
                yield 0.0, connection

    def _drop(self, connection: Limited, reason: str) -> None:
        DROPPED_CONNECTIONS.labels(reason).inc()
        self.closed(connection)
        connection.abort()


def too_many_connections() -> ProblemError:
    """The refusal of a connection for which there is no place."""
    return ProblemError(
        "too_many_connections", "the settings max_connections and max_address_connections say how many", retry_after=1
    )


def client_of(address: str) -> str:
    """Whom an address stands for: itself, or the /64 network of an IPv6 address."""
    if ":" not in address:
        return address
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(IPv6Address(int(parsed) >> _IPV6_NETWORK << _IPV6_NETWORK))


def _before(queue: dict[Limited, float], moment: float) -> list[Limited]:
    """Those that are in a queue since before a moment; the oldest are ahead."""
    found = []
    for connection, since in queue.items():
        if since > moment:
            break
        found.append(connection)
    return found
