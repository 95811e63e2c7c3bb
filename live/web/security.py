"""Headers that every answer carries, and who may open a socket."""

from collections.abc import Sequence
from typing import Final

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from live.errors import ProblemError

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

EMBED_POLICY: Final = CONTENT_SECURITY_POLICY.replace("frame-ancestors 'none'", "frame-ancestors *")

_POLICY: Final = b"content-security-policy"
# As ASGI sends them: they go out with every answer.
HEADERS: Final = (
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


class SecurityHeaders:
    """ASGI application around another: puts the security headers on every HTTP answer, a refused handshake too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on; add headers when an answer starts."""

        async def send_secured(message: Message) -> None:
            if message["type"] in {"http.response.start", "websocket.http.response.start"}:
                headers = message["headers"]
                if not any(name == _POLICY for name, _ in headers):
                    headers.append((_POLICY, CONTENT_SECURITY_POLICY.encode()))
                headers.extend(HEADERS)
            await send(message)

        await self._app(scope, receive, send_secured)


def require_origin(connection: HTTPConnection, allowed: Sequence[str]) -> None:
    """Let pages of our own origin and of the allowed ones pass, and clients that are no browsers.

    Raises:
        ProblemError: `origin_forbidden`. It keeps other sites' pages from using their visitors' network; it is no
            authentication.
    """
    origin = connection.headers.get("origin")
    if origin is None or origin in allowed:
        return
    scheme, _, host = origin.partition("://")
    if scheme in {"http", "https"} and host == connection.headers.get("host"):
        return
    raise ProblemError("origin_forbidden", "the setting allowed_origins lists the origins that may connect")
