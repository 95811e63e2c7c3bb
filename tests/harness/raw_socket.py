"""A producer's socket as bytes, for tests that choose every one of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from websockets.frames import Close, Frame, Opcode

from tests.harness.wire import Wire, connected, request

PATH: Final = "/v1/events/live"

HANDSHAKE: Final = (
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
)


def text(body: bytes) -> bytes:
    """A message in one frame."""
    return Frame(Opcode.TEXT, body).serialize(mask=True)


def frame(opcode: Opcode, body: bytes, *, final: bool = True, mask: bool = True) -> bytes:
    """Any frame."""
    return Frame(opcode, body, fin=final).serialize(mask=mask)


def close(code: int = 1000) -> bytes:
    """A close frame."""
    return frame(Opcode.CLOSE, Close(code, "").serialize())


class RawSocket:
    """A socket on which a test writes and reads single frames."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    async def send(self, *pieces: bytes) -> None:
        """Send each piece separately."""
        await self.wire.send(*pieces)

    async def receive(self) -> tuple[Opcode, bytes]:
        """The next frame of the server."""
        async with asyncio.timeout(20):
            first, length = await self.wire.reader.readexactly(2)
            if length == 126:
                length = int.from_bytes(await self.wire.reader.readexactly(2))
            elif length == 127:
                length = int.from_bytes(await self.wire.reader.readexactly(8))
            return Opcode(first & 0x0F), await self.wire.reader.readexactly(length)

    async def answer(self) -> dict[str, Any]:
        """The next answer."""
        opcode, body = await self.receive()
        assert opcode is Opcode.TEXT, (opcode, body)
        answer: dict[str, Any] = msgspec.json.decode(body)
        return answer

    async def answers(self, count: int) -> list[dict[str, Any]]:
        """The next `count` answers."""
        return [await self.answer() for _ in range(count)]

    async def ended(self) -> int:
        """The server's close code, after other messages and pings."""
        while (received := await self.receive())[0] is not Opcode.CLOSE:
            pass
        self.wire.writer.write(close())
        assert await self.wire.rest() == b""
        return Close.parse(received[1]).code

    async def closed(self) -> int:
        """The server's close code. Its close frame must be the next frame, and the last."""
        opcode, body = await self.receive()
        assert opcode is Opcode.CLOSE, (opcode, body)
        self.wire.writer.write(close())
        assert await self.wire.rest() == b""
        return Close.parse(body).code


@asynccontextmanager
async def raw_socket(
    url: str, *fields: tuple[str, str], path: str = PATH, window: int | None = None
) -> AsyncIterator[RawSocket]:
    """A producer's socket after its handshake."""
    async with connected(url, window=window) as wire:
        await wire.send(request("GET", path, *HANDSHAKE, *fields))
        head = await wire.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head
        yield RawSocket(wire)
