"""Reads a POST body: bounded before it is in memory, unpacked within the same bound, decoded by its content type."""

import zlib
from typing import Final

from starlette.requests import Request

from live.errors import ProblemError
from live.event import Body, decode_json, decode_ndjson
from live.settings import Settings

_DECODERS: Final = {"application/json": decode_json, "application/x-ndjson": decode_ndjson}
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
_PIECE: Final = 4096  # bytes unpacked at a time: what is behind a member's end is copied, and there may be many


async def read_events(request: Request, settings: Settings) -> Body:
    """The events of a request.

    Raises:
        ProblemError: `unsupported_media_type`, `body_too_large`, `malformed_body` or `too_many_events`.
    """
    media_type, _, parameters = request.headers.get("content-type", "").partition(";")
    decode = _DECODERS.get(media_type.strip().lower())
    charset = parameters.strip().lower().removeprefix("charset=").strip('"')
    if decode is None or charset not in {"", "utf-8", "utf8"}:
        wanted = " or ".join(_DECODERS)
        raise ProblemError("unsupported_media_type", f"send {wanted} in UTF-8, and name it in Content-Type")
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"identity", "gzip"}:
        raise ProblemError("unsupported_media_type", "send the body as it is, or with Content-Encoding: gzip")
    body = await _read(request, settings.max_body)
    if encoding == "gzip":
        body = _unpack(body, settings.max_body)
    return decode(body, settings.max_events)


async def _read(request: Request, most: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > most:
        raise _too_large(most)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise _too_large(most)
        parts.append(part)
    return b"".join(parts)


def _unpack(body: bytes, most: int) -> bytes:
    """Unpack gzip, members one after another as RFC 1952 allows, no further than the bound."""
    unpacked = bytearray()
    position = 0
    try:
        while position < len(body):
            member = zlib.decompressobj(_GZIP_WINDOW)
            while not member.eof:
                piece = body[position : position + _PIECE]
                if not piece:
                    raise ProblemError("malformed_body", "the gzip body is cut short")
                unpacked += member.decompress(piece, most + 1 - len(unpacked))
                if len(unpacked) > most:
                    raise _too_large(most)
                position += len(piece) - len(member.unused_data)
    except zlib.error as error:
        raise ProblemError("malformed_body", f"not gzip: {error}") from None
    return bytes(unpacked)


def _too_large(most: int) -> ProblemError:
    return ProblemError("body_too_large", f"the setting max_body allows {most} bytes, unpacked")
