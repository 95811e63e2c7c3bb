"""GET /v1/boards/{board}/stream: the same messages as on the live route, as server-sent events."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from live.fanout.subscription import Subscription
from live.fanout.viewer import FeedEndedError, Reader
from live.origin import require_origin
from live.web.state import Live, live_of

_KEEP_ALIVE: Final = 15.0  # seconds of silence after which a comment is sent, so that no proxy takes us for dead
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def stream_board(request: Request) -> Response:
    """A sync first and updates after; `Last-Event-ID` tells where a viewer stood that comes back."""
    live, headers = live_of(request), request.headers
    require_origin(headers.get("origin"), headers.get("host"), live.settings.allowed_origins)
    board = live.board(request.path_params["board"])
    asked = _returning(Subscription.parse(request.query_params, live.settings), headers.get("last-event-id", ""))
    address = request.client.host if request.client else ""
    live.hub.admit(board.id, asked, address)  # refused before the answer begins
    return StreamingResponse(_events(live, board.id, asked, address), media_type="text/event-stream", headers=_HEADERS)


def _returning(asked: Subscription, position: str) -> Subscription:
    """What was asked for, by one who stood at a position before."""
    epoch, _, offset = position.rpartition(":")
    if not epoch or not offset.isascii() or not offset.isdecimal():
        return asked
    return msgspec.structs.replace(asked, epoch=epoch[:64], offset=int(offset[:16]))


async def _events(live: Live, board: str, asked: Subscription, address: str) -> AsyncIterator[bytes]:
    with live.hub.watch(board, asked, address) as viewer:
        yield f"retry: {round(live.attendant.return_after() * 1000)}\n\n".encode()  # spread, should all be cut at once
        while True:
            try:
                yield await _next_event(viewer)
            except FeedEndedError:
                return


async def _next_event(viewer: Reader) -> bytes:
    with suppress(TimeoutError):
        async with asyncio.timeout(_KEEP_ALIVE):
            return (await viewer.next_frame()).event
    return b": still here\n\n"
