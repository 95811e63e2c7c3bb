"""`/openapi.json` and `/asyncapi.json`: the contract for programs."""

from functools import cache

from starlette.requests import Request
from starlette.responses import Response

from live.ingest.replies import Reply
from live.web.contract.asyncapi import asyncapi_document
from live.web.contract.openapi import openapi_document
from live.web.http.responses import kept_json, negotiated
from live.web.services import live_of


async def openapi(request: Request) -> Response:
    """The HTTP contract as OpenAPI 3.1."""
    return negotiated(request, _openapi(live_of(request).settings.root_path or "/"))


async def asyncapi(request: Request) -> Response:
    """The messages of the WebSockets as AsyncAPI 3.0."""
    return negotiated(request, _asyncapi())


@cache
def _openapi(root: str) -> Reply:
    return kept_json({**openapi_document(), "servers": [{"url": root}]})


@cache
def _asyncapi() -> Reply:
    return kept_json(asyncapi_document())
