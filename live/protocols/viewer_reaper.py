"""Looks after the WebSockets of all viewers of a process, in one task.

The reaper checks every viewer once in a round, disconnects dead and slow viewers, and spreads reconnects over time.
Every viewer receives messages several times in a round. So in two of three rounds, the reaper pings only viewers whose
system has acknowledged no bytes since the last round. A ping costs more, but only a ping reaches a viewer behind a
proxy.
"""

import asyncio
import random
import time
from typing import Final, Protocol, cast

from uvicorn.server import ServerState

from live.errors import SLOW
from live.fanout.hub import Hub
from live.fanout.viewer import PushViewer
from live.metrics import SLOW_VIEWERS

_SLOTS: Final = 20  # slots in a round; each second, one slot is checked, so a round takes 20 seconds
_ROUNDS: Final = 3  # one of so many rounds pings every viewer
_CLOSE_TIMEOUT: Final = 1.0  # seconds that a slow viewer has to receive the close frame
_RECONNECTS_PER_SECOND: Final = 500  # viewers that may reconnect within one second
_LONGEST_SPREAD: Final = 30.0


class _Socket(Protocol):
    """A `ViewerSocket`. The reaper sets `slot`; `blocked_since` is when unsent data last made progress."""

    viewer: PushViewer | None
    address: str
    slot: int
    blocked_since: float | None

    def ping(self) -> None: ...
    def check(self) -> None: ...
    def has_progressed(self) -> bool: ...
    def close(self, code: int, patience: float) -> None: ...


class ViewerReaper:
    """Pings the viewers of a process and disconnects dead and slow ones."""

    def __init__(self, hub: Hub, slow_timeout: float) -> None:
        self.hub = hub
        self._slow_timeout = slow_timeout
        self._slots: list[set[_Socket]] = [set() for _ in range(_SLOTS)]
        self._next = 0
        self._round = 0
        self._waiting: set[_Socket] = set()
        self._connections: set[object] = set()

    def serve(self, state: ServerState) -> None:
        """Register viewers with a server, which shuts them down when it stops."""
        self._connections = cast("set[object]", state.connections)  # uvicorn calls only `shutdown` on them

    def add(self, socket: _Socket) -> None:
        """Add a viewer. Its slot was checked a moment ago, so its first check comes almost a round later."""
        socket.slot = self._next - 1
        self._slots[socket.slot].add(socket)
        self._connections.add(socket)

    def discard(self, socket: _Socket) -> None:
        """Remove a viewer that is gone."""
        self._slots[socket.slot].discard(socket)
        self._waiting.discard(socket)
        self._connections.discard(socket)
        if socket.viewer is not None:
            self.hub.leave(socket.viewer, socket.address)

    def watch(self, socket: _Socket) -> None:
        """Watch a viewer that has unsent data, and disconnect it if it is too slow."""
        self._waiting.add(socket)

    def unwatch(self, socket: _Socket) -> None:
        """Stop watching a viewer: it has no unsent data."""
        self._waiting.discard(socket)

    def retry_after(self) -> float:
        """Choose after how many seconds a viewer should reconnect: at random, so that not all viewers come at once."""
        spread = min(_LONGEST_SPREAD, 1 + self.hub.viewers / _RECONNECTS_PER_SECOND)
        return round(random.uniform(0.1, spread), 2)  # noqa: S311 - nothing depends on this being unpredictable

    async def run(self) -> None:
        """Sweep once per second until cancelled."""
        while True:
            await asyncio.sleep(1)
            self.sweep()

    def sweep(self) -> None:
        """Check the viewers of the next slot. Disconnect all viewers whose data made no progress for `slow_timeout`."""
        self._next = (self._next + 1) % _SLOTS
        for socket in list(self._slots[self._next]):
            if self._round:
                socket.check()
            else:
                socket.ping()
        if not self._next:
            self._round = (self._round + 1) % _ROUNDS
        now = time.monotonic()
        slowest = now - self._slow_timeout
        for socket in list(self._waiting):
            if socket.blocked_since is None or socket.blocked_since > slowest:
                continue
            if socket.has_progressed():
                socket.blocked_since = now
            else:
                self._waiting.discard(socket)
                SLOW_VIEWERS.inc()
                socket.close(SLOW, _CLOSE_TIMEOUT)
