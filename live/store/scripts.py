"""The Lua scripts: each is one file with a header, called by its hash and loaded where it is missing."""

import hashlib
import re
from collections.abc import Awaitable, Sequence
from importlib.resources import files
from typing import Any, Final, cast

import msgspec
from redis.asyncio import Redis
from redis.exceptions import NoScriptError

_HEADER_LINE: Final = re.compile(r"-- (KEYS|ARGV)\[(\d+)(\.\.\.)?\] (\w+) — \S")


class Header(msgspec.Struct, frozen=True):
    """What a script's header documents: the names of KEYS and of ARGV, and whether the last of each repeats."""

    keys: tuple[str, ...]
    arguments: tuple[str, ...]
    more_keys: bool
    more_arguments: bool


def parse_header(source: str) -> Header:
    """Read the header of a script.

    Raises:
        ValueError: a line is missing, out of order, or documents what is not there.
    """
    names: dict[str, list[str]] = {"KEYS": [], "ARGV": []}
    more = {"KEYS": False, "ARGV": False}
    comments = [line for line in source.splitlines() if line.startswith("--")]
    for line in comments:
        match = _HEADER_LINE.match(line)
        if match is None:
            continue
        kind, number = match[1], int(match[2])
        if more[kind] or number != len(names[kind]) + 1:
            raise ValueError(f"{kind}[{number}] is out of order")
        names[kind].append(match[4])
        more[kind] = bool(match[3])
    if not any(line.startswith("-- Returns ") for line in comments):
        raise ValueError("the header does not say what the script returns")
    return Header(tuple(names["KEYS"]), tuple(names["ARGV"]), more["KEYS"], more["ARGV"])


class Script:
    """One script of `live/store/lua`."""

    def __init__(self, name: str, source: str | None = None) -> None:
        self.name = name
        self.source = source or (files("live.store") / "lua" / f"{name}.lua").read_text(encoding="utf-8")
        self.header = parse_header(self.source)
        self._hash = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()

    async def __call__(self, client: Redis, keys: Sequence[str], arguments: Sequence[str | int | bytes]) -> list[Any]:
        """Run the script; a store that has forgotten it is sent the source."""
        try:
            reply = client.evalsha(self._hash, len(keys), *keys, *cast("Sequence[str]", arguments))
            return await cast("Awaitable[list[Any]]", reply)
        except NoScriptError:
            reply = client.eval(self.source, len(keys), *keys, *cast("Sequence[str]", arguments))
            return await cast("Awaitable[list[Any]]", reply)
