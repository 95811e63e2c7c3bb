"""Takes a connection over for the WebSocket of a viewer."""

import asyncio
import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

from starlette.datastructures import QueryParams

from live.auth.client import ClientResolver
from live.fanout.subscription import Subscription
from live.protocols.connection_limits import ConnectionLimits, Limited
from live.protocols.http.parser import Peer, RequestHead
from live.protocols.viewer_reaper import ViewerReaper
from live.protocols.websocket.handshake import fields_of, shake_hands
from live.protocols.websocket.viewer import ViewerSocket
from live.settings import Settings

_PATH: Final = re.compile(rb"/v1/boards/([^/]+)/live")

TakeOver: TypeAlias = Callable[[asyncio.Transport, Limited], None]


class Upgrade(NamedTuple):
    """The response to a request for a WebSocket; `take_over` starts the socket, or is None if the handshake failed."""

    response: bytes
    take_over: TakeOver | None


class Upgrades:
    """The route of the viewers' WebSocket. A process that only takes events does not have it."""

    def __init__(
        self, settings: Settings, clients: ClientResolver, limits: ConnectionLimits, reaper: ViewerReaper
    ) -> None:
        self._settings = settings
        self._clients = clients
        self._limits = limits
        self._reaper = reaper

    def respond(self, head: RequestHead, peer: Peer) -> Upgrade | None:
        """The response to a request; None if the target has no WebSocket.

        Raises:
            ProblemError: the host, the origin, the board or the query is refused, or the limits leave no room.
        """
        path, _, query = head.target.partition(b"?")
        match = _PATH.fullmatch(unquote_to_bytes(path))
        if match is None or self._settings.role == "ingest":
            return None
        client = self._clients.resolve(peer.address, head.fields, tls=peer.tls)
        client.require_origin(self._settings.allowed_origins)
        subscription = Subscription.parse(QueryParams(query.decode()), self._settings)
        reaper, network = self._reaper, client.network
        channel = reaper.hub.admit(match[1].decode("utf-8", "replace"), subscription, network)
        response, is_open, deflates = shake_hands(head.target, fields_of(head.fields))
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
