"""WebSocket handshakes, and the sockets that take over the connection."""

import asyncio
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias, cast
from urllib.parse import unquote_to_bytes

from starlette.datastructures import QueryParams
from uvicorn.server import ServerState

from live.auth.client import Client
from live.fanout.subscription import Subscription
from live.ingest.session import Session
from live.protocols.connection_limits import Limited
from live.protocols.http.parts import Parts
from live.protocols.http.peer import Peer
from live.protocols.http.requests import RequestHead
from live.protocols.websocket.handshake import fields_of, shake_hands
from live.protocols.websocket.producer import ProducerSocket
from live.protocols.websocket.viewer import ViewerSocket

_PRODUCERS_PATH: Final = b"/v1/events/live"
_VIEWERS_PATH: Final = re.compile(rb"/v1/boards/([^/]+)/live")

TakeOver: TypeAlias = Callable[[asyncio.Transport, Limited], None]
_Admit: TypeAlias = Callable[[Client], "_Socket"]


class Upgrade(NamedTuple):
    """The response to a request for a WebSocket; `take_over` starts the socket, or is None if the handshake failed."""

    response: bytes
    take_over: TakeOver | None


class _Socket(NamedTuple):
    """A socket for an admitted client; `start` is called with true if the client takes compressed frames."""

    start: Callable[[asyncio.Transport, Limited, bool], None]
    may_deflate: bool


class Upgrades:
    """The two routes that serve WebSockets without ASGI; the role of the process decides which are available."""

    def __init__(self, parts: Parts, state: ServerState) -> None:
        self._parts = parts
        self._connections = cast("set[Any]", state.connections)  # uvicorn only calls `shutdown` on them

    def respond(self, head: RequestHead, peer: Peer) -> Upgrade | None:
        """The response to a request; None if the target has no WebSocket.

        Raises:
            ProblemError: the host, the origin, the API key or the query is refused, or the limits leave no room.
            StoreUnavailableError: the API keys can't be checked now.
        """
        admit = self._find(head)
        if admit is None:
            return None
        client = self._parts.clients.resolve(peer.address, head.fields, tls=peer.tls)
        client.require_origin(self._parts.settings.allowed_origins)
        socket = admit(client)
        response, is_open, deflates = shake_hands(head.target, fields_of(head.fields), may_deflate=socket.may_deflate)
        if not is_open:
            return Upgrade(response, None)
        return Upgrade(response, lambda transport, place: socket.start(transport, place, deflates))

    def drain(self) -> None:
        """Disconnect the viewers: the server stops."""
        self._parts.reaper.hub.drain()

    def _find(self, head: RequestHead) -> _Admit | None:
        """The function that admits a client to the WebSocket at a target; None if there is none."""
        role, (path, _, query) = self._parts.settings.role, head.target.partition(b"?")
        path = unquote_to_bytes(path)
        if path == _PRODUCERS_PATH and role != "viewers":
            return lambda client: self._admit_producer(head, client)
        match = _VIEWERS_PATH.fullmatch(path)
        if match is None or role == "ingest":
            return None
        board, parameters = match[1].decode("utf-8", "replace"), QueryParams(query.decode())
        return lambda client: self._admit_viewer(board, parameters, client.address)

    def _admit_producer(self, head: RequestHead, client: Client) -> _Socket:
        parts, connections = self._parts, self._connections
        session = Session(parts.intake, parts.authenticator, parts.rate_limiter, head.fields, client)

        def start(transport: asyncio.Transport, place: Limited, _deflates: bool) -> None:  # noqa: FBT001
            def closed() -> None:
                connections.discard(socket)
                parts.limits.closed(place)

            socket = ProducerSocket(session, parts.settings.max_body, closed)
            parts.limits.busy(place)
            connections.add(socket)
            transport.set_protocol(socket)
            socket.connection_made(transport)

        return _Socket(start, may_deflate=False)

    def _admit_viewer(self, board: str, query: QueryParams, address: str) -> _Socket:
        reaper = self._parts.reaper
        subscription = Subscription.parse(query, self._parts.settings)
        channel = reaper.hub.admit(board, subscription, address)

        def start(transport: asyncio.Transport, place: Limited, deflates: bool) -> None:  # noqa: FBT001
            self._parts.limits.closed(place)
            socket = ViewerSocket(reaper, address, deflates=deflates)
            transport.set_protocol(socket)
            socket.connection_made(transport)
            socket.viewer = reaper.hub.add_push_viewer(channel, subscription, address, socket)

        return _Socket(start, may_deflate=True)
