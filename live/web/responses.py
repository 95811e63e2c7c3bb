"""JSON responses of the read routes, with an `ETag` where they show a board."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Final
from weakref import WeakKeyDictionary

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from live.domain.ranking import Page

NOT_STORED: Final = {"Cache-Control": "no-store"}  # for responses that only the sender of the request may see

_REVALIDATED: Final = {"Cache-Control": "no-cache"}


def json_response(request: Request, body: object, page: Page | None) -> Response:
    """A JSON response; with a `page`, it has an `ETag`, and it is a 304 if `If-None-Match` names that tag."""
    headers = dict(_REVALIDATED)
    if page is not None:
        period = "" if page.slot is None else f":{page.slot}"  # a period ends without a change in the store
        tag = f'"{page.epoch}:{page.offset}{period}"'  # a tag belongs to one URL, so the position is enough
        headers["ETag"] = tag
        known = {part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")}
        if tag in known or "*" in known:
            return unchanged(tag)
    return Response(msgspec.json.encode(body), headers=headers, media_type="application/json")


class EncodedBodies:
    """The JSON of structs that many requests share, each encoded once."""

    def __init__(self) -> None:
        self._bodies: WeakKeyDictionary[msgspec.Struct, bytes] = WeakKeyDictionary()

    def of(self, shared: msgspec.Struct, view: Callable[[], object]) -> bytes:
        """The encoded view of a struct. The struct must be compared by identity."""
        body = self._bodies.get(shared)
        if body is None:
            body = self._bodies[shared] = msgspec.json.encode(view())
        return body


def encoded_response(body: bytes) -> Response:
    """A response with JSON that is encoded already."""
    return Response(body, headers=_REVALIDATED, media_type="application/json")


def unchanged(tag: str) -> Response:
    """The 304 response to a client that has the state of `tag`."""
    return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={**_REVALIDATED, "ETag": tag})
