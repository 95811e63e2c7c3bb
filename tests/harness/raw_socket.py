"""A viewer's socket for tests that choose every byte."""

import asyncio
from typing import Final

from websockets.frames import Close, Frame, Opcode

from tests.harness.wire import Wire

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
        async with asyncio.timeout(60):
            first, length = await self.wire.reader.readexactly(2)
            if length == 126:
                length = int.from_bytes(await self.wire.reader.readexactly(2))
            elif length == 127:
                length = int.from_bytes(await self.wire.reader.readexactly(8))
            return Opcode(first & 0x0F), await self.wire.reader.readexactly(length)

    async def ended(self) -> int:
        """Skip other messages and pings, and return the server's close code."""
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
