"""What each answer means for a batch: counted, not counted, or unknown."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus
from pathlib import Path

import pytest

from live.client.sender import parse_retry_after
from live.errors import SetupError
from live.send.run import SendOutcome
from tests.send.support import many, send, write

COUNTED = (200, b'{"accepted":3,"duplicate":0,"rejected":[],"offsets":{}}')


@asynccontextmanager
async def answering(*answers: tuple[int, bytes], retry_after: str = "0") -> AsyncIterator[str]:
    """Run a server that returns these answers, one for each request."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
        status, body = left.pop(0)
        writer.write(
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nRetry-After: {retry_after}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
            + body
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    assert not left


@pytest.mark.parametrize(
    "answer",
    [(500, b"oh"), (502, b"<html>bad gateway"), (503, b'{"code":"outcome_unknown"}'), (504, b"")],
    ids=lambda answer: str(answer[0]),
)
async def test_a_batch_with_an_unknown_outcome_is_sent_again(tmp_path: Path, answer: tuple[int, bytes]) -> None:
    """Events with ids are sent again. Without ids, the run stops."""
    path = write(tmp_path / "e.ndjson", many(3))
    async with answering(answer, answer, COUNTED) as url:
        assert await send(path, url) == SendOutcome(sent=3, accepted=3, lost=2)
    async with answering(answer) as url:
        with pytest.raises(SetupError, match=f"was lost .{answer[0]}: .* may have been counted"):
            await send(path, url, ids=False)


@pytest.mark.parametrize("status", [408, 429, 503])
@pytest.mark.parametrize("ids", [True, False])
async def test_a_batch_that_was_not_counted_is_sent_again(tmp_path: Path, status: int, *, ids: bool) -> None:
    """The events may have ids or not."""
    path = write(tmp_path / "e.ndjson", many(3))
    async with answering((status, b"{}"), COUNTED) as url:
        assert await send(path, url, ids=ids) == SendOutcome(sent=3, accepted=3)


@pytest.mark.parametrize("status", [301, 400, 404, 413, 415, 501])
async def test_a_batch_that_is_refused_is_not_sent_again(tmp_path: Path, status: int) -> None:
    """The error message contains the server's answer."""
    path = write(tmp_path / "e.ndjson", many(3))
    async with answering((status, b"no such luck")) as url:
        with pytest.raises(SetupError, match=f"refused the request with {status}: no such luck"):
            await send(path, url)


@pytest.mark.slow
async def test_retry_after_is_obeyed(tmp_path: Path) -> None:
    """`Retry-After` is a number of seconds or a date.

    The run ends if a 503 asks for a longer wait than the patience.
    """
    path = write(tmp_path / "e.ndjson", many(3))
    for date in (False, True):
        value = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True) if date else "1"
        began = asyncio.get_running_loop().time()
        async with answering((429, b""), COUNTED, retry_after=value) as url:
            await send(path, url)
        assert asyncio.get_running_loop().time() - began > 0.9
    async with answering((503, b""), retry_after="3600") as url:
        with pytest.raises(SetupError, match="stays unavailable"):
            await send(path, url)


@pytest.mark.parametrize(("value", "seconds"), [("7", 7), ("9" * 400, 86400), ("", None), ("soon", None), ("-1", None)])
def test_retry_after_is_parsed(value: str, seconds: float | None) -> None:
    """`Retry-After` is a number of seconds or a date. A date in the past means 0 seconds. Other values are ignored."""
    assert parse_retry_after(value) == seconds
    assert parse_retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0
