"""`/openapi.json` and `/asyncapi.json`: the contract for programs."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from live.web.asyncapi import asyncapi_document
from live.web.openapi import openapi_document
from live.web.state import live_of


async def openapi(request: Request) -> Response:
    """The HTTP contract as OpenAPI 3.1."""
    return _document({**openapi_document(), "servers": [{"url": live_of(request).settings.root_path or "/"}]})


async def asyncapi(_request: Request) -> Response:
    """The messages of the WebSockets as AsyncAPI 3.0."""
    return _document(asyncapi_document())


def _document(document: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(document), headers={"Cache-Control": "no-cache"}, media_type="application/json")
