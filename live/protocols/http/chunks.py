"""The chunked transfer coding of a request body (RFC 9112, section 7.1), without I/O."""

import re
from typing import Final

from live.errors import ProblemError

MAX_LINE: Final = 16 * 1024  # bytes of a chunk's size line, and of all trailers together
_MOST_AT_ONCE: Final = 2048  # chunks decoded in one call, so that many small ones do not hold up the event loop
# Extensions are ignored, but may not contain control characters other than a tab.
_SIZE: Final = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_TRAILER: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*\r\n")


class ChunkReader:
    """Decodes a chunked body."""

    __slots__ = ("_left", "_trailers", "done")

    def __init__(self) -> None:
        self.done = False
        self._left = -1  # bytes missing from the current chunk and its line end; -1 before a size
        self._trailers: int | None = None  # bytes of trailers so far; None before the last chunk

    def read(self, data: bytes, at: int) -> tuple[bytes, int]:
        """Decode `data` from position `at`; returns the data of the chunks and the position of the first unused byte.

        Unused bytes are an incomplete line, or more chunks than one call decodes. `done` is true after the last
        trailer.

        Raises:
            ProblemError: `malformed_request`, or `headers_too_large` for oversized extensions or trailers.
        """
        parts: list[bytes] = []
        for _ in range(_MOST_AT_ONCE):
            before = at
            if self._trailers is not None:
                at = self._read_trailer(data, at)
            elif self._left >= 0:
                at = self._read_data(data, at, parts)
            else:
                at = self._read_size(data, at)
            if self.done or at == before:
                break
        return parts[0] if len(parts) == 1 else b"".join(parts), at

    def _read_size(self, data: bytes, at: int) -> int:
        match = _SIZE.match(data, at)
        if match is None:
            _require_incomplete(data, at, b"0123456789abcdefABCDEF")
            return at
        if match.end() - at > MAX_LINE:
            raise _too_large()
        size = int(match[1], 16)
        if size:
            self._left = size + 2
        else:
            self._trailers = 0
        return match.end()

    def _read_data(self, data: bytes, at: int, parts: list[bytes]) -> int:
        """Read the available part of the current chunk, and the line end after it."""
        available = len(data) - at
        if self._left > 2:  # noqa: PLR2004 - the line end
            part = data[at : at + self._left - 2]
            if part:
                parts.append(part)
            self._left -= len(part)
            at += len(part)
            available -= len(part)
        if self._left > 2 or not available:  # noqa: PLR2004
            return at
        end = data[at : at + self._left]
        if end != b"\r\n"[2 - self._left :][: len(end)]:
            raise ProblemError("malformed_request", "a chunk must end with CR LF")
        self._left -= len(end)
        if not self._left:
            self._left = -1
        return at + len(end)

    def _read_trailer(self, data: bytes, at: int) -> int:
        """Skip a trailer."""
        assert self._trailers is not None, "called after the last chunk"  # noqa: S101
        if data.startswith(b"\r\n", at):
            self.done = True
            return at + 2
        match = _TRAILER.match(data, at)
        if match is None:
            if self._trailers + len(data) - at > MAX_LINE:
                raise _too_large()
            if b"\n" in data[at:]:
                raise ProblemError("malformed_request", "a trailer must be a header field")
            return at
        self._trailers += match.end() - at
        if self._trailers > MAX_LINE:
            raise _too_large()
        return match.end()


def _require_incomplete(data: bytes, at: int, first: bytes) -> None:
    """Check that an incomplete line can still become valid."""
    if len(data) - at > MAX_LINE:
        raise _too_large()
    if at < len(data) and (data[at] not in first or b"\n" in data[at:]):
        raise ProblemError("malformed_request", "the size of a chunk must be a hexadecimal number")


def _too_large() -> ProblemError:
    return ProblemError("headers_too_large", f"chunk extensions and trailers may have at most {MAX_LINE} bytes")
