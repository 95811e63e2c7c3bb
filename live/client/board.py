"""`LiveBoard`: the client of one server."""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import aiohttp
from websockets.asyncio.client import ClientConnection

from live.client.events import Event, encode_event
from live.client.producer import LINGER, MAX_PENDING, OnRejected, Producer
from live.client.sender import Body, Sender, open_session
from live.client.target import parse_api_key, parse_url
from live.client.watching import AskToken, Top, Watcher
from live.domain.event import Answer


class LiveBoard:
    """A client of one server. Use it as an asynchronous context manager.

    Args:
        url: the URL of the server, such as `http://127.0.0.1:8000`.
        api_key: an API key, `ID.SECRET`, as `live keys add` prints it. Sending events needs one, unless the server
            accepts events from anyone. Watching a private board needs one with the verb `read`.
        patience: how many seconds the server may be unavailable before a call fails. The default is 60; `math.inf`
            means no limit.

    Raises:
        ValueError: the URL or the API key is malformed.
    """

    def __init__(self, url: str, api_key: str | None = None, *, patience: float | None = None) -> None:
        self._url = parse_url(url)
        self._api_key = parse_api_key(api_key)
        self._patience = patience
        self._stack = AsyncExitStack()
        self._session: aiohttp.ClientSession | None = None
        self._sockets: set[ClientConnection] = set()

    async def __aenter__(self) -> Self:
        self._session = await self._stack.enter_async_context(open_session(self._api_key))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._session = None
        try:
            # The sockets of watchers that nobody reads any more. Python closes an abandoned generator late or never.
            await asyncio.gather(*(socket.close() for socket in self._sockets))
        finally:
            await self._stack.aclose()

    async def post(self, *events: Event) -> Answer:
        """Send up to 1,000 events in one request, and return the result once the events are on disk.

        The request has an `Idempotency-Key`. If the response is lost, the client sends the request again. The server
        counts it once, and returns the same response.

        Raises:
            ValueError: an event is longer than 64 KiB of JSON.
            TypeError: a value can't be encoded as JSON.
            ServerUnavailableError: the server was unavailable for longer than the patience.
            AccessRefusedError: the API key is missing or not accepted.
            RequestRefusedError: the server refuses the request for another reason.
            NotALiveBoardError: no Live Board server answers at the URL.
        """
        data = b"[" + b",".join(map(encode_event, events)) + b"]"
        headers = {"Content-Type": "application/json", "Idempotency-Key": secrets.token_hex(16)}
        return await self._sender().send(Body(data, headers, len(events), repeatable=True))

    def producer(
        self, *, linger: float = LINGER, max_pending: int = MAX_PENDING, on_rejected: OnRejected | None = None
    ) -> Producer:
        """Make a producer that sends events in batches in the background.

        Args:
            linger: how many seconds an event may wait for others to share its batch.
            max_pending: maximum number of events without a response. At this number, `send` waits.
            on_rejected: called with each event that the server rejects, and the reason. By default, a warning is
                logged.
        """
        return Producer(self._sender(), linger=linger, max_pending=max_pending, on_rejected=on_rejected)

    def watch(
        self, board: str, *, limit: int | None = None, interval: str | None = None, token: AskToken | None = None
    ) -> AsyncGenerator[Top]:
        """Yield the top of a board at first, and again whenever the top changes or becomes stale.

        A lost connection makes the top stale. The client reconnects with exponential back-off and jitter, or at the
        time that the server asks for. Then the client receives the changes that it missed. A slow reader receives the
        latest state, not every state.

        Args:
            board: the id of the board.
            limit: number of records to watch. By default, the server sends 50.
            interval: minimum time between two changes, such as `500ms` or `2s`. The default is the board's own
                interval.
            token: returns a viewer token for a private board, instead of the API key. It is called for each connection,
                and before the token ends. The watch goes on without a gap.

        Raises:
            WatchEndedError: the server closed the connection permanently, for example because the board was deleted.
            RequestRefusedError: the server refuses the connection, for example because there is no such board.
            ServerUnavailableError: the server was unavailable for longer than the patience.
        """
        return Watcher(
            self._url,
            board,
            token or self._api_key,
            limit=limit,
            interval=interval,
            patience=self._patience,
            sockets=self._sockets,
        ).tops()

    def _sender(self) -> Sender:
        if self._session is None:
            raise RuntimeError("the client is closed, or was not entered with `async with`")
        return Sender(self._session, self._url, self._api_key, patience=self._patience)
