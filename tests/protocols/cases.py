"""Single requests to POST /v1/events, valid and invalid, as the sent bytes and the expected statuses."""

import gzip
from typing import Final, NamedTuple

from tests.harness.wire import CHUNKED, CLOSE, JSON, NDJSON, chunks, likes, post, request

ONE: Final = b'{"key":"a"}'
MAX_BODY: Final = 4096

_GZIP: Final = ("Content-Encoding", "gzip")
_IDEMPOTENCY_KEY: Final = "Idempotency-Key"
_EVENT: Final = b'{"specversion":"1.0","id":"e","source":"/s","type":"like","subject":"a"}'


class Case(NamedTuple):
    """The bytes to send, the expected statuses, whether the connection stays open, and whether they are HTTP."""

    sent: tuple[bytes, ...]
    statuses: tuple[int, ...]
    stays_open: bool = True
    is_http: bool = True


def _case(*sent: bytes, status: int = 200, stays_open: bool = True) -> Case:
    return Case(sent, (status,), stays_open)


def _ends(status: int, *sent: bytes) -> Case:
    return Case(sent, (status,), stays_open=False)


def _is_not_http(*sent: bytes) -> Case:
    return Case(sent, (400,), stays_open=False, is_http=False)


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
        post(chunks(ONE)[:-2] + b"Prefer: handling=strict\r\nContent-Type: text/plain\r\n\r\n", CHUNKED)
    ),
    "gzip in chunks": _case(post(chunks(gzip.compress(likes(9), mtime=0)), CHUNKED, _GZIP)),
    "HTTP/1.0": _ends(200, post(ONE, version="1.0")),
    "HTTP/1.0 with keep-alive": _ends(200, post(ONE, ("Connection", "keep-alive"), version="1.0")),
    "close": _ends(200, post(ONE, CLOSE)),
    "close, refused": _ends(400, post(b"{", CLOSE)),
    "close, with a request behind it": _ends(200, post(ONE, CLOSE) + post(ONE)),
    "close, refused, a request behind it": _ends(415, post(ONE, CLOSE, ("Content-Type", "text/plain")) + post(ONE)),
    "odd case": _case(post(ONE, ("cOnTeNt-TyPe", "Application/JSON; Charset=UTF-8"), ("CONTENT-LENGTH", "11"))),
    "spaces around values": _case(post(ONE, ("Content-Type", "  application/json  "), ("Content-Length", " 11 "))),
    "bytes one by one": _case(*_singly(post(ONE))),
    "chunked, bytes one by one": _case(*_singly(post(chunks(ONE), CHUNKED))),
    "query": _case(post(ONE, target="/v1/events?x=1"), status=400),
    "encoded path": _case(post(ONE, target="/v1/%65vents")),
    "options": _case(post(ONE, target="/v1/events?rank=true&strict=true")),
    "bad option": _case(post(ONE, target="/v1/events?rank=maybe"), status=400),
    "absolute target": _case(post(ONE, target="http://localhost/v1/events")),
    "CloudEvent": _case(post(_EVENT, ("Content-Type", "application/cloudevents+json"))),
    "CloudEvents": _case(post(b"[" + _EVENT + b"]", ("Content-Type", "application/cloudevents-batch+json"))),
    "expects 100, sent anyway": _case(post(ONE, ("Expect", "100-continue"))),
    "expects 100, refused": _case(post(b"", ("Expect", "100-continue"), ("Content-Type", "a/b")), status=415),
    "idempotent": _case(post(ONE, (_IDEMPOTENCY_KEY, '"k1"'))),
    "idempotent, sent twice": Case(
        (post(ONE, (_IDEMPOTENCY_KEY, '"k2"')), post(ONE, (_IDEMPOTENCY_KEY, '"k2"'))), (200, 200)
    ),
    "idempotent, another body": Case(
        (post(ONE, (_IDEMPOTENCY_KEY, '"k3"')), post(likes(1), (_IDEMPOTENCY_KEY, '"k3"'))), (200, 200)
    ),
    "idempotent, malformed": _case(post(ONE, (_IDEMPOTENCY_KEY, '"')), status=400),
    "idempotent, two keys": _case(post(ONE, (_IDEMPOTENCY_KEY, "a"), (_IDEMPOTENCY_KEY, "a")), status=400),
    "invalid JSON": _case(post(b'{"key"'), status=400),
    "invalid gzip": _case(post(ONE, _GZIP), status=400),
    "no body": _case(post(b""), status=400),
    "no body, encoded path": _case(post(b"", target="/v1/%65vents"), status=400),
    "no length": _case(request("POST", "/v1/events", JSON), status=400),
    "unknown type": _case(post(ONE, ("Content-Type", "text/plain")), status=415),
    "no type": _case(request("POST", "/v1/events", ("Content-Length", "11"), body=ONE), status=415),
    "unknown encoding": _case(post(ONE, ("Content-Encoding", "br")), status=415),
    "too large": _case(post(b" " * (MAX_BODY + 1)), status=413),
    "too large in chunks": _case(post(chunks(*[b" " * 1024] * 5), CHUNKED), status=413),
    "too large unpacked": _case(post(gzip.compress(b" " * (MAX_BODY + 1), mtime=0), _GZIP), status=413),
    "maximum size": _case(post(ONE + b" " * (MAX_BODY - len(ONE)))),
    "too many events": _case(post(likes(11)), status=413),
    "GET": _case(request("GET", "/v1/events"), status=405),
    "OPTIONS": _case(request("OPTIONS", "/v1/events"), status=405),
    "another path": _case(post(ONE, target="/v1/events/"), status=404),
    "GET without a handshake": _case(request("GET", "/v1/boards/posts/live"), status=426),
    "GET without a handshake, unknown board": _case(request("GET", "/v1/boards/none/live"), status=404),
    "bad field": _is_not_http(post(ONE, ("Bad Field", "1"))),
    "bad chunk": _is_not_http(post(b"zz\r\n", CHUNKED)),
    "bad chunk after a good chunk": _is_not_http(post(chunks(b"{")[:-5] + b"zz\r\n", CHUNKED)),
    "bad chunk after `Expect: 100-continue`": Case(
        (post(b"zz\r\n", CHUNKED, ("Expect", "100-continue")),), (400,), stays_open=False, is_http=False
    ),
    "negative length": _is_not_http(post(ONE, ("Content-Length", "-1"))),
    "two lengths": _is_not_http(post(ONE, ("Content-Length", "5"), ("Content-Length", "11"))),
    "a length and chunks": _is_not_http(post(chunks(ONE), ("Content-Length", "21"), CHUNKED)),
    "chunks and a length": _is_not_http(post(chunks(ONE), CHUNKED, ("Content-Length", "21"))),
    "not HTTP": _is_not_http(b"nonsense\r\n\r\n"),
    "TLS": _is_not_http(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    "HTTP/2": _is_not_http(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
}
