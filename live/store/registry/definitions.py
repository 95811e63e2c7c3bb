"""The definitions of boards in the store, and what the last boards file named."""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

from live.domain.limits import PrefixLimits
from live.errors import StoreUnavailableError
from live.store.connection.client import Store, may_have_run
from live.store.connection.scripts import Script, Text, text
from live.store.registry.audit_trail import MOST_ENTRIES, AuditEntry, encode
from live.store.registry.versioned import VERSION, VersionedHash, decode_entry


class DefineRequest(msgspec.Struct, kw_only=True):
    """Store or delete definitions of boards, if no definition has changed since `version`, and log the change."""

    version: str  # the version that the caller has read; empty if there was none
    names: list[str]  # the ids of the boards, and `:file` for what the boards file names
    definitions: list[Text]  # JSON for each name; empty to delete the definition
    length: int  # about how many entries of the audit log to keep
    entry: Text  # the entry for the audit log, as JSON; empty to write none
    identity: str  # the identity of the store that the caller knows; empty to accept any store
    changes: int  # how many of the last changes to keep in the list of changes


class ChangesRequest(msgspec.Struct):
    """Read what has changed since a version that the caller has read. 0 means that there was no definition then."""

    version: int


DEFINE: Final = Script("define", DefineRequest)
CHANGES: Final = Script("changes", ChangesRequest, waits=False)

_MAX_CHANGES: Final = 1000  # some 60 KB; a process that missed more changes reads all definitions

FILE: Final = ":file"
"""The field beside the definitions with a `NamedInFile`. No id has a colon."""

What = Literal["created", "changed", "frozen", "thawed", "deleted", "expired"]


class NamedInFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the last boards file named: limits, and its boards. Boards of earlier files count too, while they exist."""

    boards: tuple[str, ...] = ()
    limits: tuple[PrefixLimits, ...] = ()


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """The choices of a board, and the state and epoch of its data."""

    epoch: str
    choices: dict[str, Any]
    next: dict[str, Any] | None = None  # the choices with other rules, until the store holds the board by them
    swap: str = ""  # tells this change of rules from others
    earlier: list[dict[str, Any]] = []  # the choices before each change of rules
    # `making` before the data exists, and `leaving` while it is deleted: then no process serves the board.
    state: Literal["making", "live", "leaving"] = "live"
    since: int = 0  # when the state began, in seconds since 1970 by the store's clock
    revision: int = 1
    owner: str = ""  # the id of the API key that created the board, if that API key is limited to some boards
    # The epoch of each board that a union adds up, so that the union ignores a later board with the same id.
    parts: dict[str, str] = {}


class Definitions(msgspec.Struct, frozen=True):
    """All definitions at one instant."""

    version: str  # grows with every change; empty if there never was a definition
    boards: Mapping[str, Definition]
    now: int  # the store's clock, in seconds since 1970
    file: NamedInFile = NamedInFile()


class DefinitionChanges(msgspec.Struct, frozen=True):
    """What has changed since an earlier version. `version` and `now` are as in `Definitions`."""

    version: str
    boards: Mapping[str, Definition | None]  # the new definition of each board that changed; None if it was deleted
    now: int
    is_whole: bool  # `boards` has every definition, and all other boards were deleted
    file: NamedInFile | None = None  # None if it has not changed


class DefinitionStore(VersionedHash):
    """The definitions and the audit log of one key prefix."""

    def __init__(self, client: Store) -> None:
        names = client.system
        super().__init__(client, "definitions", names.definitions)
        self._changes_key, self._trail_key, self._store_key = names.changes, names.trail, names.store

    async def load(self) -> Definitions:
        """Read all definitions."""
        version, found, now = await self._read()
        file = _file_of(found.get(FILE, b""))
        # The boards of the file come in its order, and then all others.
        named = [board for board in file.boards if board in found]
        names = named + sorted(found.keys() - {*named, FILE})
        boards = {board: _decode(board, found[board]) for board in names}
        return Definitions(version, boards, now, file)

    async def changes(self, since: str | None) -> DefinitionChanges:
        """Read what has changed since a version. If the version is None or too old, read all definitions."""
        if since is not None:
            known = self._known()
            request = ChangesRequest(int(since or 0))
            reply = await CHANGES(self._client, [self.key, self._changes_key], request)
            if reply[0] == b"ok":
                _, version, now, *found = reply
                boards: dict[str, Definition | None] = {}
                file: NamedInFile | None = None
                for name, content in zip(found[::2], found[1::2], strict=True):
                    board = name.decode()
                    if board == FILE:
                        file = _file_of(content)
                    else:
                        boards[board] = _decode(board, content) if content else None
                return DefinitionChanges(
                    self._check_version(version, known), boards, int(now), is_whole=False, file=file
                )
        whole = await self.load()
        return DefinitionChanges(whole.version, whole.boards, whole.now, is_whole=True, file=whole.file)

    async def keep(
        self,
        version: str,
        definitions: Mapping[str, Definition | None],
        audit: AuditEntry | None = None,
        file: NamedInFile | None = None,
    ) -> str | None:
        """Write definitions (None removes one), `audit` and `file` in one step. Return the new version.

        Change nothing and return None if any definition has changed since `version`.
        """
        high_water = self._client.high_water
        for board in definitions:
            high_water.require_no_loss(board)
        wanted: dict[str, Definition | NamedInFile | None] = {**definitions, **({} if file is None else {FILE: file})}
        request = DefineRequest(
            version=version,
            names=list(wanted),
            definitions=[text(b"" if one is None else msgspec.json.encode(one)) for one in wanted.values()],
            length=MOST_ENTRIES,
            entry=text(b"" if audit is None else encode(audit)),
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
        """Wait until replicas hold the definitions. Return whether they still have this version."""
        held: bytes | None = await self._client.write(self.key, "HGET", self.key, VERSION)
        return (held or b"").decode() == version


class DefinitionCache:
    """All definitions, in one mapping that every read brings up to date."""

    def __init__(self, definitions: DefinitionStore) -> None:
        self._definitions = definitions
        self._version: str | None = None
        self._boards: dict[str, Definition] = {}
        self.file = NamedInFile()
        self._reading = asyncio.Lock()

    async def load(self) -> Definitions:
        """Bring the mapping up to date. The cost grows with the number of changes, not with the number of boards.

        The result of an earlier call shares this mapping, but keeps its old version. If a definition has changed since,
        a compare-and-set with the old version fails.
        """
        changes = await self.follow(self._version)
        return Definitions(changes.version, MappingProxyType(self._boards), changes.now, self.file)

    async def follow(self, since: str | None) -> DefinitionChanges:
        """Bring the mapping up to date. Return what has changed since a version, as `DefinitionStore.changes` does."""
        async with self._reading:  # with the lock, reads are applied in their order
            changes = await self._definitions.changes(since)
            if changes.is_whole:
                self._boards.clear()
            if changes.file is not None:
                self.file = changes.file
            for board, definition in changes.boards.items():
                if definition is None:
                    self._boards.pop(board, None)
                else:
                    self._boards[board] = definition
            self._version = changes.version
            return changes


def _decode(board: str, content: bytes) -> Definition:
    return decode_entry(content, Definition, f"the definition of board {board!r}")


def _file_of(content: bytes) -> NamedInFile:
    return decode_entry(content, NamedInFile, "what the boards file names") if content else NamedInFile()
