"""The security headers of every response."""

from functools import cache

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from live.ingest.replies import CONTENT_SECURITY_POLICY, POLICY_HEADER, SECURITY_HEADERS


@cache
def page_policy(images: tuple[str, ...], *, has_forms: bool, is_framed: bool) -> str:
    """The content security policy of a page.

    Args:
        images: the hosts of pictures.
        has_forms: whether the page has forms, such as like buttons, which it may send to this server.
        is_framed: whether other pages may show the page in a frame.
    """
    policy = CONTENT_SECURITY_POLICY.decode()
    if images:
        policy = policy.replace("img-src 'self'", " ".join(("img-src 'self'", *(f"https://{host}" for host in images))))
    if has_forms:
        policy = policy.replace("form-action 'none'", "form-action 'self'")
    return policy.replace("frame-ancestors 'none'", "frame-ancestors *") if is_framed else policy


class SecurityHeaders:
    """ASGI middleware that adds the security headers to every HTTP response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection, and add the headers when the response starts."""

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message["headers"]
                if not any(name == POLICY_HEADER[0] for name, _ in headers):
                    headers.append(POLICY_HEADER)
                headers.extend(SECURITY_HEADERS)
            await send(message)

        await self._app(scope, receive, send_secured)
