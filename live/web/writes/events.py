"""POST and OPTIONS of /v1/events.

`live.protocols.http.connection` answers most posts itself. OPTIONS is the handshake with which senders of CloudEvents
webhooks ask for permission. It is not authentication: events still need an API key. The server never calls the URL in
`WebHook-Request-Callback`, because a stranger could name any host that this machine can reach.
"""

import re
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from live.ingest.committer import Wants
from live.ingest.intake import Intake
from live.network.parameters import flag
from live.web.http.middleware import client_of
from live.web.http.responses import as_response
from live.web.services import live_of

ALLOWED_METHODS: Final = "POST, OPTIONS"
MOST_ORIGIN: Final = 253  # characters of a DNS name

_ORIGIN_HEADER: Final = "webhook-request-origin"
_RATE_HEADER: Final = "webhook-request-rate"
_LABEL: Final = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ORIGIN: Final = re.compile(rf"(?:https?://)?{_LABEL}(?:\.{_LABEL})*\.?(?::[0-9]{{1,5}})?")
_RATE: Final = re.compile("[1-9][0-9]{0,9}")


async def take_events(request: Request) -> Response:
    """Count the events of a body, and respond when they are durable."""
    intake: Intake = live_of(request).intake
    headers, query = request.scope["headers"], request.query_params
    wants = Wants(records=flag(query, "rank"), strict=flag(query, "strict"))
    return as_response(await intake.receive(headers, client_of(request), request.stream(), wants))


async def options_events(request: Request) -> Response:
    """Grant the requested origin, within the default rate of producers."""
    rate = live_of(request).settings.rate
    return handshake(request.headers, rate * 60 if rate else None)


def handshake(headers: Headers, rate: int | None) -> Response:
    """Make the response to a handshake. `rate` is in requests per minute. None means no limit.

    The headers say what is granted. The status is always 200, because some senders accept no other status.
    """
    granted = {"Allow": ALLOWED_METHODS, "Cache-Control": "no-store"}
    origins = headers.getlist(_ORIGIN_HEADER)
    # Only a plain host name is sent back, so that nobody can choose the content of the response.
    if len(origins) == 1 and len(origins[0]) <= MOST_ORIGIN and _ORIGIN.fullmatch(origins[0]):
        granted["WebHook-Allowed-Origin"] = origins[0]
        # Ignore a requested rate that is not a whole number.
        rates = [int(text) for text in headers.getlist(_RATE_HEADER) if _RATE.fullmatch(text)]
        if rate is not None:
            rates.append(rate)
        granted["WebHook-Allowed-Rate"] = str(min(rates)) if rates else "*"
    return Response(headers=granted)
