"""The hops of a request that proxies report, nearest proxy first."""

import pytest

from live.http.networks import node_address, read_hops


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
    assert hops(("x-forwarded-port", "1"), ("forwarded", "for=a;proto=https;host=b")) == []


def test_a_long_list_takes_little_work() -> None:
    """The client may have written all but the end of a list."""
    found = hops(("x-forwarded-for", "a," * 30_000 + "b,c"))
    assert [node for node, _, _ in found[:2]] == ["c", "b"]
    assert len(found) <= 32


@pytest.mark.parametrize(
    ("node", "address"),
    [
        ("192.0.2.1", "192.0.2.1"), ("192.0.2.1:80", "192.0.2.1"), ("[::1]", "::1"), ("[::1]:80", "::1"),
        ("::1", "::1"), ("::ffff:192.0.2.1", "192.0.2.1"), ("[::1]:_x", None), ("192.0.2.1:_x.y", None),
        ("unknown", None), ("_hidden", None), ("", None), (None, None), ("[::1", None), ("300.0.0.1", None),
        ("1.2.3", None), ("192.0.2.1 ", None), ("example.org", None), ("192.0.2.1:x", None), ("fe80::1%eth0", None),
    ],
)  # fmt: skip
def test_the_address_of_a_node_is_read(node: str | None, address: str | None) -> None:
    """The node may have a port. Any other text gives `None`."""
    found = node_address(node)
    assert (None if found is None else str(found)) == address
