"""Copies the definitions of run-time boards, the API keys and the titles of members to SQL whenever they change."""

import time
from typing import Final

from sqlalchemy import Connection, func, insert, select

from live.journal.database import Database
from live.journal.schema import DEFINITION
from live.store.board.keys import SystemKeys
from live.store.connection.client import Store, store_errors
from live.store.connection.pipelined import Word

KINDS: Final = ("boards", "producers", "items")
_VERSION: Final = ":version"


class DefinitionLog:
    """Adds a row for each definition, each API key and each title of a member that has changed."""

    def __init__(self, client: Store, prefix: str, database: Database) -> None:
        self._client = client
        self._prefix = prefix
        self._database = database
        self._versions: dict[str, bytes] = {}

    async def follow(self) -> None:
        """Copy what has changed since the last call.

        Raises:
            StoreUnavailableError: the store or the database is unavailable.
        """
        names = SystemKeys(self._prefix)
        hashes = {"boards": names.definitions, "producers": names.producers}
        commands: list[tuple[str, tuple[Word, ...]]] = [(key, ("HGET", key, _VERSION)) for key in hashes.values()]
        commands.append((names.items_version, ("GET", names.items_version)))
        async with store_errors():
            versions = await self._client.calls(commands)
        for (kind, key), version in zip((*hashes.items(), ("items", names.items)), versions, strict=True):
            if isinstance(version, bytes) and version != self._versions.get(kind):
                await self._copy(kind, key, version)

    async def _copy(self, kind: str, key: str, version: bytes) -> None:
        async with store_errors():
            fields = await self._client.call(key, "HGETALL", key)
        found = {name.decode(): value.decode() for name, value in zip(fields[::2], fields[1::2], strict=True)}
        found.pop(_VERSION, None)

        def keep(connection: Connection) -> None:
            known = latest(connection, self._prefix, kind)
            changed = {name: value for name, value in found.items() if known.get(name) != value}
            changed_or_gone: dict[str, str | None] = {**changed, **dict.fromkeys(known.keys() - found.keys())}
            rows = [
                {
                    "prefix": self._prefix, "kind": kind, "name": name, "version": int(version),
                    "time": time.time_ns() // 1000, "value": value,
                }
                for name, value in changed_or_gone.items()
            ]  # fmt: skip
            if rows:
                connection.execute(insert(DEFINITION), rows)

        await self._database.run(keep)
        self._versions[kind] = version


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
