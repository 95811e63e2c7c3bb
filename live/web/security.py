"""The security headers of every response."""

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from live.ingest.replies import CONTENT_SECURITY_POLICY, POLICY_HEADER, SECURITY_HEADERS

EMBED_POLICY: Final = CONTENT_SECURITY_POLICY.decode().replace("frame-ancestors 'none'", "frame-ancestors *")

# For pages with like buttons, which are forms.
LIKES_POLICY: Final = CONTENT_SECURITY_POLICY.decode().replace("form-action 'none'", "form-action 'self'")


class SecurityHeaders:
    """ASGI middleware that adds the security headers to every HTTP response, including refused handshakes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection, and add the headers when the response starts."""

        async def send_secured(message: Message) -> None:
            if message["type"] in {"http.response.start", "websocket.http.response.start"}:
                headers = message["headers"]
                if not any(name == POLICY_HEADER[0] for name, _ in headers):
                    headers.append(POLICY_HEADER)
                headers.extend(SECURITY_HEADERS)
            await send(message)

        await self._app(scope, receive, send_secured)
