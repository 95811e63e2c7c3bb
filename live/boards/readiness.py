"""Whether this process can count and show, for a load balancer that asks often."""

import asyncio
from typing import Final

from live.boards.registry import BoardRegistry
from live.errors import EpochLostError, ProblemError
from live.store.board.keys import SystemKeys
from live.store.board.ledger import Ledger
from live.store.connection.client import Store, store_errors

_BOARDS: Final = 16  # that are looked at in one check
_EXPIRY: Final = 60_000  # milliseconds


class Readiness:
    """Checks the store for all that ask at the same time at once: a check costs one write and a few reads."""

    def __init__(self, client: Store, prefix: str, registry: BoardRegistry) -> None:
        self._client = client
        self._key = SystemKeys(prefix).ready
        self._registry = registry
        self._next = 0  # the board to begin with
        self._check: asyncio.Task[None] | None = None

    async def require(self) -> None:
        """Prove that the store takes a write, and that it holds the boards that this process knows.

        The write is refused when memory or disk is full, and by a replica. Of many boards each check looks at some, in
        turn.

        Raises:
            StoreUnavailableError: the store does not answer, or takes no write.
            EpochLostError: the store lost a board.
        """
        if self._check is None:
            self._check = asyncio.create_task(self._require())
        await asyncio.shield(self._check)

    async def _require(self) -> None:
        try:
            async with store_errors():
                await self._client.call(self._key, "SET", self._key, 1, "PX", _EXPIRY)
            ledgers = list(self._registry.ledgers.values())
            first = self._next if self._next < len(ledgers) else 0
            self._next = first + _BOARDS
            await asyncio.gather(*(self._require_board(ledger) for ledger in ledgers[first : self._next]))
        finally:
            self._check = None

    async def _require_board(self, ledger: Ledger) -> None:
        try:
            await ledger.state.confirm()
        except EpochLostError as error:
            meant = await self._registry.explain(ledger.state.board.id, error)
            if not isinstance(meant, ProblemError):  # it was removed a moment ago
                raise meant from None
