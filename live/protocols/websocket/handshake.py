"""The opening handshake of a viewer's WebSocket (RFC 6455, section 4): it takes an HTTP connection over."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from starlette.datastructures import QueryParams
from websockets.datastructures import Headers
from websockets.exceptions import NegotiationError
from websockets.extensions import Extension
from websockets.extensions.permessage_deflate import PerMessageDeflate, ServerPerMessageDeflateFactory
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import ExtensionParameter

from live.auth.authenticator import Authenticator
from live.auth.client import ClientResolver
from live.auth.rate_limiter import RateLimiter, payer_of
from live.auth.signed_in import marked_cookie
from live.domain.reader import NOBODY, Reader
from live.fanout.subscription import Subscription
from live.protocols.connection_limits import ConnectionLimits, Limited
from live.protocols.http.parser import Peer, RequestHead
from live.protocols.viewer_reaper import ViewerReaper
from live.protocols.websocket.viewer import QUIET, WINDOW_BITS, ViewerSocket, inflating
from live.settings import Settings

_PATH: Final = re.compile(rb"/v1/boards/([^/]+)/live")


class _SharedDeflateFactory(ServerPerMessageDeflateFactory):
    """Accepts offers of clients that keep the whole window. Clients compress each message separately."""

    def __init__(self) -> None:
        super().__init__(client_no_context_takeover=True, compress_settings={"memLevel": 1})

    def process_request_params(
        self, params: Sequence[ExtensionParameter], accepted_extensions: Sequence[Extension]
    ) -> tuple[list[ExtensionParameter], PerMessageDeflate]:
        """Agree on parameters, with an extension that has no compressor.

        The library makes a compressor for each client, which would stay in memory until the next garbage collection.

        Raises:
            NegotiationError: the client does not keep the whole window. The next offer of the client is used, or no
                compression.
        """
        answer, extension = super().process_request_params(params, accepted_extensions)
        if extension.local_no_context_takeover or extension.local_max_window_bits != WINDOW_BITS:
            raise NegotiationError("the client keeps less than the last 32 KiB")
        return answer, inflating()


def shake_hands(target: bytes, fields: Headers) -> tuple[bytes, bool, bool]:
    """Answer a request for an upgrade.

    Returns the response, whether the connection is a WebSocket now, and whether the client takes compressed frames.
    """
    handshake = ServerProtocol(logger=QUIET, extensions=[_SharedDeflateFactory()])
    handshake.send_response(handshake.accept(Request(target.decode("latin-1"), fields)))
    return b"".join(handshake.data_to_send()), handshake.state is State.OPEN, bool(handshake.extensions)


class Upgrade(NamedTuple):
    """The response to a request for a WebSocket. `take_over` starts the socket. It is None if the handshake failed."""

    response: bytes
    take_over: Callable[[asyncio.Transport, Limited], None] | None


class Upgrades:
    """The route of the viewers' WebSocket. A process that only takes events does not have it."""

    def __init__(
        self,
        settings: Settings,
        clients: ClientResolver,
        authenticator: Authenticator,
        rate_limiter: RateLimiter,
        limits: ConnectionLimits,
        reaper: ViewerReaper,
    ) -> None:
        self._settings = settings
        self._clients = clients
        self._authenticator = authenticator
        self._rate_limiter = rate_limiter
        self._limits = limits
        self._reaper = reaper

    def respond(
        self, head: RequestHead, peer: Peer, session: Reader | None = None
    ) -> Upgrade | Coroutine[None, None, Reader] | None:
        """Answer a request; None if the target has no WebSocket.

        If the client may be signed in, return the search for its session: call this again with the result.

        Raises:
            ProblemError: the host, the origin, the board or the query is refused, the limits leave no room, or the
                client exceeds its rate.
            StoreUnavailableError: the API key of the reader can't be checked now.
        """
        path, _, query = head.target.partition(b"?")
        match = _PATH.fullmatch(unquote_to_bytes(path))
        if match is None or self._settings.role == "ingest":
            return None
        client = self._clients.resolve(peer.address, head.fields, tls=peer.tls)
        client.require_origin(self._settings.allowed_origins)
        params = QueryParams(query.decode())
        reader = self._authenticator.reader_of(head.fields, client, params, session or NOBODY)
        if session is None:
            self._rate_limiter.admit_read(payer_of(reader, client))
            if (cookie := marked_cookie(head.fields)) is not None:
                return self._authenticator.signed_in.find(cookie, client)
        subscription = Subscription.parse(params, self._settings, reader)
        reaper, network = self._reaper, client.network
        channel = reaper.hub.admit(match[1].decode("utf-8", "replace"), subscription, network)
        fields = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in head.fields)
        response, is_open, deflates = shake_hands(head.target, Headers(fields))
        if not is_open:
            return Upgrade(response, None)

        def take_over(transport: asyncio.Transport, place: Limited) -> None:
            self._limits.closed(place)
            socket = ViewerSocket(reaper, network, deflates=deflates)
            transport.set_protocol(socket)
            socket.connection_made(transport)
            socket.viewer = reaper.hub.add_push_viewer(channel, subscription, network, socket)

        return Upgrade(response, take_over)

    def drain(self) -> None:
        """Disconnect the viewers: the server stops."""
        self._reaper.hub.drain()
