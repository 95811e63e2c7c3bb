"""GET /v1/boards/{board}/stream: the messages of the live route as server-sent events.

To clients that take gzip, the events are sent as one gzip stream. All streams share its blocks.
"""

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from live.errors import CLOSE_CODES, SHUTTING_DOWN
from live.fanout.engine.deflate import GzipStream
from live.fanout.engine.delivery import count_frames
from live.fanout.frames import Frame, status_frame
from live.fanout.subscription import Subscription
from live.fanout.viewer import ChannelEndedError, PullViewer
from live.metrics import SLOW_VIEWERS
from live.network.encodings import takes_gzip
from live.web.http.middleware import client_of
from live.web.http.watching import count_as_viewer, unless_left, until_left
from live.web.services import Live, live_of

_HEADERS: Final = {"Cache-Control": "no-store", "Vary": "Accept-Encoding", "X-Accel-Buffering": "no"}


async def stream_board(request: Request) -> Response:
    """Send a sync and then updates. `Last-Event-ID` is the position of a viewer that reconnects."""
    live, client = live_of(request), client_of(request)
    client.require_origin(live.settings.allowed_origins)
    board = await live.board(request.path_params["board"])
    last_event = request.headers.get("last-event-id", "")
    subscription = Subscription.parse(request.query_params, live.settings).since(last_event)
    body = GzipEvents() if takes_gzip(request.headers.getlist("accept-encoding")) else PlainEvents()
    return EventStream(live, board.id, subscription, client.network, body)


class PlainEvents:
    """Events as they are."""

    encoding: str | None = None

    def begin(self, text: bytes) -> bytes:
        """The bytes of the first text."""
        return text

    def encode(self, frame: Frame) -> bytes:
        """The bytes of a frame."""
        return frame.event

    def finish(self, text: bytes) -> bytes:
        """The bytes of the last text."""
        return text


class GzipEvents(PlainEvents):
    """Events in a gzip stream."""

    encoding = "gzip"

    def __init__(self) -> None:
        self._stream = GzipStream()

    def begin(self, text: bytes) -> bytes:
        """The header, and the first text."""
        return self._stream.start() + self._stream.own(text)

    def encode(self, frame: Frame) -> bytes:
        """The blocks of a frame, which it keeps for all streams. The rank of a member is for one stream only."""
        return self._stream.own(frame.event) if frame.type == "around" else self._stream.shared(frame.shared_event)

    def finish(self, text: bytes) -> bytes:
        """The last text, and the end of the stream."""
        return self._stream.own(text) + self._stream.end()


class EventStream(Response):
    """A stream that ends when the viewer disconnects, is too slow, or there is nothing more to watch."""

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
        """Send the events. A viewer that exceeds a limit is refused like any other."""
        with self._live.hub.watch(self._board, self._subscription, self._address) as viewer:
            connection = count_as_viewer(scope)
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body"})
            elif await unless_left(receive, self._send_events(viewer, send)) is False:
                SLOW_VIEWERS.inc()
                if connection is not None:  # otherwise the kernel ends the connection (TCP_USER_TIMEOUT, see serve)
                    connection.abort()
                    await until_left(receive)

    async def _send_events(self, viewer: PullViewer, send: Send) -> bool:
        """Send events, each after the client took the last one. Returns False if that takes too long."""
        data = self._body.begin(
            _retry(self._live.reaper.retry_after())
        )  # jittered, in case all streams are cut at once
        try:
            while True:
                await self._put(send, data)
                frame = await viewer.next_frame()
                data = self._body.encode(frame)
                count_frames(frame, 1, len(data))
        except ChannelEndedError as end:
            await send({"type": "http.response.body", "body": self._body.finish(self._last_words(end.code))})
        except TimeoutError:
            return False
        return True

    async def _put(self, send: Send, data: bytes) -> None:
        async with asyncio.timeout(self._live.settings.slow_timeout):
            await send({"type": "http.response.body", "body": data, "more_body": True})
            # An ASGI server blocks the next send while data is queued. After that, the next event is the latest state.
            await send({"type": "http.response.body", "body": b"", "more_body": True})

    def _last_words(self, code: int) -> bytes:
        """The last event of a stream: why it ends, and when to reconnect if the server shuts down."""
        reason = CLOSE_CODES[code].reason
        if code != SHUTTING_DOWN:
            return status_frame(reason).event
        retry_after = self._live.reaper.retry_after()
        return _retry(retry_after) + status_frame(reason, retry_after).event


def _retry(seconds: float) -> bytes:
    """The field that tells the client when to reconnect."""
    return f"retry: {round(seconds * 1000)}\n\n".encode()
