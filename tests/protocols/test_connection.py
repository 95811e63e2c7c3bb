"""One connection without a network: what it reads and writes, what its limits learn, and how it ends."""

import asyncio
import weakref
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.routing import Mount, Route

from live.domain.reader import NOBODY, Reader
from live.errors import ProblemError, StoreUnavailableError
from live.http.parser import MAX_HEAD
from live.http.reply import Reply, json_reply
from live.protocols import connection as module
from live.protocols import post as posts
from live.protocols.connection import HttpProtocol
from live.protocols.connection_limits import SMALL, SMALL_BODIES, Admission, ConnectionLimits
from live.protocols.exchange import OTHER, Exchange
from live.protocols.post import Post
from live.system.resources import Resources
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually

GET = b"GET /read HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = GET[:-2] + b"Connection: close\r\n\r\n"
FAILED = (
    b"GET /v1/boards/posts/live HTTP/1.1\r\nHost: a\r\nCookie: live-admin-1=a\r\n"
    b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"
)
WATCH = FAILED[:-2] + b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
EXPECT, CONTINUE = b"Expect: 100-continue", b"HTTP/1.1 100 Continue\r\n\r\n"
FULL = b"too many"  # a body with more events than may wait
CHECKED = SimpleNamespace(producer="shop")
HEALTH = GET.replace(b"/read", b"/healthz")


def post(size: int | None, *fields: bytes, target: bytes = b"/app") -> bytes:
    """The head of a request with a body, chunked if `size` is None."""
    length = b"Transfer-Encoding: chunked" if size is None else b"Content-Length: %d" % size
    return b"\r\n".join((b"POST %b HTTP/1.1" % target, b"Host: a", length, *fields, b"", b""))


def events(size: int | None, *fields: bytes) -> bytes:
    """The head of a request with events."""
    return post(size, *fields, target=b"/v1/events")


class Wire(asyncio.Transport):
    """The transport of a connection that writes down what happens to it."""

    def __init__(self, *, tls: bool = False) -> None:
        super().__init__({"peername": ("1.2.3.4", 5), "sslcontext": object() if tls else None})
        self.tls = tls
        self.sent = b""
        self.buffered = 0
        self.limits: list[int | None] = []
        self.fate: list[str] = []
        self.reading = True
        self.protocol: Any = None

    def write(self, data: Any) -> None:
        self.sent += data

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert low is None
        self.limits.append(high)

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def is_closing(self) -> bool:
        return bool({"closed", "aborted"} & {*self.fate})

    def can_write_eof(self) -> bool:
        return not self.tls

    def write_eof(self) -> None:
        self.fate.append("eof")

    def close(self) -> None:
        self.fate.append("closed")

    def abort(self) -> None:
        self.fate.append("aborted")


class Heads:
    """Encodes a reply as its body, or as its status if it is a refusal.

    A space follows, or a dot after the last reply.
    """

    def bytes_of(self, reply: Reply, _default: object, *, keep_alive: bool) -> bytes:
        return (reply.body if reply.status == 200 else b"%d" % reply.status) + (b" " if keep_alive else b".")


class Line:
    """A connection without a network. The test itself answers each plain read.

    The application answers all other requests, once `may_answer` is set. A connection `beside` another connection
    shares the limits of that connection.
    """

    def __init__(self, *, tls: bool = False, beside: "Line | None" = None, **changes: Any) -> None:
        settings = fresh_settings("", **changes)
        self.resources: Resources = beside.resources if beside else Resources(settings)
        self.limits: ConnectionLimits = beside.limits if beside else ConnectionLimits(settings, self.resources)
        self.gets: list[Exchange] = []
        self.posts: list[Post] = []
        self.read: list[bytes] = []  # the bodies that the application has read
        self.left = 0  # how often the application learned that the client has left
        self.may_answer = asyncio.Event()
        self.breaks = False  # whether the application fails within its answers
        self.is_quick = False  # whether plain reads are answered at once
        self.is_known = True  # whether the head of a request with events came before
        self.rate: asyncio.Future[None] | None = None  # what the store says about the rate, if it must be asked
        self.fault: ProblemError | None = None  # what is wrong with the producer
        self.faults: list[Exception | None] = []  # what is wrong with the next looks for the board of a viewer
        self.questions = 0  # how often new boards were asked for
        self.session: asyncio.Future[Reader] | None = None  # the session of the client, if it is signed in
        self.drained = 0
        self.counted: list[int] = []
        self.routes: list[str] = []
        self.route: Route | Mount | None = None  # the route that takes the requests of the application
        requester = SimpleNamespace(network="1.2.3.4", require_origin=lambda _: None)
        self.parts = SimpleNamespace(
            settings=settings, limits=self.limits, root_path=b"", heads=Heads(), stopping=False,
            intake=self, tally=self, ask=self.ask, find_read=self.find_read, rate_limiter=self,
            clients=SimpleNamespace(resolve=lambda *_, **__: requester, trusts=lambda _: False),
            authenticator=SimpleNamespace(reader_of=lambda *_: NOBODY, signed_in=self),
            reaper=SimpleNamespace(hub=self, connections=None),
        )  # fmt: skip
        self.state = SimpleNamespace(connections=set(), total_requests=0, tasks=set(), default_headers=[])
        self.wire = Wire(tls=tls)
        self.protocol = HttpProtocol(
            cast("Any", SimpleNamespace(loaded_app=self.serve)), cast("Any", self.state), {"parts": self.parts}
        )
        self.wire.protocol = self.protocol

    def open(self) -> "Line":
        """Connect."""
        self.protocol.connection_made(self.wire)
        return self

    def find_read(self, _head: object, _peer: object) -> Any:
        """Take each plain read."""

        def begin(get: Exchange) -> None:
            self.gets.append(get)
            if self.is_quick:
                self.answer(len(self.gets) - 1)

        return begin

    def find(self, header: str, subscription: Any) -> Any:
        """Find the session in a cookie, or the board of a viewer."""
        if "live-admin" in header:
            return self.session or asyncio.sleep(0, NOBODY)
        if (fault := self.faults.pop(0) if self.faults else None) is not None:
            raise fault
        return subscription

    def admit(self, *_: object) -> str:
        """Admit each viewer."""
        return "channel"

    def add_viewer(self, *_: object) -> None:
        """Add each viewer."""

    def admit_read(self, _payer: object) -> None:
        """Admit each read."""

    async def ask(self) -> None:
        """Count the questions whether there are new boards."""
        self.questions += 1

    async def serve(self, scope: Any, receive: Any, send: Any) -> None:
        """Read a body, and answer."""
        if self.route is not None:
            scope["route"] = self.route
        self.read.append(b"")
        while (message := await receive())["type"] == "http.request":
            self.read[-1] += message["body"]
            if not message["more_body"]:
                await self.may_answer.wait()
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"", "more_body": self.breaks})
                return
        self.left += 1

    def known(self, _head: object) -> Any:
        """Return what was checked of a head before, if `is_known`."""
        return CHECKED if self.is_known else None

    def producer_of(self, _head: object, _client: object) -> object:
        """Find the producer."""
        if self.fault is not None:
            raise self.fault
        return CHECKED.producer

    def check(self, *_: object) -> Any:
        """Check a head."""
        return CHECKED

    def admit_now(self, producer: object) -> bool:
        """Tell whether the process knows that the rate allows a request."""
        assert producer is CHECKED.producer
        return self.rate is None

    def wait(self, producer: object) -> Any:
        """Ask the store."""
        assert producer is CHECKED.producer
        return self.rate

    def submit_plain(self, _head: object, body: bytes, share: Any) -> bool:
        """Take the events of each body."""
        if body == FULL:
            raise ProblemError("overloaded", "")
        self.posts.append(share)
        return True

    def drain(self) -> None:
        """Count how often all viewers are disconnected."""
        self.drained += 1

    def count(self, route: str, status: int, _arrived: float) -> None:
        """Note the status and the route of each answer."""
        self.counted.append(status)
        self.routes.append(route)

    def feed(self, data: bytes) -> None:
        """Receive bytes."""
        self.protocol.data_received(data)

    def answer(self, number: int) -> None:
        """Answer a request with its number."""
        self.gets[number].answer(json_reply(b"%d" % number))

    @property
    def waits(self) -> set[str]:
        """What the limits expect of the client."""
        limits = self.limits
        queues: dict[str, Collection[object]] = {
            "request": limits._receiving, "idle": limits._idle, "linger": limits._lingering, "read": limits._unread
        }  # fmt: skip
        return {name for name, queue in queues.items() if self.protocol in queue}


async def test_the_limits_know_whether_the_client_or_the_server_is_waited_for() -> None:
    """A client that has begun its next request is not late while an earlier request has no answer."""
    line = Line().open()
    assert (line.waits, line.state.connections, line.protocol.received) == ({"request"}, {line.protocol}, 0)
    for piece, expected in ((GET[:9], {"request"}), (GET[9:], set()), (GET + GET[:5], set())):
        line.feed(piece)
        assert line.waits == expected
    assert line.protocol.received == 5
    line.answer(0)
    assert (line.waits, line.wire.sent) == (set(), b"0 ")
    line.answer(1)
    assert (line.waits, line.wire.sent) == ({"request"}, b"0 1 ")
    line.feed(GET[5:])
    line.answer(2)
    assert (line.waits, line.state.total_requests, line.counted) == ({"idle"}, 3, [200] * 3)
    line.is_quick = True
    line.feed(GET)
    assert (line.waits, line.wire.sent) == ({"idle"}, b"0 1 2 3 ")
    line.is_quick = False
    line.feed(GET * 3)
    line.is_quick = True
    line.answer(4)
    assert (line.waits, line.wire.sent) == ({"idle"}, b"0 1 2 3 4 5 6 ")
    line.feed(GET.replace(b"GET", b"DELETE"))
    assert (line.waits, line.protocol.received) == (set(), 0)
    line.protocol.connection_lost(None)
    assert (line.waits, line.state.connections, line.resources.connections.held) == (set(), set(), 0)


async def test_nothing_is_read_while_the_client_reads_no_answers() -> None:
    """What comes during the pause is read afterwards. The limits count the unread answers."""
    line = Line().open()
    line.wire.buffered = 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HttpProtocol, "unsent", property(lambda own: own.buffered))
        line.protocol.pause_writing()
        assert line.waits == {"request", "read"}
        line.feed(GET)
        assert (line.gets, line.wire.reading) == ([], False)
        line.protocol.resume_writing()
        assert (len(line.gets), line.wire.reading) == (1, True)
        line.wire.buffered = SMALL
        line.limits._forget_unread(line.protocol)
        line.answer(0)
        assert line.waits == {"idle"}
        line.feed(GET)
        line.wire.buffered = SMALL + 1
        line.answer(1)
        assert line.waits == {"read"}
        line.protocol.report()
        assert "idle" not in line.waits
        line.limits._forget_unread(line.protocol)
        line.protocol.report()
        assert line.waits == {"idle"}


async def test_requests_ahead_are_read_as_answers_are_sent() -> None:
    """The connection receives no more bytes while as many requests as allowed have no answer."""
    line = Line().open()
    line.feed(GET * 66)
    assert (len(line.gets), line.wire.reading) == (1, False), (
        "a request began before the one ahead was answered, or reading went on"
    )
    for number in range(66):
        assert len(line.gets) == number + 1
        line.answer(number)
    assert (line.wire.reading, line.waits) == (True, {"idle"})
    assert line.wire.sent == b"".join(b"%d " % number for number in range(66))


async def test_the_last_answer_ends_the_connection() -> None:
    """The server stops sending, and drops what still comes, until the client closes."""
    line = Line().open()
    line.feed(GET + LAST + GET)
    line.answer(0)
    line.answer(1)
    assert (line.wire.sent, line.wire.fate, line.waits, line.wire.reading) == (b"0 1.", ["eof"], {"linger"}, True)
    line.feed(GET)
    assert len(line.gets) == 2
    line.protocol.resume_writing()
    assert line.waits == {"linger"}
    line.protocol.close_idle()
    assert line.wire.fate == ["eof", "closed"]


@pytest.mark.parametrize(("body", "fate"), [(b"", ["closed"]), (GET[:5], [])])
async def test_over_tls_a_connection_lingers_only_if_a_request_was_cut_short(
    body: bytes, fate: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS itself announces the end, but bytes that nobody reads would destroy the answer."""
    monkeypatch.setattr(module, "_SHORT_LINGER", 0.01)
    line = Line(tls=True).open()
    line.feed(body)
    line.protocol.refuse(ProblemError("request_timeout", ""))
    assert (line.wire.sent, line.wire.fate) == (b"408.", fate)

    async def is_closed() -> bool:
        return line.wire.fate == ["closed"]

    await eventually(is_closed)


async def test_a_client_that_sends_nothing_more_gets_its_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """An incomplete request gets no answer. The connection does not wait for long."""
    monkeypatch.setattr(module, "_HALF_CLOSED", 0.01)
    for late in (False, True):
        line = Line().open()
        line.feed(GET + GET[:5])
        assert line.protocol.eof_received()
        assert line.waits == set()
        if not late:
            line.answer(0)
            assert (line.wire.sent, line.wire.fate) == (b"0.", ["eof"])
        await asyncio.sleep(0.02)
        assert line.wire.fate == (["closed"] if late else ["eof"])
    idle, secure = Line().open(), Line(tls=True).open()
    assert (idle.protocol.eof_received(), idle.wire.fate) == (False, ["eof"])
    secure.feed(GET)
    assert not secure.protocol.eof_received()


async def test_a_body_is_read_by_the_application() -> None:
    """The application begins after the answers to earlier requests.

    From then on, the client has a deadline for the body.
    """
    line = Line().open()
    line.feed(GET + post(4) + b"ab")
    assert (line.waits, line.wire.reading, line.protocol.held) == (set(), False, 0)
    assert line.protocol.received == len(post(4)) + 2
    line.answer(0)
    await asyncio.sleep(0)
    assert (line.waits, line.wire.reading, line.protocol.held, line.read) == ({"request"}, True, 4, [b"ab"])
    assert len(line.state.tasks) == 1, "a server that stops does not wait for the request"
    line.feed(b"cd" + GET)
    assert line.waits == set()
    line.may_answer.set()

    async def is_answered() -> bool:
        return len(line.gets) == 2 and not line.state.tasks

    await eventually(is_answered)
    line.answer(1)
    assert (line.read, line.waits, line.protocol.held, line.protocol.received) == ([b"abcd"], {"idle"}, 0, 0)
    assert (line.wire.sent.startswith(b"0 HTTP/1.1 200 OK"), line.counted) == (True, [200] * 3)
    assert line.state.total_requests == 3


async def test_an_incomplete_body_is_cut_off_with_its_client() -> None:
    """The client closes its side, or the connection is lost. The deadline ends, and the body takes no memory."""
    line = Line().open()
    line.feed(GET + events(100_000) + b"ab")
    assert (line.waits, line.resources.bodies.held) == ({"request"}, 100_000), (
        "a slow body has no deadline because a request is ahead of it"
    )
    assert line.protocol.eof_received()
    assert line.waits == set()
    line.answer(0)
    assert (line.wire.sent, line.wire.fate, line.resources.bodies.held) == (b"0.", ["eof"], 0)
    gone = Line().open()
    gone.feed(events(100_000) + b"ab")
    gone.protocol.connection_lost(None)
    assert (gone.resources.bodies.held, gone.protocol.held) == (0, 0)
    lost = Line().open()
    lost.feed(post(100_000) + b"ab")
    await asyncio.sleep(0)
    assert (lost.resources.bodies.held, lost.read) == (100_000, [b"ab"])
    lost.protocol.flow.pause_writing()
    waiting = asyncio.create_task(lost.protocol.flow.drain())
    await asyncio.sleep(0)
    lost.protocol.connection_lost(None)
    async with asyncio.timeout(60):
        await waiting

    async def has_left() -> bool:
        return lost.left == 1

    await eventually(has_left)
    assert (lost.resources.bodies.held, lost.protocol.held) == (0, 0)


async def test_a_body_that_must_wait_is_not_read() -> None:
    """The client has no deadline while the body waits. The answer to another client makes room for the body."""
    first = Line(max_unanswered=150_000).open()
    second = Line(beside=first, max_unanswered=150_000).open()
    first.feed(post(100_000) + b"x" * 100_000)
    second.feed(events(100_000) + b"ab")
    assert (second.waits, second.wire.reading, second.protocol.wanted, second.protocol.held) == (
        set(), False, 100_000, 0
    )  # fmt: skip
    first.may_answer.set()

    async def is_admitted() -> bool:
        return second.wire.reading

    await eventually(is_admitted)
    assert (second.waits, second.wire.reading, second.protocol.wanted, second.protocol.held) == (
        {"request"}, True, 0, 100_000
    )  # fmt: skip
    third = Line(beside=first, max_unanswered=150_000).open()
    third.feed(post(100_000) + b"ab")
    third.protocol.shutdown()

    async def is_closed() -> bool:
        return third.wire.fate == ["closed"]

    await eventually(is_closed)
    for line in (second, third):
        line.protocol.connection_lost(None)

    async def have_left() -> bool:
        return third.left == 1

    await eventually(have_left)
    assert (first.limits.waiting, first.resources.bodies.held) == (0, 0)


async def test_large_bodies_hold_back_the_next_requests() -> None:
    """A connection begins no request while its bodies together are larger than `max_body`.

    It still reads the rest of a body that has begun.
    """
    line = Line(max_body=10_000).open()
    line.feed(post(4))
    line.protocol.flow.held = 10_001
    line.feed(b"abcd" + GET)
    assert (line.protocol._reader.unread, line.wire.reading) == (len(GET), False)
    line.protocol.flow.held = 10_000
    line.protocol.flow.resume_reading()
    assert (line.protocol._reader.unread, line.wire.reading) == (0, True)
    line = Line(max_body=100_000).open()
    line.may_answer.set()
    line.feed(b"".join(head(100_000) + b"x" * 100_000 for head in (post, events)) + GET)
    assert (line.protocol._reader.unread, line.wire.reading) == (len(GET), False)

    async def is_read() -> bool:
        return line.wire.reading

    await eventually(is_read)
    assert (line.protocol._reader.unread, line.counted) == (0, [200])


async def test_many_pieces_leave_turns_to_other_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection reads the rest of the body in the next turns of the event loop."""
    monkeypatch.setattr(module, "_EVENTS_A_TURN", 2)
    line = Line().open()
    line.feed(events(None) + b"2\r\nab\r\n" * 2048 * 3 + b"0\r\n\r\n")
    assert (line.protocol._reader.unread > 0, line.wire.reading) == (True, False)

    async def is_read() -> bool:
        return bool(line.posts) and line.wire.reading

    await eventually(is_read)
    assert (line.protocol._reader.unread, line.waits) == (0, set())
    assert line.posts[0].body == b"ab" * 2048 * 3


async def test_events_are_counted_when_their_body_is_complete() -> None:
    """The answer waits for its turn.

    A large body counts against the budget until its answer, a small body never does.
    """
    line = Line(max_body=20_000).open()
    line.feed(events(SMALL_BODIES) + b"x" * SMALL_BODIES)
    assert (line.protocol.held, line.protocol.flow.is_counted) == (SMALL_BODIES, False)
    line.feed(events(0))
    assert (line.waits, line.protocol.received) == (set(), 0)
    line.feed(events(None) + b"1\r\nx")
    assert [len(each.body) for each in line.posts] == [SMALL_BODIES, 0]
    assert (line.protocol.held, line.resources.bodies.held, line.waits) == (
        SMALL_BODIES + 20_000,
        SMALL_BODIES + 20_000,
        {"request"},
    )
    line.feed(b"\r\n0\r\n\r\n" + GET + events(3, b"Expect: 100-continue"))
    assert ([each.body for each in line.posts][2:], line.protocol.held, line.waits) == ([b"x"], SMALL_BODIES + 4, set())
    for number in (1, 0, 2):
        line.posts[number].answer(json_reply(b"e%d" % number))
    assert (line.wire.sent, line.protocol.held, line.resources.bodies.held) == (b"e0 e1 e2 ", 3, 0)
    line.answer(0)
    assert line.wire.sent == b"e0 e1 e2 0 " + CONTINUE
    line.feed(b"abc")
    assert [each.body for each in line.posts][3:] == [b"abc"]
    assert (line.counted, line.state.total_requests) == ([200] * 4, 4)
    line.protocol.connection_lost(None)
    line = Line().open()
    line.feed(events(len(FULL)) + FULL)
    assert line.wire.sent == b"503 "


async def test_a_client_is_asked_for_the_body_that_it_holds_back() -> None:
    """The server asks once the producer is admitted. It does not ask a client that sends the body anyway.

    A refused client may send the body or not, so nobody knows what its next bytes are, and the connection ends.
    """
    line = Line().open()
    line.is_known, line.rate = False, asyncio.get_running_loop().create_future()
    line.feed(events(1, EXPECT))
    assert line.wire.sent == b""
    line.rate.set_result(None)
    await asyncio.sleep(0)
    assert line.wire.sent == CONTINUE
    line.feed(b"x")
    line.posts[0].answer(json_reply(b"e"))
    assert (line.wire.sent, line.wire.fate) == (CONTINUE + b"e ", [])
    line = Line().open()
    line.feed(events(2, EXPECT) + b"a")
    line.feed(b"b")
    line.posts[0].answer(json_reply(b"e"))
    assert (line.wire.sent, line.wire.fate) == (b"e ", [])
    line = Line().open()
    line.is_known, line.fault = False, ProblemError("credentials_invalid", "")
    line.feed(events(1, EXPECT))
    line.feed(GET)
    assert (line.wire.sent, line.wire.fate, line.gets) == (b"401.", ["eof"], [])


async def test_events_wait_until_their_producer_is_within_its_rate() -> None:
    """The store decides before or after the body is complete. No events of a refused or unknown producer count."""
    for is_complete in (True, False):
        line = Line().open()
        line.is_known, line.rate = False, asyncio.get_running_loop().create_future()
        line.feed(events(3) + b"a")
        line.feed(b"bc" if is_complete else b"b")
        line.rate.set_result(None)
        assert line.posts == []
        await asyncio.sleep(0)
        if not is_complete:
            assert line.posts == []
            line.feed(b"c")
        assert [each.body for each in line.posts] == [b"abc"]
    for size, sent in ((1, b"429 "), (101, b"413 ")):
        line = Line(max_body=100).open()
        line.rate = asyncio.get_running_loop().create_future()
        line.feed(events(None) + b"%x\r\n" % size + b"x" * size)
        line.rate.set_exception(ProblemError("rate_exceeded", ""))
        await asyncio.sleep(0)
        assert (line.wire.sent, line.posts) == (sent, [])
    line = Line().open()
    line.is_known, line.fault = False, ProblemError("credentials_invalid", "")
    line.feed(events(1) + b"x")
    assert (line.wire.sent, line.posts) == (b"401 ", [])


async def test_an_incomplete_answer_closes_the_connection() -> None:
    """The client must not take what follows for the rest of the answer."""
    line = Line().open()
    line.breaks = True
    line.may_answer.set()
    line.feed(post(1) + b"x" + GET)

    async def is_closed() -> bool:
        return line.wire.fate == ["closed"]

    await eventually(is_closed)
    assert (line.gets, line.counted) == ([], [])


async def test_answers_are_counted_by_route() -> None:
    """The metric has only names of routes, and no text of a client."""
    route, mount = Route("/v1/{name:path}", print, methods=["POST"]), Mount("/static", name="static", routes=[])
    for method, taken, expected in (
        (b"POST", route, "POST /v1/{name}"), (b"GET", route, OTHER), (b"GET", mount, "GET /static"),
        (b"POST", mount, OTHER), (b"POST", None, OTHER),
    ):  # fmt: skip
        line = Line().open()
        line.route = taken
        line.may_answer.set()
        line.feed(post(1).replace(b"POST", method) + b"x")

        async def is_counted(line: Line = line) -> bool:
            return bool(line.routes)

        await eventually(is_counted)
        assert line.routes == [expected]


async def test_spans_are_made_for_known_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace in the request of an unknown producer is ignored. Otherwise anybody could fill the store of traces."""
    spans: list[tuple[str, object, int]] = []
    monkeypatch.setattr(posts, "trace_of", lambda fields: dict(fields).get(b"traceparent"))
    monkeypatch.setattr(posts, "record_span", lambda name, _, trace, *, status: spans.append((name, trace, status)))
    for fault, fields in (
        (None, [b"traceparent: t"]),
        (None, []),
        (ProblemError("credentials_invalid", ""), [b"traceparent: t"]),
    ):
        line = Line().open()
        line.is_known, line.fault = False, fault
        line.feed(events(1, *fields) + b"x")
        if fault is None:
            line.posts[0].answer(json_reply(b"e"))
    assert spans == [("POST /v1/events", b"t", 200)]


async def test_a_server_that_stops_answers_what_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection without a request may send one that is on its way, and is closed otherwise."""
    monkeypatch.setattr(module, "_SHORT_LINGER", 0.01)
    monkeypatch.setattr(module, "_LAST_REQUEST", 0.05)
    idle, busy, asking, late = Line().open(), Line().open(), Line().open(), Line()
    busy.feed(GET)
    for line in (idle, busy, asking):
        line.protocol.shutdown()
        assert line.drained == 1
    late.parts.stopping = True
    for line in (asking, late.open()):
        line.feed(GET)
    assert idle.wire.fate == []
    await asyncio.sleep(0.06)
    assert (idle.wire.fate, busy.wire.fate, asking.wire.fate, late.wire.fate) == (["closed"], [], [], [])
    for line in (busy, asking, late):
        line.answer(0)
        assert (line.wire.sent, line.wire.fate) == (b"0.", ["eof"])
    await asyncio.sleep(0.02)
    assert busy.wire.fate == ["eof", "closed"]


async def test_a_refusal_comes_after_earlier_answers_and_is_the_last() -> None:
    """Bytes that are not HTTP end the connection. A request that has an answer gets no second answer."""
    line = Line().open()
    line.feed(GET + b"get")
    assert (line.wire.sent, line.wire.fate) == (b"", [])
    line.answer(0)
    assert (line.wire.sent, line.wire.fate, line.counted) == (b"0 400.", ["eof"], [200, 400])
    line = Line().open()
    line.feed(GET + events(None))
    assert line.waits == {"request"}
    line.feed(b"?")
    assert line.waits == set()
    line.answer(0)
    assert line.wire.sent == b"0 400."
    line = Line().open()
    line.feed(events(9) + b"ab")
    cast("Post", line.protocol._pipeline.arriving).answer(json_reply(b"early"))
    assert (line.wire.sent, line.waits) == (b"early ", {"request"})
    line.protocol.refuse(ProblemError("request_timeout", ""))
    assert (line.wire.sent, line.wire.fate, line.waits) == (b"early ", ["eof"], {"linger"})
    first = Line(max_unanswered=150_000).open()
    second = Line(beside=first, max_unanswered=150_000).open()
    first.feed(events(100_000) + b"x")
    second.feed(GET + post(100_000) + b"x")
    second.resources.bodies_waiting.most = 0  # now no body may wait
    second.answer(0)
    assert (second.wire.sent, second.wire.fate) == (b"0 503.", ["eof"])


async def test_a_place_for_health_serves_one_request_about_health(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other request is refused. If no place is free at all, the connection is refused before its first request."""
    for first, sent in ((HEALTH, b"0."), (GET, b"503.")):
        line = Line(max_connections=1)
        line.limits.opened(Line().protocol)
        line.open()
        assert line.protocol._place is Admission.HEALTH
        line.feed(first)
        if line.gets:
            line.answer(0)
        assert (line.wire.sent, line.wire.fate) == (sent, ["eof"])
    line = Line(max_connections=1)
    monkeypatch.setattr(line.limits, "opened", lambda _: Admission.NONE)
    line.open()
    assert (line.wire.sent, line.wire.fate) == (b"503.", ["eof"])


async def test_a_request_of_the_application_can_become_a_viewer() -> None:
    """The viewer takes no place, and its answer ends the connection.

    Its body and an incomplete body behind it are dropped. Bytes behind it are read up to the size of a head.
    """
    line = Line().open()
    line.feed(post(2) + b"ab" + events(9) + b"x" * 9)
    line.protocol.release_place()
    assert (line.resources.connections.held, line.waits, line.wire.limits) == (0, set(), [0])
    line.feed(b"x" * (MAX_HEAD - 1))
    assert line.wire.reading
    line.feed(b"x")
    assert [line.wire.reading] == [False]
    line.may_answer.set()

    async def is_ended() -> bool:
        return line.wire.fate == ["eof"]

    await eventually(is_ended)
    assert (line.counted, line.resources.connections.held) == ([200], 0)
    line = Line().open()
    line.feed(post(100_000) + b"x" * 100_000 + events(100_000) + b"ab")
    assert line.resources.bodies.held == 200_000
    await asyncio.sleep(0)
    line.protocol.release_place()
    assert (line.resources.bodies.held, line.protocol.held, line.protocol._pipeline.arriving) == (0, 0, None)
    line = Line().open()
    line.feed(post(2) + b"ab")
    line.wire.buffered = 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HttpProtocol, "unsent", property(lambda own: own.buffered))
        line.protocol.release_place()
    assert line.waits == {"read"}
    line.wire.buffered = 0


async def test_a_client_that_has_left_becomes_no_viewer() -> None:
    """It has closed its side, or the whole connection."""
    gone = Line().open()
    gone.feed(post(2) + b"ab")
    assert gone.protocol.eof_received()
    gone.protocol.release_place()
    assert gone.wire.fate == ["closed"]
    gone.protocol.connection_lost(None)
    gone.protocol.release_place()
    await asyncio.sleep(0)


class Socket(asyncio.Protocol):
    """A protocol that takes a connection over. `closes` is whether it then closes the connection."""

    closes = False

    def __init__(self, _reaper: object, *, deflates: bool) -> None:
        assert not deflates
        self.received: list[bytes] = []

    def connection_made(self, transport: Any) -> None:
        transport.fate += ["closed"] * self.closes

    def data_received(self, data: bytes) -> None:
        self.received.append(data)


async def turns() -> None:
    """Let the tasks of a connection run."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_websocket_takes_the_connection_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The WebSocket gets the bytes behind the request. A failed handshake ends the connection."""
    monkeypatch.setattr(module, "ViewerSocket", Socket)
    for rest, closes, received in ((b"frame", False, [b"frame"]), (b"", False, []), (b"frame", True, [])):
        line = Line().open()
        monkeypatch.setattr(Socket, "closes", closes)
        line.feed(WATCH + rest)
        former = weakref.ref(line.protocol)
        del line.protocol
        await turns()
        assert line.wire.sent.startswith(b"HTTP/1.1 101 ")
        assert (line.wire.protocol.received, line.state.connections) == (received, set())
        assert former() is None, "a viewer keeps its HTTP connection in memory"
    failed = Line().open()
    failed.feed(FAILED)
    await turns()
    assert (failed.wire.sent[:13], failed.wire.fate) == (b"HTTP/1.1 400 ", ["eof"])
    other = Line().open()
    other.feed(GET + WATCH)
    await turns()
    other.answer(0)
    assert len(other.gets) == 2, "the second request became an upgrade although a request is ahead of it"


async def test_a_viewer_of_an_unknown_board_asks_once_for_new_boards() -> None:
    """Another process may have made the board a moment ago. Any other problem is answered at once."""
    unknown, away = ProblemError("board_not_found", ""), StoreUnavailableError("away")
    for faults, sent, questions in (
        ([unknown, unknown], b"404.", 1), ([unknown, away], b"503.", 1),
        ([ProblemError("too_many_viewers", "")], b"503.", 0), ([away], b"503.", 0), ([OSError()], b"500.", 0),
    ):  # fmt: skip
        line = Line().open()
        line.faults = [*faults]
        line.feed(WATCH + GET)
        assert (line.wire.sent, line.waits) == (b"", set())
        await turns()
        assert (line.wire.sent, line.wire.fate, line.questions) == (sent, ["eof"], questions)


async def test_a_viewer_that_is_signed_in_waits_for_its_session() -> None:
    """The search for the session ends when the client leaves. If it fails, the client gets the fault as the answer."""
    for fault, sent in ((None, b"HTTP"), (StoreUnavailableError("away"), b"503.")):
        line = Line().open()
        line.session = asyncio.get_running_loop().create_future()
        line.feed(FAILED)
        await turns()
        assert line.wire.sent == b""
        if fault is None:
            line.session.set_result(NOBODY)
        else:
            line.session.set_exception(fault)
        await turns()
        assert (line.wire.sent[:4], line.wire.fate) == (sent, ["eof"])
    for leave, fate in ((HttpProtocol.eof_received, ["closed"]), (lambda own: own.connection_lost(None), [])):
        line = Line().open()
        line.session = asyncio.get_running_loop().create_future()
        line.feed(WATCH)
        await turns()
        leave(line.protocol)
        await turns()
        if not line.session.cancelled():
            line.session.set_result(NOBODY)
        await turns()
        assert (line.wire.fate, line.wire.sent) == (fate, b"")


async def test_a_connection_that_is_idle_with_unread_answers_is_aborted() -> None:
    """Answers that nobody reads would keep the socket open."""
    line = Line().open()
    line.wire.buffered = 1
    line.protocol.close_idle()
    line.protocol.abort()
    assert line.wire.fate == ["aborted"] * 2
