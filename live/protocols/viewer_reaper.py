"""The viewer reaper of a process: looks after the connections of all viewers, with one task for all.

It pings each in its turn, lets go of those that are silent or slow, and tells when to come back.
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

_TURNS: Final = 20  # seconds, or turns, from one ping of a viewer to the next
_LAST_WORDS: Final = 1.0  # seconds that a slow viewer has for the reason
_RETURNS_A_SECOND: Final = 500  # viewers that are asked to come back within the same second
_LONGEST_SPREAD: Final = 30.0


class ReapedSocket(Protocol):
    """The connection of a viewer; `turn` is ours, `waits_since` when it last took something of what waits for it."""

    viewer: PushViewer | None
    address: str
    turn: int
    waits_since: float | None

    def ping(self) -> None:
        """Ask whether the viewer is there; end one that did not answer the last time."""

    def takes(self) -> bool:
        """Whether it has taken something since this was last asked."""

    def close(self, code: int, patience: float) -> None:
        """Say why, and wait a while for the viewer to say so too."""


class ViewerReaper:
    """Looks after all viewers of a process."""

    def __init__(self, hub: Hub, slow_timeout: float) -> None:
        self.hub = hub
        self._slow_timeout = slow_timeout
        self._turns: list[set[ReapedSocket]] = [set() for _ in range(_TURNS)]
        self._next = 0
        self._waiting: set[ReapedSocket] = set()
        self._connections: set[object] = set()

    def serve(self, state: ServerState) -> None:
        """Take part in a server's stop."""
        self._connections = cast("set[object]", state.connections)  # uvicorn asks no more of them than `shutdown`

    def add(self, socket: ReapedSocket) -> None:
        """Look after a viewer; its turn is one that has passed, so that it is pinged in a whole round."""
        socket.turn = self._next - 1
        self._turns[socket.turn].add(socket)
        self._connections.add(socket)

    def discard(self, socket: ReapedSocket) -> None:
        """A viewer is gone."""
        self._turns[socket.turn].discard(socket)
        self._waiting.discard(socket)
        self._connections.discard(socket)
        if socket.viewer is not None:
            self.hub.leave(socket.viewer, socket.address)

    def watch(self, socket: ReapedSocket) -> None:
        """It has something waiting: see that this ends in time."""
        self._waiting.add(socket)

    def watch_no_more(self, socket: ReapedSocket) -> None:
        """Nothing waits any more."""
        self._waiting.discard(socket)

    def return_after(self) -> float:
        """When a viewer is to come back that is let go, in seconds: so that not all come at once."""
        spread = min(_LONGEST_SPREAD, 1 + self.hub.viewers / _RETURNS_A_SECOND)
        return round(random.uniform(0.1, spread), 2)  # noqa: S311 - nobody gains by a guess

    async def run(self) -> None:
        """Ping each viewer once a round, and end those that are too slow, for ever."""
        while True:
            await asyncio.sleep(1)
            self.look()

    def look(self) -> None:
        """Ping those whose turn it is, and end those that have taken nothing for too long of what waits for them."""
        self._next = (self._next + 1) % _TURNS
        for socket in list(self._turns[self._next]):
            socket.ping()
        now = time.monotonic()
        slowest = now - self._slow_timeout
        for socket in list(self._waiting):
            if socket.waits_since is None or socket.waits_since > slowest:
                continue
            if socket.takes():
                socket.waits_since = now
            else:
                self._waiting.discard(socket)
                SLOW_VIEWERS.inc()
                socket.close(SLOW, _LAST_WORDS)
