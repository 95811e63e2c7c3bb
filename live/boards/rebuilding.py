"""Rebuilds everything in an empty store from the journal: boards, definitions and API keys."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from live.boards.definition import DefinitionError, read_board
from live.domain.board import Board, Boards
from live.errors import SetupError
from live.journal.contents import Contents
from live.journal.database import Database
from live.journal.definitions import KINDS, latest, newest_version
from live.journal.erase import erase_again
from live.journal.lives import Life, end_lives, open_lives
from live.journal.reading import before, contents_of
from live.journal.rebuild import Rebuilt, load
from live.settings import Settings
from live.store.board.handover import claim_sink
from live.store.board.keys import Keys, SystemKeys
from live.store.connection.client import Store, store_errors
from live.store.connection.loss import LossWatch
from live.store.registry.definitions import Definition

Progress = Callable[[str, int, int], None]
_ITEMS: Final = 1000  # titles in one command
_Texts = dict[str, dict[str, str]]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What to rebuild.

    Attributes:
        board: the only board; None for all.
        at: the time, in milliseconds since 1970; None for everything that the journal has.
        name: another id for the board.
        dry: only report what would be rebuilt.
    """

    board: str | None = None
    at: int | None = None
    name: str | None = None
    dry: bool = False


class Rebuilding:
    """Rebuilds the boards of one key prefix. Calls `progress` with a board, the part that is done, and its size."""

    def __init__(self, client: Store, settings: Settings, in_file: Boards, database: Database, show: Progress) -> None:
        self._client = client
        self._settings = settings
        self._prefix = settings.key_prefix
        self._in_file = in_file
        self._database = database
        self._show = show

    async def rebuild(self, wanted: Wanted) -> list[Rebuilt]:
        """Rebuild the wanted boards. After an interruption, the same call continues.

        Raises:
            SetupError: another process uses the journal, the journal does not know the board, its definition is
                missing, or the store holds other data.
            StoreUnavailableError: the store or the database is unavailable.
        """
        if not await self._database.take():
            raise SetupError("another process writes to the journal: stop the servers that use it, and try again")
        if not wanted.dry:
            await asyncio.to_thread(erase_again, self._database, lambda done, total: self._show("", done, total))
        lives = await self._lives(wanted)
        texts = await self._database.run(
            lambda connection: {kind: latest(connection, self._prefix, kind) for kind in KINDS}
        )
        boards = {life.board: board_of(life.board, texts["boards"], self._in_file) for life in lives}
        if wanted.dry:
            return [await self._planned(life, boards[life.board], wanted) for life in lives]
        await self._require_room(lives, wanted)
        witness = self._client.witness
        watch = LossWatch(self._client, self._prefix)
        with witness.accepting("rebuilt from the journal"):
            await watch.find()
            done = [rebuilt for life in lives if (rebuilt := await self._load(life, boards[life.board], wanted, texts))]
            await self._restore_texts(texts, lives, wanted)
            await claim_sink(self._client, self._prefix, self._database.id)
        if wanted.name is None:
            await self._database.run(lambda connection: end_lives(connection, lives))
        return done

    async def _lives(self, wanted: Wanted) -> list[Life]:
        lives = await self._database.run(lambda connection: open_lives(connection, self._prefix))
        newest = {life.board: life for life in lives}  # the last one of each board
        if wanted.board is None:
            return list(newest.values())
        if wanted.board not in newest:
            known = ", ".join(sorted(newest)) or "none"
            raise SetupError(f"the journal has no board {wanted.board!r}; it has: {known}")
        return [newest[wanted.board]]

    async def _require_room(self, lives: Sequence[Life], wanted: Wanted) -> None:
        """Check that the store holds no other data of the boards."""
        for life in lives:
            keys = Keys(self._prefix, wanted.name or life.board)
            async with store_errors():
                held = await self._client.call(keys.meta, "HGET", keys.meta, "epoch")
            if held is not None and held.decode() != self._epoch(life, wanted):
                raise SetupError(
                    f"the store holds board {keys.board!r} (epoch {held.decode()}): rebuild into an empty store, "
                    "or under another id with --as"
                )

    def _epoch(self, life: Life, wanted: Wanted) -> str:
        """The new epoch of a life, which is the same for each attempt."""
        salt = f"{self._database.id}:{life.epoch}:{life.link}:{wanted.at}:{wanted.name}"
        return hashlib.blake2b(salt.encode(), digest_size=4).hexdigest()

    async def _contents(self, life: Life, wanted: Wanted) -> Contents:
        def read() -> Contents:
            return self._database.work(
                lambda connection: contents_of(
                    connection,
                    self._prefix,
                    life,
                    (lambda *_: False) if wanted.at is None else before(wanted.at),
                    progress=lambda done, total: self._show(life.board, done, 2 * total),
                )
            )

        return await asyncio.to_thread(read)

    async def _planned(self, life: Life, board: Board, wanted: Wanted) -> Rebuilt:
        data = await self._contents(life, wanted)
        members = len({member for slot in data.slots.values() for member in slot})
        return Rebuilt(wanted.name or board.id, self._epoch(life, wanted), data.offset, members)

    async def _load(self, life: Life, board: Board, wanted: Wanted, texts: _Texts) -> Rebuilt | None:
        data = await self._contents(life, wanted)
        return await load(
            self._client,
            Keys(self._prefix, wanted.name or board.id),
            board,
            data,
            epoch=self._epoch(life, wanted),
            parent=life.epoch,
            dedupe_window=self._settings.dedupe_window,
            made=life.board in texts["boards"],
            progress=lambda done, total: self._show(life.board, total + done, 2 * total),
        )

    async def _restore_texts(self, texts: _Texts, lives: Sequence[Life], wanted: Wanted) -> None:
        """Write the definitions of run-time boards, with the new epochs, and the API keys."""
        epochs = {life.epoch: self._epoch(life, wanted) for life in lives}
        names = SystemKeys(self._prefix)
        definitions: dict[str, str] = {}
        for name, text in texts["boards"].items():
            renewed = _renewed(text, epochs) if wanted.board in (None, name) else None
            if renewed is not None:
                definitions[wanted.name or name] = renewed
        await self._restore_hash("boards", names.definitions, definitions)
        if wanted.board is None:
            await self._restore_hash("producers", names.producers, texts["producers"])
            await self._restore_items(texts["items"])

    async def _restore_hash(self, kind: str, key: str, found: Mapping[str, str]) -> None:
        if not found:
            return
        version = await self._database.run(lambda connection: newest_version(connection, self._prefix, kind))
        async with store_errors():
            held = int(await self._client.call(key, "HGET", key, ":version") or 0)
            words = [word for pair in found.items() for word in pair]
            await self._client.call(key, "HSET", key, ":version", max(held, version) + 1, *words)

    async def _restore_items(self, found: Mapping[str, str]) -> None:
        names = SystemKeys(self._prefix)
        pairs = list(found.items())
        for first in range(0, len(pairs), _ITEMS):
            words = [word for pair in pairs[first : first + _ITEMS] for word in pair]
            async with store_errors():
                await self._client.call(names.items, "HSET", names.items, *words)
                await self._client.call(names.items_version, "INCR", names.items_version)


def board_of(name: str, made: Mapping[str, str], in_file: Boards) -> Board:
    """A board of the journal. `made` are the definitions of run-time boards as JSON, by id.

    Raises:
        SetupError: its definition is missing, or this version cannot read it.
    """
    if name in made:
        definition = msgspec.json.decode(made[name], type=Definition)
        try:
            return read_board(name, definition.choices)
        except DefinitionError as error:
            raise SetupError(f"the definition of board {name!r} can't be read: {error}") from None
    board = in_file.by_id.get(name)
    if board is None:
        raise SetupError(
            f"the journal has board {name!r}, which is neither a run-time board nor in the boards file: add it to the "
            "boards file, or name the other boards one by one with --board"
        )
    return board


def _renewed(text: str, epochs: Mapping[str, str]) -> str | None:
    """A definition with the new epochs of the board and of its parts; None if the board was not rebuilt."""
    definition = msgspec.json.decode(text, type=Definition)
    if definition.epoch not in epochs:
        return None
    parts = {part: epochs.get(epoch, epoch) for part, epoch in definition.parts.items()}
    return msgspec.json.encode(
        msgspec.structs.replace(definition, epoch=epochs[definition.epoch], parts=parts)
    ).decode()
