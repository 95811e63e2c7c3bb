"""The Lua scripts. A script is called by its hash, and its source is sent to a store that lacks it.

The source is one file of `live/store/lua`, with the files of `lua/lib` that it includes. A file that several others
include is there once. The first argument of a script is its request: a struct that is packed as MessagePack. The script
reads the fields of the struct by their names. The caller declares the store keys that the script uses, in addition to
the request. A script that compares the reign has it as its second argument: each connection adds the reign of its
server, because a request may be sent to another server than the caller expected.

`load` adds what every script begins with. It names the arguments `packed`, `request` and `reign`, and the store keys as
the header of the script does. The header says what the script returns, except the replies that an included file
describes. `live/store/board/keys.py` describes the store keys that the header only names.

The first line of a script says what the store lets it do. `#!lua` alone stands in scripts that write: the store refuses
such a script as a whole when its `maxmemory` is reached. `#!lua flags=allow-oom` stands in scripts that free memory, or
that an operator needs to free some. `#!lua flags=no-writes` stands in scripts that only read: they also run on a
replica. A script without such a line may write or not, and fails at its first write that needs memory when there is
none.

With `LIVE_WAIT_REPLICAS`, a call of a script that may write returns when replicas hold its effect (`Store.write`). A
script that only reads is sent to the primary, once replicas have confirmed lately that this server still is the primary
(`Store.read`). A process that reads from a replica sends such a script to the replica. A script whose effect is neither
acknowledged nor shown to anybody is loaded with `waits=False`.
"""

import hashlib
import re
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import Any, Final, Generic, Protocol, Self, TypeVar, cast

import msgspec
from redis.exceptions import NoScriptError, ResponseError

from live.errors import StoreUnavailableError
from live.store.connection.pipelined import REIGN, Holds, PipelinedConnection, Word

FOLDER: Final = files("live.store") / "lua"
_INCLUDE: Final = re.compile(r"^--@include (\w+)\n", re.MULTILINE)
_CODE: Final = re.compile(r"^(?!#!|--(?!@))", re.MULTILINE)  # the beginning of the first line after the header
_KEYS: Final = re.compile(r"^-- KEYS ([\w, ]+)(?: —|$)", re.MULTILINE)

# Bytes that need not be UTF-8 are sent as text: the `cmsgpack` library of the store reads no binary type.
Text = str | msgspec.Raw

_REIGN: Final = "ARGV[2]"
_READS: Final = "#!lua flags=no-writes"  # the first line of a script that only reads
_FIXED: Final = 32  # bytes; in MessagePack, the first byte of a shorter text also has its length
_encode: Final = msgspec.msgpack.Encoder().encode
_R = TypeVar("_R", bound=msgspec.Struct)


class _Store(Protocol):
    """The methods of `Store` that scripts use. The module of `Store` imports this module."""

    async def call(self, key: str, *words: Word) -> Any:  # noqa: ANN401 - any reply
        """Send a command."""

    def write(self, key: str, *words: Word) -> Awaitable[Any]:
        """Send a command, and wait for replicas."""

    def read(self, key: str, *words: Word) -> Awaitable[Any]:
        """Send a read-only command to a primary that its replicas have confirmed."""


class Script(Generic[_R]):
    """One script of `live/store/lua`, which takes one kind of request."""

    def __init__(
        self, name: str, request: type[_R], source: str | None = None, *, waits: bool = True, reign: str = REIGN
    ) -> None:
        """Load a script. With `waits` false, its calls neither wait for replicas nor ask them."""
        self.name = name
        self.request = request
        self.source = source or load(name)
        self.waits = waits
        self._reads = self.source.startswith(_READS)
        self._hash = _hash_of(self.source)
        self._more: tuple[Word, ...] = (reign,) if _REIGN in self.source else ()

    def changed(self, source: str) -> Self:
        """Return the script with another source, for tests."""
        return type(self)(self.name, self.request, source, waits=self.waits)

    async def __call__(self, store: _Store, keys: Sequence[str], request: _R) -> list[Any]:
        """Run the script. Send its source to a store that has forgotten it."""
        command = self.command(keys, request)
        send = store.call if not self.waits else store.read if self._reads else store.write
        try:
            reply = await send(keys[0], *command)
        except StoreUnavailableError as error:
            if not isinstance(error.__cause__, NoScriptError):
                raise
            reply = await send(keys[0], "EVAL", self.source, *command[2:])
        return cast("list[Any]", reply)

    def command(self, keys: Sequence[str], request: _R) -> tuple[Word, ...]:
        """Return the command that runs the script, if the store knows it."""
        return ("EVALSHA", self._hash, len(keys), *keys, _encode(request), *self._more)


def text(content: bytes) -> msgspec.Raw:
    """Pack bytes as a text of a request."""
    size = len(content)
    if size < _FIXED:
        return msgspec.Raw(bytes((0xA0 | size,)) + content)
    return msgspec.Raw(b"\xdb" + size.to_bytes(4, "big") + content)


def texts(contents: Sequence[bytes], size: int) -> msgspec.Raw:
    """Pack many bytes as a list of texts, each of `size` bytes. `size` is below 32."""
    head = bytes((0xA0 | size,))
    return msgspec.Raw(b"\xdd" + len(contents).to_bytes(4, "big") + b"".join([head + content for content in contents]))


def load(name: str) -> str:
    """Return the source of a script, with its beginning and the files of `lua/lib` that it includes."""
    source = (FOLDER / f"{name}.lua").read_text(encoding="utf-8")
    parts: set[str] = set()

    def expand(code: str) -> str:
        return _INCLUDE.sub(include, code)

    def include(match: re.Match[str]) -> str:
        part = match[1]
        if part in parts:
            return ""
        parts.add(part)
        return expand((FOLDER / "lib" / f"{part}.lua").read_text(encoding="utf-8"))

    header, code = _CODE.split(source, maxsplit=1)
    code, keys = expand(code), ", ".join(_KEYS.findall(header))
    lines = ["local packed = ARGV[1]", "local request = cmsgpack.unpack(packed)"]
    if "reign" in parts:
        lines.append(f"local reign = {_REIGN} or ''")
    if keys:
        lines.append(f"local {keys} = unpack(KEYS, 1, {keys.count(',') + 1})")
    return header + "\n".join([*lines, code])


@cache
def all_sources() -> Mapping[str, str]:
    """Return the sources of all scripts by their hashes."""
    names = sorted(path.name for path in FOLDER.iterdir())
    sources = [load(name.removesuffix(".lua")) for name in names if name.endswith(".lua")]
    return {_hash_of(source): source for source in sources}


async def send_sources(connection: PipelinedConnection, _holds: Holds) -> None:
    """Send the store, over a new connection, the scripts that it does not know: after a restart it knows none.

    Otherwise the first event for a thousand boards would send the longest script a thousand times. If the store
    refuses, each script is sent when it is needed.
    """
    sources = all_sources()
    with suppress(ResponseError):
        known = await connection.call("SCRIPT", "EXISTS", *sources)
        lacking = [source for source, there in zip(sources.values(), known, strict=True) if not there]
        await connection.calls([("SCRIPT", "LOAD", source) for source in lacking])


def _hash_of(source: str) -> str:
    return hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
