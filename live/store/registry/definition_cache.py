"""The definitions as a process last read them: it reads only what has changed since then."""

import asyncio
from types import MappingProxyType

from live.store.registry.definitions import Definition, DefinitionChanges, Definitions, DefinitionStore


class DefinitionCache:
    """All definitions, in one mapping that every read brings up to date."""

    def __init__(self, definitions: DefinitionStore) -> None:
        self._definitions = definitions
        self._version: str | None = None
        self._boards: dict[str, Definition] = {}
        self._reading = asyncio.Lock()

    async def load(self) -> Definitions:
        """Bring the mapping up to date. Its cost depends on the number of changes, not of boards.

        The mapping of an earlier result changes too, and its version does not: a compare-and-set on that version fails.
        """
        changes = await self.follow(self._version)
        return Definitions(changes.version, MappingProxyType(self._boards), changes.now)

    async def follow(self, since: str | None) -> DefinitionChanges:
        """Bring the mapping up to date; returns what has changed since a version, as `DefinitionStore.changes`."""
        async with self._reading:  # so that a later read is applied later
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
