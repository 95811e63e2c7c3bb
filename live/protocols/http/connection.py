"""One HTTP connection: connects the parts that read requests, queue them, answer them and end the connection.

`RequestReader` reads the requests and `Pipeline` holds them in order. `POST /v1/events` takes a short path
(`hot_post`), and so do plain reads (`hot_get`); every other request goes to the ASGI application (`app_requests`). All
give the same answers, byte for byte. A request for a WebSocket takes the connection over (`upgrade`).
"""

import asyncio
from typing import Any, Final, cast

import msgspec
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.server import ServerState

from live.auth.client import Client
from live.errors import ProblemError, StoreUnavailableError
from live.network.hosts import below_root
from live.protocols.connection_limits import SMALL, Place, too_many_connections
from live.protocols.http.app_requests import AppRequest
from live.protocols.http.closing import close_gently
from live.protocols.http.flow import Flow
from live.protocols.http.hot_get import Get
from live.protocols.http.hot_post import Post, is_short
from live.protocols.http.peer import Peer, held_by_kernel
from live.protocols.http.pipeline import Pipeline, Refusal
from live.protocols.http.requests import MAX_HEAD, Piece, RequestHead, RequestReader
from live.protocols.http.shared import Shared

HEALTH_PATHS: Final = (b"/healthz", b"/readyz", b"/metrics")
_EVENTS_A_TURN: Final = 256  # heads and pieces read before other connections have their turn


class HttpProtocol(asyncio.Protocol):
    """One HTTP connection. The application passes its parts in the lifespan state."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        if not config.loaded:
            config.load()
        self.server_state = server_state
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)  # until `connection_made`
        self.flow: Flow = cast("Flow", None)
        self.peer = Peer("", tls=False)
        self.received = 0  # bytes of the current request
        self._app: ASGI3Application = cast("ASGI3Application", config.loaded_app)
        self._app_state = app_state
        self._shared: Shared = app_state.get("shared") or Shared.of(app_state, server_state)
        self._reader = RequestReader()
        self._pipeline = Pipeline()
        self._place = Place.NONE
        self._reading = False  # inside `_read`
        self._is_viewer = False  # whether the request in progress is a viewer's
        self._half_closed = False  # whether the client sends nothing more
        self._stopping = False  # whether the server stops

    # Events of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a place, if there is one."""
        self.transport = cast("asyncio.Transport", transport)
        self.flow = Flow(self.transport, self._read)
        self.peer = Peer.of(self.transport)
        self.server_state.connections.add(cast("Any", self))  # uvicorn only calls `shutdown` on them
        self._place = self._shared.limits.opened(self)
        if self._place is Place.NONE:
            self.refuse(too_many_connections())

    def connection_lost(self, _error: Exception | None) -> None:
        """Free the place; events of complete requests are still counted."""
        self._shared.limits.closed(self)
        self.server_state.connections.discard(cast("Any", self))
        self._pipeline.disconnect()
        self.flow.end()

    def data_received(self, data: bytes) -> None:
        """Read the requests in `data`; bytes after the last request are dropped."""
        if self._pipeline.is_closed:
            return
        self.received += len(data)
        self._reader.feed(data)
        self._read()

    def eof_received(self) -> bool:
        """Answer the complete requests before closing: the client has closed its side."""
        if self._is_viewer or self.transport.get_extra_info("sslcontext") is not None:
            return False  # a viewer has left, or it is TLS, which can't close one direction alone
        self._half_closed = True
        self._pipeline.cut_off()
        self._stop_accepting()
        return bool(self._pipeline)

    def pause_writing(self) -> None:
        """Stop reading: the client does not read its answers."""
        self.flow.pause_writing()
        if not self._is_viewer:
            self._shared.limits.unread(self)

    def resume_writing(self) -> None:
        """Read again: the client reads its answers."""
        self.flow.resume_writing()
        self._read()

    # Requests

    def _read(self) -> None:
        """Read heads and pieces of bodies while there is room for them, then update the limits."""
        if self._reading:
            return
        self._reading = True
        try:
            may_receive = self._read_events()
        except ProblemError as problem:
            self.refuse(problem)
            may_receive = self._may_receive()
        finally:
            self._reading = False
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return
        if not may_receive:
            self.flow.pause_reading()
        elif self.flow.read_paused:
            self.flow.resume_transport()
        self._report()

    def _read_events(self) -> bool:
        """Read a bounded number of events; return whether to receive more bytes."""
        reader, pipeline, flow = self._reader, self._pipeline, self.flow
        for _ in range(_EVENTS_A_TURN):
            if self._is_viewer or flow.write_paused or not pipeline.has_room:
                return self._may_receive()
            event = reader.next()
            if event is None:
                return True
            if isinstance(event, Piece):
                if event.last:
                    self._request_complete()
                pipeline.receive(event)
            else:
                self._begin(event)
        asyncio.get_running_loop().call_soon(self._read)
        return False

    def _may_receive(self) -> bool:
        """Whether to receive bytes: to read them, to drop them, or to notice that a viewer leaves."""
        if self._is_viewer:
            return self._reader.unread < MAX_HEAD
        return self._pipeline.is_closed or (not self.flow.write_paused and self._pipeline.has_room)

    def _report(self) -> None:
        """Tell the limits whether the client is sending a request or the connection is idle."""
        pipeline, limits = self._pipeline, self._shared.limits
        if pipeline.awaits_answer or self._is_viewer or pipeline.is_closed:
            return
        if pipeline.arriving is not None or self._reader.inside:
            limits.receiving(self)
        else:
            limits.idle(self)

    def _begin(self, head: RequestHead) -> None:
        """Choose the path of a request by its target, relative to the root path."""
        shared, pipeline = self._shared, self._pipeline
        if shared.root_path:
            head = msgspec.structs.replace(head, target=below_root(head.target, shared.root_path))
        if self._place is Place.HEALTH and head.target not in HEALTH_PATHS:
            raise too_many_connections()
        if head.asks_for_websocket and not pipeline and self._upgrade(head):
            return
        pipeline.accepting = keep_alive = head.keep_alive and self._place is Place.FULL
        if is_short(head, shared.settings):
            post = Post(self, shared, keep_alive=keep_alive)
            pipeline.add(post, has_body=head.has_body)
            post.admit(head, self.peer)
            if not head.has_body:
                self._request_complete()
                post.end()
        elif head.method == b"GET" and not head.has_body and (read := shared.reads.find(head, self.peer)) is not None:
            self._begin_read(Get(self, read, keep_alive=keep_alive))
        else:
            request = AppRequest(self, self._app, head, self._client_of(head), self._app_state.copy())
            request.keep_alive = keep_alive
            if pipeline.add(request, has_body=head.has_body):
                request.begin()
            if not head.has_body:
                self._request_complete()

    def _begin_read(self, get: Get) -> None:
        is_first = self._pipeline.add(get, has_body=False)
        self._request_complete()
        if is_first:
            get.begin()
            if get.reply is not None:
                self.send_replies()

    def _client_of(self, head: RequestHead) -> Client | ProblemError:
        """The client of a request, or the problem with which the application refuses it."""
        try:
            return self._shared.clients.resolve(self.peer.address, head.fields, tls=self.peer.tls)
        except ProblemError as problem:
            return problem

    def _request_complete(self) -> None:
        """The client waits for the server. The deadline of the next request runs from its first byte."""
        self._shared.limits.busy(self)
        self.received = self._reader.unread

    def _upgrade(self, head: RequestHead) -> bool:
        """Switch to WebSocket, or refuse with a problem; False if the target has no WebSocket."""
        try:
            upgrade = self._shared.upgrades.respond(head, self.peer)
        except (ProblemError, StoreUnavailableError) as error:
            self.refuse(error)
            return True
        if upgrade is None:
            return False
        self.transport.write(upgrade.response)
        self._pipeline.accepting = False
        if upgrade.take_over is None:
            self._finish()
            return True
        self.server_state.connections.discard(cast("Any", self))
        rest = self._reader.rest()
        upgrade.take_over(self.transport, self)
        self.flow.end()
        if rest and not self.transport.is_closing():
            cast("asyncio.Protocol", self.transport.get_protocol()).data_received(rest)
        return True

    # Answers

    def send_replies(self) -> None:
        """Send the replies that are due, in the order of the requests."""
        answered = self._pipeline.take_answered()
        if not answered or self.transport.is_closing():
            return
        self.server_state.total_requests += len(answered)
        heads, data = self._shared.heads, b""
        for reply, keep_alive in answered:
            data += heads.bytes_of(reply, keep_alive=keep_alive)
        self.transport.write(data)
        self._go_on(keep_alive=answered[-1][1])

    def response_done(self) -> None:
        """The application has answered the first request in the pipeline."""
        self.server_state.total_requests += 1
        if not self._pipeline or self.transport.is_closing():
            return
        keep_alive = self._pipeline.take_first().keep_alive
        if self._is_viewer:
            keep_alive = self.reclaim_place() and keep_alive
        self._go_on(keep_alive=keep_alive)

    def _go_on(self, *, keep_alive: bool) -> None:
        """Start the next request and read on, or end the connection."""
        if self.buffered > SMALL:
            self._shared.limits.unread(self)
        if not keep_alive:
            self._finish()
            return
        if self._pipeline:
            self._pipeline.begin_first()
            self.send_replies()
        if self._reading:
            return
        if self._reader.unread or self.flow.read_paused:
            self._read()
        else:
            self._report()

    @property
    def address(self) -> str:
        """The address of the TCP peer."""
        return self.peer.address

    @property
    def buffered(self) -> int:
        """Bytes of answers that the kernel has not accepted."""
        return self.transport.get_write_buffer_size()

    @property
    def unsent(self) -> int:
        """Bytes of answers that the client has not acknowledged, including those in the kernel."""
        return self.buffered + held_by_kernel(self.transport)

    # Viewers

    def release_place(self) -> None:
        """Free the place: the current request is a viewer's, and viewers have separate limits."""
        self._is_viewer = True
        self._shared.limits.release(self)
        if self.buffered:
            self._shared.limits.unread(self)  # earlier answers, which the client must read all the same
        self.transport.set_write_buffer_limits(high=0)  # a send completes only when the kernel has accepted all of it
        if self._half_closed:
            self.transport.close()  # a viewer has left

    def reclaim_place(self) -> bool:
        """Take a place again after a viewer has left; False if none is free, or if the connection ends."""
        self._is_viewer = False
        if self.transport.is_closing():
            return False
        self.transport.set_write_buffer_limits()
        return self._shared.limits.reclaim(self)

    # The end

    def refuse(self, error: Exception) -> None:
        """Answer the current request with a problem, unless it has an answer, and accept no more requests."""
        if not self._pipeline.cut_off():
            self._stop_accepting()
            return
        self._pipeline.accepting = False
        self._pipeline.add(Refusal(error), has_body=False)
        self._shared.limits.busy(self)
        self.send_replies()

    def _stop_accepting(self) -> None:
        """Accept no more requests: the last answer ends the connection."""
        if not self._pipeline.stop():
            self._finish()

    def _finish(self) -> None:
        """End the connection after the last answer, so that the client can read it."""
        is_cut_short = self._pipeline.arriving is not None or self._reader.inside
        self._pipeline.clear()
        if close_gently(
            self.transport,
            is_cut_short=is_cut_short,
            is_stopping=self._stopping,
            may_linger=lambda: self._shared.limits.start_lingering(self),
        ):
            self.flow.resume_transport()

    def answers_read(self) -> None:
        """Update the limits: the client has read its answers."""
        if not (self._pipeline or self._is_viewer):
            self._report()

    def close_idle(self) -> None:
        """Close an idle connection. Abort it if answers are unread, because they would keep the socket open."""
        if self.buffered:
            self.transport.abort()
        else:
            self.transport.close()

    def abort(self) -> None:
        """Close immediately: the client does not read."""
        self.transport.abort()

    def shutdown(self) -> None:
        """Answer the requests in progress, then close: the server stops."""
        self._stopping = True
        self._shared.upgrades.drain()
        if self._pipeline:
            self._stop_accepting()
        else:
            self.transport.close()
