"""Reads the forms that pages send."""

from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request

from live.errors import ProblemError

_FORM: Final = "application/x-www-form-urlencoded"
_MOST_FIELDS: Final = 4


def require_own_page(request: Request) -> None:
    """Refuse forms from pages of other sites. Browsers name the site in each request of a form.

    Raises:
        ProblemError: `origin_forbidden`.
    """
    if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise ProblemError("origin_forbidden", "a form of a page must be sent from that page")


async def read_form(request: Request, most: int, expected: str, fields: int = _MOST_FIELDS) -> dict[str, str]:
    """Return the fields of a form within limits of bytes and fields. `expected` tells clients what to send.

    Raises:
        ProblemError: `unsupported_media_type`, `body_too_large` or `malformed_body`.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise ProblemError("unsupported_media_type", f"send {_FORM}")
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            raise ProblemError("body_too_large", f"this form has at most {most} bytes")
    try:
        return dict(parse_qsl(body.decode("ascii"), strict_parsing=True, errors="strict", max_num_fields=fields))
    except ValueError:
        raise ProblemError("malformed_body", expected) from None
