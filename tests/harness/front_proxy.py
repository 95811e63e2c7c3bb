"""A TCP proxy in front of a server: it forwards bytes, holds them back, or refuses WebSockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

_REFUSAL = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class FrontProxy:
    """A running proxy at `url`. With `refuses_upgrades`, it answers requests for a WebSocket with 403."""

    def __init__(self, port: int) -> None:
        self.refuses_upgrades = False
        self.url = ""
        self._port = port
        self._moving = asyncio.Event()
        self._moving.set()

    def stall(self) -> None:
        """Hold back all bytes."""
        self._moving.clear()

    def resume(self) -> None:
        """Forward the waiting bytes, and all later bytes."""
        self._moving.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of a browser."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                await asyncio.gather(self._pass(reader, there_writer, writer), self._pass(there_reader, writer, None))
            finally:
                there_writer.close()
        writer.close()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, back: asyncio.StreamWriter | None
    ) -> None:
        """Forward in one direction. `back` writes to the browser, and is None if the server sent the bytes."""
        while data := await reader.read(65536):
            await self._moving.wait()
            if back is not None and self.refuses_upgrades and b"\r\nupgrade: websocket\r\n" in data.lower():
                back.write(_REFUSAL)
                await back.drain()
                back.close()
                break
            writer.write(data)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def front_proxy(url: str) -> AsyncIterator[FrontProxy]:
    """A proxy in front of the server at an address."""
    proxy = FrontProxy(int(url.rsplit(":", 1)[1]))
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
