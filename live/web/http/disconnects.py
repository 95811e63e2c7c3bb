"""Requests whose client can disconnect at any time. A client that watches a board counts as a viewer."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.types import Receive, Scope

from live.protocols.http.asgi import VIEWER
from live.protocols.http.connection import HttpProtocol

_T = TypeVar("_T")


def count_as_viewer(scope: Scope) -> HttpProtocol:
    """Count the connection of a request as a viewer, and return it. The response ends the connection."""
    connection: HttpProtocol = scope["extensions"][VIEWER]["connection"]()
    connection.release_place()
    return connection


async def unless_left(receive: Receive, work: Awaitable[_T]) -> _T | None:
    """Await `work` and return its result. If the client disconnects first, cancel it and return None."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.create_task(until_left(receive))
    leaving.add_done_callback(lambda _: working.cancel())
    try:
        return await working
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
        return None
    finally:
        leaving.cancel()


async def until_left(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
