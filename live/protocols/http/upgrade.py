"""What a connection goes over to that asks for WebSocket: a producer's socket, or a viewer's."""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import unquote_to_bytes

from starlette.datastructures import QueryParams
from uvicorn.server import ServerState

from live.auth.client import Client
from live.fanout.subscription import Subscription
from live.ingest.intake import Intake
from live.ingest.session import Session
from live.protocols.connection_limits import ConnectionLimits, Limited
from live.protocols.http.requests import RequestHead
from live.protocols.viewer_reaper import Attendant
from live.protocols.websocket.handshake import fields_of, shake_hands
from live.protocols.websocket.producer import ProducerSocket
from live.protocols.websocket.viewer import ViewerSocket

PRODUCERS_PATH: Final = b"/v1/events/live"
_VIEWERS_PATH: Final = re.compile(rb"/v1/boards/([^/]+)/live")

Headers = Sequence[tuple[bytes, bytes]]
Take = Callable[[asyncio.Transport, Limited], None]
Begin = Callable[[Headers, Client], Take]


class Upgrades:
    """The two routes that speak WebSocket without ASGI; a process serves them by its role."""

    def __init__(self, intake: Intake, limits: ConnectionLimits, attendant: Attendant, state: ServerState) -> None:
        self._intake = intake
        self._limits = limits
        self._attendant = attendant
        self._state = state

    def find(self, target: bytes) -> Begin | None:
        """What begins the socket of a target; None where there is none.

        Called with header fields and the client it raises ProblemError or StoreUnavailableError, or gives what
        takes the connection over once hands are shaken.
        """
        role, (path, _, query) = self._intake.settings.role, target.partition(b"?")
        path = unquote_to_bytes(path)
        if path == PRODUCERS_PATH and role != "viewers":
            return self._begin_producer
        match = _VIEWERS_PATH.fullmatch(path)
        if match is None or role == "ingest":
            return None
        board, asked = match[1].decode("utf-8", "replace"), QueryParams(query.decode())
        return lambda _headers, client: self._begin_viewer(board, asked, client.address)

    def shake_hands(self, begin: Begin, head: RequestHead, client: Client) -> tuple[bytes, Take | None]:
        """The answer to a request for a WebSocket, and what takes the connection over; None where it is refused.

        Raises:
            ProblemError: `origin_forbidden`, or what `begin` raises.
            StoreUnavailableError: whose API key is good can't be known now.
        """
        client.require_origin(self._intake.settings.allowed_origins)
        take = begin(head.fields, client)
        answer, is_open = shake_hands(head.target, fields_of(head.fields))
        return answer, take if is_open else None

    def drain(self) -> None:
        """The server stops: let viewers go."""
        self._attendant.hub.drain()

    def _begin_producer(self, headers: Headers, client: Client) -> Take:
        session = Session(self._intake, headers, client)

        def take(transport: asyncio.Transport, place: Limited) -> None:
            socket = ProducerSocket(self._intake, session, self._state, lambda: self._limits.closed(place))
            self._limits.busy(place)
            transport.set_protocol(socket)
            socket.connection_made(transport)

        return take

    def _begin_viewer(self, board: str, query: QueryParams, address: str) -> Take:
        asked = Subscription.parse(query, self._intake.settings)
        feed = self._attendant.hub.admit(board, asked, address)

        def take(transport: asyncio.Transport, place: Limited) -> None:
            self._limits.closed(place)
            socket = ViewerSocket(self._attendant, address)
            transport.set_protocol(socket)
            socket.connection_made(transport)
            socket.seat = self._attendant.hub.seat(feed, asked, address, socket)

        return take
