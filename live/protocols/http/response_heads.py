"""Encodes replies. Replies of one kind share their head except for the length, until `date` changes."""

from collections.abc import Iterable
from typing import Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.server import ServerState

from live.ingest.replies import POLICY_HEADER, SECURITY_HEADERS, Reply


class ResponseHeads:
    """Encodes replies, with the header fields that uvicorn adds to every response (`date`)."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._default: list[tuple[bytes, bytes]] = []
        self._known: dict[tuple[int, bytes, bytes], bytes] = {}
        self._last_reply: Reply | None = None
        self._last_bytes = b""

    def bytes_of(self, reply: Reply, *, keep_alive: bool) -> bytes:
        """The complete response; a reply that many requests share is encoded once."""
        if self._state.default_headers is not self._default:
            self._default = self._state.default_headers
            self._known.clear()
            self._last_reply = None
        if not keep_alive:
            return self._make(reply, _LAST_END)
        if reply is not self._last_reply:
            self._last_reply, self._last_bytes = reply, self._make(reply, _END)
        return self._last_bytes

    def _make(self, reply: Reply, end: bytes) -> bytes:
        kind = (reply.status, reply.media_type, reply.cache)
        fixed = self._known.get(kind)
        if fixed is None:
            fields = _lines((*self._default, *reply.fixed_headers))
            fixed = self._known[kind] = STATUS_LINE[reply.status] + fields
        extra, policy = (_lines(reply.extra), _policy_of(reply)) if reply.extra else (b"", _POLICY)
        if not reply.media_type:
            return fixed + extra + policy + end
        return b"%b%bcontent-length: %d\r\n%b%b%b" % (fixed, extra, len(reply.body), policy, end, reply.body)


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"%b: %b\r\n" % header for header in headers)


def _policy_of(reply: Reply) -> bytes:
    """The content security policy, unless the reply has one of its own, as some pages do."""
    return b"" if any(name == POLICY_HEADER[0] for name, _ in reply.extra) else _POLICY


_POLICY: Final = _lines((POLICY_HEADER,))
_END: Final = _lines(SECURITY_HEADERS) + b"\r\n"
_LAST_END: Final = _END[:-2] + b"connection: close\r\n\r\n"
