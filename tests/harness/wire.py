"""Requests and answers as bytes, for tests that choose every byte."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

JSON: Final = ("Content-Type", "application/json")
NDJSON: Final = ("Content-Type", "application/x-ndjson")
CHUNKED: Final = ("Transfer-Encoding", "chunked")
CLOSE: Final = ("Connection", "close")

_DATE: Final = re.compile(rb"date: [^\r]*\r\n", re.IGNORECASE)
_LENGTH: Final = re.compile(rb"content-length: (\d+)\r\n", re.IGNORECASE)
_OFFSET: Final = re.compile(rb'"posts":\d+')
_WAIT: Final = 60.0


def request(method: str, target: str, *fields: tuple[str, str], body: bytes = b"", version: str = "1.1") -> bytes:
    """Make a request with `Host` and then exactly these fields."""
    lines = [
        f"{method} {target} HTTP/{version}",
        "Host: localhost",
        *(f"{name}: {value}" for name, value in fields),
        "",
        "",
    ]
    return "\r\n".join(lines).encode("latin-1") + body


def post(body: bytes, *fields: tuple[str, str], target: str = "/v1/events", version: str = "1.1") -> bytes:
    """A POST of a body: JSON by default, with its length unless `fields` have a length or it is sent in chunks."""
    names = {name.lower() for name, _ in fields}
    kind = () if "content-type" in names else (JSON,)
    length = () if names & {"content-length", "transfer-encoding"} else (("Content-Length", str(len(body))),)
    return request("POST", target, *kind, *length, *fields, body=body, version=version)


def chunks(*pieces: bytes) -> bytes:
    """A body in chunks."""
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def likes(count: int) -> bytes:
    """An array of `count` likes."""
    return b"[" + b",".join([b'{"key":"a"}'] * count) + b"]"


class Wire:
    """A connection on which a test chooses every byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *pieces: bytes) -> None:
        """Send each piece separately."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def answer(self) -> bytes:
        """The next complete answer, without its date."""
        async with asyncio.timeout(_WAIT):
            head = await self.reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"HTTP/1.1 100 "):
                return head
            length = _LENGTH.search(head)
            if length is not None:
                return _DATE.sub(b"", head) + await self.reader.readexactly(int(length[1]))
            return _DATE.sub(b"", head) + await self.rest()

    async def answers(self, count: int) -> list[bytes]:
        """The next `count` answers."""
        return [await self.answer() for _ in range(count)]

    async def rest(self) -> bytes:
        """Return all bytes until the server closes the connection."""
        async with asyncio.timeout(_WAIT):
            try:
                return _DATE.sub(b"", await self.reader.read())
            except ConnectionResetError:
                return b""


@asynccontextmanager
async def connected(url: str, *, window: int | None = None, source: str = "") -> AsyncIterator[Wire]:
    """Connect to a server, from the address `source`.

    With a `window`, the kernel buffers at most so many received bytes.
    """
    address = urlsplit(url)
    assert address.hostname is not None
    own = socket.socket()
    own.bind((source, 0))
    if window is not None:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    own.setblocking(False)  # noqa: FBT003 - its only argument
    try:
        await asyncio.get_running_loop().sock_connect(own, (address.hostname, address.port))
    except OSError:
        own.close()
        raise
    wire = Wire(*await asyncio.open_connection(sock=own, limit=window or 65536))
    try:
        yield wire
    finally:
        if wire.writer.transport.get_write_buffer_size():
            wire.writer.transport.abort()  # the peer does not read what is left, so closing would wait forever
        wire.writer.close()
        with suppress(ConnectionError):
            await wire.writer.wait_closed()


async def ask(url: str, *pieces: bytes, answers: int = 1) -> list[bytes]:
    """Send `pieces` on a new connection, and return the answers, and as the last item all later bytes.

    To end the connection, one more request is sent. It is answered only if the server has not closed the connection.
    """
    async with connected(url) as wire:
        await wire.send(*pieces)
        found = await wire.answers(answers)
        with suppress(ConnectionError):
            await wire.send(request("GET", "/healthz", CLOSE))
        return [*found, await wire.rest()]


def statuses(answers: Iterable[bytes]) -> list[int]:
    """The statuses of answers."""
    return [int(answer.split(b" ", 2)[1]) for answer in answers if answer]


def without_offsets(answers: Iterable[bytes]) -> list[bytes]:
    """Answers without the offset of the board, which depends on which requests shared a batch."""
    return [_LENGTH.sub(b"", _OFFSET.sub(b'"posts":0', answer)) for answer in answers]
