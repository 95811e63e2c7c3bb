"""What routes need of a request: the fields of a form, and whether the client has left."""

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.types import Receive

from live.errors import ProblemError

_T = TypeVar("_T")

_FORM: Final = "application/x-www-form-urlencoded"
_MOST_FIELDS: Final = 4


def require_own_page(request: Request) -> None:
    """Refuse forms from pages of other sites. Browsers name the site in each request of a form."""
    if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise ProblemError("origin_forbidden", "a form of a page must be sent from that page")


async def read_form(request: Request, most: int, expected: str, fields: int = _MOST_FIELDS) -> dict[str, str]:
    """Return the fields of a form within limits of bytes and fields. `expected` tells clients what to send."""
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
