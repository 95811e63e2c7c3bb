"""What is kept in memory of replies and refusals: compressed forms, and the kinds of events that were refused."""

import gzip

from live.http.reply import _LEAST_GZIPPED, Reply
from live.ingest.intake import _LONGEST_REFUSED, _MOST_REFUSED, _Refused


def test_only_successes_worth_a_packet_are_compressed() -> None:
    """The compressed form has a weak tag and its own length. Its other fields are those of the plain form."""
    large, small = b"a" * _LEAST_GZIPPED, b"a" * (_LEAST_GZIPPED - 1)
    for plain in (Reply(200, b"text/plain", small), Reply(404, b"text/plain", large)):
        assert plain.gzipped is plain
    fields = ((b"etag", b'"1"'), (b"vary", b"Accept-Encoding"))
    reply = Reply(200, b"text/plain", large, fields, b"no-cache")
    short = reply.gzipped
    assert gzip.decompress(short.body) == large
    assert short.headers == [
        (b"cache-control", b"no-cache"), (b"content-type", b"text/plain"), (b"etag", b'W/"1"'),
        (b"vary", b"Accept-Encoding"), (b"content-encoding", b"gzip"), (b"content-length", b"%d" % len(short.body)),
    ]  # fmt: skip
    assert (b"etag", b'W/"1"') in Reply(200, b"text/plain", large, ((b"etag", b'W/"1"'),)).gzipped.headers
    assert reply.most_memory == 2 * _LEAST_GZIPPED
    assert reply.private.headers == [
        (b"cache-control", b"private, no-store"), (b"content-type", b"text/plain"), (b"etag", b'"1"'),
        (b"vary", b"Accept-Encoding, Authorization, Cookie"), (b"content-length", b"%d" % _LEAST_GZIPPED),
    ]  # fmt: skip
    assert Reply(304, b"", b"", fields).headers == [(b"cache-control", b"no-store"), *fields]


def test_the_memory_for_refused_kinds_is_bounded() -> None:
    """When the memory is full, it is emptied and starts again. Long names are not kept at all."""
    refused = _Refused()
    kinds = [(f"{number}", "like", "news") for number in range(_MOST_REFUSED)]
    refused.add({*kinds[:-1]})
    refused.add({kinds[-1]})
    assert refused.has_all({*kinds})
    refused.add({("another", "like", "news")})
    assert [refused.has_all({kind}) for kind in (("another", "like", "news"), *kinds[:2])] == [True, False, False]
    longest = ("x" * _LONGEST_REFUSED, "like", "news")
    refused.add({longest, (longest[0] + "x", "like", "news")})
    assert refused.has_all({longest})
    assert not refused.has_all({(longest[0] + "x", "like", "news")})
