"""Heads and bodies of requests."""

import pytest

from live.errors import ProblemError
from live.http.parser import (
    MAX_HEAD,
    MAX_LINE,
    BodyPiece,
    ChunkReader,
    RequestHead,
    RequestReader,
    _length_of,
    parse_head,
)

HOST = b"Host: a.example\r\n"
STREAM = (
    b"POST /a?b=1#c HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: Chunked\r\nExpect: x, 100-Continue\r\n\r\n"
    b"3;x=1\r\nabc\r\n01A \r\nzyxwvutsrqponmlkjihgfedcba\r\n0\r\nT: 1\r\nU: 2\r\n\r\n"
    b"GET /ws HTTP/1.1\r\n" + HOST + b"Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\r\n"
    b"PUT * HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\nConnection: close\r\n\r\nwxyz"
    b"GET HTTPS://b.example/c#d HTTP/1.0\r\nHost: a.example\r\nExpect: 100-continue\r\n\r\n"
)


def read_all(*pieces: bytes) -> tuple[list[RequestHead], list[bytes], RequestReader]:
    """The heads and bodies in a stream that arrives in pieces."""
    reader = RequestReader()
    heads: list[RequestHead] = []
    bodies: list[bytes] = []
    for piece in pieces:
        reader.feed(piece)
        while (event := reader.next()) is not None:
            if isinstance(event, BodyPiece):
                bodies[-1] += event.data + (b"." if event.last else b"")
            else:
                heads.append(event)
                bodies.append(b"")
    return heads, bodies, reader


def test_a_stream_is_read_alike_however_it_is_split() -> None:
    """The stream arrives as a whole, byte by byte, and in two pieces at every place."""
    splits = [(STREAM,), tuple(bytes([byte]) for byte in STREAM)]
    splits += [(STREAM[:place], STREAM[place:]) for place in range(1, len(STREAM))]
    for pieces in splits:
        heads, bodies, reader = read_all(*pieces)
        assert bodies == [b"abczyxwvutsrqponmlkjihgfedcba.", b"", b"wxyz.", b""]
        assert [(head.method, head.target, head.version, head.length) for head in heads] == [
            (b"POST", b"/a?b=1", "1.1", None), (b"GET", b"/ws", "1.1", 0), (b"PUT", b"*", "1.1", 4),
            (b"GET", b"/c", "1.0", 0),
        ]  # fmt: skip
        assert [(h.keep_alive, h.has_body, h.expects_continue, h.asks_for_websocket) for h in heads] == [
            (True, True, True, False), (True, False, False, True), (False, True, False, False),
            (False, False, False, False),
        ]  # fmt: skip
        assert heads[3].fields == ((b"host", b"b.example"), (b"expect", b"100-continue"))
        assert (reader.inside, reader.unread, reader.rest()) == (False, 0, b"")


def test_a_reader_knows_whether_a_request_is_incomplete() -> None:
    """A request is incomplete in its head, before and in its body, and until the last trailer."""
    assert (RequestReader().inside, RequestReader().unread) == (False, 0)
    for end in range(1, STREAM.index(b"GET /ws")):
        reader = read_all(STREAM[:end])[2]
        assert reader.inside
    _, _, reader = read_all(STREAM[:5], STREAM[5:9])
    assert (reader.unread, reader.rest(), reader.unread, reader.inside) == (9, STREAM[:9], 0, False)


CHUNKED = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
LIMITS = {  # a stream with a place for a filler, the bytes before and after the part that is limited, and its limit
    "head": (b"GET / HTTP/1.1\r\n" + HOST + b"A: %s\r\n\r\n", b"", b"", MAX_HEAD),
    "size line": (CHUNKED + b"1;%s\r\na\r\n0\r\n\r\n", CHUNKED, b"a\r\n0\r\n\r\n", MAX_LINE),
    "trailers": (CHUNKED + b"0\r\nB: 1\r\nA: %s\r\n\r\n", CHUNKED + b"0\r\n", b"\r\n", MAX_LINE),
}


@pytest.mark.parametrize("name", LIMITS)
def test_lines_are_read_up_to_their_limit(name: str) -> None:
    """A line with one byte over the limit is refused, complete or not. A line within the limit is not refused."""
    form, before, after, most = LIMITS[name]
    size = len(before) + most + len(after)
    longest = form % (b"x" * (size - len(form) + 2))
    assert len(longest) == size
    assert len(read_all(longest)[0]) == 1
    assert len(read_all(longest[:-5], longest[-5:])[0]) == 1
    endless = form.partition(b"%s")[0].ljust(len(before) + most, b"x")
    assert read_all(endless)[2].inside
    longer = form % (b"x" * (size - len(form) + 3))
    for pieces in ((longer,), (longer[:-5], longer[-5:]), (endless + b"x",)):
        with pytest.raises(ProblemError) as caught:
            read_all(*pieces)
        assert caught.value.code == "headers_too_large"


def test_what_two_parsers_could_read_differently_is_refused() -> None:
    """Each case has its own message, and is refused as soon as it has arrived."""
    get, post = b"GET / HTTP/1.1\r\n" + HOST, b"POST / HTTP/1.1\r\n" + HOST
    for stream, words in (
        (b"get", "begin with its method"), (b" ", "begin with its method"), (b"GET / HTTP/1.1\nHost", "end with CR LF"),
        (b"GET / HTTP/1.1\rHost", "end with CR LF"), (b"GET / HTTP/1.1 \r\n\r\n", "the request line"),
        (b"GET  / HTTP/1.1\r\n\r\n", "the request line"), (b"CONNECT a:1 HTTP/1.1\r\n\r\n", "the request line"),
        (b"GET ftp://a/ HTTP/1.1\r\n" + HOST + b"\r\n", "must be a path"), (get + b"A B: 1\r\n\r\n", "not HTTP"),
        (post + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\n", "Content-Length"),
        (post + b"Content-Length: 1234567890123456789\r\n\r\n", "one whole number"),
        (post + b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", "Transfer-Encoding"),
        (post + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "Transfer-Encoding"),
        (post.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n", "Transfer-Encoding"),
        (CHUNKED + b"x", "hexadecimal"), (CHUNKED + b"1\n", "hexadecimal"),
        (CHUNKED + b"1" * 16 + b"\r\n", "hexadecimal"),
        (CHUNKED + b"1\r\nab", "a chunk must end"), (CHUNKED + b"1\r\na\rb", "a chunk must end"),
        (CHUNKED + b"0\r\nA\r\n", "a trailer must be"),
        (b"GET /?" + b"&" * 1000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", "parameters"),
    ):  # fmt: skip
        for pieces in ((stream,), tuple(bytes([byte]) for byte in stream)):
            with pytest.raises(ProblemError, match=words):
                read_all(*pieces)
    lengths, chunked = (b"content-length", b"1"), (b"transfer-encoding", b"chunked")
    for fields in (
        (lengths, lengths),
        (lengths, chunked),
        (chunked, chunked),
    ):  # `_length_of` itself refuses these fields, although llhttp refuses some of them before
        with pytest.raises(ProblemError):
            _length_of(fields, "1.1")


def test_a_small_head_that_comes_again_is_not_parsed_again() -> None:
    """Clients send the same head again and again. Large heads are not kept, because they would fill the memory."""
    for size, is_kept in ((2048, True), (2049, False)):
        head = b"GET / HTTP/1.1\r\n" + HOST + b"A: "
        head = head.ljust(size - 4, b"x") + b"\r\n\r\n"
        (first, second), _, _ = read_all(head, head)
        assert (first is second) is is_kept


def test_many_chunks_are_decoded_in_several_calls() -> None:
    """Thousands of chunks in one body do not block the event loop."""
    data, reader, at, calls = b"1\r\na\r\n" * 3000 + b"0\r\n\r\n", ChunkReader(), 0, []
    while not reader.done:
        part, at = reader.read(data, at)
        calls.append(len(part))
    assert calls == [1024, 1024, 952]


@pytest.mark.parametrize("hosts", ["", "Host: a.example\r\nHost: a.example\r\n"], ids=["none", "two"])
def test_a_head_without_one_host_is_refused(hosts: str) -> None:
    """A proxy could take the request for a request to another site. HTTP/1.0 needs no `Host`."""
    with pytest.raises(ProblemError) as caught:
        parse_head(f"GET / HTTP/1.1\r\n{hosts}\r\n".encode())
    assert caught.value.code == "host_invalid"
    assert parse_head(b"GET / HTTP/1.0\r\n\r\n").version == "1.0"


def test_an_absolute_target_may_have_no_path() -> None:
    """The path is then `/`, and the query stays."""
    head = parse_head(b"GET http://a.example?limit=1 HTTP/1.1\r\nHost: a.example\r\n\r\n")
    assert head.target == b"/?limit=1"


def test_a_trailer_that_is_no_field_is_refused() -> None:
    """Such a trailer could hide the next request."""
    with pytest.raises(ProblemError, match="a trailer must be a header field"):
        ChunkReader().read(b"0\r\nGET / HTTP/1.1\r\n\r\n", 0)
