"""Decompresses gzip bodies, up to the limit that the setting `max_body` gives."""

import zlib
from collections.abc import Generator
from typing import Final

from live.errors import ProblemError

_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
# Bytes decompressed at a time: few, because zlib copies the rest of its input after each gzip member, and there may be
# many members.
_CHUNK: Final = 4096
_CHUNKS_A_STEP: Final = 64  # chunks or members decompressed in one step
_BYTES_A_STEP: Final = 262_144  # bytes that one step decompresses, approximately


def is_gzip(content_encoding: str) -> bool:
    """Tell whether a content encoding is gzip.

    Raises:
        ProblemError: `unsupported_media_type`, for any other encoding than gzip and identity.
    """
    encoding = content_encoding.strip().lower()
    if encoding not in {"", "identity", "gzip"}:
        raise ProblemError("unsupported_media_type", "send the body as it is, or with Content-Encoding: gzip")
    return encoding == "gzip"


def decompress(body: bytes, most: int) -> Generator[None, None, bytes]:
    """Decompress gzip in steps, up to a limit. RFC 1952 allows several members in a row.

    Raises:
        ProblemError: `malformed_body` or `body_too_large`.
    """
    output = bytearray()
    position = chunks = done = 0
    try:
        while position < len(body):
            member = zlib.decompressobj(_GZIP_WINDOW)
            while not member.eof:
                chunk = body[position : position + _CHUNK]
                if not chunk:
                    raise ProblemError("malformed_body", "the gzip body is cut short")
                output += member.decompress(chunk, most + 1 - len(output))
                if len(output) > most:
                    raise too_large(most)
                position += len(chunk) - len(member.unused_data)
                chunks += 1
                if chunks % _CHUNKS_A_STEP == 0 or len(output) - done > _BYTES_A_STEP:
                    done = len(output)
                    yield
    except zlib.error as error:
        raise ProblemError("malformed_body", f"not gzip: {error}") from None
    return bytes(output)


def too_large(most: int) -> ProblemError:
    """Make the problem for a body of more than `most` bytes."""
    return ProblemError("body_too_large", f"the setting max_body allows {most} bytes after decompression")
