"""GET /v1/boards/{board}/stream: the messages of the live route as server-sent events.

The contract also has two routes that the HTTP connections of this server answer: posts of events, and WebSockets.
"""

import asyncio
import time
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from live.errors import CLOSE_CODES, SHUTTING_DOWN, ProblemError
from live.fanout.cohort import Encoding, Viewer
from live.fanout.frames import status_frame
from live.fanout.subscription import Subscription, WatchParameters
from live.ingest.committer import Wants
from live.metrics import DROPPED_VIEWERS
from live.protocols.asgi import VIEWER
from live.protocols.connection import HttpProtocol
from live.web.middleware import requester_of
from live.web.parts import Live, live_of, reader_of
from live.web.requests import unless_left, until_left
from live.web.responses import problem_response

_HEADERS: Final = {"Cache-Control": "no-store", "Connection": "close", "X-Accel-Buffering": "no"}


async def stream_board(request: Request, query: WatchParameters) -> Response:
    """Watch a board as server-sent events.

    Sends the same messages as the WebSocket. `event` is the type of a message. See /asyncapi.json.
    """
    live, requester = live_of(request), requester_of(request)
    requester.require_origin(live.settings.allowed_origins)
    reader = reader_of(request)
    ledger = await live.ledger(request.path_params["board"], reader)
    last_event = request.headers.get("last-event-id", "")
    subscription = Subscription.of(query, reader, requester.network).since(last_event)
    return EventStream(live, ledger.state.board.id, subscription)


class EventSink:
    """The events of a viewer that wait to be sent. While any wait, no more are written.

    `ended` is the close code of a viewer that must disconnect.
    """

    fd: int = -1
    encoding: Encoding = "event"

    def __init__(self, first: bytes) -> None:
        """Begin with the first bytes of the stream."""
        self.ended: int | None = None
        self.blocked_since: float | None = time.monotonic()
        self._data = first
        self._changed = asyncio.Event()

    @property
    def waiting(self) -> bool:
        """Whether data waits to be sent, or the viewer must disconnect."""
        return bool(self._data) or self.ended is not None

    def write(self, data: bytes | memoryview) -> bool:
        """Let data wait to be sent."""
        self.blocked_since = self.blocked_since or time.monotonic()
        self._data += data
        self._changed.set()
        return False

    def abort(self) -> None:
        """Do nothing: only connections with a file descriptor break while frames are written."""

    def end(self, code: int) -> None:
        """End the stream once the waiting data is sent."""
        if self.ended is None:
            self.ended = code
        self._changed.set()

    async def next(self) -> bytes:
        """Wait for data, and return it. Return nothing if the stream must end. Call `sent` when the data is sent."""
        while not self.waiting:
            self._changed.clear()
            await self._changed.wait()
        return self._data

    def sent(self) -> None:
        """Forget the data, because it is sent."""
        self._data, self.blocked_since = b"", None


class EventStream(Response):
    """A stream that ends when the viewer disconnects or is too slow, or when there is nothing more to watch."""

    media_type = "text/event-stream"

    def __init__(self, live: Live, board: str, subscription: Subscription) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._live = live
        self._board = board
        self._subscription = subscription

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events. Refuse a viewer that exceeds a limit."""
        hub, subscription = self._live.hub, self._subscription
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        if scope["method"] == "HEAD":
            await send(start)
            await send({"type": "http.response.body"})
            return
        if hub.draining:  # after an error status, an EventSource would not connect again
            await send(start)
            await send({"type": "http.response.body", "body": self._last_words(SHUTTING_DOWN)})
            return
        channel = hub.admit(self._board, subscription)
        sink = EventSink(_retry(self._live.reaper.retry_after()))  # a random time, because all streams may end at once
        viewer = hub.add_viewer(channel, subscription, sink)
        try:
            connection: HttpProtocol = scope["extensions"][VIEWER]["connection"]()
            connection.release_place()
            await send(start)
            if await unless_left(receive, self._send_events(viewer, sink, send)) is False:
                DROPPED_VIEWERS.labels("slow").inc()
                connection.abort()
                await until_left(receive)
        finally:
            hub.leave(viewer)

    async def _send_events(self, viewer: Viewer, sink: EventSink, send: Send) -> bool:
        """Send each event after the client took the previous one. Return False if that takes too long."""
        try:
            while data := await sink.next():
                async with asyncio.timeout(self._live.settings.slow_timeout):
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                    # An ASGI server blocks this send while earlier data is queued. So this wait comes before the next
                    # event is made, which then has the newest state.
                    await send({"type": "http.response.body", "body": b"", "more_body": True})
                sink.sent()
                viewer.wake()
        except TimeoutError:
            return False
        assert sink.ended is not None, "the stream ends"  # noqa: S101
        await send({"type": "http.response.body", "body": self._last_words(sink.ended)})
        return True

    def _last_words(self, code: int) -> bytes:
        """Say why the stream ends, and when to reconnect if the server stops."""
        reason = CLOSE_CODES[code].reason
        if code != SHUTTING_DOWN:
            return status_frame(reason).event
        retry_after = self._live.reaper.retry_after()
        return _retry(retry_after) + status_frame(reason, retry_after).event


def _retry(seconds: float) -> bytes:
    return f"retry: {round(seconds * 1000)}\n\n".encode()


async def post_events(_request: Request, query: Wants) -> Response:  # noqa: ARG001 - for the contract
    """Post events.

    The server responds after the store has synced the events to disk. It refuses invalid events by their index, and
    counts the others. `Rejection` lists the codes that say why.
    """
    raise ProblemError("not_found", "this ASGI server takes no events")


async def watch_board(request: Request, query: WatchParameters) -> Response:  # noqa: ARG001 - for the contract
    """Watch a board over a WebSocket.

    Sends a `sync`, then `update`s. See /asyncapi.json.
    """
    # This request is no WebSocket handshake: the protocol answers handshakes.
    await live_of(request).ledger(request.path_params["board"], reader_of(request))
    response = problem_response(ProblemError("upgrade_required", "connect with a WebSocket client"))
    response.headers.update({"Upgrade": "websocket", "Connection": "Upgrade"})
    return response
