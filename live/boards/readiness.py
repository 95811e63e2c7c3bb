"""The readiness check: can this process count and show boards?"""

import asyncio
from typing import Final

from live.boards.registry import BoardRegistry
from live.errors import EpochLostError, ProblemError
from live.settings import Settings
from live.store.board.keys import SystemKeys
from live.store.board.ledger import Ledger
from live.store.connection.client import Store
from live.store.connection.pipelined import Word
from live.store.registry.journals import faults_of

_BOARDS: Final = 16  # boards per check
_EXPIRY: Final = 60_000  # milliseconds


class Readiness:
    """Checks the store once for all concurrent requests.

    A check takes two packets, with one write and a few small reads.
    """

    def __init__(self, client: Store, settings: Settings, registry: BoardRegistry) -> None:
        self._client = client
        self._settings = settings
        self._names = SystemKeys(settings.key_prefix)
        self._registry = registry
        self._next = 0  # index of the next board to check
        self._check: asyncio.Task[list[str]] | None = None

    async def require(self) -> list[str]:
        """Check that the store accepts a write, and that it holds the boards of this process and their definitions.

        The store refuses the write if its memory or disk is full, or if it is a replica. If there are many boards, each
        check covers some of them in turn.

        Return descriptions of what is wrong with the journals. These faults do not make the process unready.

        Raises:
            StoreUnavailableError: the store does not answer, refuses the write, or holds definitions of boards that
                can't be read.
            EpochLostError: the store lost data.
        """
        self._client.high_water.require_no_loss()
        if self._check is None:
            self._check = asyncio.create_task(self._require())
        return await asyncio.shield(self._check)

    async def _require(self) -> list[str]:
        try:
            await self._registry.refresh()
            every = list(self._registry.ledgers.values())
            first = self._next if self._next < len(every) else 0
            self._next = first + _BOARDS
            ledgers = every[first : self._next]
            for ledger in ledgers:
                try:
                    await ledger.state.open()  # no call for a board that is open
                except EpochLostError as error:
                    await self._explain(ledger, error)
            names, has_journal = self._names, self._settings.journal != "off"
            commands: list[tuple[str, tuple[Word, ...]]] = [(names.ready, ("SET", names.ready, 1, "PX", _EXPIRY))]
            commands += [(meta, ("HGET", meta, "epoch")) for meta in (ledger.state.keys.meta for ledger in ledgers)]
            if has_journal:
                commands.append((names.sink, ("MGET", names.journal_health, names.journal_fault)))
            replies = await self._client.calls(commands)
            for ledger, epoch in zip(ledgers, replies[1 : len(ledgers) + 1], strict=True):
                try:
                    ledger.state.require_epoch(epoch)
                except EpochLostError as error:
                    await self._explain(ledger, error)
        finally:
            self._check = None
        if not has_journal:
            return []
        health, fault = replies[-1]
        return faults_of(health, fault, int(self._settings.journal_backlog))

    async def _explain(self, ledger: Ledger, error: EpochLostError) -> None:
        """Raise the error that a board caused, unless somebody has just deleted the board."""
        meant = await self._registry.explain(ledger.state.board.id, error)
        if not isinstance(meant, ProblemError):
            raise meant from None
