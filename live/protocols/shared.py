"""The parts that all HTTP connections of a process share."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from live.auth.authenticator import Authenticator
from live.auth.rates import RateLimiter
from live.auth.requester import RequesterResolver
from live.http.reply import POLICY_HEADER, SECURITY_HEADERS, Reply
from live.ingest.intake import Intake
from live.protocols.connection_limits import ConnectionLimits
from live.protocols.exchange import FindRead, RequestTally
from live.protocols.websocket import ViewerReaper
from live.settings import Settings


class ResponseHeads:
    """Encodes replies."""

    def __init__(self) -> None:
        self._default: list[tuple[bytes, bytes]] = []
        self._known: dict[tuple[int, bytes, bytes], bytes] = {}
        self._last_reply: Reply | None = None
        self._last_bytes = b""

    def bytes_of(self, reply: Reply, default: list[tuple[bytes, bytes]], *, keep_alive: bool) -> bytes:
        """Encode a complete response. If requests share a reply, it is encoded once for responses in a row.

        `default` are the header fields that uvicorn adds to every response; it makes another list each second.
        """
        if default is not self._default:
            self._default = default
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
        extra, policy = b"", _POLICY
        if reply.extra:
            extra = _lines(reply.extra)
            if any(name == POLICY_HEADER[0] for name, _ in reply.extra):  # some pages have their own policy
                policy = b""
        if not reply.media_type:
            return fixed + extra + policy + end
        return b"%b%bcontent-length: %d\r\n%b%b%b" % (fixed, extra, len(reply.body), policy, end, reply.body)


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"%b: %b\r\n" % header for header in headers)


_POLICY: Final = _lines((POLICY_HEADER,))
_END: Final = _lines(SECURITY_HEADERS) + b"\r\n"
_LAST_END: Final = _END[:-2] + b"connection: close\r\n\r\n"


class SharedParts(msgspec.Struct, kw_only=True):
    """The parts that the connections of a process use. The lifespan state has them as `parts`.

    `ask` reads changed boards. While the server is `stopping`, each connection answers at most one more request.
    """

    settings: Settings
    authenticator: Authenticator
    rate_limiter: RateLimiter
    clients: RequesterResolver
    intake: Intake
    limits: ConnectionLimits
    reaper: ViewerReaper
    ask: Callable[[], Awaitable[None]]
    root_path: bytes
    find_read: FindRead = lambda _head, _peer: None
    tally: RequestTally = msgspec.field(default_factory=RequestTally)
    heads: ResponseHeads = msgspec.field(default_factory=ResponseHeads)
    stopping: bool = False
