"""POST /v1/events under any ASGI server. Our own protocol handles it in `live.protocols.http.connection`."""

from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from live.ingest.intake import Intake
from live.web.clients import client_of
from live.web.problems import as_response
from live.web.state import live_of


async def take_events(request: Request) -> Response:
    """Count the events of a body, and respond when they are durable."""
    intake: Intake = live_of(request).intake
    try:
        return as_response(await intake.receive(request.scope["headers"], client_of(request), _pieces(request)))
    except ClientDisconnect:
        return Response(status_code=400)  # nobody receives this response


async def _pieces(request: Request) -> AsyncIterator[bytes]:
    async for piece in request.stream():
        yield piece
