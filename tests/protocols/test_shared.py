"""The bytes of replies."""

from live.http.reply import Reply
from live.protocols.shared import ResponseHeads


def test_a_reply_without_a_body_has_no_length() -> None:
    """A 304 has the header fields of the page that the client knows, and nothing after them."""
    heads = ResponseHeads()
    reply = Reply(304, b"", b"", ((b"etag", b'"1"'),), b"no-cache")
    for keep_alive, connection in ((True, b""), (False, b"connection: close\r\n")):
        head = heads.bytes_of(reply, [(b"date", b"today")], keep_alive=keep_alive)
        assert head.startswith(b'HTTP/1.1 304 Not Modified\r\ndate: today\r\ncache-control: no-cache\r\netag: "1"\r\n')
        assert head.endswith(b"\r\n" + connection + b"\r\n")
        assert b"content-security-policy: " in head
        assert b"content-length" not in head
        assert head.count(b"\r\n\r\n") == 1
