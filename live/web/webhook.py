"""OPTIONS /v1/events: the handshake by which senders of CloudEvents web hooks make sure that they are welcome.

It is no authentication; a key is asked for with the events. A sender that would rather be called back
(`WebHook-Request-Callback`) is never called: the address comes from a stranger, and could be any machine that this one
reaches. It gets its answer here and now, as every sender does.
"""

import re
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from live.web.state import live_of

ALLOWED_METHODS: Final = "POST, OPTIONS"
MOST_ORIGIN: Final = 253  # characters of a DNS name

_ORIGIN_HEADER: Final = "webhook-request-origin"
_RATE_HEADER: Final = "webhook-request-rate"
_LABEL: Final = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ORIGIN: Final = re.compile(rf"(?:https?://)?{_LABEL}(?:\.{_LABEL})*\.?(?::[0-9]{{1,5}})?")
_RATE: Final = re.compile("[1-9][0-9]{0,9}")


async def options_events(request: Request) -> Response:
    """Grant what a sender asks for, within the rate of a producer that has none of its own."""
    rate = live_of(request).settings.rate
    return handshake(request.headers, rate * 60 if rate else None)


def handshake(headers: Headers, rate: int | None) -> Response:
    """The answer to a sender; `rate` is in requests a minute, and None where there is no limit.

    The status says nothing in this handshake, the headers do; it is 200 because some senders take no other.
    """
    granted = {"Allow": ALLOWED_METHODS, "Cache-Control": "no-store"}
    origins = headers.getlist(_ORIGIN_HEADER)
    # What is no plain name is not sent back: the answer would say what a stranger wants it to.
    if len(origins) == 1 and len(origins[0]) <= MOST_ORIGIN and _ORIGIN.fullmatch(origins[0]):
        granted["WebHook-Allowed-Origin"] = origins[0]
        granted["WebHook-Allowed-Rate"] = _allowed_rate(headers.getlist(_RATE_HEADER), rate)
    return Response(headers=granted)


def _allowed_rate(asked: list[str], rate: int | None) -> str:
    """The smaller of what was asked for and what there is; what can't be read was not asked for."""
    rates = [int(text) for text in asked if _RATE.fullmatch(text)]
    if rate is not None:
        rates.append(rate)
    return str(min(rates)) if rates else "*"
