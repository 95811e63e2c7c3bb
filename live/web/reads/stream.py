"""GET /v1/boards/{board}/stream: the messages of the live route as server-sent events.

To clients that take gzip, the events are sent as one gzip stream. All these streams share the compressed block of a
frame.
"""

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from live.errors import CLOSE_CODES, SHUTTING_DOWN, ProblemError
from live.fanout.engine.deflate import GzipStream
from live.fanout.engine.delivery import count_frames
from live.fanout.frames import Frame, status_frame
from live.fanout.subscription import Subscription
from live.fanout.viewer import ChannelEndedError, PullViewer
from live.ingest.replies import takes_gzip
from live.metrics import SLOW_VIEWERS
from live.web.http.disconnects import count_as_viewer, unless_left, until_left
from live.web.http.middleware import client_of
from live.web.http.responses import problem_response
from live.web.services import Live, live_of, reader_of

_HEADERS: Final = {
    "Cache-Control": "no-store", "Connection": "close", "Vary": "Accept-Encoding", "X-Accel-Buffering": "no",
}  # fmt: skip


async def stream_board(request: Request) -> Response:
    """Send a sync and then updates. `Last-Event-ID` is the position of a viewer that reconnects."""
    live, client = live_of(request), client_of(request)
    client.require_origin(live.settings.allowed_origins)
    reader = reader_of(request)
    ledger = await live.ledger(request.path_params["board"], reader)
    last_event = request.headers.get("last-event-id", "")
    subscription = Subscription.parse(request.query_params, live.settings, reader).since(last_event)
    body = GzipEvents() if takes_gzip(request.headers.getlist("accept-encoding")) else PlainEvents()
    return EventStream(live, ledger.state.board.id, subscription, client.network, body)


class PlainEvents:
    """Events without compression."""

    encoding: str | None = None

    def begin(self, text: bytes) -> bytes:
        """Return the bytes of the first text."""
        return text

    def encode(self, frame: Frame) -> bytes:
        """Return the bytes of a frame."""
        return frame.event

    def finish(self, text: bytes) -> bytes:
        """Return the bytes of the last text."""
        return text


class GzipEvents(PlainEvents):
    """Events in a gzip stream."""

    encoding = "gzip"

    def __init__(self) -> None:
        self._stream = GzipStream()

    def begin(self, text: bytes) -> bytes:
        """Return the header, and the first text."""
        return self._stream.start() + self._stream.own(text)

    def encode(self, frame: Frame) -> bytes:
        """Return a compressed block of a frame.

        All streams share it, unless the frame is an `around` for one viewer.
        """
        return self._stream.own(frame.event) if frame.type == "around" else self._stream.shared(frame.shared_event)

    def finish(self, text: bytes) -> bytes:
        """Return the last text, and the end of the stream."""
        return self._stream.own(text) + self._stream.end()


class EventStream(Response):
    """A stream that ends when the viewer disconnects or is too slow, or when there is nothing more to watch."""

    media_type = "text/event-stream"

    def __init__(self, live: Live, board: str, subscription: Subscription, address: str, body: PlainEvents) -> None:
        super().__init__(headers=_HEADERS)
        if body.encoding is not None:
            self.headers["content-encoding"] = body.encoding
        del self.headers["content-length"]
        self._live = live
        self._board = board
        self._subscription = subscription
        self._address = address
        self._body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events. Refuse a viewer that exceeds a limit."""
        with self._live.hub.watch(self._board, self._subscription, self._address) as viewer:
            connection = count_as_viewer(scope)
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body"})
            elif await unless_left(receive, self._send_events(viewer, send)) is False:
                SLOW_VIEWERS.inc()
                # Without a `connection` to abort, the kernel ends the stream (TCP_USER_TIMEOUT in `serve.py`).
                if connection is not None:
                    connection.abort()
                    await until_left(receive)

    async def _send_events(self, viewer: PullViewer, send: Send) -> bool:
        """Send events, each after the client took the previous event. Return False if that takes too long."""
        reaper, settings = self._live.reaper, self._live.settings
        data = self._body.begin(_retry(reaper.retry_after()))  # a random time, because all streams may end at once
        try:
            while True:
                async with asyncio.timeout(settings.slow_timeout):
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                    # An ASGI server blocks this send while earlier data is queued. So this wait comes before the next
                    # event is made, which then has the newest state.
                    await send({"type": "http.response.body", "body": b"", "more_body": True})
                frame = await viewer.next_frame()
                data = self._body.encode(frame)
                count_frames(frame, 1, len(data))
        except ChannelEndedError as end:
            reason = CLOSE_CODES[end.code].reason
            words = status_frame(reason).event
            if end.code == SHUTTING_DOWN:  # in this case, the last event also says when to reconnect
                retry_after = reaper.retry_after()
                words = _retry(retry_after) + status_frame(reason, retry_after).event
            await send({"type": "http.response.body", "body": self._body.finish(words)})
        except TimeoutError:
            return False
        return True


def _retry(seconds: float) -> bytes:
    """Make the field that tells the client when to reconnect."""
    return f"retry: {round(seconds * 1000)}\n\n".encode()


async def refuse_plain(request: Request) -> Response:
    """Refuse a request for the live route that is not a WebSocket handshake."""
    await live_of(request).ledger(request.path_params["board"], reader_of(request))
    response = problem_response(ProblemError("upgrade_required", "connect with a WebSocket client"))
    response.headers.update({"Upgrade": "websocket", "Connection": "Upgrade"})
    return response
