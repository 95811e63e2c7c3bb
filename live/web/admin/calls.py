"""Actions of the admin page that are requests to the API of this server. A person can also send them with `curl`.

A page carries out the request that it shows. So the routes of the API check each action and add its entry to the audit
log.
"""

import shlex
from typing import Any, Final
from urllib.parse import unquote

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Message

from live.auth.client import EXTENSION
from live.domain.producer import Principal
from live.errors import ProblemError
from live.web.http.middleware import READER
from live.web.writes.admin import ACTING

_KEPT: Final = (b"x-request-id",)  # header fields that a page's request passes on to its requests to the API


class ApiCall(msgspec.Struct, frozen=True):
    """A request to the API: its method, its path below the root path as the client sends it, and its JSON."""

    method: str
    path: str
    body: Any = UNSET

    def curl(self, site: str) -> str:
        """Write the request as a command, with `$KEY` for the API key."""
        parts = ["curl", "-X", self.method, shlex.quote(f"{site}{self.path}"), '-H "Authorization: Bearer $KEY"']
        if self.body is not UNSET:
            body = shlex.quote(msgspec.json.encode(self.body).decode())
            parts += ["-H 'Content-Type: application/json'", f"-d {body}"]
        return " \\\n  ".join([" ".join(parts[:4]), *parts[4:]])

    async def send(self, request: Request, producer: Principal) -> Response:
        """Carry out the request for an administrator who is signed in.

        Raises:
            ProblemError: the route of the API refuses the request.
        """
        body = b"" if self.body is UNSET else msgspec.json.encode(self.body)
        outer = request.scope
        path, _, query = self.path.partition("?")
        scope = {
            **outer,
            "method": self.method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [
                (b"content-type", b"application/json"),
                *((name, value) for name, value in outer["headers"] if name in _KEPT),
            ],
            "extensions": {**{name: outer["extensions"][name] for name in (EXTENSION, READER)}, ACTING: producer},
        }

        is_read = False

        async def receive() -> Message:
            nonlocal is_read
            if is_read:
                return await request.receive()  # this waits until the browser disconnects
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        for route in request.app.routes:
            match, found = route.matches(scope)
            if match is Match.FULL and isinstance(route, Route):
                response: Response = await route.endpoint(Request({**scope, **found}, receive))
                return response
        raise ProblemError("not_found", f"no process with this role takes {self.method} {path}")
