"""The sources of the Lua scripts: each is one file of `live/store/lua`, with what it includes."""

import re
from functools import cache
from importlib.resources import files
from typing import Final

from redis.exceptions import ResponseError

from live.store.connection.pipelined import PipelinedConnection

FOLDER: Final = files("live.store") / "lua"

_INCLUDE: Final = re.compile(r"^--@include (\w+)\n", re.MULTILINE)


def load(name: str) -> str:
    """Return the source of a script, with the files of `lua/lib` that it includes."""
    source = (FOLDER / f"{name}.lua").read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda match: (FOLDER / "lib" / f"{match[1]}.lua").read_text(encoding="utf-8"), source)


@cache
def all_sources() -> tuple[str, ...]:
    """Return the sources of all scripts."""
    names = sorted(path.name for path in FOLDER.iterdir())
    return tuple(load(name.removesuffix(".lua")) for name in names if name.endswith(".lua"))


async def send_sources(connection: PipelinedConnection) -> None:
    """Send all scripts over a new connection, because a store that was restarted knows none.

    Otherwise the first event for a thousand boards would send the longest script a thousand times. If the store
    refuses, each script is sent when it is needed.
    """
    for reply in await connection.calls([("SCRIPT", "LOAD", source) for source in all_sources()]):
        if isinstance(reply, Exception) and not isinstance(reply, ResponseError):
            raise reply
