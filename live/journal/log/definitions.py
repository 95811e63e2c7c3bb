"""Copy data that belongs to no single board to SQL, whenever it changes.

These are the definitions of boards, the API keys, the titles of members, the secret that signs the cookies of
visitors, and the audit log.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, func, insert, select

from live.journal.database import Database, prefix_of
from live.journal.log.audit_trail import append, last_id
from live.journal.schema import DEFINITION
from live.store.connection.client import Store, required
from live.store.connection.high_water import Versioned
from live.store.connection.pipelined import Word
from live.store.registry.definitions import CHANGES, FILE, ChangesRequest, Definition

COOKIES: Final = "cookies"
"""The name of the secret that signs the cookies of visitors. Its value is in hexadecimal."""
_VERSION: Final = ":version"
_NO_ENTRIES: Final = {"boards": (_VERSION, FILE), "producers": (_VERSION,)}
_MOST_ACTS: Final = 500  # entries of the audit log in one transaction
_VERSIONED: Final[dict[str, Versioned]] = {"boards": "definitions", "producers": "producers"}

_DEFINITION: Final = msgspec.json.Decoder(Definition)

_Words = tuple[Word, ...]


class DefinitionLog:
    """Add a row for each definition, each API key, each title of a member and each secret that has changed."""

    def __init__(self, client: Store, database: Database) -> None:
        self._client = client
        self._database = database
        self._versions: dict[str, bytes] = {}
        self._last_act = ""  # the id of the last entry of the audit log in SQL; empty if it is not known
        self._turn = asyncio.Lock()  # of two calls at once, the one that read first could write last

    def forget(self) -> None:
        """Compare everything at the next call: after a failover, another change may have the same version."""
        self._versions.clear()
        self._last_act = ""

    async def follow(self) -> bool:
        """Copy what has changed since the last call, or return False if the store lost data that SQL has."""
        async with self._turn:
            names, high_water = self._client.system, self._client.high_water
            places: dict[str, tuple[str, _Words]] = {
                "boards": (names.definitions, ("HGET", names.definitions, _VERSION)),
                "producers": (names.producers, ("HGET", names.producers, _VERSION)),
                "items": (names.items, ("GET", names.items_version)),
            }
            known = {kind: int(self._versions.get(kind, 0)) for kind in places}
            highest: dict[Versioned, int] = {kind: high_water.version_of(kind) for kind in _VERSIONED.values()}
            replies = await self._ask(*(asks for _, asks in places.values()), ("GET", names.visitors))
            if replies is None:
                return False
            versions = dict(zip(places, replies, strict=False))
            for kind, what in _VERSIONED.items():
                high_water.check_version(what, (versions[kind] or b"").decode(), highest[what])
                known[kind] = max(known[kind], highest[what])
            if any(int(version or 0) < known[kind] for kind, version in versions.items()):
                return False
            for kind, version in versions.items():
                if version is not None and version != self._versions.get(kind):
                    key, asks = places[kind]
                    changed = await self._changes(kind)
                    words = () if changed else (("HGETALL", key),)
                    replies_of_kind = await self._ask(asks, *words, replicated=True)
                    least = version if changed is None else changed[0]
                    if replies_of_kind is None or int(replies_of_kind[0] or 0) < int(least):
                        return False
                    now, found = changed or (replies_of_kind[0], _fields_of(kind, replies_of_kind[1]))
                    await self._copy(kind, found, int(now), is_whole=changed is None)
                    self._versions[kind] = now
            secret = replies[-1]
            # If the store has no secret, keep the copy.
            if secret is not None and secret != self._versions.get("visitors"):
                if await self._ask(("GET", names.visitors), replicated=True) != [secret]:
                    return False
                await self._copy("visitors", {COOKIES: secret.hex()}, 0, is_whole=True)
                self._versions["visitors"] = secret
            return await self._follow_trail(names.trail)

    async def _changes(self, kind: str) -> tuple[bytes, dict[str, str | None]] | None:
        names, known = self._client.system, self._versions.get(kind)
        keys = {
            "boards": [names.definitions, names.changes],
            "items": [names.items, names.items_changes, names.items_version],
        }.get(kind)
        if keys is None or known is None:
            return None
        reply = await CHANGES(self._client, keys, ChangesRequest(int(known)))
        if reply[0] != b"ok":
            return None
        _, version, _, *fields = reply
        return version, {name: value or None for name, value in _fields_of(kind, fields).items()}

    async def _follow_trail(self, key: str) -> bool:
        """Append the new entries of the audit log. Return False if the store lost data."""
        if not self._last_act:
            self._last_act = await self._database.run(last_id)
        while True:
            words = ("XRANGE", key, f"({self._last_act}", "+", "COUNT", _MOST_ACTS)
            replies = await self._ask(words, replicated=True)
            if replies is None:
                return False
            (entries,) = replies
            if not entries:
                return True
            await self._database.run(append, entries)
            self._last_act = entries[-1][0].decode()

    async def _ask(self, *commands: _Words, replicated: bool = False) -> list[Any] | None:
        """Return the replies of the store, or None if the store lost data.

        Use `replicated` for data that goes into SQL. The last command asks for the store's identity: if it is right,
        all replies are from this store.
        """
        high_water, store = self._client.high_water, self._client.system.store
        asking: list[tuple[str, _Words]] = [(str(words[1]), words) for words in (*commands, ("GET", store))]
        replies = required(await self._client.outcomes(asking, replicated=replicated))
        identity = (replies.pop() or b"").decode()
        return None if high_water.lost or high_water.facts.store not in ("", identity) else replies

    async def _copy(self, kind: str, found: Mapping[str, str | None], version: int, *, is_whole: bool) -> None:
        """Add a row for each value that has changed. If `found` is whole, a value that is missing there is gone."""

        def keep(connection: Connection) -> None:
            known = latest(connection, kind, None if is_whole else list(found))
            gone = dict.fromkeys(known.keys() - found.keys()) if is_whole else {}
            rows = [
                {
                    "prefix": prefix_of(connection), "kind": kind, "name": name, "version": version,
                    "time": time.time_ns() // 1000, "value": value,
                }
                for name, value in {**found, **gone}.items()
                if known.get(name) != value
            ]  # fmt: skip
            if rows:
                connection.execute(insert(DEFINITION), rows)

        await self._database.run(keep)


def _fields_of(kind: str, words: Sequence[bytes]) -> dict[str, str]:
    """Return the fields of a hash without its version, and without what the boards file names.

    A server applies its boards file at each start, so SQL does not need that.
    """
    fields = {name.decode(): value.decode() for name, value in zip(words[::2], words[1::2], strict=True)}
    for name in _NO_ENTRIES.get(kind, ()):
        fields.pop(name, None)
    return fields


def latest(connection: Connection, kind: str, names: Sequence[str] | None = None) -> dict[str, str]:
    """Return, by name, the newest values of a kind that were not removed. With `names` (at most 10,000), only those."""
    where = [DEFINITION.c.prefix == prefix_of(connection), DEFINITION.c.kind == kind]
    if names is not None:
        where.append(DEFINITION.c.name.in_(names))
    newest = select(func.max(DEFINITION.c.id)).where(*where).group_by(DEFINITION.c.name)
    rows = connection.execute(
        select(DEFINITION.c.name, DEFINITION.c.value).where(
            DEFINITION.c.id.in_(newest), DEFINITION.c.value.is_not(None)
        )
    )
    return {row.name: row.value for row in rows}


def latest_boards(connection: Connection, names: Sequence[str] | None = None) -> dict[str, Definition]:
    """Return the newest definitions of boards that were not deleted, or of those with these names (as in `latest`)."""
    return {name: _DEFINITION.decode(text) for name, text in latest(connection, "boards", names).items()}


def newest_version(connection: Connection, kind: str) -> int:
    """Return the newest version that was copied. 0 means that no version was copied."""
    where = (DEFINITION.c.prefix == prefix_of(connection), DEFINITION.c.kind == kind)
    return connection.scalar(select(func.max(DEFINITION.c.version)).where(*where)) or 0
