"""The Lua scripts: each is one file, called by its hash and loaded where it is missing."""

import hashlib
from collections.abc import Awaitable, Sequence
from importlib.resources import files
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import NoScriptError


class Script:
    """One script of `live/store/lua`."""

    def __init__(self, name: str, source: str | None = None) -> None:
        self.name = name
        self.source = source or (files("live.store") / "lua" / f"{name}.lua").read_text(encoding="utf-8")
        self._hash = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()

    async def __call__(self, client: Redis, keys: Sequence[str], arguments: Sequence[str | int | bytes]) -> list[Any]:
        """Run the script; a store that has forgotten it is sent the source."""
        try:
            reply = client.evalsha(self._hash, len(keys), *keys, *cast("Sequence[str]", arguments))
            return await cast("Awaitable[list[Any]]", reply)
        except NoScriptError:
            reply = client.eval(self.source, len(keys), *keys, *cast("Sequence[str]", arguments))
            return await cast("Awaitable[list[Any]]", reply)
