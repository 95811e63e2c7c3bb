"""Hosts: their syntax, which of them mean this machine, and the names that a server answers for."""

import pytest

from live.http.networks import (
    HostNames,
    below_root,
    check_pattern,
    check_root_path,
    is_loopback,
    is_own_name,
    parse_authority,
)

ANYWHERE = "0.0.0.0"  # noqa: S104 - not loopback


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("localhost", "localhost"), ("LocalHost:8000", "localhost"), ("localhost.", "localhost"),
        ("a.example:1", "a.example"), ("a_b-c.example", "a_b-c.example"), ("127.0.0.1:65535", "127.0.0.1"),
        ("[::1]", "::1"), ("[::1]:80", "::1"), ("[0:0:0:0:0:0:0:1]", "::1"), ("[::ffff:127.0.0.1]", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"), ("127.1", "127.1"),
    ],
)  # fmt: skip
def test_hosts_are_normalized(text: str, name: str) -> None:
    """Case, port, a trailing dot and the spelling of an address do not matter."""
    authority = parse_authority(text)
    assert authority is not None
    assert (authority.text, authority.name) == (text.lower(), name)


def test_an_invalid_host_is_refused() -> None:
    """The host has user information, several ports, invalid characters or an incomplete address."""
    for text in [
        "",
        ".",
        ":80",
        "a:",
        "a:b",
        "a:65536",
        "a:-1",
        "a:80:80",
        "a..b",
        ".a",
        "a..",
        "user@a",
        "a@b:80",
        "http://a",
        "a/b",
        "a?b",
        "a#b",
        "a b",
        " a",
        "a\t",
        "a,b",
        "a%2eb",
        "\u212a",
        "é.example",
        "[::1",
        "::1",
        "::1]",
        "[]",
        "[1]",
        "[::1]a",
        "[::1]:",
        "[fe80::1%25eth0]",
        "[fe80::1%eth0]",
        "[127.0.0.1]",
        "[::g]",
        "[v1.a]",
        "a" * 64,
        "a." * 140,
        "*",
        "*.a",
        "a\x00",
        "a\n",
        "localhost:8000@evil.example",
    ]:
        assert parse_authority(text) is None


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("::ffff:127.0.0.1", True),
        (ANYWHERE, False), ("::", False), ("", False), ("192.0.2.1", False), ("example.test", False), ("127.1", False),
        ("localhost.example.test", False), ("127.0.0.1.example.test", False), ("2130706433", False),
    ],
)  # fmt: skip
def test_loopback_hosts_are_known(host: str, *, loopback: bool) -> None:
    """Only loopback addresses and `localhost` count. Any other name may resolve to any address."""
    assert is_loopback(host) is loopback
    assert is_own_name(host) is loopback


def test_names_below_localhost_mean_this_machine() -> None:
    """Browsers do not ask a DNS server for such names."""
    assert is_own_name("board.localhost")
    assert not is_own_name("notlocalhost")


def test_allowed_names_of_a_server() -> None:
    """A name is allowed exactly, or below a wildcard. Ports do not matter."""
    names = HostNames(["a.example:8000", "*.b.example", "[::1]:80", "::2", "192.0.2.1"])
    for name in ("a.example", "x.b.example", "x.y.b.example", "::1", "::2", "192.0.2.1"):
        assert name in names
    for name in ("x.a.example", "b.example", "xb.example", "a.example.evil", "::3", ""):
        assert name not in names
    assert "anything" in HostNames(["*"])
    assert "anything" not in HostNames([])


@pytest.mark.parametrize(
    ("path", "root", "below"),
    [
        ("/v1", "", "/v1"), ("/live/v1", "/live", "/v1"), ("/v1", "/live", ""), ("/live", "/live", "/"),
        ("/live/", "/live", "/"), ("/lively", "/live", ""), ("/a/b/c", "/a/b", "/c"), ("/", "/live", ""),
        ("/live?a=/", "/live", "/?a=/"), ("/live/live/v1", "/live", "/live/v1"), ("*", "/live", ""), ("*", "", "*"),
    ],
)  # fmt: skip
def test_a_root_path_is_removed_once(path: str, root: str, below: str) -> None:
    """A path that is not below the root path becomes empty."""
    assert below_root(path, root) == below
    assert below_root(path.encode(), root.encode()) == below.encode()


@pytest.mark.parametrize(
    "path", ["live", "/", "//", "/a//b", "/a b", "/v1", "/static/a", "/../a", "/é", "/a?b", "/%41"]
)
def test_an_invalid_root_path_is_refused(path: str) -> None:
    """A root path that is also a path of the server is refused too."""
    assert check_root_path("/live/") == "/live"
    with pytest.raises(ValueError, match="is not a path such as /live"):
        check_root_path(path)


@pytest.mark.parametrize("pattern", ["", "a,b", "*a", "*.", "a.*", "*.*", "*.192.0.2.1", "http://a", "a/8", "[::1"])
def test_an_invalid_pattern_is_refused(pattern: str) -> None:
    """A wildcard must be before a name and nowhere else."""
    with pytest.raises(ValueError, match="is not a host name"):
        check_pattern(pattern)
