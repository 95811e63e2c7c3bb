"""Requests whose response waits for a change of a board.

While they wait, they count as viewers, and can disconnect at any time.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope

from live.errors import ProblemError
from live.protocols.http.asgi import VIEWER
from live.protocols.http.connection import HttpProtocol
from live.web.http.responses import problem_response
from live.web.services import live_of, reader_of

_T = TypeVar("_T")


def count_as_viewer(scope: Scope) -> HttpProtocol | None:
    """Count the connection of a request as a viewer until the response. Return None in another ASGI server."""
    extension = scope.get("extensions", {}).get(VIEWER)
    connection: HttpProtocol | None = extension["connection"]() if extension else None
    if connection is not None:
        connection.release_place()
    return connection


async def unless_left(receive: Receive, work: Awaitable[_T]) -> _T | None:
    """Await `work` and return its result. If the client disconnects first, cancel it and return None."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.create_task(until_left(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def until_left(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def refuse_plain(request: Request) -> Response:
    """Refuse a request for the live route that is not a WebSocket handshake."""
    await live_of(request).ledger(request.path_params["board"], reader_of(request))
    response = problem_response(ProblemError("upgrade_required", "connect with a WebSocket client"))
    response.headers.update({"Upgrade": "websocket", "Connection": "Upgrade"})
    return response
