"""Compare the store with its high-water marks: all of them over every new connection, some twice a second."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, cast

import msgspec
import structlog

from live.errors import SetupError, StoreUnavailableError
from live.store.connection.client import Store, required, store_errors
from live.store.connection.handshake import FORMAT
from live.store.connection.high_water import COMPARED
from live.store.connection.pipelined import Holds, PipelinedConnection, Word
from live.store.connection.topology import refusal
from live.store.registry.definitions import DefinitionStore

log = structlog.get_logger()

_Command = tuple[str, tuple[Word, ...]]  # a store key, and the words of a command on it
_Calls = Callable[[Sequence[_Command]], Awaitable[list[Any]]]  # the replies may have errors among them

BEAT: Final = 0.5  # seconds between two comparisons


class Losses(msgspec.Struct):
    """What the store lost: a sentence for each loss of the whole store, and for each board that lost data."""

    store: list[str] = []
    boards: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self.store or self.boards)

    def __str__(self) -> str:
        return "; ".join((*self.store, *self.boards.values()))


class LossWatch:
    """Activate the high-water marks of a client, and compare the store with them."""

    def __init__(self, client: Store) -> None:
        self._client = client
        self._names = client.system
        client.high_water.active = True

    def guard_connections(self) -> None:
        """Compare over every new connection before any other command, because a restarted store may have lost data."""
        self._client.servers.on_reign = self._client.high_water.begin_reign
        self._client.servers.on_connect.append(self._compare_on_connect)

    async def run(self) -> None:
        """Compare until cancelled: a store can lose data without a new connection.

        Leave out the boards, except those that were not checked after a failover when a connection was made.
        """
        high_water = self._client.high_water
        while high_water.active:
            await asyncio.sleep(BEAT)
            try:
                high_water.refresh()
                high_water.offsets.refresh()
                if not high_water.lost:
                    self._report(await self._compare(self._client.outcomes, boards=False))
                async with store_errors():
                    await self._client.servers.learn_reigns()
            except StoreUnavailableError:
                pass  # callers that need the store report the error; the next connection is compared
            except (SetupError, OSError) as error:
                log.error("the data directory can't be used", reason=str(error))  # noqa: TRY400 - the reason says all

    async def find(self) -> Losses:
        """Return what the store lost. Remember a store that is new to the data directory."""
        known = bool(self._client.high_water.facts.store)
        async with store_errors():  # the errors include errors of the data directory, where a new store is remembered
            losses = await self._compare(self._client.outcomes, boards=True)
        if not known or losses.store:
            return losses
        # Find boards that are defined, but missing in the store. The store keeps the epoch of an expired
        # board in `gone` until its definition is deleted.
        defined = (await DefinitionStore(self._client).load()).boards
        epochs = {board: definition.epoch for board, definition in defined.items() if definition.state == "live"}
        commands: list[_Command] = []
        for keys in (self._client.keys_of(board) for board in epochs):
            commands += [(name, ("HGET", name, "epoch")) for name in (keys.meta, keys.gone)]
        replies = await self._client.outcomes(commands)
        for (board, epoch), held, deleted in zip(epochs.items(), replies[::2], replies[1::2], strict=True):
            if isinstance(held, Exception) or isinstance(deleted, Exception):
                continue  # the board can't be read, so nothing can be written to it either
            if epoch.encode() not in (held, deleted) and board not in losses.boards:
                losses.boards[board] = (
                    f"board {board} is defined with epoch {epoch}, and the store holds {(held or b'none').decode()}"
                )
        return losses

    async def _compare_on_connect(self, connection: PipelinedConnection, holds: Holds) -> None:
        """Compare what the server behind a new connection holds.

        If this comparison found the loss, the waiting command is not sent, because it may concern what was lost. Later
        connections can be used.
        """
        high_water = self._client.high_water
        if high_water.lost:
            return
        high_water.offsets.refresh()  # read the positions that other processes have acknowledged
        known = high_water.lost_boards
        try:
            losses = await self._compare(
                lambda commands: connection.calls([words for _, words in commands]),
                boards=True,
                holds=holds,
                reign=lambda _key: connection.reign,
            )
        except StoreUnavailableError as error:
            if refusal(error.__cause__):
                raise cast("Exception", error.__cause__) from None  # this error makes the caller send its command again
            raise
        self._report(losses)
        if high_water.lost or high_water.lost_boards.keys() - known:
            raise StoreUnavailableError("the store lost data")

    def _report(self, losses: Losses) -> None:
        if losses.store:
            self._client.high_water.lose(str(losses))
        self._client.high_water.lose_boards(losses.boards)

    async def _compare(
        self,
        calls: _Calls,
        *,
        boards: bool,
        holds: Holds = lambda _key: True,
        reign: Callable[[str], str] | None = None,
    ) -> Losses:
        """Return the losses of a store. Remember a store that is new to the data directory.

        Read the known positions first, and then the positions in the store. With `holds`, compare only the store keys
        that one server holds. Skip boards that can't be read: nothing can be written to them either, and the next
        connection compares them. Skip positions of boards that are not checked after a failover: see
        `store/board/reign.py`.
        """
        high_water = self._client.high_water
        known, positions, earlier = high_water.facts, high_water.board_positions, dict(high_water.earlier)
        if not boards:
            positions = {board: positions[board] for board in earlier if board in positions}
        versions = high_water.version_of("definitions"), high_water.version_of("producers")
        names = self._names
        # The comparisons that come twice a second leave the boards out, because naming 10,000 boards takes 15 ms.
        known_boards = sorted(positions)
        metas = {board: self._client.keys_of(board).meta for board in known_boards}
        compared = {board: meta for board, meta in metas.items() if holds(meta)}
        whole: list[_Command] = [
            (names.store, ("GET", names.store)),
            (names.definitions, ("HGET", names.definitions, ":version")),
            (names.producers, ("HGET", names.producers, ":version")),
        ]
        held = [command for command in whole if holds(command[0])]
        replies = await calls([*held, *((meta, ("HMGET", meta, *COMPARED)) for meta in compared.values())])
        answers = required(replies[: len(held)])
        found = {name: answer for (name, _), answer in zip(held, answers, strict=True)}
        if not known.store and names.store not in found:
            return Losses()  # another server holds the identity, and this data directory does not know it yet
        identity = found.get(names.store)
        if not known.store:
            if identity is None:
                identity = await self._begin(calls)
            high_water.remember_store((identity or b"").decode())
            return Losses()
        if names.store in found and (identity or b"").decode() != known.store:
            has = f"has the identity {identity.decode()}" if identity else "has no identity"
            return Losses([f"the store {has}, and not {known.store}: it was emptied, or is another one"])
        losses = Losses()
        for what, key, before in zip(
            ("definitions of boards", "producers"), (names.definitions, names.producers), versions, strict=True
        ):
            if key in found and (version := int(found[key] or 0)) < before:
                losses.store.append(f"the {what} went back from version {before} to {version or 'none'}")
        for board, state in zip(compared, replies[len(held) :], strict=True):
            if isinstance(state, Exception):
                continue
            ruling = (reign or self._client.servers.reign_of)(compared[board])
            if lost := high_water.compare_board(board, state, ruling, positions[board], earlier.get(board)):
                losses.boards[board] = lost
        return losses

    async def _begin(self, calls: _Calls) -> bytes:
        store, number = self._names.store, self._names.format
        begin: list[_Command] = [
            (number, ("SETNX", number, FORMAT)),
            (store, ("SETNX", store, secrets.token_hex(16))),
            (store, ("GET", store)),
        ]
        *_, identity = required(await calls(begin))
        return bytes(identity)


async def require_no_loss(client: Store, board: str | None = None) -> None:
    """Refuse to work with a store that lost data. With `board`, ignore what only other boards lost."""
    found = await LossWatch(client).find()
    if board is not None:
        found = Losses(found.store, {board: found.boards[board]} if board in found.boards else {})
    if found:
        raise SetupError(f"the store has lost data: {found}")
