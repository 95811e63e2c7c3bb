"""Heads of requests."""

import pytest

from live.errors import ProblemError
from live.protocols.http.parser import parse_head


@pytest.mark.parametrize("hosts", ["", "Host: a.example\r\nHost: a.example\r\n"], ids=["none", "two"])
def test_a_head_without_one_host_is_refused(hosts: str) -> None:
    """Servers on the way could take the request for another site. HTTP/1.0 knows no Host."""
    with pytest.raises(ProblemError) as caught:
        parse_head(f"GET / HTTP/1.1\r\n{hosts}\r\n".encode())
    assert caught.value.code == "host_invalid"
    assert parse_head(b"GET / HTTP/1.0\r\n\r\n").version == "1.0"
