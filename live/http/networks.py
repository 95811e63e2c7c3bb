"""The network of an address, host names, origins, root paths, what proxies report, and this machine's names. No I/O."""

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import AnyStr, Final, NamedTuple

Address = IPv4Address | IPv6Address
Headers = Sequence[tuple[bytes, bytes]]

# Prefixes of the header names that proxies set. A request with one of them has come through a proxy.
PROXY_FIELDS: Final = (b"x-forwarded-", b"forwarded", b"via", b"x-real-ip")

_MOST_HOPS: Final = 32
_NODE: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+))(?::[0-9]{1,5})?|([0-9A-Fa-f:]+(?:[0-9.]+)?)")

_LONGEST: Final = 260  # characters of a DNS name, with a port
_LABEL: Final = "[a-z0-9_-]{1,63}"
_AUTHORITY: Final = re.compile(rf"(\[[0-9a-f]*:[0-9a-f:.]{{1,45}}\]|{_LABEL}(?:\.{_LABEL})*\.?)(?::([0-9]{{1,5}}))?")
_HIGHEST_PORT: Final = 65535
_IPV6_NETWORK: Final = 64  # bits of an address that identify a site; the site chooses the rest
_ROOT_PATH: Final = re.compile(r"(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+")
_ORIGIN: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(.*)", re.DOTALL)
_PORTS: Final = {"http": ":80", "https": ":443"}  # browsers leave these out of origins
_OWN_PATHS: Final = frozenset(
    {
        "v1", "admin", "boards", "client", "embed", "overlay", "preferences", "static", "healthz", "readyz", "metrics",
        "docs", "openapi.json", "asyncapi.json", "boards.schema.json",
    }
)  # fmt: skip


class Authority(NamedTuple):
    """The name under which a client reaches a server.

    `text` is the authority that the client sent, in lower case. `name` is `text` without the port, brackets and a
    trailing dot. If `name` is an address, it has its canonical form.
    """

    text: str
    name: str


def parse_authority(text: str) -> Authority | None:
    """Parse `name`, `name:port`, `[address]` or `[address]:port`. Return None for any other text."""
    match = _AUTHORITY.fullmatch(text.lower()) if len(text) <= _LONGEST and text.isascii() else None
    if match is None or int(match[2] or 0) > _HIGHEST_PORT:
        return None
    text, name = text.lower(), match[1]
    if not name.startswith("["):
        name = name.removesuffix(".")
        address = parse_address(name)
        return Authority(text, name if address is None else str(address))
    address = parse_address(name[1:-1])
    return None if address is None else Authority(text, str(address))


def parse_address(text: str) -> Address | None:
    """Parse an IP address. An IPv4-mapped IPv6 address becomes IPv4. Return None for any other text."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        return None if address.scope_id else address.ipv4_mapped or address
    return address


def network_of(address: str) -> str:
    """Return the network by which limits count a client: its IPv4 address or IPv6 /64. Return other text unchanged."""
    if ":" not in address:
        return address
    parsed = parse_address(address.partition("%")[0])
    if not isinstance(parsed, IPv6Address):
        return address if parsed is None else str(parsed)
    return str(IPv6Address(int(parsed) >> 128 - _IPV6_NETWORK << 128 - _IPV6_NETWORK))


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address. Of all names, only `localhost` counts as such an address."""
    address = parse_address(host)
    return host == "localhost" if address is None else address.is_loopback


def is_own_name(name: str) -> bool:
    """Tell whether a name in a URL means the client's own machine, because DNS does not resolve it (RFC 6761)."""
    return is_loopback(name) or name.endswith(".localhost")


def check_pattern(text: str) -> str:
    """Check a pattern of `LIVE_ALLOWED_HOSTS`: `*`, `*.example.org`, a name or an address. Return it without port."""
    head, rest = ("*.", text[2:]) if text.startswith("*.") else ("", text)
    authority = parse_authority(f"[{rest}]" if rest.count(":") > 1 and not rest.startswith("[") else rest)
    if text == "*":
        return text
    if authority is None or (head and parse_address(authority.name)):
        raise ValueError(
            f"{text!r} is not a host name, an address, `*.` with a name, or `*`, such as board.example.org"
        )
    return head + authority.name


def check_origin(text: str) -> str:
    """Check the origin of web pages: scheme, host and port in lower case, without a path or the default port."""
    if text == "*":
        raise ValueError("`*` is not allowed; list each origin whose pages may connect, such as https://example.org")
    parts = _ORIGIN.fullmatch(text)
    authority = parse_authority(parts[2]) if parts else None
    if parts is None or authority is None:
        raise ValueError(f"{text!r} is not an origin; expected scheme, host and port, such as https://example.org:8443")
    scheme = parts[1].lower()
    canonical = f"{scheme}://{authority.text.removesuffix(_PORTS.get(scheme, ' '))}"
    if canonical != text:
        raise ValueError(f"{text!r} is not what browsers send as an origin; write {canonical}")
    return text


def check_root_path(text: str) -> str:
    """Check a root path such as `/live`. Return the path without a trailing slash."""
    path = text.rstrip("/")
    if not _ROOT_PATH.fullmatch(path) or path.split("/")[1] in _OWN_PATHS:
        raise ValueError(
            f"{text!r} is not a path such as /live. Each part may contain only letters, digits, `.`, `_`, `~` and `-`. "
            f"The first part can't be any of these: {', '.join(sorted(_OWN_PATHS))}"
        )
    return path


def below_root(path: AnyStr, root: AnyStr) -> AnyStr:
    """Remove the root path from a path or a target, once. Return an empty path if the path is not below the root path.

    So each resource has only one path. If a proxy blocks this path, no other path leads to the resource.
    """
    if not root:
        return path
    slash, query = ("/", "?") if isinstance(path, str) else (b"/", b"?")
    rest = path[len(root) :]
    if not path.startswith(root) or rest[:1] not in {rest[:0], slash, query}:
        return path[:0]
    return rest if rest.startswith(slash) else slash + rest


class HostNames:
    """A set of host names and wildcards."""

    def __init__(self, patterns: Iterable[str]) -> None:
        checked = [check_pattern(pattern) for pattern in patterns]
        self._any = "*" in checked
        self._names = frozenset(checked)
        self._ends = tuple(pattern[1:] for pattern in checked if pattern.startswith("*."))

    def __contains__(self, name: str) -> bool:
        """Tell whether a pattern allows a name. `*.example.org` does not allow `example.org` itself."""
        return self._any or name in self._names or name.endswith(self._ends)


class Hop(NamedTuple):
    """The report of one proxy about the sender of its request: address, protocol and host."""

    node: str | None
    proto: str | None
    host: str | None


def check_network(text: str) -> str:
    """Check an address or network of `LIVE_TRUSTED_PROXIES`."""
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
    """Return the value for a hop. A proxy may replace the value instead of adding one: then it applies to all hops."""
    return values[min(place, len(values) - 1)] if values else None
