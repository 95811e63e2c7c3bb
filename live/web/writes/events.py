"""POST /v1/events under any ASGI server. Our own protocol handles it in `live.protocols.http.connection`."""

from starlette.requests import Request
from starlette.responses import Response

from live.ingest.intake import Intake
from live.web.http.middleware import client_of
from live.web.http.responses import as_response
from live.web.services import live_of


async def take_events(request: Request) -> Response:
    """Count the events of a body, and respond when they are durable."""
    intake: Intake = live_of(request).intake
    return as_response(await intake.receive(request.scope["headers"], client_of(request), request.stream()))
