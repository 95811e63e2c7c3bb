"""GET /v1/boards/{board}/stream: the messages of the live route as server-sent events."""

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from live.errors import CLOSE_CODES, SHUTTING_DOWN, ProblemError
from live.fanout.engine.delivery import Encoding
from live.fanout.frames import status_frame
from live.fanout.subscription import Subscription, WatchParameters
from live.fanout.viewer import PushViewer
from live.metrics import SLOW_VIEWERS
from live.web.http.disconnects import count_as_viewer, unless_left, until_left
from live.web.http.middleware import client_of
from live.web.http.responses import problem_response
from live.web.services import Live, live_of, reader_of

_HEADERS: Final = {"Cache-Control": "no-store", "Connection": "close", "X-Accel-Buffering": "no"}


async def stream_board(request: Request, query: WatchParameters) -> Response:
    """Watch a board as server-sent events.

    Sends the same messages as the WebSocket. `event` is the type of a message. See /asyncapi.json.
    """
    live, client = live_of(request), client_of(request)
    client.require_origin(live.settings.allowed_origins)
    reader = reader_of(request)
    ledger = await live.ledger(request.path_params["board"], reader)
    last_event = request.headers.get("last-event-id", "")
    subscription = Subscription.of(query, reader).since(last_event)
    return EventStream(live, ledger.state.board.id, subscription, client.network)


class EventSink:
    """The events of a viewer that wait to be sent. While any wait, no more are written.

    `ended` is the close code of a viewer that must disconnect.
    """

    fd: int = -1
    encoding: Encoding = "event"

    def __init__(self, first: bytes) -> None:
        """Begin with the first bytes of the stream."""
        self.ended: int | None = None
        self._data = first
        self._changed = asyncio.Event()

    @property
    def waiting(self) -> bool:
        """Whether data waits to be sent, or the viewer must disconnect."""
        return bool(self._data) or self.ended is not None

    def write(self, data: bytes | memoryview) -> bool:
        """Let data wait to be sent."""
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
        self._data = b""


class EventStream(Response):
    """A stream that ends when the viewer disconnects or is too slow, or when there is nothing more to watch."""

    media_type = "text/event-stream"

    def __init__(self, live: Live, board: str, subscription: Subscription, address: str) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._live = live
        self._board = board
        self._subscription = subscription
        self._address = address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events. Refuse a viewer that exceeds a limit."""
        hub, subscription, address = self._live.hub, self._subscription, self._address
        channel = hub.admit(self._board, subscription, address)
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        if scope["method"] == "HEAD":
            await send(start)
            await send({"type": "http.response.body"})
            return
        sink = EventSink(_retry(self._live.reaper.retry_after()))  # a random time, because all streams may end at once
        viewer = hub.add_push_viewer(channel, subscription, address, sink)
        try:
            connection = count_as_viewer(scope)
            await send(start)
            if await unless_left(receive, self._send_events(viewer, sink, send)) is False:
                SLOW_VIEWERS.inc()
                connection.abort()
                await until_left(receive)
        finally:
            hub.leave(viewer, address)

    async def _send_events(self, viewer: PushViewer, sink: EventSink, send: Send) -> bool:
        """Send events, each after the client took the previous event. Return False if that takes too long."""
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
        await send({"type": "http.response.body", "body": self._last_words(sink)})
        return True

    def _last_words(self, sink: EventSink) -> bytes:
        """Make the event that says why the stream ends, and when to reconnect if the server stops."""
        assert sink.ended is not None, "the stream ends"  # noqa: S101
        reason = CLOSE_CODES[sink.ended].reason
        if sink.ended != SHUTTING_DOWN:
            return status_frame(reason).event
        retry_after = self._live.reaper.retry_after()
        return _retry(retry_after) + status_frame(reason, retry_after).event


def _retry(seconds: float) -> bytes:
    """Make the field that tells the client when to reconnect."""
    return f"retry: {round(seconds * 1000)}\n\n".encode()


async def watch_board(request: Request, query: WatchParameters) -> Response:  # noqa: ARG001 - for the contract
    """Watch a board over a WebSocket.

    Sends a `sync`, then `update`s. See /asyncapi.json.
    """
    # This request is no WebSocket handshake: the protocol answers handshakes.
    await live_of(request).ledger(request.path_params["board"], reader_of(request))
    response = problem_response(ProblemError("upgrade_required", "connect with a WebSocket client"))
    response.headers.update({"Upgrade": "websocket", "Connection": "Upgrade"})
    return response
