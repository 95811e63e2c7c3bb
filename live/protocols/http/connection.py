"""One HTTP connection: connects the parts that read requests, queue them, answer them and end the connection.

`RequestReader` reads the requests and `Pipeline` holds them in order. Events (`post`) and plain reads of a board are
answered without ASGI. Every other request goes to the ASGI application (`asgi`). A request for a WebSocket takes the
connection over.
"""

import asyncio
import sys
import termios
from collections.abc import Coroutine
from contextlib import suppress
from fcntl import ioctl
from functools import partial
from typing import Any, Final, cast

import msgspec
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.utils import get_remote_addr, is_ssl
from uvicorn.server import ServerState

from live.auth.client import Client
from live.domain.reader import Reader
from live.errors import ProblemError, StoreUnavailableError
from live.ingest.replies import problem_reply
from live.network.hosts import below_root
from live.protocols.body_budget import SMALL_BODIES
from live.protocols.connection_limits import SMALL, Admission, too_many_connections
from live.protocols.http.asgi import AppRequest
from live.protocols.http.exchange import Exchange, Flow
from live.protocols.http.parser import MAX_HEAD, BodyPiece, Peer, RequestHead, RequestReader
from live.protocols.http.pipeline import Pipeline
from live.protocols.http.post import Post, is_events
from live.protocols.http.request_counts import VIEWERS
from live.protocols.http.shared import SharedParts
from live.protocols.websocket import Upgrade

HEALTH_PATHS: Final = (b"/healthz", b"/readyz", b"/metrics")
_HALF_CLOSED: Final = 2.0  # seconds for which the server still answers a client that has closed its side
_SHORT_LINGER: Final = 1.0  # seconds to linger while the server stops, and over TLS, which can't close one side alone
_EVENTS_A_TURN: Final = 256  # heads and pieces of bodies that one turn reads; then other connections have their turn


class HttpProtocol(asyncio.Protocol):
    """One HTTP connection. The lifespan state of the application has the parts that all connections share."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.server_state = server_state
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)  # None until `connection_made`
        self.flow: Flow = cast("Flow", None)
        self.peer = Peer("", tls=False)
        self.received = 0  # bytes of the current request
        self._app: ASGI3Application = cast("ASGI3Application", config.loaded_app)
        self._app_state = app_state
        self._shared: SharedParts = app_state["parts"]
        self._shared.serve(server_state)
        self._reader = RequestReader()
        self._pipeline = Pipeline()
        self._place = Admission.NONE
        self._reading = False  # whether `_read` is running
        self._is_viewer = False  # whether the request in progress is a viewer's
        self._half_closed = False  # whether the client sends nothing more
        self._stopping = False  # whether the server is stopping

    # Events of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask the limits whether to admit the connection."""
        self.transport = cast("asyncio.Transport", transport)
        self.flow = Flow(self.transport, self._read)
        found = get_remote_addr(self.transport)
        self.peer = Peer(found[0] if found else "", is_ssl(self.transport))
        self.server_state.connections.add(cast("Any", self))  # uvicorn only calls `shutdown` on its connections
        self._place = self._shared.limits.opened(self)
        if self._place is Admission.NONE:
            self.refuse(too_many_connections())

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
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return
        if not may_receive:
            flow.pause_reading()
        elif flow.read_paused:
            flow.resume_transport()
        self._report()

    def _report(self) -> None:
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
        """Choose how to serve a request by its target, relative to the root path."""
        shared, pipeline, asked = self._shared, self._pipeline, head
        if shared.root_path:
            head = msgspec.structs.replace(head, target=below_root(head.target, shared.root_path))
        if self._place is Admission.HEALTH and head.target not in HEALTH_PATHS:
            raise too_many_connections()
        if head.asks_for_websocket and not pipeline and self._upgrade(head):
            return
        is_last = not head.keep_alive or self._place is not Admission.FULL or shared.intake.is_retiring
        pipeline.accepting = keep_alive = not is_last
        if head.method == b"POST" and is_events(head.target) and shared.settings.role != "viewers":
            self._begin_post(head, Post(self, shared, keep_alive=keep_alive))
        elif head.method == b"GET" and not head.has_body and (read := shared.reads.find(head, self.peer)) is not None:
            self._begin_read(Exchange(self, read, route=shared.reads.route, keep_alive=keep_alive))
        # The application answers all other requests. It gets the target with the root path, and removes that path.
        else:
            client: Client | ProblemError
            try:
                client = shared.clients.resolve(self.peer.address, asked.fields, tls=self.peer.tls)
            except ProblemError as problem:  # the application refuses the request with this problem
                client = problem
            request = AppRequest(self, self._app, asked, client, self._app_state.copy(), keep_alive=keep_alive)
            if pipeline.add(request, has_body=head.has_body):
                request.begin()
            if not head.has_body:
                self._request_complete()

    def _begin_post(self, head: RequestHead, post: Post) -> None:
        """Begin to receive events, which are counted when the body is complete."""
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
        """Admit the body of a request, or let it wait. While it waits, the server reads no more of it.

        `size` is the declared length, None for a chunked body.

        Raises:
            ProblemError: `overloaded`, when too many connections wait already.
        """
        flow, most = self.flow, self._shared.settings.max_body
        size = most if size is None else min(size, most)
        if flow.held + size > SMALL_BODIES:
            flow.is_counted, flow.waits, request.wanted = True, request, size
            if not self._shared.bodies.admit(self, size):
                return
            flow.waits, request.wanted = None, 0
        request.size = size
        flow.held += size

    @property
    def held(self) -> int:
        """Bytes of the bodies that were admitted and are not answered."""
        return self.flow.held

    @property
    def wanted(self) -> int:
        """Bytes of the body that waits to be admitted, or 0."""
        waits = self.flow.waits
        return 0 if waits is None else waits.wanted

    def admit_body(self) -> None:
        """Begin to read the body that waits. It is part of `held` from now on."""
        flow = self.flow
        assert flow.waits is not None, "a body waits"  # noqa: S101
        flow.waits.size, flow.waits.wanted = flow.waits.wanted, 0
        flow.held += flow.waits.size
        flow.waits = None
        asyncio.get_running_loop().call_soon(flow.resume_reading)

    def release(self, size: int) -> None:
        """Subtract bytes from the bytes that are held for bodies."""
        self.flow.held -= size
        self._count_bodies()

    def _count_bodies(self) -> None:
        """Tell the budget how many bytes of bodies are left. Read on if reading was paused."""
        flow = self.flow
        if flow.is_counted:
            flow.is_counted = self._shared.bodies.update(self)
            asyncio.get_running_loop().call_soon(flow.resume_reading)

    def _begin_read(self, read: Exchange) -> None:
        is_first = self._pipeline.add(read, has_body=False)
        self._request_complete()
        if is_first:
            read.begin()
            self.send_replies()

    def _request_complete(self) -> None:
        """End the deadline of a complete request. The deadline of the next request runs from its first byte."""
        self._shared.limits.busy(self)
        self.received = self._reader.unread

    def _upgrade(self, head: RequestHead, session: Reader | None = None, *, has_asked: bool = False) -> bool:
        """Switch to WebSocket, or refuse with a problem. Return False if the target has no WebSocket.

        If a session or new boards must be looked up first, `go_on` calls this again.
        """

        def go_on(waiting: Exchange, fault: Exception | None, session: Reader | None, *, has_asked: bool) -> None:
            if waiting.has_left:
                return
            self._pipeline.take_first()
            if fault is not None:
                self.refuse(fault)
            elif self._half_closed:
                self.transport.close()  # a viewer has left
            else:
                self._upgrade(head, session, has_asked=has_asked)

        def ask(waiting: Exchange) -> None:
            self._shared.ask_soon(lambda fault: go_on(waiting, fault, session, has_asked=True))

        def find(waiting: Exchange, search: Coroutine[None, None, Reader]) -> None:
            def done(task: asyncio.Task[Reader]) -> None:
                if not task.cancelled():
                    fault = cast("Exception | None", task.exception())
                    go_on(waiting, fault, None if fault else task.result(), has_asked=has_asked)

            task = asyncio.create_task(search)
            waiting.abandon = task.cancel
            task.add_done_callback(done)

        try:
            upgrade = self._shared.upgrades.respond(head, self.peer, session)
        except (ProblemError, StoreUnavailableError) as problem:
            is_unknown = isinstance(problem, ProblemError) and problem.code == "board_not_found"
            if is_unknown and not has_asked:  # another process may have made the board a moment ago
                self._pipeline.accepting = False
                self._begin_read(Exchange(self, ask))
            else:
                self.refuse(problem)
            return True
        if upgrade is None:
            return False
        if not isinstance(upgrade, Upgrade):
            self._pipeline.accepting = False
            self._begin_read(Exchange(self, partial(find, search=upgrade)))
            return True
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
        self._count_bodies()
        answered = self._pipeline.take_answered()
        if not answered or self.transport.is_closing():
            return
        self.server_state.total_requests += len(answered)
        heads, tally, data = self._shared.heads, self._shared.tally, b""
        for reply, exchange in answered:
            data += heads.bytes_of(reply, keep_alive=exchange.keep_alive)
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
        """Start the next request and read on, or end the connection."""
        if self.buffered > SMALL:
            self._shared.limits.unread(self)
        if not keep_alive:
            self._finish()
            return
        if self._pipeline:
            try:
                self._pipeline.begin_first()
            except ProblemError as problem:
                self.refuse(problem)
                return
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
        in_kernel = bytearray(4)
        ioctl(self.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, in_kernel)
        return self.buffered + int.from_bytes(in_kernel, sys.byteorder)

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
        """Accept no more requests: the last answer ends the connection."""
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
        if self._stopping or not is_tcp:
            asyncio.get_running_loop().call_later(_SHORT_LINGER, transport.close)
        self.flow.resume_transport()

    def answers_read(self) -> None:
        """Update the limits: the client has read its answers."""
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

    def retire(self) -> None:
        """Announce the end in the last answer if it has not begun.

        Otherwise, the answer to the next request announces the end. An idle connection stays open, because its client
        may be sending a request.
        """
        if self._pipeline.can_announce_end:
            self._stop_accepting()

    def shutdown(self) -> None:
        """Answer the requests in progress, then close: the server stops."""
        self._stopping = True
        self._shared.upgrades.drain()
        if self.wanted:
            self._pipeline.cut_off()  # the body that waits is unread, so its request can be withdrawn
        if self._pipeline:
            self._stop_accepting()
        else:
            self.transport.close()
