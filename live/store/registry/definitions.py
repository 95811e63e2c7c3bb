"""The definitions of run-time boards, in one hash, and the audit log of their changes."""

from collections.abc import Mapping
from typing import Any, Final, Literal, cast

import msgspec

from live.errors import StoreUnavailableError
from live.store.board.keys import SystemKeys
from live.store.connection.client import Store, may_have_run, store_errors
from live.store.connection.scripts import Script, Text, text


class DefineRequest(msgspec.Struct, kw_only=True):
    """Store or delete the definition of a board, if no definition has changed since `version`, and log the change.

    Attributes:
        version: the version that the caller has read; empty for none.
        board: the id of the board.
        definition: JSON; empty to delete the definition.
        length: about how many entries of the audit log to keep.
        who: the id of a producer, or a word for others.
        what: what was done; empty for no entry in the audit log.
        choices: the settings of the change, as JSON.
        identity: the identity of the store that the caller knows; empty for any.
    """

    version: str
    board: str
    definition: Text
    length: int
    who: str
    what: str
    choices: Text
    identity: str


DEFINE: Final = Script("define", DefineRequest)

_VERSION: Final = ":version"  # the id of a board contains no colon
_TRAIL_LENGTH: Final = 10_000

What = Literal["created", "changed", "frozen", "thawed", "deleted", "expired"]


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of a run-time board.

    Attributes:
        epoch: the epoch of the board.
        choices: the settings that were asked for.
        state: `making` before the board is created, and `leaving` while it is being deleted; no process serves either.
        since: when this state began, in seconds since 1970 by the store's clock.
        revision: grows with every change of the definition.
        owner: the producer that created the board, if its API key is limited to some boards; else empty.
        parts: the epoch of each board that a union adds up (empty for a board of the boards file). The union adds up no
            other board under the same id.
    """

    epoch: str
    choices: dict[str, Any]
    state: Literal["making", "live", "leaving"] = "live"
    since: int = 0
    revision: int = 1
    owner: str = ""
    parts: dict[str, str] = {}


class Definitions(msgspec.Struct, frozen=True):
    """All definitions, at one instant. `version` is empty when there never was a definition."""

    version: str
    boards: Mapping[str, Definition]


class Deed(msgspec.Struct, frozen=True):
    """One entry of the audit log. `at` is in ms since 1970 by the store's clock, `who` is the id of a producer."""

    at: int
    who: str
    what: What
    board: str
    choices: dict[str, Any]


class DefinitionStore:
    """Reads and writes the definitions under one prefix of store keys."""

    def __init__(self, client: Store, prefix: str, define: Script[DefineRequest] = DEFINE) -> None:
        names = SystemKeys(prefix)
        self.key, self.trail_key, self._store_key = names.definitions, names.trail, names.store
        self._decoded: dict[str, tuple[bytes, Definition]] = {}  # as last read, because most do not change
        self._client = client
        self._define = define

    async def version(self) -> str:
        """The version, which changes with every change of a definition.

        Raises:
            StoreUnavailableError: the store is unavailable.
        """
        known = self._client.witness.facts.definitions
        async with store_errors():
            found = await self._client.call(self.key, "HGET", self.key, _VERSION)
        version = "" if found is None else found.decode()
        self._client.witness.see_version("definitions", version, known)
        return version

    async def load(self) -> Definitions:
        """Read all definitions.

        Raises:
            StoreUnavailableError: the store is unavailable, or holds a definition that can't be read.
        """
        known = self._client.witness.facts.definitions
        async with store_errors():
            reply = await self._client.call(self.key, "HGETALL", self.key)
        found = {name.decode(): text for name, text in zip(reply[::2], reply[1::2], strict=True)}
        version = found.pop(_VERSION, b"").decode()
        self._client.witness.see_version("definitions", version, known)
        return Definitions(version, self._decode(found))

    def _decode(self, found: Mapping[str, bytes]) -> dict[str, Definition]:
        """The definitions of a reply. A definition that has not changed is the same object as before."""
        known, self._decoded = self._decoded, {}
        for board, content in sorted(found.items()):
            held = known.get(board)
            same = held is not None and held[0] == content
            self._decoded[board] = held if held is not None and same else (content, _decode(board, content))
        return {board: definition for board, (_, definition) in self._decoded.items()}

    async def now(self) -> int:
        """The store's clock, in seconds since 1970.

        Raises:
            StoreUnavailableError: the store is unavailable.
        """
        async with store_errors():
            return int((await self._client.call(self.key, "TIME"))[0])

    async def keep(
        self, version: str, board: str, definition: Definition | None, deed: tuple[str, What, dict[str, Any]] | None
    ) -> bool:
        """Store a definition, or with None delete it. Returns False when any definition has changed since `version`.

        `deed` is an entry for the audit log: who, what, and the settings.

        Raises:
            StoreUnavailableError: the store is unavailable; with `unknown`, the change may have been made.
            EpochLostError: the store lost data.
        """
        witness = self._client.witness
        witness.require_whole()
        who, what, choices = deed or ("", "", {})
        request = DefineRequest(
            version=version,
            board=board,
            definition=text(b"" if definition is None else msgspec.json.encode(definition)),
            length=_TRAIL_LENGTH,
            who=who,
            what=what,
            choices=text(msgspec.json.encode(choices)),
            identity=witness.facts.store,
        )
        try:
            async with store_errors():
                reply = await self._define(self._client, [self.key, self.trail_key, self._store_key], request)
        except StoreUnavailableError as error:
            witness.require_whole()
            raise StoreUnavailableError(str(error), unknown=may_have_run(error.__cause__)) from error
        if reply[0] == b"lost":
            witness.lose(f"the store has the identity {reply[1].decode() or 'none'}, and not {witness.facts.store}")
            witness.require_whole()
        return bool(reply[0] == b"ok")

    async def trail(self, limit: int) -> list[Deed]:
        """The last entries of the audit log, newest first.

        Raises:
            StoreUnavailableError: the store is unavailable.
        """
        async with store_errors():
            entries = await self._client.call(self.trail_key, "XREVRANGE", self.trail_key, "+", "-", "COUNT", limit)
        return [_deed(entry.decode(), fields) for entry, fields in entries]


def _deed(entry: str, fields: list[bytes]) -> Deed:
    held = {name.decode(): value for name, value in zip(fields[::2], fields[1::2], strict=True)}
    return Deed(
        at=int(entry.partition("-")[0]),
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
