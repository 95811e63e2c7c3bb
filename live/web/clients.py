"""The client of each request. Our own protocols provide it; under another ASGI server it is resolved here."""

from typing import cast

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from live.auth.client import EXTENSION, Client, ClientResolver
from live.errors import ProblemError
from live.network.hosts import below_root
from live.web.problems import problem_response


class Clients:
    """ASGI middleware that determines the client of each request, and refuses requests for unknown hosts.

    It removes the root path, so that routes need not know it.
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
        client = extensions.get(EXTENSION) or self._resolve(scope)
        if isinstance(client, ProblemError):
            refusal = problem_response(client)
            if scope["type"] == "websocket":
                await WebSocket(scope, receive, send).send_denial_response(refusal)
            else:
                await refusal(scope, receive, send)
            return
        extensions[EXTENSION] = client
        scope["path"] = below_root(scope["path"], self._root_path)
        scope["client"] = (client.address, 0)
        scope["scheme"] = client.scheme if scope["type"] == "http" else client.scheme.replace("http", "ws")
        await self._app(scope, receive, send)

    def _resolve(self, scope: Scope) -> Client | ProblemError:
        peer = scope.get("client")
        try:
            return self._resolver.resolve(
                peer[0] if peer else "", scope["headers"], tls=scope["scheme"] in {"https", "wss"}
            )
        except ProblemError as problem:
            return problem


def client_of(connection: HTTPConnection) -> Client:
    """The client that sent a request or opened a WebSocket."""
    return cast("Client", connection.scope["extensions"][EXTENSION])
