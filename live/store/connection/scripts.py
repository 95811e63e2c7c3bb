"""The Lua scripts: each is one file, called by its hash and loaded where it is missing.

The first line of a script may say what the store lets it do. `#!lua flags=allow-oom` stands in scripts that free
memory, or that an operator needs to free some: they run when the store's `maxmemory` is reached.
`#!lua flags=no-writes` stands in those that only read: they run then too, and on a replica. Any other script fails at
its first write that needs memory.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, cast

from redis.exceptions import NoScriptError

from live.store.connection.client import Store
from live.store.connection.line import Word
from live.store.connection.sources import load


class Script:
    """One script of `live/store/lua`."""

    def __init__(self, name: str, source: str | None = None) -> None:
        self.name = name
        self.source = source or load(name)
        self._hash = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()

    async def __call__(self, store: Store, keys: Sequence[str], arguments: Sequence[Word]) -> list[Any]:
        """Run the script; a store that has forgotten it is sent the source."""
        command = self.command(keys, arguments)
        try:
            reply = await store.line.call(*command)
        except NoScriptError:
            reply = await store.line.call("EVAL", self.source, *command[2:])
        return cast("list[Any]", reply)

    def command(self, keys: Sequence[str], arguments: Sequence[Word]) -> tuple[Word, ...]:
        """The command that runs the script, if the store knows it."""
        return ("EVALSHA", self._hash, len(keys), *keys, *arguments)
