"""Headers of proxies: `Forwarded` (RFC 7239) and `X-Forwarded-For`, `-Proto` and `-Host`. No I/O."""

import re
from collections.abc import Sequence
from ipaddress import ip_network
from typing import Final, NamedTuple

from live.network.hosts import Address, parse_address

Headers = Sequence[tuple[bytes, bytes]]

# Prefixes of the header names that proxies set.
PROXY_FIELDS: Final = (b"x-forwarded-", b"forwarded", b"via", b"x-real-ip")

_MOST_HOPS: Final = 32
_LONGEST: Final = 4096  # bytes of a `Forwarded` header, most of which a client can write
_TOKEN: Final = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - the word of RFC 9110
_PAIR: Final = rf'({_TOKEN})=({_TOKEN}|"(?:[^"\\]|\\.)*")'
_NEXT: Final = re.compile(rf"[ \t]*(?:{_PAIR})?[ \t]*(;|,|\Z)")
_NODE: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+))(?::[0-9]{1,5}|:_[\w.-]+)?|([0-9A-Fa-f:]+(?:[0-9.]+)?)")


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
    """Read the hops of a request, the nearest hop first.

    Raises:
        ValueError: `Forwarded` is malformed or too long, or the request has both `Forwarded` and `X-Forwarded-…`. A
            proxy that sets one of these headers forwards the other header as the client sent it.
    """
    lists: list[list[str]] = []
    for name in (b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"):
        values = [value for field, value in headers if field == name]
        # The last hop is the nearest. Split off at most as many hops as there can be proxies.
        parts = b",".join(values).rsplit(b",", _MOST_HOPS)[-_MOST_HOPS:] if values else []
        lists.append([part.strip().decode("latin-1") for part in reversed(parts)])
    forwarded = b",".join(value for name, value in headers if name == b"forwarded").decode("latin-1")
    if len(forwarded) > _LONGEST:
        raise ValueError(f"`Forwarded` is longer than {_LONGEST} bytes")
    if forwarded and any(lists):
        raise ValueError("the request has both `Forwarded` and `X-Forwarded-…`; let the proxy remove one of them")
    if forwarded:
        return _parse_forwarded(forwarded)[::-1]
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


def _parse_forwarded(text: str) -> list[Hop]:
    hops: list[Hop] = []
    pairs: dict[str, str] = {}
    position = 0
    while True:
        match = _NEXT.match(text, position)
        if match is None or (match[1] and match[1].lower() in pairs):
            raise ValueError("`Forwarded` is malformed (RFC 7239)")
        if match[1]:
            value = match[2]
            pairs[match[1].lower()] = re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
        if match[3] != ";":
            if pairs:
                hops.append(Hop(pairs.get("for"), pairs.get("proto"), pairs.get("host")))
            pairs = {}
        if not match[3]:
            return hops
        position = match.end()
