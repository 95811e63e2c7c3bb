"""POST of /v1/events. The HTTP connections of this server answer it (`live.protocols.http.post`)."""

from starlette.requests import Request
from starlette.responses import Response

from live.errors import ProblemError
from live.ingest.committer import Wants


async def post_events(_request: Request, query: Wants) -> Response:  # noqa: ARG001 - the contract has it
    """Post events.

    The server responds after the store has synced the events to disk. It refuses invalid events by their index, and
    counts the others. `Rejection` lists the codes that say why.
    """
    raise ProblemError("not_found", "this ASGI server takes no events")
