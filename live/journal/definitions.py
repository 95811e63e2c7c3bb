"""Copies the definitions of run-time boards, and the API keys, to SQL whenever they change."""

import time
from typing import Final

from sqlalchemy import Connection, func, insert, select

from live.journal.database import Database
from live.journal.schema import DEFINITION
from live.store.board.keys import SystemKeys
from live.store.connection.client import Store, store_errors

KINDS: Final = ("boards", "producers")
_VERSION: Final = b":version"


class DefinitionLog:
    """Adds a row for each definition and each API key that has changed."""

    def __init__(self, client: Store, prefix: str, database: Database) -> None:
        self._client = client
        self._prefix = prefix
        self._database = database
        names = SystemKeys(prefix)
        self._keys = {"boards": names.definitions, "producers": names.producers}
        self._versions: dict[str, bytes] = {}

    async def follow(self) -> None:
        """Copy what has changed since the last call.

        Raises:
            StoreUnavailableError: the store or the database is unavailable.
        """
        async with store_errors():
            versions = await self._client.calls([(key, ("HGET", key, _VERSION)) for key in self._keys.values()])
        for kind, version in zip(self._keys, versions, strict=True):
            if isinstance(version, bytes) and version != self._versions.get(kind):
                await self._copy(kind)

    async def _copy(self, kind: str) -> None:
        key = self._keys[kind]
        async with store_errors():
            fields = await self._client.call(key, "HGETALL", key)
        found = {name.decode(): value.decode() for name, value in zip(fields[::2], fields[1::2], strict=True)}
        version = int(found.pop(_VERSION.decode(), "0"))

        def keep(connection: Connection) -> None:
            known = latest(connection, self._prefix, kind)
            changed = {name: value for name, value in found.items() if known.get(name) != value}
            changed_or_gone: dict[str, str | None] = {**changed, **dict.fromkeys(known.keys() - found.keys())}
            rows = [
                {
                    "prefix": self._prefix, "kind": kind, "name": name, "version": version,
                    "time": time.time_ns() // 1000, "value": value,
                }
                for name, value in changed_or_gone.items()
            ]  # fmt: skip
            if rows:
                connection.execute(insert(DEFINITION), rows)

        await self._database.run(keep)
        self._versions[kind] = str(version).encode()


def latest(connection: Connection, prefix: str, kind: str) -> dict[str, str]:
    """The definitions or API keys, as JSON, by name; without those that were removed."""
    newest = (
        select(func.max(DEFINITION.c.id))
        .where(DEFINITION.c.prefix == prefix, DEFINITION.c.kind == kind)
        .group_by(DEFINITION.c.name)
    )
    rows = connection.execute(
        select(DEFINITION.c.name, DEFINITION.c.value).where(
            DEFINITION.c.id.in_(newest), DEFINITION.c.value.is_not(None)
        )
    )
    return {row.name: row.value for row in rows}


def newest_version(connection: Connection, prefix: str, kind: str) -> int:
    """The newest version that was copied; 0 for none."""
    where = (DEFINITION.c.prefix == prefix, DEFINITION.c.kind == kind)
    return connection.scalar(select(func.max(DEFINITION.c.version)).where(*where)) or 0
