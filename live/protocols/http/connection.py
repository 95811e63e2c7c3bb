"""One HTTP connection: requests come in, are served one after another, and their answers go out in order.

`requests` reads them. `POST /v1/events` goes the short way (`posts`), everything else to the ASGI application
(`app_requests`); the answers are the same, byte for byte. A request for a WebSocket takes the connection over
(`upgrades`). Answers wait in line for those before them; a refusal that ends the connection waits in the same line.
"""

import asyncio
from collections import deque
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
from live.protocols.http.flow import Flow
from live.protocols.http.hot_post import Post, is_short, refusal
from live.protocols.http.peer import Peer, held_by_kernel
from live.protocols.http.requests import MAX_HEAD, Piece, RequestHead, RequestReader
from live.protocols.http.shared import Shared

HEALTH_PATHS: Final = (b"/healthz", b"/readyz", b"/metrics")
_MOST_AHEAD: Final = 64  # requests of a connection that are under way; more are not read
_SHORT_LINGER: Final = 1.0  # seconds: when the server stops, and over TLS, where one side cannot end alone
_EVENTS_A_TURN: Final = 256  # heads and pieces that are read before other connections have their turn


class HttpProtocol(asyncio.Protocol):
    """One HTTP connection; the application gives what it needs through the state of its lifespan."""

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
        self.received = 0  # bytes of the request that has begun
        self._app: ASGI3Application = cast("ASGI3Application", config.loaded_app)
        self._app_state = app_state
        self._shared: Shared = app_state.get("shared") or Shared.of(app_state, server_state)
        self._reader = RequestReader()
        self._line: deque[Post | AppRequest] = deque()  # without a whole answer, in the order in which they came
        self._arriving: Post | AppRequest | None = None  # whose body is being read; it may have its answer already
        self._place = Place.NONE
        self._taking = True  # whether more requests are taken
        self._reading = False  # inside of `_read`
        self._lent = False  # whether the request under way is a viewer's
        self._stopping = False  # whether the server stops

    # What the transport says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a place, if there is one."""
        self.transport = cast("asyncio.Transport", transport)
        self.flow = Flow(self.transport, self._read)
        self.peer = Peer.of(self.transport)
        self.server_state.connections.add(cast("Any", self))  # uvicorn asks no more of them than `shutdown`
        self._place = self._shared.limits.opened(self)
        if self._place is Place.NONE:
            self.refuse(too_many_connections())

    def connection_lost(self, _error: Exception | None) -> None:
        """Give the place back; what was taken in is counted all the same."""
        self._shared.limits.closed(self)
        self.server_state.connections.discard(cast("Any", self))
        self._taking = False
        for exchange in self._line:
            if isinstance(exchange, AppRequest):
                exchange.disconnect()
        self._line.clear()
        self._arriving = None
        self.flow.end()

    def data_received(self, data: bytes) -> None:
        """Read the requests in it; what comes after the last request is thrown away."""
        if not self._taking and self._arriving is None:
            return
        self.received += len(data)
        self._reader.feed(data)
        self._read()

    def eof_received(self) -> bool:
        """Answer what has come whole before the connection closes, for a client that closes its own side first."""
        if self._lent or self.transport.get_extra_info("sslcontext") is not None:
            return False  # a viewer that left; TLS knows no half of a connection
        arriving, self._arriving = self._arriving, None
        if arriving is not None:
            self._withdraw(arriving)
        self._stop_taking()
        return bool(self._line)

    def pause_writing(self) -> None:
        """The client does not take its answers: no more of its requests are read."""
        self.flow.pause_writing()
        if not self._lent:
            self._shared.limits.unread(self)

    def resume_writing(self) -> None:
        """It takes them again."""
        self.flow.resume_writing()
        self._read()

    # Requests

    def _read(self) -> None:
        """Read heads and pieces of bodies while more may be taken, and tell the limits where the connection stands."""
        if self._reading:
            return
        self._reading = True
        try:
            more = self._read_events()
        except ProblemError as problem:
            self.refuse(problem)
            more = False
        finally:
            self._reading = False
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return
        if more:
            asyncio.get_running_loop().call_soon(self._read)
        if more or not self._may_receive():
            self.flow.pause_reading()
        else:
            self.flow.resume_transport()
        self._report()

    def _read_events(self) -> bool:
        """Read a bounded number of events; True when there are more."""
        reader = self._reader
        for _ in range(_EVENTS_A_TURN):
            if not self._may_parse():
                return False
            event = reader.next()
            if event is None:
                return False
            if isinstance(event, Piece):
                self._receive(event)
            else:
                self._begin(event)
        return True

    def _may_parse(self) -> bool:
        """Whether the next piece of a body, or the next request, may be taken."""
        if self._lent or self.flow.write_paused:
            return False
        if self._arriving is not None:
            return not (isinstance(self._arriving, AppRequest) and self._arriving.is_full)
        return self._taking and len(self._line) <= _MOST_AHEAD

    def _may_receive(self) -> bool:
        """Whether bytes may come: to be read, to be thrown away, or to see that a viewer leaves."""
        if self._lent:
            return self._reader.unread < MAX_HEAD
        return self._may_parse() or not (self._taking or self._arriving)

    def _report(self) -> None:
        """Tell the limits whether the client owes the rest of a request, or nothing is under way."""
        limits = self._shared.limits
        if self._lent or (not self._taking and self._arriving is None):
            return
        waiting = len(self._line) - (self._arriving in self._line)
        if waiting:
            return  # for the server: whatever the client has begun to send meanwhile, it is not late
        if self._arriving is not None or self._reader.inside:
            limits.owes(self)
        else:
            limits.rests(self)

    def _begin(self, head: RequestHead) -> None:
        """Decide which way a request goes, by its path below the root path."""
        if root := self._shared.root_path:
            head = msgspec.structs.replace(head, target=below_root(head.target, root))
        if self._place is Place.HEALTH and head.target not in HEALTH_PATHS:
            raise too_many_connections()
        if head.asks_for_websocket and not self._line and self._take_over(head):
            return
        self._taking = head.keep_alive and self._place is Place.FULL
        exchange: Post | AppRequest
        if is_short(head, self._shared.intake.settings):
            exchange = post = Post(self, self._shared.intake, keep_alive=self._taking)
            self._line.append(post)
            post.admit(self._shared.known_heads, head, self.peer)
        else:
            exchange = AppRequest(self, head, self._client_of(head), self._app_state.copy())
            exchange.keep_alive = self._taking
            self._line.append(exchange)
            if len(self._line) == 1:
                exchange.begin(self._app)
        if head.has_body:
            self._arriving = exchange
        else:
            self._come_whole()
            if isinstance(exchange, Post):
                exchange.end()

    def _client_of(self, head: RequestHead) -> Client | ProblemError:
        """Who sends a request, or with what the application is to refuse it."""
        try:
            return self._shared.clients.resolve(self.peer.address, head.fields, tls=self.peer.tls)
        except ProblemError as problem:
            return problem

    def _receive(self, piece: Piece) -> None:
        """Give a piece of a body to the request that it belongs to."""
        arriving = self._arriving
        if piece.last:
            self._arriving = None
            self._come_whole()
        if arriving is not None:
            arriving.receive(piece.data, last=piece.last)

    def _come_whole(self) -> None:
        """A request has come whole: the clock of the next runs from its own first byte."""
        self._shared.limits.busy(self)
        self.received = self._reader.unread

    # Answers

    def answer_due(self) -> None:
        """Send the answers that are due, in the order of the requests."""
        line = self._line
        answers: list[bytes] = []
        keep_alive = True
        while keep_alive and line and isinstance(post := line[0], Post) and post.reply is not None:
            line.popleft()
            keep_alive = post.keep_alive
            answers.append(self._shared.heads.bytes_of(post.reply, keep_alive=keep_alive))
        if not answers or self.transport.is_closing():
            return
        self.server_state.total_requests += len(answers)
        self.transport.write(answers[0] if len(answers) == 1 else b"".join(answers))
        self._go_on(keep_alive=keep_alive)

    def response_done(self) -> None:
        """The application has answered the first request in line."""
        self.server_state.total_requests += 1
        if not self._line or self.transport.is_closing():
            return
        keep_alive = self._line.popleft().keep_alive
        if self._lent:
            keep_alive = self._take_back() and keep_alive
        self._go_on(keep_alive=keep_alive)

    def _go_on(self, *, keep_alive: bool) -> None:
        """Serve the next in line, and read on; or end the connection."""
        if self.buffered > SMALL:
            self._shared.limits.unread(self)
        if not keep_alive:
            self._finish()
            return
        if self._line and isinstance(first := self._line[0], AppRequest):
            first.begin(self._app)
        elif self._line:
            self.answer_due()
        if not self._reading:
            self._read()

    @property
    def address(self) -> str:
        """Of the peer."""
        return self.peer.address

    @property
    def buffered(self) -> int:
        """Bytes of answers that the kernel has not taken."""
        return self.transport.get_write_buffer_size()

    @property
    def unsent(self) -> int:
        """Bytes of answers that the client has not taken, those that the kernel holds among them."""
        return self.buffered + held_by_kernel(self.transport)

    # Other uses of the connection

    def lend(self) -> None:
        """The request under way is a viewer's, of which there are limits of their own: it takes no producer's place."""
        self._lent = True
        self._shared.limits.lent(self)
        self.transport.set_write_buffer_limits(high=0)  # so that a send is over when nothing of it waits

    def _take_back(self) -> bool:
        """The viewer is done; False when there is no place for its connection."""
        self._lent = False
        self.transport.set_write_buffer_limits()
        return self._shared.limits.returned(self)

    def _take_over(self, head: RequestHead) -> bool:
        """Go over to WebSocket, or refuse as plain HTTP does; False where no WebSocket is served."""
        upgrades = self._shared.upgrades
        begin = upgrades.find(head.target)
        if begin is None:
            return False
        try:
            client = self._shared.clients.resolve(self.peer.address, head.fields, tls=self.peer.tls)
            answer, take = upgrades.shake_hands(begin, head, client)
        except (ProblemError, StoreUnavailableError) as error:
            self.refuse(error)
            return True
        self.transport.write(answer)
        self._taking = False
        if take is None:
            self._finish()
            return True
        self.server_state.connections.discard(cast("Any", self))
        rest = self._reader.rest()
        take(self.transport, self)
        self.flow.end()
        if rest and not self.transport.is_closing():
            cast("asyncio.Protocol", self.transport.get_protocol()).data_received(rest)
        return True

    # The end

    def refuse(self, error: Exception) -> None:
        """Answer what is being read with a problem, unless it has its answer; and take no more requests."""
        arriving, self._arriving = self._arriving, None
        if arriving is not None and arriving.started:
            self._stop_taking()
        else:
            if arriving is not None:
                self._withdraw(arriving)
            self._taking = False
            self._line.append(refusal(self, self._shared.intake, error))
            self._shared.limits.busy(self)
            self.answer_due()

    def _withdraw(self, exchange: Post | AppRequest) -> None:
        """Do not serve the request that is being read; only the answer to it may have begun."""
        if exchange.started or exchange not in self._line:
            return
        self._line.remove(exchange)
        if isinstance(exchange, AppRequest):
            exchange.disconnect()

    def _stop_taking(self) -> None:
        """Take no more requests: the answer to the last ends the connection."""
        self._taking = False
        if self._line:
            self._line[-1].keep_alive = False
        else:
            self._finish()

    def _finish(self) -> None:
        """The last answer was given: say so, and let the client read it.

        What it still sends is thrown away for a while, for closing now could reset the connection and take the answer
        from it (RFC 9112, section 9.6).
        """
        cut_short = self._arriving is not None or self._reader.inside
        self._taking, self._arriving = False, None
        self._line.clear()
        if self.transport.is_closing():
            return
        is_tcp = self.transport.can_write_eof()  # TLS says by itself that nothing follows
        if not (is_tcp or cut_short) or not self._shared.limits.lingers(self):
            self.transport.close()
            return
        if is_tcp:
            self.transport.write_eof()
        if self._stopping or not is_tcp:
            asyncio.get_running_loop().call_later(_SHORT_LINGER, self.transport.close)
        self.flow.resume_transport()

    def settle(self) -> None:
        """The client has taken its answers."""
        if not (self._line or self._lent):
            self._report()

    def leave(self) -> None:
        """Close an idle connection; one that has not taken its answers would keep its socket open."""
        if self.buffered:
            self.transport.abort()
        else:
            self.transport.close()

    def abort(self) -> None:
        """End at once: the client takes nothing."""
        self.transport.abort()

    def shutdown(self) -> None:
        """The server stops: answer what is under way, and close; events that are streamed end."""
        self._stopping = True
        self._shared.upgrades.drain()
        if self._line:
            self._stop_taking()
        else:
            self.transport.close()
