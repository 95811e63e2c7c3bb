"""The Lua scripts: each is one file, called by its hash and loaded where it is missing."""

import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Final, cast

from redis.exceptions import NoScriptError

from live.store.client import Store
from live.store.line import Word

FOLDER: Final = files("live.store") / "lua"

_INCLUDE: Final = re.compile(r"^--@include (\w+)\n", re.MULTILINE)


def load(name: str) -> str:
    """The source of a script, with the files of `lua/lib` that it includes."""
    source = (FOLDER / f"{name}.lua").read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda match: (FOLDER / "lib" / f"{match[1]}.lua").read_text(encoding="utf-8"), source)


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
