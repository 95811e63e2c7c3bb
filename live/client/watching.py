"""Watches the top of a board over a WebSocket, and reconnects as often as needed."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Final
from urllib.parse import quote, urlencode

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.http11 import Response

from live.client.answers import read_failure
from live.client.backoff import Backoff
from live.client.errors import RequestRefusedError, ServerUnavailableError, WatchEndedError
from live.client.sender import PATIENCE
from live.client.target import socket_url
from live.client.top import Freshness, GapError, Top, TopState

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 20.0
_STABLE: Final = 5.0  # seconds after which a connection counts as stable, which resets the back-off
_MAX_MESSAGE: Final = 16 << 20
_FINAL: Final = range(3500, 4000)  # close codes after which a client must not reconnect
_log = logging.getLogger("live.client")


def live_url(url: str, board: str, **query: object) -> str:
    """The URL of the live route of a board. Parameters that are None are omitted."""
    given = {name: value for name, value in query.items() if value is not None}
    return socket_url(url, f"/v1/boards/{quote(board, safe='')}/live", urlencode(given))


async def open_viewer(address: str, *, ping_interval: float | None = 20.0) -> ClientConnection:
    """A connection to a live route. With `ping_interval` (seconds), an unresponsive server is noticed."""
    return await connect(
        address, compression=None, ping_interval=ping_interval, close_timeout=1, max_size=_MAX_MESSAGE, proxy=None
    )


class Watcher:
    """Follows one board.

    `limit` is the number of records to watch, `interval` the minimum time between two messages, such as `1s`, and
    `patience` the number of seconds for which the server may be unavailable. `sockets` contains the open connection, so
    that the client can close it if nobody reads any more.
    """

    def __init__(
        self,
        url: str,
        board: str,
        *,
        limit: int | None = None,
        interval: str | None = None,
        patience: float | None = None,
        sockets: set[ClientConnection] | None = None,
    ) -> None:
        self._url = url
        self._board = board
        self._query = {"limit": limit, "interval": interval}
        self._patience = PATIENCE if patience is None else patience
        self._sockets: set[ClientConnection] = set() if sockets is None else sockets
        self._state = TopState(board)
        self._backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        self._problem = ""  # why the last connection ended
        # The earliest reconnect that the server allows; this and the next are times of the loop's clock.
        self._earliest = 0.0
        self._last_contact = 0.0  # the last sign of the server

    async def tops(self) -> AsyncGenerator[Top]:
        """Yield the top at first, and then whenever it changes or becomes stale.

        Raises:
            WatchEndedError: the server closed the connection permanently, for example because the board was deleted.
            RequestRefusedError: the server refuses the connection, for example because there is no such board.
            ServerUnavailableError: the patience is over.
        """
        self._last_contact = _now()
        while True:
            async with aclosing(self._connection()) as tops:
                async for top in tops:
                    yield top
            pause = self._next_pause()
            _log.info("connecting to %s again in %.1f s: %s", self._url, pause, self._problem)
            self._state.mark(f"connection lost: {self._problem}")
            if (stale := self._state.changed()) is not None:
                yield stale
            await asyncio.sleep(pause)

    async def _connection(self) -> AsyncGenerator[Top]:
        """The tops of one connection. Ends without an error if it makes sense to reconnect."""
        connected = None
        try:
            async with self._socket() as socket:
                self._state.connected()
                connected = _now()
                while True:
                    status = self._state.receive(await socket.recv(decode=False))
                    self._last_contact = _now()
                    if status is not None:
                        self._note(status)
                    if (top := self._state.changed()) is not None:
                        yield top
        except GapError:
            self._problem = "a message was missed"
        except InvalidStatus as error:
            self._refused(error.response)
        except ConnectionClosed as closed:
            self._closed(closed)
        except (OSError, WebSocketException) as error:
            self._problem = f"{type(error).__name__} {error}".strip()
        if connected is not None and _now() - connected > _STABLE:
            self._backoff.reset()

    @asynccontextmanager
    async def _socket(self) -> AsyncIterator[ClientConnection]:
        socket = await open_viewer(self._address())
        self._sockets.add(socket)
        try:
            yield socket
        finally:
            await socket.close()
            self._sockets.discard(socket)

    def _address(self) -> str:
        """The URL to connect to, with the position of the top, so that the server can resume from there."""
        top = self._state.top
        position = {} if top is None else {"epoch": top.epoch, "offset": top.offset}
        return live_url(self._url, self._board, **self._query, **position)

    def _note(self, status: Freshness) -> None:
        if status.retry_after is not None:
            self._earliest = _now() + self._backoff.after(status.retry_after)

    def _refused(self, response: Response) -> None:
        """Handle a refused handshake.

        Raises:
            RequestRefusedError: the server would refuse it again.
        """
        body = bytes(response.body or b"")
        failure = read_failure(response.status_code, body, response.headers.get("Retry-After", ""))
        if failure is None:
            raise RequestRefusedError(response.status_code, body)
        self._problem = failure.problem
        if failure.retry_after is not None:
            self._earliest = _now() + self._backoff.after(failure.retry_after)

    def _closed(self, closed: ConnectionClosed) -> None:
        """Handle a closed connection.

        Raises:
            WatchEndedError: it is closed permanently.
        """
        received = closed.rcvd
        if received is not None and received.code in _FINAL:
            raise WatchEndedError(received.code, received.reason) from None
        self._last_contact = _now()
        self._problem = str(closed)

    def _next_pause(self) -> float:
        """Seconds to wait before the next connection: as the server asked, or according to the back-off.

        Raises:
            ServerUnavailableError: the patience would be over by then.
        """
        now = _now()
        pause = self._earliest - now if self._earliest > now else self._backoff.next()
        if now + pause > self._last_contact + self._patience:
            raise ServerUnavailableError(f"{self._url} stays unavailable ({self._problem})")
        return pause


def _now() -> float:
    return asyncio.get_running_loop().time()
