"""The hops of a request that proxies report, nearest proxy first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.network.forwarded import Hop, node_address, read_hops


def hops(*fields: tuple[str, str]) -> list[tuple[str | None, str | None, str | None]]:
    """The hops in header fields."""
    return [tuple(hop) for hop in read_hops([(name.encode(), value.encode("latin-1")) for name, value in fields])]  # type: ignore[misc]


def test_each_proxy_adds_its_client() -> None:
    """The clients may be listed in one field or in several.

    A protocol or host that only one proxy sets holds for all hops behind this proxy.
    """
    assert hops(("x-forwarded-for", "a, b"), ("x-forwarded-for", "c")) == [
        ("c", None, None), ("b", None, None), ("a", None, None),
    ]  # fmt: skip
    assert hops(("x-forwarded-for", "a,b"), ("x-forwarded-proto", "https"), ("x-forwarded-host", "h, i")) == [
        ("b", "https", "i"), ("a", "https", "h"),
    ]  # fmt: skip
    assert hops(("x-forwarded-proto", "https")) == [(None, "https", None)]
    assert hops(("x-forwarded-port", "1")) == []


def test_the_standard_field_is_read() -> None:
    """The examples are from RFC 7239, sections 4 and 7.4."""
    assert hops(("forwarded", 'For="[2001:db8:cafe::17]:4711"')) == [("[2001:db8:cafe::17]:4711", None, None)]
    assert hops(("forwarded", "for=192.0.2.60;proto=http;by=203.0.113.43")) == [("192.0.2.60", "http", None)]
    assert hops(("forwarded", "for=192.0.2.43, for=198.51.100.17")) == [
        ("198.51.100.17", None, None), ("192.0.2.43", None, None),
    ]  # fmt: skip
    assert hops(("forwarded", "for=a"), ("forwarded", 'for=b;host="h:1"')) == [("b", None, "h:1"), ("a", None, None)]
    assert hops(("forwarded", r'for="a, for=b\"";;proto=https')) == [('a, for=b"', "https", None)]


@pytest.mark.parametrize("value", ["for", "for=", "for=a b", 'for="a', "for=a;for=b", "=a", "for=[::1]", "é=a"])
def test_a_malformed_field_is_refused(value: str) -> None:
    """No part of the field is used."""
    with pytest.raises(ValueError, match="malformed"):
        hops(("forwarded", value))


def test_two_kinds_of_fields_are_refused() -> None:
    """A proxy that sets one kind may pass on the other kind from the client."""
    with pytest.raises(ValueError, match="has both"):
        hops(("forwarded", "for=192.0.2.1"), ("x-forwarded-for", "192.0.2.1"))
    with pytest.raises(ValueError, match="has both"):
        hops(("forwarded", "for=192.0.2.1"), ("x-forwarded-host", "a"))


def test_a_long_list_takes_little_work() -> None:
    """The client may have written all but the end of a list.

    If this end can't be parsed without the rest, the field is refused.
    """
    found = hops(("x-forwarded-for", "a," * 30_000 + "b,c"))
    assert [node for node, _, _ in found[:2]] == ["c", "b"]
    assert len(found) <= 32
    with pytest.raises(ValueError, match="longer than"):
        hops(("forwarded", "for=a," * 10_000 + "for=b"))


@pytest.mark.parametrize(
    ("node", "address"),
    [
        ("192.0.2.1", "192.0.2.1"), ("192.0.2.1:80", "192.0.2.1"), ("[::1]", "::1"), ("[::1]:80", "::1"),
        ("::1", "::1"), ("[::1]:_x", "::1"), ("192.0.2.1:_x.y", "192.0.2.1"), ("::ffff:192.0.2.1", "192.0.2.1"),
        ("unknown", None), ("_hidden", None), ("", None), (None, None), ("[::1", None), ("300.0.0.1", None),
        ("1.2.3", None), ("192.0.2.1 ", None), ("example.org", None), ("192.0.2.1:x", None), ("fe80::1%eth0", None),
    ],
)  # fmt: skip
def test_the_address_of_a_node_is_read(node: str | None, address: str | None) -> None:
    """The node may have a port. Any other text gives `None`."""
    found = node_address(node)
    assert (None if found is None else str(found)) == address


@given(st.text(st.characters(max_codepoint=255)))
def test_any_field_can_be_parsed(value: str) -> None:
    """Any bytes give hops or are refused."""
    for name in ("forwarded", "x-forwarded-for"):
        try:
            found = read_hops([(name.encode(), value.encode("latin-1"))])
        except ValueError:
            continue
        assert all(isinstance(hop, Hop) for hop in found)
