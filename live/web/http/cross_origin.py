"""Lets pages of the allowed origins read the API."""

from collections.abc import Collection, Sequence
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from live.ingest.replies import Headers as Fields

_READING: Final = ("GET", "HEAD")
_EXPOSED: Final = b"ETag, Retry-After"
_PREFLIGHT: Final = {
    "Access-Control-Allow-Methods": "GET, HEAD",
    "Access-Control-Allow-Headers": "If-None-Match, Last-Event-ID",
    "Access-Control-Max-Age": "600",
}


def permissions(origin: str, allowed: Collection[str]) -> Fields:
    """The header fields that let a page of an allowed origin read a response."""
    if origin not in allowed:
        return ()
    return ((b"access-control-allow-origin", origin.encode()), (b"access-control-expose-headers", _EXPOSED))


class CrossOrigin:
    """ASGI middleware that answers preflight requests, and lets allowed origins read responses to `GET`.

    It refuses no request. Without its headers, a browser hides the response from the page.
    """

    def __init__(self, app: ASGIApp, allowed: Sequence[str]) -> None:
        self._app = app
        self._allowed = frozenset(allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection: answer preflight requests, and add headers when the response starts."""
        if scope["type"] != "http" or not self._allowed or not scope["path"].startswith("/v1/"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin", "")
        is_allowed = origin in self._allowed
        method = headers.get("access-control-request-method", "") if scope["method"] == "OPTIONS" else scope["method"]
        if method not in _READING:
            await self._app(scope, receive, send)
            return

        async def send_permitted(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered = MutableHeaders(scope=message)
                answered.add_vary_header("Origin")
                message["headers"].extend(permissions(origin, self._allowed))
            await send(message)

        if scope["method"] == "OPTIONS" and is_allowed:
            await Response(status_code=204, headers=_PREFLIGHT)(scope, receive, send_permitted)
        else:
            await self._app(scope, receive, send_permitted)
