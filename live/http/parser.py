"""Parses HTTP/1.1 requests from the bytes of a connection (RFC 9112), without I/O.

llhttp parses one complete head at a time, with a new parser for each head. `RequestReader` derives the end of a body
from the fields of the head, so llhttp never decides where a body ends or whether a connection switches protocols.
Therefore no byte of a body can be parsed as a request.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

import httptools
import msgspec

from live.errors import ProblemError
from live.http.parameters import require_few

MAX_LINE: Final = 16 * 1024  # bytes of a chunk's size line, and of all trailers together
_MOST_AT_ONCE: Final = 2048  # chunks decoded in one call, so that many small chunks do not block the event loop
# The extensions of a chunk are ignored, but may not contain control characters other than a tab.
_SIZE: Final = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_TRAILER: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*\r\n")


class ChunkReader:
    """Decodes a chunked body."""

    __slots__ = ("_left", "_trailers", "done")

    def __init__(self) -> None:
        self.done = False
        self._left = 0  # bytes missing from the current chunk and its line end; 0 before a size
        self._trailers: int | None = None  # bytes of trailers so far; None before the last chunk

    def read(self, data: bytes, at: int) -> tuple[bytes, int]:
        """Decode `data` from position `at`. Return the data of the chunks and the position of the first unused byte.

        Unused bytes are an incomplete line, or more chunks than one call decodes. `done` is true after the last
        trailer.
        """
        parts: list[bytes] = []
        for _ in range(_MOST_AT_ONCE):
            before = at
            if self._trailers is not None:
                at = self._read_trailer(data, at)
            elif self._left:
                # Take the available part of the current chunk and of the line end after it.
                piece, size = data[at : at + self._left], max(0, self._left - 2)
                parts.append(piece[:size])
                self._left -= len(piece)
                if not b"\r\n"[: 2 - self._left].endswith(piece[size:]):
                    raise ProblemError("malformed_request", "a chunk must end with CR LF")
                at += len(piece)
            else:
                at = self._read_size(data, at)
            if self.done or at == before:
                break
        return parts[0] if len(parts) == 1 else b"".join(parts), at

    def _read_size(self, data: bytes, at: int) -> int:
        match = _SIZE.match(data, at)
        if match is None:
            if len(data) - at > MAX_LINE:
                raise _too_large()
            if at < len(data) and (data[at] not in b"0123456789abcdefABCDEF" or b"\n" in data[at:]):
                raise ProblemError("malformed_request", "the size of a chunk must be a hexadecimal number")
            return at  # the line is incomplete
        if match.end() - at > MAX_LINE:
            raise _too_large()
        size = int(match[1], 16)
        if size:
            self._left = size + 2
        else:
            self._trailers = 0
        return match.end()

    def _read_trailer(self, data: bytes, at: int) -> int:
        """Skip a trailer, or the empty line after the last trailer."""
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


def _too_large() -> ProblemError:
    return ProblemError("headers_too_large", f"chunk extensions and trailers may have at most {MAX_LINE} bytes")


MAX_HEAD: Final = 64 * 1024
_END: Final = b"\r\n\r\n"
_LARGEST_CACHED: Final = 2048  # bytes of a head; most heads have a few hundred
_MOST_CACHED: Final = 1024
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_BARE_NEWLINE: Final = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)")
_ABSOLUTE: Final = re.compile(rb"https?://([^/?#]+)([^#]*)", re.IGNORECASE)
_FIRST_BYTES: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
# This expression refuses several spaces and other versions, which llhttp would accept. It also refuses an empty line
# before the request line, which some parsers skip.
_REQUEST_LINE: Final = re.compile(rb"[A-Z]+ [\x21-\x7e]+ HTTP/1\.[01]\r\n")

Fields = tuple[tuple[bytes, bytes], ...]


class RequestHead(msgspec.Struct, frozen=True):
    """The head of one request.

    `target` is path and query, or `*`. The names of `fields` are in lower case. `length` is the
    size of the body in bytes, or None for a chunked body. `has_body` is true if a body follows, even an empty chunked
    body. With `expects_continue`, the client waits for status 100 before it sends the body. `asks_for_websocket` is
    true if the head asks for a WebSocket, with GET, HTTP/1.1 and no body.
    """

    method: bytes
    target: bytes
    version: str
    fields: Fields
    keep_alive: bool
    length: int | None
    has_body: bool
    expects_continue: bool
    asks_for_websocket: bool


class Peer(NamedTuple):
    """The other end of a connection: its address, empty for a unix socket, and whether it uses TLS."""

    address: str
    tls: bool


class BodyPiece(msgspec.Struct, frozen=True):
    """A piece of a body. `last` is true if the request ends with this piece."""

    data: bytes
    last: bool


class RequestReader:
    """Parses the requests of one connection: feed it bytes, and pull events until `next` returns None."""

    __slots__ = ("_at", "_chunks", "_data", "_left", "_searched")

    def __init__(self) -> None:
        self._data = b""
        self._at = 0
        self._searched = 0  # bytes of an incomplete head already searched for its end
        self._left = 0  # bytes of the body still missing
        self._chunks: ChunkReader | None = None

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._data = self._data[self._at :] + data
        self._at = 0

    @property
    def unread(self) -> int:
        """The number of bytes that were fed and not parsed, including an incomplete head."""
        return len(self._data) - self._at

    @property
    def inside(self) -> bool:
        """Whether a request is incomplete."""
        return self._at < len(self._data) or bool(self._left) or self._chunks is not None

    def rest(self) -> bytes:
        """Remove and return the bytes that were not parsed."""
        rest, self._data, self._at = self._data[self._at :], b"", 0
        return rest

    def next(self) -> RequestHead | BodyPiece | None:
        """Parse the next head or piece of a body; None if more bytes are needed."""
        data, at, left = self._data, self._at, self._left
        if at >= len(data):
            return None
        if left:  # the rest of a body
            part = data[at : at + left]
            self._at = at + len(part)
            self._left = left = left - len(part)
            return BodyPiece(part, not left)
        if self._chunks is not None:  # the rest of a chunked body
            part, self._at = self._chunks.read(data, at)
            is_last = self._chunks.done
            if is_last:
                self._chunks = None
            return BodyPiece(part, is_last) if is_last or self._at != at else None
        # The first byte and the line ends of an incomplete head are checked, so that a client of another protocol gets
        # an answer immediately.
        if data[at] not in _FIRST_BYTES:
            raise ProblemError("malformed_request", "a request must begin with its method in capital letters")
        end = data.find(_END, at + self._searched)
        if end == -1:
            if len(data) - at > MAX_HEAD:
                raise _head_too_large()
            if _BARE_NEWLINE.search(data, at + self._searched):
                raise ProblemError("malformed_request", "lines must end with CR LF")
            self._searched = max(0, len(data) - at - len(_END) + 1)
            return None
        end += len(_END)
        self._searched = 0
        if end - at > MAX_HEAD:
            raise _head_too_large()
        raw = data[at:end]
        head = _known_head(raw) if len(raw) <= _LARGEST_CACHED else parse_head(raw)
        self._at = end
        if head.length is None:
            self._chunks = ChunkReader()
        else:
            self._left = head.length
        return head


class _Parsed:
    __slots__ = ("fields", "target")

    def __init__(self) -> None:
        self.fields: list[tuple[bytes, bytes]] = []
        self.target = b""

    def on_url(self, target: bytes) -> None:
        self.target += target

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name.lower(), value.strip(b" \t")))


def parse_head(raw: bytes) -> RequestHead:
    """Parse one complete head, from its first byte to the empty line at its end."""
    if not _REQUEST_LINE.match(raw) or raw.startswith(b"CONNECT "):
        raise ProblemError("malformed_request", "the request line must be `METHOD target HTTP/1.1`, without CONNECT")
    parsed = _Parsed()
    parser = httptools.HttpRequestParser(parsed)
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade:
        pass  # llhttp stops at every Upgrade field; the head is complete here
    except httptools.HttpParserError as error:
        raise ProblemError("malformed_request", f"not HTTP: {error}") from None
    version, method = parser.get_http_version(), parser.get_method()
    fields = tuple(parsed.fields)
    hosts = sum(name == b"host" for name, _ in fields)
    if hosts > 1 or (not hosts and version == "1.1"):
        raise ProblemError("host_invalid", "send one `Host`: a name or address, with the port unless it is the default")
    target = parsed.target
    if target.startswith(b"/") or target == b"*":
        target = target.partition(b"#")[0]
    else:  # the authority of an absolute URL replaces Host (RFC 9112, section 3.2.2)
        absolute = _ABSOLUTE.match(target)
        if absolute is None:
            raise ProblemError("malformed_request", "the target must be a path, or an absolute http or https URL")
        target = absolute[2] if absolute[2].startswith(b"/") else b"/" + absolute[2]
        fields = tuple((name, absolute[1] if name == b"host" else value) for name, value in fields)
    require_few(target)
    length = _length_of(fields, version)
    has_body, is_newest = length != 0, version == "1.1"
    return RequestHead(
        method=method,
        target=target,
        version=version,
        fields=fields,
        keep_alive=is_newest and b"close" not in tokens(fields, b"connection"),
        length=length,
        has_body=has_body,
        expects_continue=is_newest and has_body and b"100-continue" in tokens(fields, b"expect"),
        asks_for_websocket=is_newest
        and method == b"GET"
        and not has_body
        and b"upgrade" in tokens(fields, b"connection")
        and b"websocket" in tokens(fields, b"upgrade"),
    )


_known_head: Final = lru_cache(_MOST_CACHED)(parse_head)  # clients send the same head again and again


def tokens(fields: Fields, name: bytes) -> list[bytes]:
    """Split the lists in all header fields of a name into elements in lower case."""
    return [part.strip().lower() for found, value in fields if found == name for part in value.split(b",")]


def _length_of(fields: Fields, version: str) -> int | None:
    """Return the size of the body in bytes, or None if it is chunked (RFC 9112, section 6.3).

    Refuse fields that two parsers could understand differently: a second length, a length with chunks, another coding.
    """
    lengths = [value for name, value in fields if name == b"content-length"]
    codings = [value for name, value in fields if name == b"transfer-encoding"]
    if codings:
        if lengths or version != "1.1" or [coding.lower() for coding in codings] != [b"chunked"]:
            raise ProblemError(
                "malformed_request", "the only supported Transfer-Encoding is chunked, without Content-Length"
            )
        return None
    if not lengths:
        return 0
    if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
        raise ProblemError("malformed_request", "Content-Length must be one whole number")
    return int(lengths[0])


def _head_too_large() -> ProblemError:
    return ProblemError("headers_too_large", f"a request line and its header fields may have at most {MAX_HEAD} bytes")
