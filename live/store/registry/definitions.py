"""The boards made at run time: one hash for all their definitions, and an audit log of who changed them."""

from collections.abc import Mapping
from typing import Any, Final, Literal, cast

import msgspec

from live.errors import StoreUnavailableError
from live.store.board.keys import SystemKeys
from live.store.connection.client import Store, may_have_run, store_errors
from live.store.connection.line import Word
from live.store.connection.scripts import Script

DEFINE: Final = Script("define")

_VERSION: Final = ":version"  # no board's id: those have no colon
_MAX_ENTRIES: Final = 10_000

What = Literal["created", "changed", "frozen", "thawed", "deleted", "expired"]


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A board as it was asked for, and the epoch of its life.

    One that is in the `making` is not born yet, one that is `leaving` has lost its life, but maybe not all of its keys;
    no process serves either. `owner` is the producer with rights to some boards only that made it, if one did. `parts`
    gives the epoch of each board that a union adds up (empty for one of the boards file): it adds up no other.
    `since` is when it came to be so, in seconds since 1970 by the store's clock.
    """

    epoch: str
    choices: dict[str, Any]
    state: Literal["making", "live", "leaving"] = "live"
    since: int = 0
    revision: int = 1
    owner: str = ""
    parts: dict[str, str] = {}


class Definitions(msgspec.Struct, frozen=True):
    """Every definition, at one instant; `version` is empty when there never was one."""

    version: str
    boards: Mapping[str, Definition]


class AuditEntry(msgspec.Struct, frozen=True):
    """One change of a board.

    `at` is in milliseconds since 1970 by the store's clock. `who` is the id of an API key, `anonymous` or `server`.
    """

    at: int
    who: str
    what: What
    board: str
    choices: dict[str, Any]


class DefinitionStore:
    """The way to the definitions of one key prefix."""

    def __init__(self, client: Store, prefix: str, define: Script = DEFINE) -> None:
        names = SystemKeys(prefix)
        self.key, self.audit_key, self._store_key = names.definitions, names.trail, names.store
        self._decoded: dict[str, tuple[bytes, Definition]] = {}  # as last read: of a thousand boards few are changed
        self._client = client
        self._define = define

    async def version(self) -> str:
        """What changes with every change.

        Raises:
            StoreUnavailableError: the store is away.
        """
        known = self._client.witness.facts.definitions
        async with store_errors():
            found = await self._client.line.call("HGET", self.key, _VERSION)
        version = "" if found is None else found.decode()
        self._client.witness.see_version("definitions", version, known)
        return version

    async def load(self) -> Definitions:
        """Read all.

        Raises:
            StoreUnavailableError: the store is away, or holds a definition that can't be read.
        """
        known = self._client.witness.facts.definitions
        async with store_errors():
            reply = await self._client.line.call("HGETALL", self.key)
        found = {name.decode(): text for name, text in zip(reply[::2], reply[1::2], strict=True)}
        version = found.pop(_VERSION, b"").decode()
        self._client.witness.see_version("definitions", version, known)
        return Definitions(version, self._decode(found))

    def _decode(self, found: Mapping[str, bytes]) -> dict[str, Definition]:
        """The definitions of a reply; one that says what it said before is the same object."""
        known, self._decoded = self._decoded, {}
        for board, text in sorted(found.items()):
            held = known.get(board)
            self._decoded[board] = held if held is not None and held[0] == text else (text, _decode(board, text))
        return {board: definition for board, (_, definition) in self._decoded.items()}

    async def now(self) -> int:
        """The store's clock, in seconds since 1970.

        Raises:
            StoreUnavailableError: the store is away.
        """
        async with store_errors():
            return int((await self._client.line.call("TIME"))[0])

    async def keep(
        self, version: str, board: str, definition: Definition | None, audit: tuple[str, What, dict[str, Any]] | None
    ) -> bool:
        """Keep a definition, or with None drop it; False when somebody has changed any of them since `version`.

        `audit` is the entry for the audit log: who, what, and the choices.

        Raises:
            StoreUnavailableError: the store is away; with `unknown`, the definition may be kept all the same.
            EpochLostError: the store lost data.
        """
        witness = self._client.witness
        witness.require_whole()
        who, what, choices = audit or ("", "", {})
        text = b"" if definition is None else msgspec.json.encode(definition)
        arguments: list[Word] = [version, board, text, _MAX_ENTRIES, who, what, msgspec.json.encode(choices)]
        arguments.append(witness.facts.store)
        try:
            async with store_errors():
                reply = await self._define(self._client, [self.key, self.audit_key, self._store_key], arguments)
        except StoreUnavailableError as error:
            witness.require_whole()
            raise StoreUnavailableError(str(error), unknown=may_have_run(error.__cause__)) from error
        if reply[0] == b"lost":
            witness.lose(f"the store has the identity {reply[1].decode() or 'none'}, and not {witness.facts.store}")
            witness.require_whole()
        return bool(reply[0] == b"ok")

    async def audit_log(self, limit: int) -> list[AuditEntry]:
        """The last entries of the audit log, newest first.

        Raises:
            StoreUnavailableError: the store is away.
        """
        async with store_errors():
            entries = await self._client.line.call("XREVRANGE", self.audit_key, "+", "-", "COUNT", limit)
        return [_entry(stream_id.decode(), fields) for stream_id, fields in entries]


def _entry(stream_id: str, fields: list[bytes]) -> AuditEntry:
    held = {name.decode(): value for name, value in zip(fields[::2], fields[1::2], strict=True)}
    return AuditEntry(
        at=int(stream_id.partition("-")[0]),
        who=held["who"].decode(),
        what=cast("What", held["what"].decode()),
        board=held["board"].decode(),
        choices=msgspec.json.decode(held["choices"]),
    )


def _decode(board: str, text: bytes) -> Definition:
    try:
        return msgspec.json.decode(text, type=Definition)
    except msgspec.DecodeError as error:
        raise StoreUnavailableError(f"the definition of board {board!r} can't be read: {error}") from None
