"""A proxy between a process and its store, which delays, cuts, or drops what is announced."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

# What a subscriber is sent of one announcement.
_MESSAGE: Final = re.compile(rb"\*3\r\n\$7\r\nmessage\r\n\$\d+\r\n[^\r]*\r\n\$\d+\r\n[^\r]*\r\n")
_PIECE: Final = 65536


class Proxy:
    """What is done to all connections, at any time.

    `dropping` drops announcements, `delay` (seconds) delays every answer, and no answer passes while `passing` is
    clear.
    """

    def __init__(self, store: str, folder: Path) -> None:
        self.dropping = False
        self.delay = 0.0
        self.dropped = 0
        self.passing = asyncio.Event()
        self.passing.set()
        self.url = f"unix://{folder / 'proxy.sock'}"
        self._store = store.removeprefix("unix://")
        self._writers: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """Cut every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what comes, both ways, until one side ends."""
        there, back = await asyncio.open_unix_connection(self._store)
        self._writers |= {writer, back}
        try:
            ways = [asyncio.create_task(self._ask(reader, back)), asyncio.create_task(self._answer(there, writer))]
            _, open_ways = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in open_ways:
                way.cancel()
        finally:
            self._writers -= {writer, back}
            for end in (writer, back):
                end.transport.abort()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(_PIECE):
                writer.write(data)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(_PIECE):
                if self.delay:
                    await asyncio.sleep(self.delay)
                await self.passing.wait()
                if self.dropping:
                    data, dropped = _MESSAGE.subn(b"", data)
                    self.dropped += dropped
                writer.write(data)


@asynccontextmanager
async def proxied(store: str, folder: Path) -> AsyncIterator[Proxy]:
    """A proxy to a store on a unix socket."""
    proxy = Proxy(store, folder)
    server = await asyncio.start_unix_server(proxy.serve, proxy.url.removeprefix("unix://"))
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
