"""The client of each request. Our own protocols provide it; under another ASGI server it is resolved here."""

from typing import cast

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from live.auth.client import EXTENSION, Client, ClientResolver
from live.errors import ProblemError
from live.network.hosts import below_root
from live.web.http.problems import problem_response


class Clients:
    """ASGI middleware that determines the client of each request, and refuses requests for unknown hosts.

    It removes the root path, so that routes need not know it, and refuses requests for anything outside it.
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

    def _resolve(self, scope: Scope) -> Client | ProblemError:
        peer = scope.get("client")
        try:
            return self._resolver.resolve(peer[0] if peer else "", scope["headers"], tls=scope["scheme"] == "https")
        except ProblemError as problem:
            return problem


def client_of(request: Request) -> Client:
    """The client that sent a request."""
    return cast("Client", request.scope["extensions"][EXTENSION])
