"""POST of /v1/events over ASGI. `live.protocols.http.connection` answers most posts itself."""

from starlette.requests import Request
from starlette.responses import Response

from live.ingest.committer import Wants
from live.ingest.intake import Intake
from live.network.parameters import flag
from live.web.http.middleware import client_of
from live.web.http.responses import as_response
from live.web.services import live_of


async def take_events(request: Request) -> Response:
    """Count the events of a body, and respond when they are durable."""
    intake: Intake = live_of(request).intake
    headers, query = request.scope["headers"], request.query_params
    wants = Wants(records=flag(query, "rank"), strict=flag(query, "strict"))
    return as_response(await intake.receive(headers, client_of(request), request.stream(), wants))
