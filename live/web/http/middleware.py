"""The middleware around all routes: the client of each request, rates, origins that may read, security headers."""

import re
from collections.abc import Collection, Sequence
from functools import cache
from typing import Final, cast

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from live.auth.client import EXTENSION, Client, ClientResolver
from live.auth.rate_limiter import payer_of
from live.auth.signed_in import marked_cookie
from live.domain.reader import NOBODY
from live.errors import ProblemError
from live.ingest.replies import CONTENT_SECURITY_POLICY, POLICY_HEADER, SECURITY_HEADERS, private
from live.ingest.replies import Headers as Fields
from live.network.hosts import below_root
from live.protocols.http.shared import SharedParts
from live.web.http.responses import problem_response

READER: Final = "live.reader"  # the ASGI extension with the reader of a request
SESSION: Final = "live.session"  # the ASGI extension with the reader who is signed in to the admin page

_READING: Final = ("GET", "HEAD")
_LIKES: Final = re.compile(r"/boards/[^/]+/likes")
_UNLIMITED: Final = ("/healthz", "/readyz", "/metrics")
_EXPOSED: Final = b"ETag, Retry-After"
_PREFLIGHT: Final = {
    "Access-Control-Allow-Headers": "Authorization, If-None-Match, Last-Event-ID",
    "Access-Control-Max-Age": "600",
}


class Clients:
    """ASGI middleware that determines the client of each request, and refuses requests for unknown hosts.

    It removes the root path, so that routes need not know it, and refuses requests for paths outside the root path.
    """

    def __init__(self, app: ASGIApp, resolver: ClientResolver, root_path: str) -> None:
        self._app = app
        self._resolver = resolver
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        extensions = scope.setdefault("extensions", {})
        client = extensions.get(EXTENSION)
        if client is None:
            peer = scope.get("client")
            try:
                client = self._resolver.resolve(
                    peer[0] if peer else "", scope["headers"], tls=scope["scheme"] == "https"
                )
            except ProblemError as problem:
                client = problem
        path = below_root(scope["path"], self._root_path)
        if not path and not isinstance(client, ProblemError):
            client = ProblemError("not_found", f"everything is below {self._root_path}, which proxies must not remove")
        if isinstance(client, ProblemError):
            await problem_response(client)(scope, receive, send)
            return
        extensions[EXTENSION] = client
        scope["path"] = path
        scope["client"] = (client.address, 0)
        scope["scheme"] = client.scheme
        await self._app(scope, receive, send)


def client_of(request: Request) -> Client:
    """Return the client that sent a request."""
    return cast("Client", request.scope["extensions"][EXTENSION])


def permissions(origin: str, allowed: Collection[str]) -> Fields:
    """Make the header fields that let a page of an allowed origin read a response. Return none for other origins."""
    if origin not in allowed:
        return ()
    return ((b"access-control-allow-origin", origin.encode()), (b"access-control-expose-headers", _EXPOSED))


class CrossOrigin:
    """ASGI middleware that answers preflight requests, and lets allowed origins read responses to `GET` and likes.

    It refuses no request. Without its headers, a browser hides the response from the page.
    """

    def __init__(self, app: ASGIApp, allowed: Sequence[str]) -> None:
        self._app = app
        self._allowed = frozenset(allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection: answer preflight requests, and add headers when the response starts."""
        methods: Sequence[str] = ()
        if scope["type"] == "http" and self._allowed:
            path = scope["path"]
            methods = _READING if path.startswith("/v1/") else ("POST",) if _LIKES.fullmatch(path) else ()
        if not methods:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin", "")
        is_allowed = origin in self._allowed
        method = headers.get("access-control-request-method", "") if scope["method"] == "OPTIONS" else scope["method"]
        if method not in methods:
            await self._app(scope, receive, send)
            return

        async def send_permitted(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered = MutableHeaders(scope=message)
                answered.add_vary_header("Origin")
                message["headers"].extend(permissions(origin, self._allowed))
            await send(message)

        if scope["method"] == "OPTIONS" and is_allowed:
            granted = {**_PREFLIGHT, "Access-Control-Allow-Methods": ", ".join(methods)}
            await Response(status_code=204, headers=granted)(scope, receive, send_permitted)
        else:
            await self._app(scope, receive, send_permitted)


class ReadRate:
    """ASGI middleware that refuses the reads of clients that exceed their rate. The fast path checks the rate itself.

    The look-up of an administrator's session counts as a read too, because anyone can invent a cookie. This middleware
    looks the session up before other code asks for the reader.

    The refusal is a problem document for pages too, because an error page would cost more than the refused read.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] == "http" and scope["path"] not in _UNLIMITED:
            parts, extensions = cast("SharedParts", scope["state"]["parts"]), scope["extensions"]
            client = extensions[EXTENSION]
            cookie = None if scope["path"].startswith("/admin") else marked_cookie(scope["headers"])
            if cookie is not None or scope["method"] in _READING:
                authorization = next((value for name, value in scope["headers"] if name == b"authorization"), None)
                reader = NOBODY if authorization is None else parts.authenticator.reader(authorization)
                try:
                    parts.rate_limiter.admit_read(payer_of(reader, client))
                except ProblemError as problem:
                    await problem_response(problem)(scope, receive, send)
                    return
            if cookie is not None:
                extensions[SESSION] = await parts.authenticator.signed_in.find(cookie, client)
        await self._app(scope, receive, send)


@cache
def page_policy(images: tuple[str, ...], *, is_framed: bool) -> str:
    """Make the content security policy of a page. `images` are the hosts of pictures.

    A page that others may show in a frame has no forms, so that nobody can be led to send a form.
    """
    policy = CONTENT_SECURITY_POLICY.decode()
    if images:
        policy = policy.replace("img-src 'self'", " ".join(("img-src 'self'", *(f"https://{host}" for host in images))))
    if is_framed:
        policy = policy.replace("frame-ancestors 'none'", "frame-ancestors *").replace("action 'self'", "action 'none'")
    return policy


class SecurityHeaders:
    """ASGI middleware that adds the security headers to every HTTP response.

    A response for a reader of private boards may be kept by this reader only.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection, and add the headers when the response starts."""

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                if scope.get("extensions", {}).get(READER, NOBODY).sees_more:
                    message["headers"] = private(message["headers"])
                headers = message["headers"]
                if not any(name == POLICY_HEADER[0] for name, _ in headers):
                    headers.append(POLICY_HEADER)
                headers.extend(SECURITY_HEADERS)
            await send(message)

        await self._app(scope, receive, send_secured)
