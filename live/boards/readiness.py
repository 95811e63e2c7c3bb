"""The readiness check: can this process count and show boards?"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from live.boards.registry import BoardRegistry
from live.domain.reader import SERVER
from live.domain.text import counted
from live.errors import EpochLostError, ProblemError, StoreUnavailableError
from live.settings import Settings
from live.store.board.ledger import Ledger
from live.store.connection.client import Store, required
from live.store.connection.clocks import clock_fault
from live.store.connection.pipelined import ERRORS, Word, as_unavailable
from live.store.registry.journals import faults_of
from live.system.data_directory import disk_fault

_BOARDS: Final = 16  # boards per check
_MOST_LOST: Final = 10  # maximum number of lost boards that the answer names
_EXPIRY: Final = 60_000  # milliseconds
_TRIES: Final = 1000  # store keys to try, to find one key on each server


class Faults(NamedTuple):
    """Sentences about the faults of a ready process: of single boards, of the journals, and of clocks and the disk."""

    boards: list[str]
    journal: list[str]
    machine: list[str]


class Readiness:
    """Checks the store once for all concurrent requests.

    A check usually takes two round trips to the store. It makes one write on each server of the store, and a few small
    reads.
    """

    def __init__(self, client: Store, settings: Settings, registry: BoardRegistry) -> None:
        self._client = client
        self._settings = settings
        self._names = client.system
        self._registry = registry
        self._next = 0  # index of the next board to check
        self._check: asyncio.Task[Faults] | None = None

    async def require(self) -> Faults:
        """Check that the store accepts a write, and that it holds the boards of this process and their definitions.

        If the store has several servers, it is enough that one of them passes. The store refuses the write if its
        memory or disk is full, or if it is a replica. A replica that this process only reads gets no write. If there
        are many boards, each check covers some of them in turn. Return the faults that do not make the process unready.
        """
        self._client.high_water.require_no_loss()
        if self._check is None:
            self._check = asyncio.create_task(self._explained())
        return await asyncio.shield(self._check)

    async def _explained(self) -> Faults:
        full = disk_fault(self._settings.data_dir)
        try:
            faults = await self._require()
        except StoreUnavailableError as error:
            if not full:
                raise
            raise StoreUnavailableError(
                f"{error}; {full}", unknown=error.unknown, public=f"{error.public}; {full}"
            ) from error
        faults.machine.extend(filter(None, [full]))
        return faults

    async def _require(self) -> Faults:
        try:
            tests = await self._tests()
            unread: StoreUnavailableError | None = None
            try:
                await self._registry.refresh()
            except StoreUnavailableError as error:
                if len(tests) == 1:
                    raise
                unread = error
            every = self._registry.ledgers.all(SERVER)
            first = self._next if self._next < len(every) else 0
            self._next = first + _BOARDS
            ledgers = every[first : self._next]
            faults = Faults([], [], [])
            # This calls the store only for boards that are not open yet.
            opened = await asyncio.gather(*(ledger.state.open() for ledger in ledgers), return_exceptions=True)
            names, has_journal = self._names, self._settings.journal != "off"
            commands: list[tuple[str, tuple[Word, ...]]] = [*tests, *((key, ("TIME",)) for key, _ in tests)]
            commands += [(meta, ("HGET", meta, "epoch")) for meta in (ledger.state.keys.meta for ledger in ledgers)]
            if has_journal:
                commands.append((names.sink, ("MGET", names.journal_health, names.journal_fault)))
            asked = time.time()
            replies = await self._client.outcomes(commands, replicated=True)
            faults.boards.extend(_failures(replies[: len(tests)], unread))
            clocks, read = replies[len(tests) : 2 * len(tests)], replies[2 * len(tests) :]
            faults.machine.extend(filter(None, {clock_fault(told, asked, time.time()) for told in clocks}))
            for ledger, failed, epoch in zip(ledgers, opened, read[: len(ledgers)], strict=True):
                try:
                    if failed is not None:
                        raise failed
                    (held,) = required([epoch])
                    ledger.state.require_epoch(held)
                except EpochLostError as error:
                    faults.boards.extend(filter(None, [await self._explain(ledger, error)]))
                except StoreUnavailableError as error:
                    faults.boards.append(f"board {ledger.state.board.id} takes no events: {error.public}")
            faults.boards.extend(self._losses())
        finally:
            self._check = None
        if has_journal:
            if isinstance(replies[-1], Exception):
                faults.journal.append(f"the state of the journals is unknown: {as_unavailable(replies[-1]).public}")
            else:
                health, fault = replies[-1]
                faults.journal.extend(faults_of(health, fault, int(self._settings.journal_backlog)))
        return faults

    async def _tests(self) -> list[tuple[str, tuple[Word, ...]]]:
        servers, keys = self._client.servers, [self._names.ready()]
        with suppress(*ERRORS):  # if a server is lost, its test write fails with the reason
            count = len(await servers.primaries())
            places: dict[object, str] = {}
            for number in range(_TRIES):
                key = self._names.ready(number)
                places.setdefault(servers.primary(key), key)
                if len(places) == count:
                    break
            keys = list(places.values())
        return [(key, ("SET", key, 1, "PX", _EXPIRY)) for key in keys]

    def _losses(self) -> list[str]:
        """Return sentences about the first boards that lost data, and a sentence that counts the other boards."""
        boards, water = self._registry.boards.by_id, self._client.high_water
        if loss := water.loss_of_all(boards):
            raise EpochLostError(loss)
        lost = {board: why for board, why in water.lost_boards.items() if board in boards}
        sentences = [f"board {board} takes no events until an operator decides: {why}" for board, why in lost.items()]
        left = len(sentences) - _MOST_LOST
        return sentences[:_MOST_LOST] + ([f"{counted(left, 'other board')} lost data too"] if left > 0 else [])

    async def _explain(self, ledger: Ledger, error: EpochLostError) -> str:
        """Record the loss of a board unless it was just deleted. Return a sentence if it is neither."""
        board = ledger.state.board.id
        meant = await self._registry.explain(board, error, SERVER)
        if isinstance(meant, ProblemError) or ledger.state.is_lost:
            return ""
        return f"board {board} takes no events: the store does not hold it"


def _failures(replies: Sequence[object], unread: StoreUnavailableError | None) -> list[str]:
    """Return sentences about the servers that failed their test, if at least one server passed.

    `unread` says that the definitions can't be read. If all servers passed, raise it, because no failed server explains
    it.
    """
    failed = [as_unavailable(reply) for reply in replies if isinstance(reply, Exception)]
    if len(failed) == len(replies):
        raise failed[0]
    if not failed:
        if unread is not None:
            raise unread
        return []
    return [f"{len(failed)} of {counted(len(replies), 'server')} of the store can't be used: {failed[0].public}"]
