"""Which client sends a request, through trusted or other proxies, and to which host."""

from typing import Any

import pytest

from live.auth.requester import Requester, RequesterResolver
from live.errors import ProblemError
from live.settings import Settings, load_settings

ANYWHERE = "0.0.0.0"  # noqa: S104 - an address where other machines reach a server
PEER = "127.0.0.1"
PROXIES = "127.0.0.1, 10.0.0.0/8, fd00::/8"


def settings(**variables: str) -> Settings:
    """The settings that these environment variables give."""
    return load_settings({f"LIVE_{name.upper()}": value for name, value in variables.items()})


def resolve(made: Settings, *fields: tuple[str, str], peer: str = PEER, **given: Any) -> Requester:
    """The client of a request with these header fields."""
    headers = [(name.encode(), value.encode("latin-1")) for name, value in fields]
    return RequesterResolver(made).resolve(peer, headers, **{"tls": False, **given})


def code(made: Settings, *fields: tuple[str, str], **given: Any) -> str:
    """Return the code with which a request is refused, or `ok`."""
    try:
        resolve(made, *fields, **given)
    except ProblemError as problem:
        return problem.code
    return "ok"


def test_a_client_without_a_proxy_is_taken_as_it_connects() -> None:
    """The client has its own address, the scheme of the connection, and the host that it requested."""
    client = resolve(settings(), ("host", "LocalHost:8000"), ("origin", "http://a"), tls=True)
    assert client == Requester(PEER, "https", "localhost:8000", "http://a", local=True, own_name=True, proxied=False)
    assert client.at_the_console
    mapped = resolve(settings(host=ANYWHERE), ("host", "a"), peer="::ffff:192.0.2.1")
    assert (mapped.address, mapped.local, mapped.own_name) == ("192.0.2.1", False, False)
    assert resolve(settings(), ("host", "localhost"), peer="").address == ""


@pytest.mark.parametrize(
    "fields",
    [(), (("host", "localhost"),) * 2, (("host", ""),), (("host", "a b"),), (("host", "a@localhost"),)],
    ids=["none", "two", "empty", "malformed", "userinfo"],
)
def test_a_request_names_one_host(fields: tuple[tuple[str, str], ...]) -> None:
    """A request with no host, several hosts or an invalid one is refused, even if every host is allowed."""
    assert code(settings(allowed_hosts="*"), *fields) == "host_invalid"


def test_an_open_server_answers_only_for_its_own_names() -> None:
    """A server that is open, or has `allowed_hosts`, answers only for its own names and for these hosts.

    A server that accepts events without an API key only from this machine counts as open.
    """
    for made, host, expected in [
        ({}, "localhost", "ok"),
        ({}, "127.0.0.1:1", "ok"),
        ({}, "[::1]:8000", "ok"),
        ({}, "a.localhost.", "ok"),
        ({}, "rebind.test", "host_forbidden"),
        ({}, "192.0.2.1", "host_forbidden"),
        ({}, ANYWHERE, "host_forbidden"),
        ({}, "localhost.rebind.test", "host_forbidden"),
        ({}, "127.0.0.1.rebind.test", "host_forbidden"),
        ({"host": ANYWHERE}, "rebind.test", "ok"),
        ({"host": ANYWHERE, "open": "true"}, "rebind.test", "host_forbidden"),
        ({"host": ANYWHERE, "open": "true"}, "localhost", "ok"),
        ({"host": "192.0.2.1", "open": "true"}, "192.0.2.1:8000", "ok"),
        ({"host": "fd00::1", "open": "true"}, "[fd00::1]:8000", "ok"),
        ({"host": ANYWHERE, "allowed_hosts": "a.test"}, "b.test", "host_forbidden"),
        ({"host": ANYWHERE, "allowed_hosts": "a.test"}, "A.TEST:1", "ok"),
        ({"host": ANYWHERE, "allowed_hosts": "a.test"}, "localhost", "ok"),
        ({"allowed_hosts": "*.a.test"}, "x.a.test", "ok"),
        ({"allowed_hosts": "*.a.test"}, "a.test", "host_forbidden"),
        ({"allowed_hosts": "*"}, "rebind.test", "ok"),
    ]:
        assert code(settings(**made), ("host", host)) == expected


FORWARDED = [
    (("x-forwarded-for", "192.0.2.1"), "192.0.2.1"),
    (("x-forwarded-for", "198.51.100.9, 192.0.2.1"), "192.0.2.1"),
    (("x-forwarded-for", "192.0.2.1, 10.1.1.1"), "192.0.2.1"),
    (("x-forwarded-for", "198.51.100.9, 192.0.2.1:99, 10.1.1.1, fd00::7"), "192.0.2.1"),
    (("x-forwarded-for", "10.2.2.2, 10.1.1.1"), "10.2.2.2"),
    (("x-forwarded-for", "192.0.2.1, unknown, 10.1.1.1"), "10.1.1.1"),
    (("x-forwarded-for", "192.0.2.1, "), PEER),
    (("x-forwarded-for", "198.51.100.9, [2001:db8::1]:99, 10.1.1.1"), "2001:db8::1"),
    (("forwarded", "for=192.0.2.1"), PEER),
    (("via", "1.1 a"), PEER),
    (("x-real-ip", "192.0.2.1"), PEER),
]


@pytest.mark.parametrize(("field", "address"), FORWARDED)
def test_trusted_proxies_identify_the_client(field: tuple[str, str], address: str) -> None:
    """The client is the last address that is not a trusted proxy. Anybody may have written the addresses before it."""
    client = resolve(settings(trusted_proxies=PROXIES), ("host", "localhost"), field)
    assert (client.address, client.local, client.proxied) == (address, True, True)
    assert not client.at_the_console


@pytest.mark.parametrize("field", [field for field, _ in FORWARDED])
@pytest.mark.parametrize(("proxies", "peer"), [("", PEER), (PROXIES, "192.0.2.99"), (PROXIES, "")])
def test_an_untrusted_proxy_is_ignored(field: tuple[str, str], proxies: str, peer: str) -> None:
    """The proxy itself counts as the client. Its forwarded fields are ignored, but mark the request as proxied."""
    more = (("x-forwarded-proto", "https"), ("x-forwarded-host", "127.0.0.1")) if field[0][0] == "x" else ()
    client = resolve(settings(trusted_proxies=proxies), ("host", "localhost:1"), field, *more, peer=peer)
    assert (client.address, client.scheme, client.host) == (peer, "http", "localhost:1")
    assert client.proxied


def test_scheme_and_host_come_from_the_outermost_trusted_proxy() -> None:
    """Scheme and host that the client or an inner proxy wrote are ignored."""
    made = settings(trusted_proxies=PROXIES, allowed_hosts="a.test, upstream")
    lists = (("x-forwarded-for", "198.51.100.9, 192.0.2.1, 10.1.1.1"), ("x-forwarded-proto", "http, https, http"),
             ("x-forwarded-host", "evil.test, a.test:8443, inner"))  # fmt: skip
    client = resolve(made, ("host", "upstream"), *lists)
    assert (client.address, client.scheme, client.host) == ("192.0.2.1", "https", "a.test:8443")
    assert resolve(made, ("host", "a.test"), ("x-forwarded-proto", "gopher"), tls=True).scheme == "https"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ((("x-forwarded-host", "evil.test"),), "host_forbidden"),
        ((("x-forwarded-host", "a b"),), "host_invalid"),
        ((("host", "localhost"),), "host_invalid"),
    ],
)
def test_invalid_forwarded_fields_are_refused(fields: tuple[tuple[str, str], ...], expected: str) -> None:
    """Fields with a forbidden or malformed value are refused."""
    assert code(settings(trusted_proxies=PROXIES), ("host", "localhost"), *fields) == expected


def test_a_forwarded_host_does_not_replace_the_host() -> None:
    """A proxy may pass on the `X-Forwarded-Host` of a page, so `Host` must be allowed too."""
    made = settings(trusted_proxies=PROXIES, allowed_hosts="a.test")
    for field in (("x-forwarded-host", "a.test"), ("x-forwarded-host", "localhost")):
        assert code(made, ("host", "rebind.test"), field) == "host_forbidden"
        assert code(made, ("host", "a.test"), field) == "ok"
        assert code(made, ("host", "127.0.0.1:8000"), field) == "ok"


def test_a_page_without_an_origin_is_not_told_to_be_allowed() -> None:
    """The setting takes no `null`, which is the origin of files and of sandboxed frames."""
    resolver = RequesterResolver(settings())
    for origin, is_advised in ((b"https://a.test", True), (b"null", False)):
        client = resolver.resolve(PEER, [(b"host", b"localhost"), (b"origin", origin)], tls=False)
        with pytest.raises(ProblemError) as refused:
            client.require_origin(["https://b.test"])
        assert ("LIVE_ALLOWED_ORIGINS" in refused.value.detail) is is_advised


def test_the_cache_of_hosts_is_bounded() -> None:
    """Neither many hosts nor long fields fill the cache."""
    resolver = RequesterResolver(settings(allowed_hosts="*"))
    for number in range(20_000):
        client = resolver.resolve(PEER, [(b"host", b"h%d" % number)], tls=False)
        assert client.host == f"h{number}"
    assert len(resolver._known) < 5000
    known = len(resolver._known)
    long = b"http://" + b"a" * 10_000
    assert resolver.resolve(PEER, [(b"host", b"h1"), (b"origin", long)], tls=False).origin == long.decode()
    assert len(resolver._known) == known
