"""HTTP as uvicorn speaks it, with a short way for `POST /v1/events`.

A request to it is taken in without scope, task and cycle of ASGI: head and body go to the intake, and its reply to the
socket. Every other request goes the ordinary way, and so does this one where it is out of the ordinary (behind another
request on its connection that is under way in ASGI, or with `Expect: 100-continue`); the answers are the same, byte for
byte. Requests that are sent ahead of answers (pipelining) are answered in their order.
"""

import asyncio
import sys
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from httptools import HttpParserUpgrade
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from live.errors import ProblemError, StoreUnavailableError
from live.event import Entry
from live.ingest.bodies import too_large
from live.ingest.committer import Committed
from live.ingest.intake import Head, Intake
from live.origin import require_origin
from live.producer import Producer
from live.protocols.attendant import Attendant
from live.protocols.guard import Guard
from live.protocols.handshake import fields_of, shake_hands
from live.protocols.heads import Heads
from live.protocols.template import Template
from live.protocols.upgrades import Upgrades
from live.replies import Reply, problem_reply

PATH: Final = b"/v1/events"
LENDING: Final = "live.lending"  # the ASGI extension by which a request becomes a viewer's: its `connection` is weak
MAX_HEAD: Final = 64 * 1024
_MOST_TEMPLATES: Final = 8  # heads that are learnt on a connection; more would be no repetition
_LINGER: Final = 1.0  # seconds
_MOST_AHEAD: Final = 64  # requests of a connection that are under way; more are not read


class _StopReadingError(Exception):
    """Raised to the parser, so that it reads no further."""


class _Post:
    """One request on the short way."""

    __slots__ = ("body", "connection", "entries", "head", "keep_alive", "reply", "whole")

    def __init__(self, connection: "HttpProtocol", *, keep_alive: bool) -> None:
        self.connection = connection
        self.keep_alive = keep_alive
        self.head: Head | None = None
        self.body = b""
        self.whole = False
        self.entries: Sequence[Entry] = ()
        self.reply: Reply | None = None

    def settle(self, committed: Committed) -> None:
        """It was one plain like, and the store has answered."""
        self._tell(committed)

    def fail(self, error: Exception) -> None:
        """It was one plain like, and the store has not answered."""
        self._tell(error)

    def _tell(self, outcome: Committed | Exception) -> None:
        assert self.head is not None, "nothing is counted whose head was not read"  # noqa: S101
        connection = self.connection
        connection.answer(self, connection.intake.reply_to_plain(self.head, self.body, outcome))


class _Flow(FlowControl):
    """Reads only while little is under way: uvicorn would read on with every answer, however many requests wait."""

    def __init__(self, transport: asyncio.Transport, may_read: Callable[[], bool]) -> None:
        super().__init__(transport)
        self._may_read = may_read

    def resume_reading(self) -> None:
        """Read again, if nothing is against it."""
        if self._may_read():
            super().resume_reading()


class HttpProtocol(HttpToolsProtocol):
    """One HTTP connection; the application gives the intake and the guard through the state of its lifespan."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.intake: Intake = app_state["intake"]
        self._guard: Guard = app_state["guard"]
        self._heads: Heads = app_state.setdefault("heads", Heads(server_state))
        self._upgrades: Upgrades = app_state.get("upgrades") or _upgrades_of(app_state, server_state)
        self._posts: deque[_Post] = deque()  # under way, in the order in which they came
        self._arriving: _Post | None = None  # the one whose body is being read
        self._more = bytearray()  # what there is of its body, but for the first piece
        self._running: RequestResponseCycle | None = None  # the one in ASGI; others wait in `pipeline`
        self._owing = False  # whether a request has begun, and not come whole
        self._head_open = False
        self._bodiless = 0  # bytes of it since it began, or since the last that were body
        self._watch_head = False  # whether a head that ends now may be too long
        self._last = False  # no request after those under way
        self._ended = False  # nothing is read any more
        self._address = ""
        self._lent = False  # whether the request under way is a viewer's
        self._template: Template | None = None
        self._to_learn = _MOST_TEMPLATES
        self._whole: _Post | None = None  # the last that has come whole
        self._requests = 0  # that have begun in the piece that is being read
        self._socket_at: int | None = None  # where in that piece a WebSocket begins

    # What the transport says

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Take a place, if there is one."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self._may_read)
        self._address = self.client[0] if self.client else ""
        if not self._guard.opened(self):
            self.refuse(ProblemError("too_many_connections", "the setting max_connections is reached", retry_after=1))

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back; what was taken in is counted all the same."""
        self._guard.closed(self)
        self._posts.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, and see whether a request is cut short, or its head too long."""
        if self._ended:
            return
        template = self._template
        if template is not None and not self._posts and not self._owing:
            body = template.body_of(data)
            if body is not None and template.generation == self.intake.gate.generation and self._may_go_short():
                self._take_again(template.head, body)
                return
        self._whole = None
        self._requests = 0
        self._watch_head = self._head_open or len(data) > MAX_HEAD
        self._bodiless += len(data)
        alone = not self._owing  # what begins in this piece, if it is the only one, begins with it
        super().data_received(data)
        if self._ended or self.transport.is_closing():
            if self._socket_at is not None and self._socket_at < len(data):
                cast("asyncio.Protocol", self.transport.get_protocol()).data_received(data[self._socket_at :])
            return
        if self._owing:
            self._watch(len(data) if alone and self._requests == 1 else 0)
            return
        self._guard.busy(self)
        self._rest()
        if self._to_learn and self._requests == 1:
            self._learn(data)

    def _watch(self, size: int) -> None:
        """Part of a request is still to come: see that it comes in time, and is no endless head.

        `size` is the length of the head so far, where it is known; a field that has no end yet is not in the measure.
        """
        if self._requests:  # it began just now: the clock runs anew
            self._guard.busy(self)
            self._bodiless = (size or self._measure()) if self._head_open else 0
        if self._bodiless > MAX_HEAD:
            self.refuse(_head_too_large())
        else:
            self._guard.owes(self)

    def resume_writing(self) -> None:
        """The peer reads its answers again, so its requests are read again."""
        super().resume_writing()
        self.flow.resume_reading()

    # What the parser says

    def on_message_begin(self) -> None:
        """A request begins; its scope is made when it is known to need one."""
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        self._requests += 1
        self._owing = self._head_open = True
        self._bodiless = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head; a trailer is too late to say anything."""
        if self._head_open:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there: decide which way the request goes."""
        if self._last:
            self._ended = True
            raise _StopReadingError
        if self._watch_head and self._measure() > MAX_HEAD:
            self.refuse(_head_too_large())
            raise _StopReadingError
        self._head_open = False
        if self.url == PATH and self.parser.get_method() == b"POST" and self._is_plain():
            self._begin_post()
        else:
            self._begin_scope()
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        self._bodiless = 0
        post = self._arriving
        if post is None:
            super().on_body(body)
        elif post.reply is None:
            if post.body:
                self._more += body
            else:
                post.body = body
            if len(post.body) + len(self._more) > self.intake.settings.max_body:
                self.answer(post, problem_reply(too_large(self.intake.settings.max_body)))

    def on_message_complete(self) -> None:
        """A request has come whole."""
        self._owing = False
        post = self._arriving
        if post is None:
            super().on_message_complete()
            return
        self._arriving = None
        if self._more:
            post.body += bytes(self._more)
            self._more = bytearray()
        post.whole = True
        self._whole = post
        if post.reply is None and post.head is not None:
            self._submit(post, post.head)

    # The short way

    def _may_go_short(self) -> bool:
        """Whether nothing about a request, or about what is ahead of it, needs the ordinary way."""
        return not (self._last or self._in_asgi())

    def _is_plain(self) -> bool:
        """Whether a request asks for nothing that only the ordinary way does."""
        if self.expect_100_continue or self.parser.should_upgrade() or self.intake.settings.role == "viewers":
            return False
        return self._may_go_short()

    def _take_again(self, head: Head, body: bytes) -> None:
        """Take in a request whose head is known."""
        self._unset_keepalive_if_required()
        self._guard.busy(self)
        post = _Post(self, keep_alive=True)
        post.body, post.whole = body, True
        self._posts.append(post)

        def known_head() -> Head:
            self.intake.check_length(len(body))
            return head

        try:
            if self.intake.rates.admit_now(head.producer):
                self._submit(post, known_head())
            else:
                self._ask(post, head.producer, known_head)
        except ProblemError as error:
            self.answer(post, problem_reply(error))

    def _learn(self, request: bytes) -> None:
        """Know the head of the one request that has come next time."""
        post = self._whole
        if post is not None and post.head is not None and post.head.once is None and post.keep_alive:
            self._to_learn -= 1
            self._template = Template.of(request, post.head, self.intake.gate.generation)

    def _begin_post(self) -> None:
        """Judge the head of a request, while its body is still coming."""
        keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        post = self._arriving = _Post(self, keep_alive=keep_alive)
        self._posts.append(post)
        self._last = not keep_alive
        if len(self._posts) > _MOST_AHEAD:
            self.flow.pause_reading()
        intake, headers = self.intake, self.headers
        named = dict(reversed(headers))
        try:
            producer = intake.welcome(named.get(b"authorization"), self._address)
            if intake.rates.admit_now(producer):
                post.head = intake.read_head(producer, headers, named)
            else:
                self._ask(post, producer, lambda: intake.read_head(producer, headers, named))
        except Exception as error:  # noqa: BLE001 - `problem_reply` logs what is not foreseen
            self.answer(post, problem_reply(error))

    def _ask(self, post: _Post, producer: Producer, make_head: Callable[[], Head]) -> None:
        """Ask the store whether a request is within its producer's rate."""

        async def admit() -> Reply | None:
            try:
                await self.intake.rates.admit(producer)
                post.head = make_head()
            except Exception as error:  # noqa: BLE001 - as above
                return problem_reply(error)
            return None

        self.intake.spawn(admit(), lambda refusal: self._admitted(post, refusal))

    def _admitted(self, post: _Post, refusal: Reply | None) -> None:
        if post.reply is not None:
            return  # its body was too large
        if refusal is not None:
            self.answer(post, refusal)
        elif post.whole and post.head is not None:
            self._submit(post, post.head)

    def _submit(self, post: _Post, head: Head) -> None:
        post.head = head
        try:
            if not self.intake.submit_plain(head, post.body, post):
                self.intake.submit(head, post.body, lambda reply: self.answer(post, reply))
        except Exception as error:  # noqa: BLE001 - as above
            self.answer(post, problem_reply(error))

    def answer(self, post: _Post, reply: Reply) -> None:
        """Send the answers that are due: that of a request waits for those before it."""
        post.reply = reply
        posts = self._posts
        if not posts or posts[0] is not post or self.transport.is_closing():
            return
        if len(posts) == 1 and not self._last and not self.pipeline:  # the same as below, for most
            posts.clear()
            self.transport.write(self._heads.bytes_of(reply, keep_alive=True))
            self.server_state.total_requests += 1
            self.flow.resume_reading()
            self._rest()
            return
        answers = []
        keep_alive = True
        while keep_alive and posts and (reply_due := posts[0].reply) is not None:
            due = posts.popleft()
            keep_alive = due.keep_alive and not (self._last and not posts and not self.pipeline)
            answers.append(self._heads.bytes_of(reply_due, keep_alive=keep_alive))
            self.server_state.total_requests += 1
        self.transport.write(answers[0] if len(answers) == 1 else b"".join(answers))
        if not keep_alive:
            self.transport.close()
            return
        if self.pipeline and not posts:
            self._start_asgi_task(*self.pipeline.pop())
        self.flow.resume_reading()
        self._rest()

    def _may_read(self) -> bool:
        return len(self._posts) <= _MOST_AHEAD and not self.pipeline and not self.flow.write_paused

    def _rest(self) -> None:
        """Tell the guard, when nothing is under way."""
        if not (self._posts or self._owing or self._in_asgi()):
            self._guard.rests(self)

    # The ordinary way

    def _in_asgi(self) -> bool:
        """Whether a request that goes the ordinary way has no answer yet."""
        return bool(self.pipeline) or (self._running is not None and not self._running.response_complete)

    def _begin_scope(self) -> None:
        """Make the scope that uvicorn makes at the beginning of every request."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers = self.scope["headers"] = headers
        self.scope["extensions"] = {LENDING: {"connection": weakref.ref(self)}}  # a cycle would be the collector's

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Begin with a request, unless requests before it have no answer yet."""
        if self._posts:
            self.pipeline.appendleft((cycle, app))
            self.flow.pause_reading()
        elif not self.transport.is_closing():
            self._running = cycle
            super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """A request has gone the ordinary way to its end."""
        if self._lent:
            self._take_back()
        super().on_response_complete()
        if not self.transport.is_closing():
            self.flow.resume_reading()
            self._rest()

    def lend(self) -> None:
        """The request under way is a viewer's, of which there are limits of their own: it takes no producer's place."""
        self._lent = True
        self._guard.lent(self)
        self.transport.set_write_buffer_limits(high=0)  # so that a send is over when nothing of it waits

    def _take_back(self) -> None:
        self._lent = False
        if self.transport.is_closing():
            return
        self.transport.set_write_buffer_limits()
        if not self._guard.returned(self):
            self.transport.close()
        elif self._owing:
            self._guard.owes(self)

    def abort(self) -> None:
        """End at once: the peer takes nothing."""
        self.transport.abort()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to WebSocket, unless requests before it wait for their answers."""
        self._ended = True
        if self._posts or self._in_asgi():
            self._end_after_last()
        elif self.scope["method"] == "GET" and self._open_socket():
            return
        else:
            self._guard.closed(self)
            super().handle_websocket_upgrade()

    def _open_socket(self) -> bool:
        """Shake hands, or refuse as plain HTTP does, where we speak WebSocket ourselves."""
        begin = self._upgrades.find(self.url)
        if begin is None:
            return False
        fields = fields_of(self.headers)
        try:
            require_origin(fields.get("Origin"), fields.get("Host"), self.intake.settings.allowed_origins)
            take = begin(self.headers, self._address)
        except (ProblemError, StoreUnavailableError) as error:
            self._end_with(self._heads.bytes_of(problem_reply(error), keep_alive=False))
            return True
        answer, is_open = shake_hands(self.url, fields)
        self.transport.write(answer)
        if is_open:
            self.connections.discard(self)
            take(self.transport, self)
            parsed = sys.exception()  # it is by this that uvicorn learns of an upgrade
            self._socket_at = parsed.args[0] if isinstance(parsed, HttpParserUpgrade) else None
            del self.parser, self.flow  # they know us: as a cycle, all of it would be left to the collector
        else:
            self._guard.closed(self)
            self.transport.close()
        return True

    # The end

    def refuse(self, problem: ProblemError) -> None:
        """Answer what is being read with a problem, and close."""
        self._end_with(self._heads.bytes_of(problem_reply(problem), keep_alive=False))

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, and close."""
        if not self._ended and self._is_last_in_line():
            super().send_400_response(msg)

    def _end_with(self, last_words: bytes) -> None:
        if not self._is_last_in_line():
            return
        self.transport.write(last_words)
        if self.transport.can_write_eof():
            # What it still sends is thrown away for a moment: a reset would take our last words from it.
            self.transport.write_eof()
            self.flow.resume_reading()
            self.loop.call_later(_LINGER, self.transport.close)
        else:
            self.transport.close()

    def _is_last_in_line(self) -> bool:
        """Give up what is being read; whether it is to be answered now.

        It is not when it has had its answer, or when requests before it wait for theirs: the last of these ends the
        connection.
        """
        self._guard.closed(self)
        self._ended = True
        self.flow.pause_reading()
        answered = self._drop_arriving()
        if self._posts or self._in_asgi():
            self._end_after_last()
        elif answered:
            self.transport.close()
        else:
            return not self.transport.is_closing()
        return False

    def _drop_arriving(self) -> bool:
        """Forget the request whose body is being read; whether it has its answer already."""
        post, cycle = self._arriving, self.cycle
        if post is not None:
            if post.reply is None:
                self._posts.remove(post)
            return post.reply is not None
        if not self._owing or self._head_open or cycle is None:
            return False
        if self.pipeline and self.pipeline[0][0] is cycle:
            self.pipeline.popleft()
        elif not cycle.response_started:
            self._running = None
            cycle.disconnected = True
            cycle.message_event.set()
        return cycle.response_started

    def _end_after_last(self) -> None:
        """Take no more requests: the last of those under way ends the connection."""
        self._last = True
        if self.pipeline:
            self.pipeline[0][0].keep_alive = False
        elif self._running is not None:
            self._running.keep_alive = False

    def leave(self) -> None:
        """Close an idle connection."""
        self.transport.close()

    def shutdown(self) -> None:
        """Answer what is under way, and close; events that are streamed end."""
        self._upgrades.drain()
        if self._posts or self._in_asgi():
            self._end_after_last()
        else:
            self.transport.close()

    def _measure(self) -> int:
        """The size of the head that has been read, in bytes."""
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)


def _upgrades_of(app_state: dict[str, Any], state: ServerState) -> Upgrades:
    attendant: Attendant = app_state["attendant"]
    attendant.serve(state)
    upgrades = app_state["upgrades"] = Upgrades(app_state["intake"], app_state["guard"], attendant, state)
    return upgrades


def _head_too_large() -> ProblemError:
    return ProblemError("headers_too_large", f"at most {MAX_HEAD} bytes are taken")
