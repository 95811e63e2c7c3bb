"""No byte of a body is ever parsed as a request: our parser against h11, on generated streams, split anywhere."""

import random
import re
from collections.abc import Iterator, Sequence
from typing import Final

import h11
import pytest

from live.errors import ProblemError
from live.http.parser import MAX_HEAD, BodyPiece, RequestHead, RequestReader
from tests.harness.wire import chunks

pytestmark = [pytest.mark.slow, pytest.mark.security]

STREAMS: Final = 16_000  # the number of streams of all parts together in `make test`
PARTS: Final = 4
Request = tuple[bytes, bytes, tuple[tuple[bytes, bytes], ...], bytes]  # method, target, fields, body

METHODS: Final = (b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"PATCH", b"CONNECT", b"get", b"PRI")
TARGETS: Final = (
    b"/", b"/v1/events", b"/v1/boards/a/live", b"/a?b=c&d", b"*", b"http://x/y", b"nonsense", b"/a b", b"/\x80",
)  # fmt: skip
VERSIONS: Final = (b"1.1",) * 12 + (b"1.0", b"1.0", b"2.0", b"1.2", b"0.9", b"x")
UPGRADES: Final = (
    b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n",
    b"Upgrade: websocket\r\nConnection: Upgrade\r\n",
    b"Upgrade: foo\r\nConnection: upgrade\r\n",
    b"Upgrade: websocket\r\n",
    b"Connection: Upgrade\r\n",
    b"Connection: keep-alive, Upgrade\r\nUpgrade: TLS/1.0, websocket\r\n",
)
ODD_LENGTHS: Final = (
    b"Content-Length: -1", b"Content-Length: +5", b"Content-Length: 5, 5", b"Content-Length: 0x5", b"Content-Length:",
    b"Content-Length: 5\r\nContent-Length: 5", b"Content-Length: 5\r\nContent-Length: 6", b"Content-Length : 5",
    b"Content-Length: 99999999999999999999999", b"Content-Length: 5 5", b"Content-Length: \x0b5",
    b"Content-Length: 1_0",
    b"Content-Length:\r\n 5", b"content-LENGTH: 5",
)  # fmt: skip
ODD_CODINGS: Final = (
    b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: chunked, identity", b"Transfer-Encoding: identity",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding: chunked\r\nContent-Length: 5", b"Content-Length: 5\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding:\tchunked", b"Transfer-Encoding: Chunked", b"Transfer-Encoding : chunked",
    b"Transfer-Encoding: chunked;q=1", b'Transfer-Encoding: "chunked"', b"Transfer-Encoding: chunked\x00",
    b"Transfer-Encoding:\x0bchunked", b"Transfer-Encoding:\r\n chunked", b"Transfer-Encoding: chunked\n",
    b"X: y\nTransfer-Encoding: chunked", b"X: y\rTransfer-Encoding: chunked", b"Transfer_Encoding: chunked",
)  # fmt: skip
FIELDS: Final = (
    b"X-A: b", b"Accept: */*", b"Cookie: a=b; c=d", b"X-Empty:", b"X-Space:  padded \t", b"Connection: close",
    b"Connection: keep-alive", b"Expect: 100-continue", b"X-\x7f: a", b"Bad Name: a", b": a", b"X-Text: \xe9",
    b"X-Nul: a\x00b", b"Host: twice", b"X: \x01", b" folded", b"no colon",
)  # fmt: skip
HIDDEN: Final = (
    b"GET /hidden HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"DELETE /v1/boards/a HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a.b\r\nContent-Length: 0\r\n\r\n",
    b"POST /hidden HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n",
    b"0\r\n\r\n",
    b"\r\n\r\n",
)
CHUNKED_BODIES: Final = (
    b"0;ext=1\r\n\r\n", b"5;a=b\r\nhello\r\n0\r\n\r\n", b"0\r\nTrailer: a\r\n\r\n", b"5\nhello\r\n0\r\n\r\n",
    b"05\r\nhello\r\n0\r\n\r\n", b"5\r\nhello0\r\n\r\n", b"5\r\nhelloXX0\r\n\r\n", b"5 \r\nhello\r\n0\r\n\r\n",
    b"g\r\n\r\n", b"-1\r\n\r\n", b"0x5\r\nhello\r\n0\r\n\r\n", b"fffffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    b"0\r\nbad trailer\r\n\r\n", b"0\r\nA: b\nC: d\r\n\r\n", b"\r\n5\r\nhello\r\n0\r\n\r\n", b"5\r\nhello\r\n",
    b"00\r\n\r\n", b"5;\r\nhello\r\n0\r\n\r\n", b"5;a=\x00\r\nhello\r\n0\r\n\r\n",
)  # fmt: skip


def body_of(chosen: random.Random) -> tuple[bytes, bytes]:
    """The framing fields of a body and the body; mostly valid, and often with bytes that look like a request."""
    payload = b"".join(chosen.choices((*HIDDEN, b"x", b'{"key":"a"}', b"\r\n"), k=chosen.randint(0, 3)))
    match chosen.random():
        case draw if draw < 0.3:
            return b"", b""
        case draw if draw < 0.6:
            return b"Content-Length: %d\r\n" % len(payload), payload
        case draw if draw < 0.85:
            cut = sorted(chosen.choices(range(len(payload) + 1), k=2))
            parts = [part for part in (payload[: cut[0]], payload[cut[0] : cut[1]], payload[cut[1] :]) if part]
            return b"Transfer-Encoding: chunked\r\n", chunks(*parts)
        case draw if draw < 0.9:
            return b"Transfer-Encoding: chunked\r\n", chosen.choice(CHUNKED_BODIES)
        case draw if draw < 0.95:
            return chosen.choice(ODD_LENGTHS) + b"\r\n", chosen.choice((b"hello", payload))
        case _:
            return chosen.choice(ODD_CODINGS) + b"\r\n", chosen.choice((chunks(b"hello"), b"hello", payload))


def request_of(chosen: random.Random) -> bytes:
    """One request, mostly valid."""
    odd = chosen.random() < 0.15
    method = chosen.choice(METHODS if odd else METHODS[:7])
    target = chosen.choice(TARGETS if odd else TARGETS[:4])
    line = b"%b %b HTTP/%b\r\n" % (method, target, chosen.choice(VERSIONS) if odd else b"1.1")
    fields = [b"Host: localhost\r\n"] if chosen.random() < 0.98 else []
    fields += [field + b"\r\n" for field in chosen.choices(FIELDS if odd else FIELDS[:4], k=chosen.randint(0, 3))]
    if chosen.random() < 0.4:
        fields.append(chosen.choice(UPGRADES))
    framing, body = body_of(chosen)
    fields.append(framing)
    chosen.shuffle(fields)
    return line + b"".join(fields) + b"\r\n" + body


def stream_of(chosen: random.Random) -> bytes:
    """Several requests in a row, sometimes with damaged bytes."""
    stream = b"".join(request_of(chosen) for _ in range(chosen.randint(1, 4)))
    if chosen.random() < 0.15:
        at = chosen.randrange(len(stream))
        damage = chosen.choice((b"", b"\r", b"\n", b"\r\n", b" ", b"\x00", b":", b"0", b"\t"))
        stream = stream[:at] + damage + stream[at + chosen.randint(0, 2) :]
    return stream


def cut(chosen: random.Random, stream: bytes) -> Iterator[bytes]:
    """The stream in pieces: as a whole, byte by byte, or split at random positions."""
    if chosen.random() < 0.1:
        yield from (bytes([byte]) for byte in stream)
        return
    points = sorted(chosen.choices(range(len(stream) + 1), k=chosen.choice((0, 1, 2, 5))))
    for start, end in zip([0, *points], [*points, len(stream)], strict=True):
        if start < end:
            yield stream[start:end]


def ours(pieces: Sequence[bytes]) -> tuple[list[Request], bool]:
    """The complete requests that our parser finds, and whether it refused the rest."""
    reader = RequestReader()
    found: list[Request] = []
    head: RequestHead | None = None
    body = b""
    try:
        for piece in pieces:
            reader.feed(piece)
            while (event := reader.next()) is not None:
                if isinstance(event, BodyPiece):
                    assert head is not None
                    body += event.data
                    is_whole = event.last
                else:
                    head, body, is_whole = event, b"", not event.has_body
                if is_whole:
                    found.append((head.method, head.target, head.fields, body))
                    if not head.keep_alive:
                        return found, False
    except ProblemError:
        return found, True
    return found, False


def theirs(stream: bytes) -> tuple[list[Request], bool]:
    """Return the requests that h11 finds in the whole stream, and whether it refused the rest."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
    found: list[Request] = []
    request: h11.Request | None = None
    body = b""
    try:
        connection.receive_data(stream)
        while (event := connection.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.Request):
                request, body = event, b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                assert request is not None
                fields = tuple((bytes(name), bytes(value)) for name, value in request.headers)
                found.append((bytes(request.method), bytes(request.target), fields, body))
                connection.send(h11.Response(status_code=404, headers=[("Content-Length", "0")]))
                connection.send(h11.EndOfMessage())
                if connection.our_state is not h11.DONE:
                    return found, False
                connection.start_next_cycle()
            elif event is h11.PAUSED:
                return found, False
    except h11.RemoteProtocolError:
        return found, True
    return found, False


def difference(pieces: Sequence[bytes]) -> str | None:
    """The first unsafe difference between our parser and h11; None if there is none.

    Our parser may refuse what h11 accepts, because that only ends the connection. It must never find a request or a
    body that h11 does not find.
    """
    mine, refused = ours(pieces)
    reference, reference_refused = theirs(b"".join(pieces))
    for index, request in enumerate(mine):
        if index >= len(reference):
            return f"h11 does not find request {index}: {request}"
        if normal(request) != normal(reference[index]):
            return f"request {index} is {request}, for h11 {reference[index]}"
    if len(mine) < len(reference) and not refused:
        return f"h11 finds {len(reference)} requests, our parser {len(mine)} and waits for more"
    if reference_refused and not refused and len(mine) == len(reference):
        return "h11 refuses bytes after which our parser waits"
    return None


def normal(request: Request) -> Request:
    """Split an absolute target of a request into path and Host, and write the transfer coding in lower case."""
    method, target, fields, body = request
    fields = tuple((name, value.lower() if name == b"transfer-encoding" else value) for name, value in fields)
    absolute = re.fullmatch(rb"http://([^/]+)(/.*)", target)
    if absolute:
        target = absolute[2]
        fields = tuple((name, absolute[1] if name == b"host" else value) for name, value in fields)
    return method, target, fields, body


@pytest.mark.parametrize("part", range(PARTS))
def test_our_parser_finds_the_requests_that_h11_finds(part: int, effort: int) -> None:
    """Our parser finds the same requests and bodies as h11, or refuses the rest, wherever the stream is split."""
    found: dict[int, int] = {}
    for seed in range(part, STREAMS * effort, PARTS):
        chosen = random.Random(seed)
        pieces = list(cut(chosen, stream_of(chosen)))
        assert (problem := difference(pieces)) is None, f"seed {seed}: {problem}\n{pieces}"
        count = len(ours(pieces)[0])
        found[count] = found.get(count, 0) + 1
    assert all(found.get(count, 0) > STREAMS // PARTS // 50 for count in range(5)), f"too few of some kind: {found}"


def test_the_result_does_not_depend_on_how_a_stream_is_split(effort: int) -> None:
    """The stream comes as a whole, in single bytes, or in random pieces. The requests and the refusal are the same."""
    for seed in range(1000 * effort):
        chosen = random.Random(seed)
        stream = stream_of(chosen)
        whole = ours([stream])
        assert ours([bytes([byte]) for byte in stream]) == whole
        assert ours(list(cut(chosen, stream))) == whole


def naive(pieces: Sequence[bytes]) -> list[bytes]:
    """The targets that httptools finds if it decides where bodies end."""
    import httptools  # noqa: PLC0415 - only this comparison needs it

    class Found:
        def __init__(self) -> None:
            self.targets: list[bytes] = []

        def on_url(self, target: bytes) -> None:
            self.targets.append(target)

    found = Found()
    parser = httptools.HttpRequestParser(found)
    for piece in pieces:
        rest = piece
        while rest:
            try:
                parser.feed_data(rest)
                rest = b""
            except httptools.HttpParserUpgrade as upgrade:
                rest = rest[upgrade.args[0] :]
            except httptools.HttpParserError:
                return found.targets
    return found.targets


def test_a_parser_that_decides_where_bodies_end_is_unsafe() -> None:
    """Httptools alone parses the body of an upgrade as a request, so our parser is needed."""
    fields = b"Host: localhost\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN[0])
    stream = b"POST /v1/events HTTP/1.1\r\n" + fields + HIDDEN[0]
    assert naive([stream]) == [b"/v1/events", b"/hidden"]
    requests, refused = ours([stream])
    assert [(request[1], refused) for request in requests] == [(b"/v1/events", False)]
