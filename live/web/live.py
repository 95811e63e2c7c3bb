"""GET /v1/boards/{board}/live without a WebSocket handshake. `live.protocols.http.upgrade` answers handshakes."""

from starlette.requests import Request
from starlette.responses import Response

from live.errors import ProblemError
from live.web.http.problems import problem_response
from live.web.services import live_of


async def refuse_plain(request: Request) -> Response:
    """Refuse a request for the live route that is not a WebSocket handshake."""
    await live_of(request).board(request.path_params["board"])
    response = problem_response(ProblemError("upgrade_required", "connect with a WebSocket client"))
    response.headers.update({"Upgrade": "websocket", "Connection": "Upgrade"})
    return response
