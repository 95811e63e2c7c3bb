"""The parts that all HTTP connections of a process share."""

from collections.abc import Callable, Iterable
from typing import Final, cast

import msgspec
from starlette.datastructures import QueryParams
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.server import ServerState

from live.auth.authenticator import Authenticator
from live.auth.client import ClientResolver
from live.auth.rate_limiter import RateLimiter
from live.domain.board import Boards
from live.domain.producer import Principal
from live.ingest.committer import PLAIN, Wants
from live.ingest.intake import AskSoon, CheckedHead, Intake
from live.ingest.replies import POLICY_HEADER, SECURITY_HEADERS, Reply
from live.protocols.body_budget import BodyBudget
from live.protocols.connection_limits import ConnectionLimits
from live.protocols.http.exchange import Reads
from live.protocols.http.parser import Peer, RequestHead
from live.protocols.http.request_counts import RequestTally
from live.protocols.viewer_reaper import ViewerReaper
from live.protocols.websocket import Upgrades
from live.settings import Settings

_MOST_KNOWN: Final = 1024
_LONGEST_KNOWN: Final = 256  # bytes of a header field
_CHECKED_EACH_TIME: Final = (b"idempotency-key", b"prefer")
_Kind = tuple[bytes, bytes | None, bytes | None]


class EventChecks:
    """Checks the heads of requests with events.

    Most producers send the same credentials and the same kind of body each time. The result of the check is remembered
    by both, until API keys or boards change. Do not await while you check a request, so that its producer and its head
    are checked against the same API keys and boards.
    """

    def __init__(
        self, settings: Settings, intake: Intake, authenticator: Authenticator, clients: ClientResolver
    ) -> None:
        self._most = settings.max_body
        self._intake = intake
        self._authenticator = authenticator
        self._clients = clients
        self._known: dict[_Kind, CheckedHead] = {}
        self._generation = -1

    def known(self, head: RequestHead, peer: Peer) -> CheckedHead | None:
        """Return the result for the same credentials and the same kind of body, or None if it is not known.

        Raises:
            ProblemError: the host is not allowed.
        """
        if self._generation != self._authenticator.generation:
            self._known.clear()
            self._generation = self._authenticator.generation
        self._clients.resolve(peer.address, head.fields, tls=peer.tls)
        kind = _kind_of(head)
        return None if kind is None or (head.length or 0) > self._most else self._known.get(kind)

    def producer_of(self, head: RequestHead, peer: Peer) -> Principal:
        """Find the producer of a request.

        Raises:
            ProblemError: the host is not allowed, a parameter is not valid, or the producer is unknown or may not post.
        """
        client = self._clients.resolve(peer.address, head.fields, tls=peer.tls)
        _wants_of(head.target)
        return self._authenticator.authorize(_first_values(head).get(b"authorization"), client)

    def check(self, head: RequestHead, producer: Principal) -> CheckedHead:
        """Check the head of a request that is within the rate of its producer."""
        checked = self._intake.read_head(producer, head.fields, _first_values(head), _wants_of(head.target))
        kind = _kind_of(head)
        if kind is not None:
            if len(self._known) >= _MOST_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[kind] = checked
        return checked


def _kind_of(head: RequestHead) -> _Kind | None:
    """Return what the check of a head depends on: the first values of three fields. None: check this head each time."""
    authorization = media_type = coding = None
    for name, value in head.fields:
        if name == b"authorization":
            authorization = value if authorization is None else authorization
        elif name == b"content-type":
            media_type = value if media_type is None else media_type
        elif name == b"content-encoding":
            coding = value if coding is None else coding
        elif name in _CHECKED_EACH_TIME:
            return None
    if not authorization or b"?" in head.target or len(authorization) + len(media_type or b"") > _LONGEST_KNOWN:
        return None
    return authorization, media_type, coding


def _wants_of(target: bytes) -> Wants:
    """Read the options in the query of a target.

    Raises:
        ProblemError: `parameter_invalid`.
    """
    text = target.partition(b"?")[2]
    if not text:
        return PLAIN
    return Wants.read(QueryParams(text.decode()))


def _first_values(head: RequestHead) -> dict[bytes, bytes]:
    return dict(reversed(head.fields))


class ResponseHeads:
    """Encodes replies, with the header fields that uvicorn adds to every response (`date`)."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._default: list[tuple[bytes, bytes]] = []
        self._known: dict[tuple[int, bytes, bytes], bytes] = {}
        self._last_reply: Reply | None = None
        self._last_bytes = b""

    def bytes_of(self, reply: Reply, *, keep_alive: bool) -> bytes:
        """Encode a complete response. If requests share a reply, it is encoded once for responses in a row."""
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
    """The parts that the connections of a process share. The lifespan state has this struct as `parts`."""

    settings: Settings
    authenticator: Authenticator
    rate_limiter: RateLimiter
    clients: ClientResolver
    intake: Intake
    limits: ConnectionLimits
    bodies: BodyBudget
    reaper: ViewerReaper
    reads: Reads
    ask_soon: AskSoon
    hide: Callable[[Boards], None]
    tally: RequestTally
    server: ServerState | None = None
    heads: ResponseHeads = cast("ResponseHeads", None)
    checks: EventChecks = cast("EventChecks", None)
    upgrades: Upgrades = cast("Upgrades", None)
    root_path: bytes = b""

    def serve(self, server: ServerState) -> None:
        """Make the parts that need the server, which only a connection knows. Later calls do nothing."""
        if self.server is None:
            self.server = server
            self.reaper.serve(server)
            self.heads = ResponseHeads(server)
            self.checks = EventChecks(self.settings, self.intake, self.authenticator, self.clients)
            self.upgrades = Upgrades(
                self.settings, self.clients, self.authenticator, self.rate_limiter, self.limits, self.reaper
            )
            self.root_path = self.settings.root_path.encode()
