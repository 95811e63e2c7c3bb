"""The middleware around all routes: the client of each request, rates, origins that may read, security headers."""

import re
from collections.abc import Collection
from functools import cache
from typing import Final, cast

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from live.auth.rates import payer_of
from live.auth.requester import EXTENSION, Requester
from live.auth.sessions import marked_cookie
from live.domain.reader import NOBODY
from live.errors import ProblemError
from live.http.networks import below_root
from live.http.reply import CONTENT_SECURITY_POLICY, POLICY_HEADER, SECURITY_HEADERS, private
from live.http.reply import Headers as Fields
from live.protocols.shared import SharedParts
from live.settings import Settings
from live.web.responses import problem_response

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


class Middleware:
    """The middleware. Routes need not know the root path, which it removes. The fast path checks the rate itself."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._root_path = settings.root_path
        self._allowed = frozenset(settings.allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        permitted: Fields | None = None  # None if the response does not depend on the origin of the page

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                if permitted is not None:
                    MutableHeaders(scope=message).add_vary_header("Origin")
                    message["headers"].extend(permitted)
                _secure(scope, message)
            await send(message)

        app = self._app
        try:
            self._take_requester(scope)
            permitted, preflight = self._across_origins(scope)
            if preflight is not None:
                app = preflight
            elif scope["path"] not in _UNLIMITED:
                await _admit_read(scope)
        # Pages get a problem document too, because an error page would cost more than the refused read.
        except ProblemError as problem:
            app = problem_response(problem)
        await app(scope, receive, send_with_headers)

    def _take_requester(self, scope: Scope) -> None:
        extensions = scope.setdefault("extensions", {})
        requester = extensions.get(EXTENSION)
        if requester is None:  # another ASGI server than ours has not resolved the requester
            address, is_tls = (scope.get("client") or ("",))[0], scope["scheme"] == "https"
            requester = _parts_of(scope).clients.resolve(address, scope["headers"], tls=is_tls)
        if isinstance(requester, ProblemError):
            raise requester
        path = below_root(scope["path"], self._root_path)
        if not path:
            raise ProblemError("not_found", f"everything is below {self._root_path}, which proxies must not remove")
        extensions[EXTENSION] = requester
        scope["path"] = path
        scope["client"] = (requester.address, 0)
        scope["scheme"] = requester.scheme

    def _across_origins(self, scope: Scope) -> tuple[Fields | None, Response | None]:
        """Return the header fields for a page of another origin, and the response if the request is a preflight.

        No request is refused: without the header fields, a browser hides the response from the page.
        """
        path, method, is_preflight = scope["path"], scope["method"], scope["method"] == "OPTIONS"
        methods = _READING if path.startswith("/v1/") else ("POST",) if _LIKES.fullmatch(path) else ()
        if not (self._allowed and methods):
            return None, None
        headers = Headers(scope=scope)
        if (headers.get("access-control-request-method", "") if is_preflight else method) not in methods:
            return None, None
        permitted = permissions(headers.get("origin", ""), self._allowed)
        if not (is_preflight and permitted):
            return permitted, None
        granted = {**_PREFLIGHT, "Access-Control-Allow-Methods": ", ".join(methods)}
        return permitted, Response(status_code=204, headers=granted)


def _parts_of(scope: Scope) -> SharedParts:
    return cast("SharedParts", scope["state"]["parts"])


async def _admit_read(scope: Scope) -> None:
    """Check the rate, and look up the session of an administrator before other code asks for the reader.

    The look-up counts as a read too, because anyone can invent a cookie.
    """
    parts, extensions = _parts_of(scope), scope["extensions"]
    client = extensions[EXTENSION]
    cookie = None if scope["path"].startswith("/admin") else marked_cookie(scope["headers"])
    if cookie is not None or scope["method"] in _READING:
        authorization = authorization_of(scope)
        reader = NOBODY if authorization is None else parts.authenticator.reader(authorization)
        parts.rate_limiter.admit_read(payer_of(reader, client))
    if cookie is not None:
        extensions[SESSION] = await parts.authenticator.signed_in.find(cookie, client)


def _secure(scope: Scope, message: Message) -> None:
    """Add the security headers. Only a reader of private boards may keep a response for them."""
    if scope.get("extensions", {}).get(READER, NOBODY).sees_more:
        message["headers"] = private(message["headers"])
    headers = message["headers"]
    if not any(name == POLICY_HEADER[0] for name, _ in headers):
        headers.append(POLICY_HEADER)
    headers.extend(SECURITY_HEADERS)


def authorization_of(scope: Scope) -> bytes | None:
    """Return the `Authorization` of a request as its client sent it."""
    return next((value for name, value in scope["headers"] if name == b"authorization"), None)


def requester_of(request: Request) -> Requester:
    """Return the client that sent a request."""
    return cast("Requester", request.scope["extensions"][EXTENSION])


def permissions(origin: str, allowed: Collection[str]) -> Fields:
    """Make the header fields that let a page of an allowed origin read a response. Return none for other origins."""
    if origin not in allowed:
        return ()
    return ((b"access-control-allow-origin", origin.encode()), (b"access-control-expose-headers", _EXPOSED))


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
