"""Heads of requests."""

import pytest

from live.errors import ProblemError
from live.protocols.http.parser import ChunkReader, parse_head


@pytest.mark.parametrize("hosts", ["", "Host: a.example\r\nHost: a.example\r\n"], ids=["none", "two"])
def test_a_head_without_one_host_is_refused(hosts: str) -> None:
    """Servers on the way could take the request for another site. HTTP/1.0 knows no Host."""
    with pytest.raises(ProblemError) as caught:
        parse_head(f"GET / HTTP/1.1\r\n{hosts}\r\n".encode())
    assert caught.value.code == "host_invalid"
    assert parse_head(b"GET / HTTP/1.0\r\n\r\n").version == "1.0"


def test_an_absolute_target_may_have_no_path() -> None:
    """Then the path is `/`, and the query stays."""
    head = parse_head(b"GET http://a.example?limit=1 HTTP/1.1\r\nHost: a.example\r\n\r\n")
    assert head.target == b"/?limit=1"


def test_a_trailer_that_is_no_field_is_refused() -> None:
    """It could hide the next request."""
    with pytest.raises(ProblemError, match="a trailer must be a header field"):
        ChunkReader().read(b"0\r\nGET / HTTP/1.1\r\n\r\n", 0)
