"""The definitions of run-time boards in the store."""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

from live.errors import StoreUnavailableError
from live.store.board.keys import SystemKeys
from live.store.connection.client import Store, may_have_run
from live.store.connection.scripts import Script, Text, text
from live.store.registry.audit_trail import MOST_ENTRIES, AuditEntry
from live.store.registry.versioned import VERSION, VersionedHash, decode_entry


class DefineRequest(msgspec.Struct, kw_only=True):
    """Store or delete the definition of a board, if no definition has changed since `version`, and log the change.

    Attributes:
        version: the version that the caller has read; empty if there was none.
        board: the id of the board.
        definition: JSON; empty to delete the definition.
        length: about how many entries of the audit log to keep.
        entry: the entry for the audit log, as JSON; empty to write none.
        identity: the identity of the store that the caller knows; empty to accept any store.
        changes: how many of the last changes to keep in the list of changes.
    """

    version: str
    board: str
    definition: Text
    length: int
    entry: Text
    identity: str
    changes: int


class ChangesRequest(msgspec.Struct):
    """Read what has changed since a version that the caller has read. 0 means that there was no definition then."""

    version: int


DEFINE: Final = Script("define", DefineRequest)
CHANGES: Final = Script("changes", ChangesRequest, waits=False)

_MAX_CHANGES: Final = 1000  # some 60 KB; a process that missed more changes reads all definitions

What = Literal["created", "changed", "frozen", "thawed", "deleted", "expired"]


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """The choices of a board, and the state and epoch of its data.

    `state` is `making` before the data exists, and `leaving` while the data is deleted. In these two states, no process
    serves the board. `since` is when the state began, in seconds since 1970 by the store's clock. `owner` is the id of
    the API key that created the board, if that API key is limited to some boards. `parts` has the epoch of each board
    that a union adds up, so that the union ignores a later board with the same id. The epoch is empty for a board of
    the boards file.
    """

    epoch: str
    choices: dict[str, Any]
    state: Literal["making", "live", "leaving"] = "live"
    since: int = 0
    revision: int = 1
    owner: str = ""
    parts: dict[str, str] = {}


class Definitions(msgspec.Struct, frozen=True):
    """All definitions at one instant.

    `version` grows with every change, and is empty if there never was a definition. `now` is the store's clock, in
    seconds since 1970.
    """

    version: str
    boards: Mapping[str, Definition]
    now: int


class DefinitionChanges(msgspec.Struct, frozen=True):
    """What has changed since an earlier version.

    `boards` has each board that changed: its new definition, or None if the board was deleted. With `is_whole`,
    `boards` has every definition, and all other boards were deleted. `version` and `now` are as in `Definitions`.
    """

    version: str
    boards: Mapping[str, Definition | None]
    now: int
    is_whole: bool


class DefinitionStore(VersionedHash):
    """The definitions and the audit log of one key prefix."""

    def __init__(self, client: Store, prefix: str) -> None:
        names = SystemKeys(prefix)
        super().__init__(client, "definitions", names.definitions)
        self._changes_key, self._trail_key, self._store_key = names.changes, names.trail, names.store
        # The definitions as last read, with their JSON: a definition that has not changed is not decoded again.
        self._decoded: dict[str, tuple[bytes, Definition]] = {}

    async def load(self) -> Definitions:
        """Read all definitions.

        Raises:
            StoreUnavailableError: the store holds a definition that can't be read.
        """
        version, found, now = await self._read()
        known, self._decoded = self._decoded, {}
        return Definitions(version, {board: self._decode(board, text, known) for board, text in found.items()}, now)

    async def changes(self, since: str | None) -> DefinitionChanges:
        """Read what has changed since a version. If the version is None or too old, read all definitions."""
        if since is not None:
            known = self._known()
            request = ChangesRequest(int(since or 0))
            reply = await CHANGES(self._client, [self.key, self._changes_key], request)
            if reply[0] == b"ok":
                _, version, now, *found = reply
                boards: dict[str, Definition | None] = {}
                for name, content in zip(found[::2], found[1::2], strict=True):
                    board = name.decode()
                    boards[board] = self._decode(board, content, self._decoded) if content else None
                    if not content:
                        self._decoded.pop(board, None)
                return DefinitionChanges(self._check_version(version, known), boards, int(now), is_whole=False)
        whole = await self.load()
        return DefinitionChanges(whole.version, whole.boards, whole.now, is_whole=True)

    def _decode(self, board: str, content: bytes, known: Mapping[str, tuple[bytes, Definition]]) -> Definition:
        """Decode a definition. Reuse the object of the last read if it has not changed."""
        held = known.get(board)
        if held is None or held[0] != content:
            held = (content, decode_entry(content, Definition, f"the definition of board {board!r}"))
        self._decoded[board] = held
        return held[1]

    async def keep(
        self, version: str, board: str, definition: Definition | None, audit: AuditEntry | None
    ) -> str | None:
        """Write the definition of a board; None removes it.

        Change nothing if any definition has changed since `version`.

        `audit` is the entry for the audit log, written in the same step.

        Returns:
            The new version, or None if another process changed a definition since `version`.

        Raises:
            StoreUnavailableError: the store is unavailable; with `unknown`, the change may have been made.
        """
        high_water = self._client.high_water
        high_water.require_no_loss(board)
        request = DefineRequest(
            version=version,
            board=board,
            definition=text(b"" if definition is None else msgspec.json.encode(definition)),
            length=MOST_ENTRIES,
            entry=text(b"" if audit is None else msgspec.json.encode(audit)),
            identity=high_water.facts.store,
            changes=_MAX_CHANGES,
        )
        try:
            reply = await DEFINE(self._client, [self.key, self._trail_key, self._store_key, self._changes_key], request)
        except StoreUnavailableError as error:
            high_water.require_no_loss()
            raise StoreUnavailableError(str(error), unknown=may_have_run(error)) from error
        if reply[0] == b"lost":
            high_water.lose(
                f"the store has the identity {reply[1].decode() or 'none'}, and not {high_water.facts.store}"
            )
            high_water.require_no_loss()
        if reply[0] != b"ok":
            return None
        high_water.note_version("definitions", int(reply[1]))
        return str(reply[1].decode())

    async def confirm(self, version: str) -> bool:
        """Wait until replicas hold the definitions. Return whether the definitions still have this version.

        Raises:
            StoreUnavailableError: as `Store.write`.
        """
        held: bytes | None = await self._client.write(self.key, "HGET", self.key, VERSION)
        return (held or b"").decode() == version


class DefinitionCache:
    """All definitions, in one mapping that every read brings up to date."""

    def __init__(self, definitions: DefinitionStore) -> None:
        self._definitions = definitions
        self._version: str | None = None
        self._boards: dict[str, Definition] = {}
        self._reading = asyncio.Lock()

    async def load(self) -> Definitions:
        """Bring the mapping up to date. The cost grows with the number of changes, not with the number of boards.

        The result of an earlier call shares this mapping, but keeps its old version. If a definition has changed since,
        a compare-and-set with the old version fails.
        """
        changes = await self.follow(self._version)
        return Definitions(changes.version, MappingProxyType(self._boards), changes.now)

    async def follow(self, since: str | None) -> DefinitionChanges:
        """Bring the mapping up to date. Return what has changed since a version, as `DefinitionStore.changes` does."""
        async with self._reading:  # with the lock, reads are applied in their order
            changes = await self._definitions.changes(since)
            if changes.is_whole:
                self._boards.clear()
            for board, definition in changes.boards.items():
                if definition is None:
                    self._boards.pop(board, None)
                else:
                    self._boards[board] = definition
            self._version = changes.version
            return changes
