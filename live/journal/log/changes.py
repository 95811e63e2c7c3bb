"""Learn from the notices of boards which journals have changed."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from live.errors import StoreUnavailableError
from live.store.connection.client import Store
from live.store.connection.notices import Away, Changed, Channels, Missed, listen


class Changes:
    """Collect the boards that have changed since the last `take`. The empty name is the list of all journals."""

    def __init__(self, client: Store) -> None:
        self.away: dict[str, StoreUnavailableError] = {}  # boards whose server is unavailable, and why
        self._client = client
        self._channels = Channels({client.system.journals: ""})
        self._followed: set[str] = set()
        self._changed: set[str] = set()
        self._begun: set[str] = set()  # boards whose notices this process receives
        self._missed = True  # whether notices may have been missed, so that every board may have changed
        self._arrived = asyncio.Event()

    async def run(self) -> None:
        """Receive notices until cancelled."""
        self._begun.clear()
        self.away.clear()
        self._missed = True
        async for notice in listen(self._client, self._channels):
            match notice:
                case Changed(board):
                    self._changed.add(board)
                case Missed(boards):
                    self._missed |= not self._begun.isdisjoint(boards)
                    self._begun.update(boards)
                    self._changed.update(boards)
                    for board in boards:
                        self.away.pop(board, None)
                case Away(boards, reason):
                    self.away.update(dict.fromkeys(boards, StoreUnavailableError(reason)))
            self._arrived.set()

    def follow(self, boards: Iterable[str], *, only: bool = False) -> None:
        """Receive the notices of more boards. With `only`, stop receiving the notices of all other boards."""
        boards = set(boards)
        for board in boards - self._followed:
            self._channels.add(self._client.keys_of(board).channel, board)
        for board in self._followed - boards if only else ():
            self._channels.remove(self._client.keys_of(board).channel)
            self._begun.discard(board)
            self.away.pop(board, None)
        self._followed = boards if only else self._followed | boards

    def add(self, boards: Iterable[str]) -> None:
        """Count boards as changed."""
        self._changed.update(boards)
        self._arrived.set()

    def take(self) -> set[str] | None:
        """Return the boards that have changed since the last call; None if any board may have changed."""
        changed, self._changed = self._changed, set()
        missed, self._missed = self._missed, False
        self._arrived.clear()
        return None if missed else changed

    async def wait(self, least: float, until: float) -> None:
        """Wait `least` seconds, and then until a board changes, or until the time `until` of the loop's clock."""
        await asyncio.sleep(least)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._arrived.wait()
