"""Decompresses gzip bodies, up to the limit that the setting `max_body` gives."""

import zlib
from typing import Final

from live.errors import ProblemError

_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
_MOST_MEMBERS: Final = 100  # zlib copies the rest of its input after each


def is_gzip(content_encoding: str) -> bool:
    """Tell whether a content encoding is gzip.

    Raises:
        ProblemError: `unsupported_media_type`, for any other encoding than gzip and identity.
    """
    encoding = content_encoding.strip().lower()
    if encoding not in {"", "identity", "gzip"}:
        raise ProblemError("unsupported_media_type", "send the body as it is, or with Content-Encoding: gzip")
    return encoding == "gzip"


def decompress(body: bytes, most: int) -> bytes:
    """Decompress gzip, up to a limit. RFC 1952 allows several members in a row.

    Raises:
        ProblemError: `malformed_body` or `body_too_large`.
    """
    output, rest = bytearray(), body
    try:
        for _ in range(_MOST_MEMBERS):
            if not rest:
                break
            member = zlib.decompressobj(_GZIP_WINDOW)
            output += member.decompress(rest, most + 1 - len(output))
            if len(output) > most:
                raise too_large(most)
            if not member.eof:
                raise ProblemError("malformed_body", "the gzip body is cut short")
            rest = member.unused_data
    except zlib.error as error:
        raise ProblemError("malformed_body", f"not gzip: {error}") from None
    if rest:
        raise ProblemError("malformed_body", f"the gzip body has more than {_MOST_MEMBERS} members")
    return bytes(output)


def too_large(most: int) -> ProblemError:
    """Make the problem for a body of more than `most` bytes."""
    return ProblemError("body_too_large", f"the setting max_body allows {most} bytes after decompression")
