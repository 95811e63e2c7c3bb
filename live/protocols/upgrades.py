"""What a connection goes over to that asks for WebSocket: a producer's socket, or a viewer's."""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import unquote_to_bytes

import httptools
from starlette.datastructures import QueryParams
from uvicorn.server import ServerState

from live.fanout.subscription import Subscription
from live.ingest.intake import Intake
from live.ingest.session import Session
from live.protocols.attendant import Attendant
from live.protocols.guard import Guard, Guarded
from live.protocols.viewers import ViewerSocket
from live.protocols.websocket import ProducerSocket

PRODUCERS_PATH: Final = b"/v1/events/live"
_VIEWERS_PATH: Final = re.compile(rb"/v1/boards/([^/]+)/live")

Headers = Sequence[tuple[bytes, bytes]]
Take = Callable[[asyncio.Transport, Guarded], None]
Begin = Callable[[Headers, str], Take]


class Upgrades:
    """The two routes that speak WebSocket without ASGI; a process serves them by its role."""

    def __init__(self, intake: Intake, guard: Guard, attendant: Attendant, state: ServerState) -> None:
        self._intake = intake
        self._guard = guard
        self._attendant = attendant
        self._state = state

    def find(self, target: bytes) -> Begin | None:
        """What begins the socket of a target; None where there is none.

        Called with header fields and the peer's address it raises ProblemError or StoreUnavailableError, or gives what
        takes the connection over once hands are shaken.
        """
        url, role = httptools.parse_url(target), self._intake.settings.role
        path = unquote_to_bytes(url.path)
        if path == PRODUCERS_PATH and role != "viewers":
            return self._begin_producer
        match = _VIEWERS_PATH.fullmatch(path)
        if match is None or role == "ingest":
            return None
        board, query = match[1].decode("utf-8", "replace"), QueryParams((url.query or b"").decode("latin-1"))
        return lambda _headers, address: self._begin_viewer(board, query, address)

    def drain(self) -> None:
        """The server stops: let viewers go."""
        self._attendant.hub.drain()

    def _begin_producer(self, headers: Headers, address: str) -> Take:
        session = Session(self._intake, headers, address)

        def take(transport: asyncio.Transport, place: Guarded) -> None:
            socket = ProducerSocket(self._intake, session, self._state, lambda: self._guard.closed(place))
            self._guard.busy(place)
            transport.set_protocol(socket)
            socket.connection_made(transport)

        return take

    def _begin_viewer(self, board: str, query: QueryParams, address: str) -> Take:
        asked = Subscription.parse(query, self._intake.settings)
        feed = self._attendant.hub.admit(board, asked, address)

        def take(transport: asyncio.Transport, place: Guarded) -> None:
            self._guard.closed(place)
            socket = ViewerSocket(self._attendant, address)
            transport.set_protocol(socket)
            socket.connection_made(transport)
            socket.seat = self._attendant.hub.seat(feed, asked, address, socket)

        return take
