"""Single requests to POST /v1/events, good and bad, each as the bytes that are sent and the statuses that come back."""

import gzip
from typing import Final, NamedTuple

from tests.harness.wire import CHUNKED, CLOSE, JSON, NDJSON, chunks, likes, post, request

ONE: Final = b'{"key":"a"}'
MAX_BODY: Final = 4096

_GZIP: Final = ("Content-Encoding", "gzip")
_ONCE: Final = "Idempotency-Key"
_EVENT: Final = b'{"specversion":"1.0","id":"e","source":"/s","type":"like","subject":"a"}'
_BINARY: Final = (
    ("ce-specversion", "1.0"), ("ce-id", "b"), ("ce-source", "/s"), ("ce-type", "like"), ("ce-subject", "a"),
)  # fmt: skip


class Case(NamedTuple):
    """What is sent, the statuses of the answers, whether the connection lives on, and whether it was HTTP at all."""

    sent: tuple[bytes, ...]
    statuses: tuple[int, ...]
    lives: bool = True
    is_http: bool = True


def _case(*sent: bytes, status: int = 200, lives: bool = True) -> Case:
    return Case(sent, (status,), lives)


def _ends(status: int, *sent: bytes) -> Case:
    return Case(sent, (status,), lives=False)


def _is_not_http(*sent: bytes) -> Case:
    return Case(sent, (400,), lives=False, is_http=False)


def _singly(data: bytes) -> tuple[bytes, ...]:
    return tuple(bytes([byte]) for byte in data)


CASES: Final[dict[str, Case]] = {
    "single": _case(post(ONE)),
    "with an id": _case(post(b'{"key":"a","id":"1","source":"s"}')),
    "with an id twice": Case((post(b'{"key":"a","id":"2","source":"s"}') * 2,), (200, 200)),
    "array": _case(post(likes(3))),
    "empty array": _case(post(b"[]")),
    "some refused": _case(post(b'[{"key":""},{"key":"a"},{"key":"a","type":"hate"},{"key":"a","board":"nope"}]')),
    "all refused": _case(post(b'{"key":"a","time":"1999-12-31T23:59:59Z"}')),
    "lines": _case(post(ONE + b"\n" + ONE, NDJSON)),
    "gzip": _case(post(gzip.compress(ONE, mtime=0), _GZIP)),
    "chunked": _case(post(chunks(b'{"key"', b':"a"}'), CHUNKED)),
    "chunks of one byte": _case(post(chunks(*_singly(ONE)), CHUNKED)),
    "chunked with a trailer": _case(
        post(chunks(ONE)[:-2] + b"Idempotency-Key: t\r\nContent-Type: text/plain\r\n\r\n", CHUNKED)
    ),
    "gzip in chunks": _case(post(chunks(gzip.compress(likes(9), mtime=0)), CHUNKED, _GZIP)),
    "HTTP/1.0": _ends(200, post(ONE, version="1.0")),
    "HTTP/1.0 that would stay": _ends(200, post(ONE, ("Connection", "keep-alive"), version="1.0")),
    "the last": _ends(200, post(ONE, CLOSE)),
    "the last, refused": _ends(400, post(b"{", CLOSE)),
    "the last, with one behind": _ends(200, post(ONE, CLOSE) + post(ONE)),
    "the last, refused, with one behind": _ends(415, post(ONE, CLOSE, ("Content-Type", "text/plain")) + post(ONE)),
    "odd case": _case(post(ONE, ("cOnTeNt-TyPe", "Application/JSON; Charset=UTF-8"), ("CONTENT-LENGTH", "11"))),
    "spaces around values": _case(post(ONE, ("Content-Type", "  application/json  "), ("Content-Length", " 11 "))),
    "bytes one by one": _case(*_singly(post(ONE))),
    "chunked, bytes one by one": _case(*_singly(post(chunks(ONE), CHUNKED))),
    "query": _case(post(ONE, target="/v1/events?x=1"), status=400),
    "encoded path": _case(post(ONE, target="/v1/%65vents")),
    "absolute target": _case(post(ONE, target="http://x/v1/events")),
    "CloudEvent": _case(post(_EVENT, ("Content-Type", "application/cloudevents+json"))),
    "CloudEvents": _case(post(b"[" + _EVENT + b"]", ("Content-Type", "application/cloudevents-batch+json"))),
    "CloudEvent in the head": _case(post(b"", ("Content-Type", "text/plain"), *_BINARY)),
    "expects to go on": Case((post(ONE, ("Expect", "100-continue")),), (100, 200)),
    "expects to go on, refused": _case(post(b"", ("Expect", "100-continue"), ("Content-Type", "a/b")), status=415),
    "once": _case(post(ONE, (_ONCE, '"k1"'))),
    "once, sent twice": Case((post(ONE, (_ONCE, '"k2"')), post(ONE, (_ONCE, '"k2"'))), (200, 200)),
    "once, another body": Case((post(ONE, (_ONCE, '"k3"')), post(likes(1), (_ONCE, '"k3"'))), (200, 422)),
    "once, malformed": _case(post(ONE, (_ONCE, '"')), status=400),
    "once, twice": _case(post(ONE, (_ONCE, "a"), (_ONCE, "a")), status=400),
    "no JSON": _case(post(b'{"key"'), status=400),
    "no gzip": _case(post(ONE, _GZIP), status=400),
    "no body": _case(post(b""), status=400),
    "no length": _case(request("POST", "/v1/events", JSON), status=400),
    "unknown type": _case(post(ONE, ("Content-Type", "text/plain")), status=415),
    "no type": _case(request("POST", "/v1/events", ("Content-Length", "11"), body=ONE), status=415),
    "unknown encoding": _case(post(ONE, ("Content-Encoding", "br")), status=415),
    "too large": _case(post(b" " * (MAX_BODY + 1)), status=413),
    "too large in chunks": _case(post(chunks(*[b" " * 1024] * 5), CHUNKED), status=413),
    "too large unpacked": _case(post(gzip.compress(b" " * (MAX_BODY + 1), mtime=0), _GZIP), status=413),
    "as large as may be": _case(post(ONE + b" " * (MAX_BODY - len(ONE)))),
    "too many events": _case(post(likes(11)), status=413),
    "GET": _case(request("GET", "/v1/events"), status=405),
    "OPTIONS": _case(request("OPTIONS", "/v1/events", ("WebHook-Request-Origin", "a.example"))),
    "another path": _case(post(ONE, target="/v1/events/"), status=404),
    "plain GET of the socket": _case(request("GET", "/v1/events/live"), status=426),
    "bad field": _is_not_http(post(ONE, ("Bad Field", "1"))),
    "bad chunk": _is_not_http(post(b"zz\r\n", CHUNKED)),
    "bad chunk behind a good one": _is_not_http(post(chunks(b"{")[:-5] + b"zz\r\n", CHUNKED)),
    "bad chunk, expecting": Case(
        (post(b"zz\r\n", CHUNKED, ("Expect", "100-continue")),), (400,), lives=False, is_http=False
    ),
    "negative length": _is_not_http(post(ONE, ("Content-Length", "-1"))),
    "two lengths": _is_not_http(post(ONE, ("Content-Length", "5"), ("Content-Length", "11"))),
    "a length and chunks": _is_not_http(post(chunks(ONE), ("Content-Length", "21"), CHUNKED)),
    "chunks and a length": _is_not_http(post(chunks(ONE), CHUNKED, ("Content-Length", "21"))),
    "no HTTP": _is_not_http(b"nonsense\r\n\r\n"),
    "TLS": _is_not_http(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    "HTTP/2": _is_not_http(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
}
