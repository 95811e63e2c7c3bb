"""Proxies in front of a server or a store, which lose, delay or cut what passes through them."""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

# The head of a notice as the store sends it to a subscriber; the message follows.
_NOTICE: Final = re.compile(rb"\*3\r\n\$8\r\nsmessage\r\n\$\d+\r\n[^\r]*\r\n\$(\d+)\r\n")
_PIECE: Final = 1 << 20
_P = TypeVar("_P", bound="Proxy")
_Hook = Callable[[bytes], Awaitable[bytes | None]]


class Proxy:
    """Forwards every connection to `upstream`, an `http://` or `unix://` URL; `cut` resets all of them.

    A subclass decides what happens to each piece of data: `request` and `answer` return what to pass on, or None to
    drop the connection instead.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.url = ""
        self.connections = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def request(self, data: bytes) -> bytes | None:
        """Return what the proxy passes on when a client has sent `data`."""
        return data

    async def answer(self, data: bytes) -> bytes | None:
        """Return what the proxy passes on when the upstream has sent `data`."""
        return data

    def cut(self) -> None:
        """Reset every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def end(self) -> None:
        """Close all connections."""
        writers = list(self._writers)
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.cut()
        await asyncio.gather(*(writer.wait_closed() for writer in {*writers, *self._writers}), return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Accept a connection, and forward data both ways until one side closes."""
        self._writers.add(writer)
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await self._connect()
        except OSError:
            await self._close(writer)
            return
        self._writers.add(back)
        self.connections += 1
        ways = [
            asyncio.create_task(_forward(reader, back, self.request)),
            asyncio.create_task(_forward(there, writer, self.answer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        back.transport.abort()
        await asyncio.gather(self._close(back), self._close(writer))

    async def _close(self, writer: asyncio.StreamWriter) -> None:
        """Send everything in the buffer first."""
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        self._writers.discard(writer)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address = urlsplit(self.upstream)
        if address.scheme == "unix":
            return await asyncio.open_unix_connection(address.path)
        return await asyncio.open_connection(address.hostname, address.port)


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hook: _Hook) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(_PIECE):
            passed = await hook(data)
            if passed is None:
                break
            writer.write(passed)


class LossyProxy(Proxy):
    """Drops the connection instead of passing on some pieces of data, which it chooses at random.

    While `silent` is set, it holds all answers back.
    """

    def __init__(self, upstream: str, share: float, seed: int, *, answers_only: bool = False) -> None:
        super().__init__(upstream)
        self.share = share  # the share of pieces that are lost; requests are never lost with `answers_only`
        self._answers_only = answers_only
        self.lost_requests = self.lost_answers = self.answers = 0
        self.silent = False
        self.went_silent = asyncio.Event()
        self._chance = random.Random(seed)

    async def request(self, data: bytes) -> bytes | None:
        if not self._answers_only and self._chance.random() < self.share:
            self.lost_requests += 1
            return None
        return data

    async def answer(self, data: bytes) -> bytes | None:
        if self.silent:
            self.went_silent.set()
            await asyncio.get_running_loop().create_future()  # waits until the connection ends
        if self._chance.random() < self.share:
            self.lost_answers += 1
            return None
        self.answers += 1
        return data


class StoreProxy(Proxy):
    """Delays the store's answers by `delay` seconds, and drops notices while `dropping` is set.

    No answer passes while `passing` is clear.
    """

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.dropping = False
        self.delay = 0.0
        self.dropped = 0
        self.passing = asyncio.Event()
        self.passing.set()

    async def answer(self, data: bytes) -> bytes | None:
        if self.delay:
            await asyncio.sleep(self.delay)
        await self.passing.wait()
        if self.dropping:
            while (notice := _NOTICE.search(data)) is not None:
                data = data[: notice.start()] + data[notice.end() + int(notice[1]) + 2 :]
                self.dropped += 1
        return data


@asynccontextmanager
async def listening(proxy: _P, folder: Path | None = None) -> AsyncIterator[_P]:
    """Run a proxy while in the context: on a free port, or on a socket in a folder."""
    if folder is None:
        server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
        proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    else:
        path = folder / "proxy.sock"
        server = await asyncio.start_unix_server(proxy.serve, str(path))
        proxy.url = f"unix://{path}"
    try:
        yield proxy
    finally:
        server.close()
        await proxy.end()


@asynccontextmanager
async def lossy(
    upstream: str, share: float = 0.0, seed: int = 5, folder: Path | None = None, *, answers_only: bool = False
) -> AsyncIterator[LossyProxy]:
    """A proxy that loses a share of what passes through it."""
    async with listening(LossyProxy(upstream, share, seed, answers_only=answers_only), folder) as proxy:
        yield proxy


@asynccontextmanager
async def store_proxy(store: str, folder: Path) -> AsyncIterator[StoreProxy]:
    """A proxy in front of a store."""
    async with listening(StoreProxy(store), folder) as proxy:
        yield proxy
