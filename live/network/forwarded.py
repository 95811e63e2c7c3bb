"""Headers of proxies: `X-Forwarded-For`, `-Proto` and `-Host`. No I/O."""

import re
from collections.abc import Sequence
from ipaddress import ip_network
from typing import Final, NamedTuple

from live.network.hosts import Address, parse_address

Headers = Sequence[tuple[bytes, bytes]]

# Prefixes of the header names that proxies set. A request with one of them has come through a proxy.
PROXY_FIELDS: Final = (b"x-forwarded-", b"forwarded", b"via", b"x-real-ip")

_MOST_HOPS: Final = 32
_NODE: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+))(?::[0-9]{1,5})?|([0-9A-Fa-f:]+(?:[0-9.]+)?)")


class Hop(NamedTuple):
    """The report of one proxy about the sender of its request: address, protocol and host."""

    node: str | None
    proto: str | None
    host: str | None


def check_network(text: str) -> str:
    """Check an address or network of `LIVE_TRUSTED_PROXIES`.

    Raises:
        ValueError: the text is neither an address nor a network.
    """
    try:
        return str(ip_network(text))
    except ValueError as error:
        raise ValueError(f"{error}; expected an address or a network such as 10.0.0.0/8 or ::1") from None


def node_address(node: str | None) -> Address | None:
    """Parse the address of a node, with or without a port. Return None for `unknown` and for made-up names."""
    match = None if node is None else _NODE.fullmatch(node)
    return None if match is None else parse_address(match[1] or match[2] or match[3])


def read_hops(headers: Headers) -> Sequence[Hop]:
    """Read the hops of a request, the nearest hop first."""
    lists: list[list[str]] = []
    for name in (b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"):
        values = [value for field, value in headers if field == name]
        # The last hop is the nearest. Split off at most as many hops as there can be proxies.
        parts = b",".join(values).rsplit(b",", _MOST_HOPS)[-_MOST_HOPS:] if values else []
        lists.append([part.strip().decode("latin-1") for part in reversed(parts)])
    nodes, protos, hosts = lists
    return [
        Hop(nodes[place] if place < len(nodes) else None, _nearest(protos, place), _nearest(hosts, place))
        for place in range(max(len(nodes), len(protos[:1]), len(hosts[:1])))
    ]


def _nearest(values: Sequence[str], place: int) -> str | None:
    """Return the value for a hop.

    A proxy may replace the value instead of adding a value. Then the value applies to all hops.
    """
    return values[min(place, len(values) - 1)] if values else None
