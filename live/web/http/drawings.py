"""Replies that are drawn for requests: pages, tables, pictures and metrics.

Events and viewers need the time of the process too. So the process draws one reply at a time, clients take turns, and
drawing takes at most half of the time.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final, NamedTuple

from live.ingest.replies import Reply
from live.system.ledger import Turns

_MOST_MEMORY: Final = 20_000_000  # bytes of kept replies
_KEPT: Final = 1000  # bytes of a kept reply besides its body and its query
_SERVES: Final = 1.0  # seconds

DrawingKey = tuple[str, bytes, object]
"""The key of a drawing: its kind, the query of the request, and everything else on which it depends."""


class _KeptReply(NamedTuple):
    """A reply that is valid `until` a time of `time.monotonic`. `size` is its memory in bytes."""

    reply: Reply
    until: float
    size: int


class Drawings:
    """Draws replies in turns of the clients, and keeps those that many requests can share for a second."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self._kept: OrderedDict[DrawingKey, _KeptReply] = OrderedDict()  # the oldest first
        self._size = 0

    async def of(self, client: str, key: DrawingKey, draw: Callable[[], Awaitable[Reply]]) -> Reply:
        """Return the reply that was drawn for a key up to a second ago, or else draw it for a client (its network).

        Raises:
            ProblemError: `overloaded`, when too many requests wait. Also raises the errors of `draw`.
        """
        reply = self._find(key)
        if reply is None:
            async with self.turn(client):
                reply = self._find(key)  # another request may have drawn the reply meanwhile
                if reply is None:
                    reply = await draw()
                    self._keep(key, reply)
        return reply

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for a turn of the client. Draw inside the `async with` block.

        Raises:
            ProblemError: `overloaded`, when too many requests wait.
        """
        await self.turns.enter(client)
        began = time.thread_time()
        try:
            yield
        finally:  # the next turn begins after other work has had as much time
            rest = time.thread_time() - began
            asyncio.get_running_loop().call_later(rest, self.turns.leave, client)

    def _find(self, key: DrawingKey) -> Reply | None:
        kept = self._kept.get(key)
        return kept.reply if kept is not None and time.monotonic() < kept.until else None

    def _keep(self, key: DrawingKey, reply: Reply) -> None:
        now = time.monotonic()
        self._drop(key)
        if reply.status == HTTPStatus.OK:
            self._kept[key] = _KeptReply(reply, now + _SERVES, reply.most_memory + len(key[1]) + _KEPT)
            self._size += self._kept[key].size
        while self._kept and (self._size > _MOST_MEMORY or next(iter(self._kept.values())).until <= now):
            self._drop(next(iter(self._kept)))

    def _drop(self, key: DrawingKey) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._size -= kept.size
