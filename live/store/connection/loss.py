"""Compare the store with its high-water marks, over every new connection and twice a second."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import structlog

from live.errors import SetupError, StoreUnavailableError
from live.store.board.keys import Keys, SystemKeys
from live.store.connection.client import Store, store_errors
from live.store.connection.handshake import FORMAT
from live.store.connection.pipelined import PipelinedConnection, Word
from live.store.registry.definitions import DefinitionStore

log = structlog.get_logger()

_Command = tuple[str, tuple[Word, ...]]  # a store key, and the words of a command on it
_Calls = Callable[[Sequence[_Command]], Awaitable[list[Any]]]

BEAT: Final = 0.5  # seconds within which a loss is noticed


class LossWatch:
    """Compare the store with the high-water marks of a client, which it activates."""

    def __init__(self, client: Store, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._names = SystemKeys(prefix)
        client.high_water.active = True

    def guard_connections(self) -> None:
        """Compare over every new connection before any other command, because a restarted store may have lost data."""
        self._client.shared.on_connect.append(self._compare_on_connect)

    async def run(self) -> None:
        """Compare until cancelled. A store can lose data without a new connection, or another process may notice it."""
        high_water = self._client.high_water
        while True:
            await asyncio.sleep(BEAT)
            try:
                high_water.refresh()
                high_water.offsets.refresh()
                if not high_water.lost:
                    faults = await self._compare(self._client.calls, boards=False)
                    self._report(faults)
            except StoreUnavailableError:
                pass  # those who need the store report it, and the next connection is compared
            except (SetupError, OSError) as error:
                log.error("the data directory can't be used", reason=str(error))  # noqa: TRY400 - the reason says all

    async def find(self) -> list[str]:
        """Return a sentence for each thing that the store lost. Remember a store that is new to the data directory."""
        known = bool(self._client.high_water.facts.store)
        async with store_errors():  # of the data directory too, where a new store is remembered
            faults = await self._compare(self._client.calls, boards=True)
        if not known:
            return faults
        # Find the boards that are defined and missing. A board that has expired is about to be deleted.
        defined = (await DefinitionStore(self._client, self._prefix).load()).boards
        epochs = {board: definition.epoch for board, definition in defined.items() if definition.state == "live"}
        commands: list[_Command] = []
        for keys in (Keys(self._prefix, board) for board in epochs):
            commands += [(name, ("HGET", name, "epoch")) for name in (keys.meta, keys.gone)]
        replies = await self._client.calls(commands)
        return faults + [
            f"board {board} is defined with epoch {epoch}, and the store holds {(held or b'none').decode()}"
            for (board, epoch), held, deleted in zip(epochs.items(), replies[::2], replies[1::2], strict=True)
            if epoch.encode() not in (held, deleted)
        ]

    async def _compare_on_connect(self, connection: PipelinedConnection) -> None:
        """Compare the store behind a new connection.

        Raises:
            StoreUnavailableError: the store lost data. The waiting command is not sent; later connections can read.
        """
        high_water = self._client.high_water
        if high_water.lost:
            return
        high_water.offsets.refresh()  # what other processes have acknowledged counts too
        self._report(await self._compare(partial(_over, connection), boards=True))
        if high_water.lost:
            raise StoreUnavailableError("the store lost data")

    def _report(self, faults: list[str]) -> None:
        if faults:
            self._client.high_water.lose("; ".join(faults))

    async def _compare(self, calls: _Calls, *, boards: bool) -> list[str]:
        """Return what is missing or went back. Remember a store that the data directory does not know.

        Read what is known first, and then what the store holds.
        """
        high_water = self._client.high_water
        known, positions = high_water.facts, high_water.board_positions if boards else {}
        versions = high_water.version_of("definitions"), high_water.version_of("producers")
        compared = sorted(positions.keys() | known.epochs.keys()) if boards else []
        names = self._names
        metas = [Keys(self._prefix, board).meta for board in compared]
        commands: list[_Command] = [
            (names.store, ("GET", names.store)),
            (names.definitions, ("HGET", names.definitions, ":version")),
            (names.producers, ("HGET", names.producers, ":version")),
            *((meta, ("HMGET", meta, "epoch", "offset")) for meta in metas),
        ]
        identity, definitions, producers, *states = await calls(commands)
        if not known.store:
            if identity is None:  # an empty store gets its identity and format number
                store, number = names.store, names.format
                begin: list[_Command] = [
                    (number, ("SETNX", number, FORMAT)),
                    (store, ("SETNX", store, secrets.token_hex(16))),
                    (store, ("GET", store)),
                ]
                *_, identity = await calls(begin)
            high_water.remember_store((identity or b"").decode())
            return []
        if (identity or b"").decode() != known.store:
            held = f"has the identity {identity.decode()}" if identity else "has no identity"
            return [f"the store {held}, and not {known.store}: it was emptied, or is another one"]
        faults = [
            f"the {what} went back from version {before} to {int(version or 0) or 'none'}"
            for what, before, version in zip(
                ("definitions of boards", "producers"), versions, (definitions, producers), strict=True
            )
            if int(version or 0) < before
        ]
        for board, (epoch, offset) in zip(compared, states, strict=True):
            expected, held_epoch = known.epochs.get(board), (epoch or b"").decode()
            before, highest = positions.get(board, ("", -1))
            if expected is not None and held_epoch != expected:
                faults.append(f"board {board} had epoch {expected}, and the store holds {held_epoch or 'none'}")
            elif held_epoch == before and int(offset or 0) < highest:
                faults.append(
                    f"board {board} (epoch {held_epoch}) went back from offset {highest} to {int(offset or 0)}"
                )
        return faults


async def _over(connection: PipelinedConnection, commands: Sequence[_Command]) -> list[Any]:
    replies = await connection.calls([words for _, words in commands])
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies
