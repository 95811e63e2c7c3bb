"""`LiveBoard`: a program's access to one server."""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import aiohttp
from websockets.asyncio.client import ClientConnection

from live.client.answers import Answer
from live.client.events import Event, encode_event
from live.client.producer import LINGER, MAX_PENDING, OnRejected, Producer
from live.client.sender import Body, Sender, open_session
from live.client.target import parse_api_key, parse_url
from live.client.top import Top
from live.client.watching import Watcher


class LiveBoard:
    """A client of one server; use it as an asynchronous context manager.

    Args:
        url: the server's address, such as `http://127.0.0.1:8000`.
        api_key: `ID.SECRET`, as `live keys add` prints it, for a server that requires one to send events. Watching
            requires none.
        patience: for how many seconds the server may be away before a call fails. The default is 60; `math.inf` waits
            for as long as it takes.

    Raises:
        ValueError: the address or the API key is malformed.
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
            # Of watchers that nobody reads any more: Python closes an abandoned generator later, or not at all.
            await asyncio.gather(*(socket.close() for socket in self._sockets))
        finally:
            await self._stack.aclose()

    async def post(self, *events: Event) -> Answer:
        """Send up to 1,000 events as one request, and return what became of them once they are on disk.

        The request has an `Idempotency-Key`: if an answer is lost it is sent again, counts once, and gets the answer
        that was lost.

        Raises:
            ValueError: an event is longer than 64 KiB of JSON.
            TypeError: a value has no form in JSON.
            ServerUnavailableError: the server was away, or could not count, for longer than the patience.
            AccessRefusedError: the API key is missing or not accepted.
            RequestRefusedError: the server refuses the request for another reason.
            NotALiveBoardError: something else answers.
        """
        data = b"[" + b",".join(map(encode_event, events)) + b"]"
        headers = {"Content-Type": "application/json", "Idempotency-Key": secrets.token_hex(16)}
        return await self._sender().send(Body(data, headers, len(events), repeatable=True))

    def producer(
        self, *, linger: float = LINGER, max_pending: int = MAX_PENDING, on_rejected: OnRejected | None = None
    ) -> Producer:
        """A producer that sends events in batches while the program goes on.

        Args:
            linger: for how many seconds an event may wait for others to share its batch.
            max_pending: how many events may be without an answer before `send` waits.
            on_rejected: called with each event that the server rejects, and why. By default a warning is logged.
        """
        return Producer(self._sender(), linger=linger, max_pending=max_pending, on_rejected=on_rejected)

    def watch(self, board: str, *, limit: int | None = None, interval: str | None = None) -> AsyncGenerator[Top]:
        """The top of a board: at first, and then whenever it changes or becomes stale.

        A lost connection makes the top stale, and is opened again: by an exponential back-off with jitter, or when the
        server has said. The server then sends what was missed. A slow reader gets the latest state, not every state.

        Args:
            board: the board's id.
            limit: how many records to watch; the server's default is 50.
            interval: the least time between two changes, such as `500ms` or `2s`; the board's own by default.

        Raises:
            WatchEndedError: the server closed the connection for good, for example because the board was deleted.
            RequestRefusedError: the server refuses the connection, for example because there is no such board.
            ServerUnavailableError: the server was away for longer than the patience.
        """
        return Watcher(
            self._url, board, limit=limit, interval=interval, patience=self._patience, sockets=self._sockets
        ).tops()

    def _sender(self) -> Sender:
        if self._session is None:
            raise RuntimeError("the client is closed, or was not entered with `async with`")
        return Sender(self._session, self._url, self._api_key, patience=self._patience)
