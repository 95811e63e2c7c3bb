"""One HTTP connection: connects the parts that read requests, queue them, answer them and end the connection.

`RequestReader` reads the requests and `Pipeline` holds them in order. Events (`post`) and plain reads of a board are
answered without ASGI. Every other request goes to the ASGI application (`asgi`). A request for a WebSocket takes the
connection over.
"""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.datastructures import QueryParams
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.utils import get_remote_addr, is_ssl
from uvicorn.server import ServerState

from live.auth.rates import payer_of
from live.auth.requester import Requester
from live.auth.sessions import marked_cookie
from live.errors import ProblemError
from live.fanout.subscription import Subscription, WatchParameters
from live.http.networks import below_root, network_of
from live.http.parser import MAX_HEAD, BodyPiece, Peer, RequestHead, RequestReader
from live.http.reply import problem_reply
from live.protocols.asgi import AppRequest
from live.protocols.connection_limits import SMALL, SMALL_BODIES, Admission, too_many_connections
from live.protocols.exchange import VIEWERS, Connection, Exchange, Flow, Pipeline
from live.protocols.post import Post, is_events
from live.protocols.shared import SharedParts
from live.protocols.websocket import PATH as WATCHED
from live.protocols.websocket import ViewerSocket, shake_hands

HEALTH_PATHS: Final = (b"/healthz", b"/readyz", b"/metrics")
_READ: Final = "GET /v1/boards/{board}"
_HALF_CLOSED: Final = 2.0  # seconds for which the server still answers a client that has closed its side
_LAST_REQUEST: Final = 0.2  # seconds in which a request that is on its way arrives, when the server stops
_SHORT_LINGER: Final = 1.0  # seconds to linger while the server stops, and over TLS, which can't close one side alone
_EVENTS_A_TURN: Final = 256  # heads and pieces of bodies that one turn reads; then other connections have their turn


class HttpProtocol(Connection):
    """One HTTP connection. The lifespan state of the application has the parts that all connections share."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.server_state = server_state
        self._app: ASGI3Application = cast("ASGI3Application", config.loaded_app)
        self._shared: SharedParts = app_state["parts"]
        self._shared.reaper.connections = server_state.connections
        self._reader = RequestReader()
        self._pipeline = Pipeline()
        self._place = Admission.NONE
        self._reading = False  # whether `_read` is running
        self._is_viewer = False  # whether the request in progress is a viewer's
        self._half_closed = False  # whether the client sends nothing more

    # Events of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask the limits whether to admit the connection."""
        self.transport = cast("asyncio.Transport", transport)
        self.flow = Flow(self.transport, self._read)
        found = get_remote_addr(self.transport)
        self.peer = Peer(found[0] if found else "", is_ssl(self.transport))
        self.network, self.is_shared = network_of(self.peer.address), self._shared.clients.trusts(self.peer.address)
        self.server_state.connections.add(cast("Any", self))  # uvicorn only calls `shutdown` on its connections
        self._place = self._shared.limits.opened(self)
        if self._place is Admission.NONE:
            self.refuse(too_many_connections())
        elif self._shared.stopping:  # the kernel had accepted the connection before the socket was closed
            self._close_unless_asked()

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget the connection. The events of complete requests are still counted."""
        self._shared.limits.closed(self)
        self.server_state.connections.discard(cast("Any", self))
        self._pipeline.disconnect()
        self.flow.waits = None
        self._count_bodies()
        self.flow.end()

    def data_received(self, data: bytes) -> None:
        """Read the requests in `data`. Drop the data if no more requests are accepted."""
        if self._pipeline.is_closed:
            return
        self.received += len(data)
        self._reader.feed(data)
        self._read()

    def eof_received(self) -> bool:
        """Answer the complete requests before closing: the client has closed its side.

        Most such clients have left, so the connection does not wait for slow answers. Return whether to keep the
        transport open.
        """
        if self._is_viewer or self.transport.get_extra_info("sslcontext") is not None:
            return False  # a viewer has left, or the connection uses TLS, which can't close one direction alone
        self._half_closed = True
        self._pipeline.cut_off()
        self._shared.limits.busy(self)
        self._stop_accepting()

        def end() -> None:
            if self._pipeline:
                self.transport.close()

        if self._pipeline:
            asyncio.get_running_loop().call_later(_HALF_CLOSED, end)
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
        reader, pipeline, flow, most_held = self._reader, self._pipeline, self.flow, self._shared.settings.max_body
        may_receive = True
        try:
            for _ in range(_EVENTS_A_TURN):
                if self._is_viewer or flow.write_paused or not pipeline.has_room:
                    # Receive bytes to drop them, or to notice that a viewer leaves.
                    may_receive = reader.unread < MAX_HEAD if self._is_viewer else pipeline.is_closed
                    break
                if flow.held > most_held and pipeline.arriving is None:
                    # Wait until bodies are answered, so that the held bodies and the next body together never have more
                    # than twice `max_body`.
                    may_receive = False
                    break
                event = reader.next()
                if event is None:
                    break
                if isinstance(event, BodyPiece):
                    if event.last:
                        self._request_complete()
                    pipeline.receive(event)
                else:
                    self._begin(event)
            else:  # after many events, other connections have their turn
                asyncio.get_running_loop().call_soon(self._read)
                may_receive = False
        except ProblemError as problem:
            self.refuse(problem)
        finally:
            self._reading = False
        if self.transport.is_closing():
            return
        if not may_receive:
            flow.pause_reading()
        elif flow.read_paused:
            flow.resume_transport()
        self.report()

    def report(self) -> None:
        """Tell the limits whether the client is sending a request or the connection is idle."""
        pipeline, limits = self._pipeline, self._shared.limits
        if self._is_viewer or pipeline.is_closed:
            return
        arriving = pipeline.arriving
        if self.wanted:
            limits.busy(self)  # the client is waiting for the server, and not the other way round
        elif pipeline.awaits_answer and (arriving is None or arriving.is_full):
            return
        # A slow body counts as late even if earlier requests have no answer.
        elif arriving is not None or self._reader.inside:
            limits.receiving(self)
        else:
            limits.idle(self)

    def _begin(self, head: RequestHead) -> None:
        shared, pipeline, asked = self._shared, self._pipeline, head
        if shared.root_path:
            head = msgspec.structs.replace(head, target=below_root(head.target, shared.root_path))
        if self._place is Admission.HEALTH and head.target not in HEALTH_PATHS:
            raise too_many_connections()
        if head.asks_for_websocket and not pipeline and shared.settings.role != "ingest":
            path = unquote_to_bytes(head.target.partition(b"?")[0])
            if (match := WATCHED.fullmatch(path)) is not None:
                pipeline.accepting = False
                board = match[1].decode("utf-8", "replace")
                self._begin_read(Exchange(self, partial(self._begin_upgrade, head, board)))
                return
        is_last = not head.keep_alive or self._place is not Admission.FULL or shared.stopping
        pipeline.accepting = keep_alive = not is_last
        if head.method == b"POST" and is_events(head.target) and shared.settings.role != "viewers":
            self._begin_post(head, Post(self, shared, keep_alive=keep_alive))
        elif head.method == b"GET" and not head.has_body and (read := shared.find_read(head, self.peer)) is not None:
            self._begin_read(Exchange(self, read, route=_READ, keep_alive=keep_alive))
        # The application answers all other requests. It gets the target with the root path, and removes that path.
        else:
            requester: Requester | ProblemError
            try:
                requester = shared.clients.resolve(self.peer.address, asked.fields, tls=self.peer.tls)
            except ProblemError as problem:  # the application refuses the request with this problem
                requester = problem
            request = AppRequest(self, self._app, asked, requester, {"parts": shared}, keep_alive=keep_alive)
            if pipeline.add(request, has_body=head.has_body):
                request.begin()
            if not head.has_body:
                self._request_complete()

    def _begin_post(self, head: RequestHead, post: Post) -> None:
        is_first = self._pipeline.add(post, has_body=head.has_body)
        post.expects = head.expects_continue and not self._reader.unread
        post.admit(head, self.peer)
        if not head.has_body:
            self._request_complete()
            post.end()
        elif post.reply is None:
            self.hold(post, head.length)
            if is_first and post.expects:
                post.begin()

    def hold(self, request: Exchange, size: int | None) -> None:
        """Admit the body of a request, or let it wait unread. `size` is its length, None for a chunked body."""
        flow, most = self.flow, self._shared.settings.max_body
        size = most if size is None else min(size, most)
        if flow.held + size > SMALL_BODIES:
            flow.is_counted, flow.waits, request.wanted = True, request, size
            if not self._shared.limits.admit(self, size):
                return
            flow.waits, request.wanted = None, 0
        request.size = size
        flow.held += size

    def release(self, size: int) -> None:
        """Subtract bytes from the bytes that are held for bodies."""
        self.flow.held -= size
        self._count_bodies()

    def _count_bodies(self) -> None:
        """Read on if reading was paused."""
        flow = self.flow
        if flow.is_counted:
            flow.is_counted = self._shared.limits.update(self)
            asyncio.get_running_loop().call_soon(flow.resume_reading)

    def _begin_read(self, read: Exchange) -> None:
        is_first = self._pipeline.add(read, has_body=False)
        self._request_complete()
        if is_first:
            read.begin()
            self.send_replies()

    def _request_complete(self) -> None:
        """End the deadline. The deadline of the next request runs from its first byte."""
        self._shared.limits.busy(self)
        self.received = self._reader.unread

    def _begin_upgrade(self, head: RequestHead, board: str, waiting: Exchange) -> None:
        waiting.abandon = asyncio.create_task(self._upgrade(head, board)).cancel

    async def _upgrade(self, head: RequestHead, board: str) -> None:
        shared, transport, hub = self._shared, self.transport, self._shared.reaper.hub
        try:
            requester = shared.clients.resolve(self.peer.address, head.fields, tls=self.peer.tls)
            requester.require_origin(shared.settings.allowed_origins)
            params = QueryParams(head.target.partition(b"?")[2].decode())
            reader = shared.authenticator.reader_of(head.fields, requester, params)
            shared.rate_limiter.admit_read(payer_of(reader, requester))
            if (cookie := marked_cookie(head.fields)) is not None:
                session = await shared.authenticator.signed_in.find(cookie, requester)
                reader = shared.authenticator.reader_of(head.fields, requester, params, session)
            subscription = Subscription.of(WatchParameters.read(params), reader, requester.network)
            try:
                hub.find(board, subscription)
            except ProblemError as problem:
                if problem.code != "board_not_found":
                    raise
                await shared.ask()  # another process may have made the board a moment ago
                hub.find(board, subscription)
            if self._half_closed:
                transport.close()  # a viewer has left
                return
            response, is_open, deflates = shake_hands(head)
            channel = hub.admit(board, subscription) if is_open else None
        except Exception as error:  # noqa: BLE001 - `problem_reply` logs unexpected errors
            self._pipeline.take_first()
            self.refuse(error)
            return
        self._pipeline.take_first()
        transport.write(response)
        if channel is None:
            self._finish()
            return
        self.server_state.connections.discard(cast("Any", self))
        shared.limits.closed(self)
        socket = ViewerSocket(shared.reaper, deflates=deflates)
        transport.set_protocol(socket)
        socket.connection_made(transport)
        socket.viewer = hub.add_viewer(channel, subscription, socket)
        self.flow.end()
        if (rest := self._reader.rest()) and not transport.is_closing():
            socket.data_received(rest)

    # Answers

    def send_replies(self) -> None:
        """Send the replies that are due, in the order of the requests."""
        self._count_bodies()
        answered = self._pipeline.take_answered()
        if not answered or self.transport.is_closing():
            return
        self.server_state.total_requests += len(answered)
        heads, tally, data = self._shared.heads, self._shared.tally, b""
        default = self.server_state.default_headers
        for reply, exchange in answered:
            data += heads.bytes_of(reply, default, keep_alive=exchange.keep_alive)
            tally.count(exchange.route, reply.status, exchange.arrived)
        self.transport.write(data)
        self._go_on(keep_alive=answered[-1][1].keep_alive)

    def response_done(self) -> None:
        """Go on: the application has answered the first request in the pipeline."""
        self.server_state.total_requests += 1
        if not self._pipeline or self.transport.is_closing():
            return
        request = cast("AppRequest", self._pipeline.take_first())
        self._shared.tally.count(request.route, request.cycle.status, request.arrived)
        self._go_on(keep_alive=request.keep_alive)

    def _go_on(self, *, keep_alive: bool) -> None:
        if self.buffered > SMALL:
            self._shared.limits.unread(self)
        if not keep_alive:
            self._finish()
            return
        if (first := self._pipeline.first) is not None:
            try:
                first.begin()
            except ProblemError as problem:
                self.refuse(problem)
                return
            self.send_replies()
        if self._reading:
            return
        if self._reader.unread or self.flow.read_paused:
            self._read()
        else:
            self.report()

    # Viewers

    def release_place(self) -> None:
        """Stop counting the connection: the current request is a viewer's, and viewers have separate limits.

        A viewer may stay for any time. So the connection drops the body of the viewer's request, and an incomplete body
        after it. The answer to the viewer's request ends the connection.
        """
        self._is_viewer = True
        viewer = self._pipeline.first
        if viewer is not None:  # the client may have left
            viewer.arrived, viewer.keep_alive = VIEWERS, False
        if isinstance(viewer, AppRequest):
            viewer.drop_body()
        if self._pipeline.arriving is not None and (self.flow.held or self.wanted):
            self._pipeline.cut_off()
            self._pipeline.stop()
            self._count_bodies()
        self._shared.limits.closed(self)
        if self.buffered:
            self._shared.limits.unread(self)  # the client must still read earlier answers
        # With this limit, `send` in the application returns only after the kernel has accepted all bytes.
        self.transport.set_write_buffer_limits(high=0)
        if self._half_closed:
            self.transport.close()  # a viewer has left

    # Ending the connection

    def refuse(self, error: Exception) -> None:
        """Answer the current request with a problem, unless it has an answer, and accept no more requests."""
        self._shared.limits.busy(self)
        if not self._pipeline.cut_off():
            self._stop_accepting()
            return
        self._pipeline.accepting = False
        refusal = Exchange(self)
        refusal.reply = problem_reply(error)
        self._pipeline.add(refusal, has_body=False)
        self.send_replies()

    def _stop_accepting(self) -> None:
        """Let the last answer end the connection."""
        if not self._pipeline.stop():
            self._finish()

    def _finish(self) -> None:
        """End the connection after the last answer, so that the client can read that answer.

        Over TCP, the server stops sending, then reads and drops what the client still sends. Closing immediately could
        reset the connection and destroy the answer (RFC 9112, section 9.6).
        """
        is_cut_short = self._pipeline.arriving is not None or self._reader.inside
        self._pipeline.cut_off()  # nobody answers this body, so it must not hold memory
        self._pipeline.clear()
        self._count_bodies()
        transport = self.transport
        if transport.is_closing():
            return
        is_tcp = transport.can_write_eof()  # TLS can't close one side alone, but announces the end
        if not (is_tcp or is_cut_short) or not self._shared.limits.start_lingering(self):
            transport.close()
            return
        if is_tcp:
            with suppress(OSError):  # raised if the client has reset the connection
                transport.write_eof()
        if self._shared.stopping or not is_tcp:
            asyncio.get_running_loop().call_later(_SHORT_LINGER, transport.close)
        self.flow.resume_transport()

    def shutdown(self) -> None:
        """Answer the requests in progress, and those on their way, then close: the server stops."""
        self._shared.stopping = True
        self._shared.reaper.hub.drain()
        if self.wanted:
            self._pipeline.cut_off()  # the body that waits is unread, so its request can be withdrawn
        if self._pipeline:
            self._stop_accepting()
        else:
            self._close_unless_asked()

    def _close_unless_asked(self) -> None:
        """Close the connection, unless a request comes that its client has sent before it could know of the stop."""

        def end() -> None:
            if not self._pipeline:
                self.transport.close()

        asyncio.get_running_loop().call_later(_LAST_REQUEST, end)
