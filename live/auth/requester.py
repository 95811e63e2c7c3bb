"""Who sends a request, as trusted proxies report it, and the host that it asked for. No I/O except logs."""

from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from ipaddress import ip_network
from typing import Any, Final, Literal

import msgspec
import structlog

from live.errors import ProblemError
from live.http.networks import (
    PROXY_FIELDS,
    Address,
    Authority,
    Headers,
    Hop,
    HostNames,
    check_pattern,
    is_loopback,
    is_own_name,
    network_of,
    node_address,
    parse_address,
    parse_authority,
    read_hops,
)
from live.settings import Settings

log = structlog.get_logger()

# The ASGI extension with the client of a request, or with the reason why it is refused.
EXTENSION: Final = "live.client"

_MOST_KNOWN: Final = 4096
_LONGEST_KNOWN: Final = 256  # maximum bytes of an origin in a remembered request; no valid host is longer
_SCHEMES: Final = {"http": "http", "https": "https", "ws": "http", "wss": "https"}


class Requester(msgspec.Struct, frozen=True):
    """The client that sent a request.

    `address` is the address of the client itself, as far as trusted proxies report it. It may be empty. `scheme` is
    `http` or `https`. `host` is the authority that the client used, in lower case. `origin` is the `Origin` header. If
    `local`, the TCP peer is on this machine. If `own_name`, `host` can only mean the client's own machine. If
    `proxied`, the TCP peer is a trusted proxy, or the request has a header that proxies set.
    """

    address: str
    scheme: str
    host: str
    origin: str | None
    local: bool
    own_name: bool
    proxied: bool

    @property
    def network(self) -> str:
        """Return the network by which limits count the client."""
        return network_of(self.address)

    @property
    def at_the_console(self) -> bool:
        """Tell whether the client is a program on this machine, without a proxy or a name that a page could choose."""
        return self.local and self.own_name and not self.proxied

    @property
    def is_own_page(self) -> bool:
        """Tell whether the request comes from a page of this server, or names no origin.

        A page of this server may have the scheme `http` or `https`, because TLS may end at a proxy.
        """
        if self.origin is None:
            return True
        scheme, _, own = self.origin.partition("://")
        return scheme in {"http", "https"} and own == self.host

    def cookie(self, kind: str, root_path: str) -> str:
        """Name a cookie of this server.

        Servers on other ports and paths of the same host give the cookie other names, because browsers send cookies to
        all ports. With TLS, the name keeps other hosts of the same domain from setting the cookie.
        """
        name = f"live-{kind}-{blake2b(f'{self.host}{root_path}'.encode(), digest_size=4).hexdigest()}"
        return f"__Host-{name}" if self.scheme == "https" else name

    def cookie_attributes(self, root_path: str, samesite: Literal["lax", "strict"] = "strict") -> dict[str, Any]:
        """Return the attributes of a cookie below a path, also to delete it. `__Host-` demands the path `/`."""
        is_secure = self.scheme == "https"
        path = "/" if is_secure else root_path or "/"
        return {"path": path, "secure": is_secure, "httponly": True, "samesite": samesite}

    def require_origin(self, allowed: Sequence[str] | None = None) -> None:
        """Accept pages of this server and of the `allowed` origins, and clients that are not browsers.

        The check keeps pages of other sites from using the network of their visitors. It is not authentication. With
        `allowed`, the refusal names the setting that allows origins.
        """
        if self.is_own_page or self.origin in (allowed or ()):
            return
        if allowed is None:
            raise ProblemError("origin_forbidden", "only pages of this server may do that without an API key")
        if self.origin == "null":  # no setting can allow it, because any page can open such a frame
            detail = "a page without an origin, such as a file or a sandboxed frame, may not watch boards or vote"
            raise ProblemError("origin_forbidden", detail, headers={"Access-Control-Allow-Origin": "*"})
        log.warning("a page may not watch boards or vote: LIVE_ALLOWED_ORIGINS lacks its origin", origin=self.origin)
        detail = f"to let pages of {self.origin} watch boards or vote, add it to LIVE_ALLOWED_ORIGINS of the server"
        raise ProblemError("origin_forbidden", detail, headers={"Access-Control-Allow-Origin": "*"})


class RequesterResolver:
    """Finds the requester, once the headers of a request are complete."""

    def __init__(self, settings: Settings) -> None:
        self._networks = [ip_network(network) for network in settings.trusted_proxies]
        # Any web page can use its own name that resolves to this server (DNS rebinding). So by default, only a server
        # that other machines can reach and that requires an API key for everything allows any name. Names that always
        # mean this machine need no permission.
        default = [] if settings.open or is_loopback(settings.host) else ["*"]
        listening: list[str] = []
        with suppress(ValueError):  # an empty LIVE_HOST listens on every address and is not a name
            listening.append(check_pattern(settings.host))
        self._allowed = HostNames((*listening, *(settings.allowed_hosts or default)))
        self._known: dict[tuple[str, bytes, bytes | None, bool], Requester] = {}

    def resolve(self, peer: str, headers: Headers, *, tls: bool) -> Requester:
        """Determine the client of a request from its TCP peer and its headers, whose names are in lower case."""
        host = origin = None
        proxied = False
        for name, value in headers:
            if name == b"host":
                if host is not None:
                    raise _host_invalid()
                host = value
            elif name == b"origin":
                origin = value if origin is None else origin + b", " + value
            elif name.startswith(PROXY_FIELDS):
                proxied = True
        if host is None:
            raise _host_invalid()
        if proxied or len(origin or b"") > _LONGEST_KNOWN:
            return self._resolve(peer, host, origin, tls=tls, headers=headers if proxied else None)
        cache_key = (peer, host, origin, tls)
        client = self._known.get(cache_key)
        if client is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            client = self._known[cache_key] = self._resolve(peer, host, origin, tls=tls, headers=None)
        return client

    def _resolve(
        self, peer: str, host: bytes, origin: bytes | None, *, tls: bool, headers: Headers | None
    ) -> Requester:
        address = parse_address(peer)
        authority = self._own(host.decode("latin-1"))
        client, scheme = peer if address is None else str(address), "https" if tls else "http"
        is_proxy = address is not None and self._is_trusted(address)
        if headers is not None and is_proxy:
            # The first hop whose node is not a trusted proxy reports the client.
            hop = Hop(None, None, None)
            for hop in read_hops(headers):
                node = node_address(hop.node)
                if node is None:
                    break
                client = str(node)
                if not self._is_trusted(node):
                    break
            scheme = _SCHEMES.get((hop.proto or "").lower(), scheme)
            # Check the host in the header of the proxy in addition to `Host`: many proxies forward that header as the
            # client sent it.
            authority = authority if hop.host is None else self._own(hop.host)
        return Requester(
            address=client,
            scheme=scheme,
            host=authority.text,
            origin=None if origin is None else origin.decode("latin-1"),
            local=address is not None and address.is_loopback,
            own_name=is_own_name(authority.name),
            proxied=headers is not None or is_proxy,
        )

    def _own(self, host: str) -> Authority:
        authority = parse_authority(host)
        if authority is None:
            raise _host_invalid()
        if authority.name not in self._allowed and not is_own_name(authority.name):
            raise ProblemError(
                "host_forbidden",
                "this server does not serve the name in `Host`. Use another name, or add the name to "
                "the setting allowed_hosts (LIVE_ALLOWED_HOSTS)",
            )
        return authority

    def trusts(self, peer: str) -> bool:
        """Tell whether a TCP peer is a trusted proxy, which can have many clients."""
        address = parse_address(peer)
        return address is not None and self._is_trusted(address)

    def _is_trusted(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def _host_invalid() -> ProblemError:
    return ProblemError(
        "host_invalid", "send one `Host` header with a name or an address, and a port unless it is the default"
    )
