"""/openapi.json and /asyncapi.json, made from the structs that decode and encode, and from the tables of errors."""

from functools import cache
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from live import __version__
from live.errors import CLOSE_CODES, PROBLEMS, REFUSALS
from live.event import Event
from live.fanout.frames import Status, Sync, Update
from live.web.boards import BoardList, BoardPage, RecordView
from live.web.events import Answer
from live.web.problems import ProblemBody

_INFO: Final = {"title": "Live Board", "version": __version__, "license": {"name": "MIT"}}
_REFERENCE: Final = "#/components/schemas/{name}"


async def openapi(_request: Request) -> Response:
    """The HTTP contract as OpenAPI 3.1."""
    return _document(openapi_document())


async def asyncapi(_request: Request) -> Response:
    """The messages to viewers as AsyncAPI 3.0."""
    return _document(asyncapi_document())


@cache
def openapi_document() -> dict[str, Any]:
    """What `/openapi.json` serves."""
    (event, answer, boards, page, record, problem), components = msgspec.json.schema_components(
        (Event, Answer, BoardList, BoardPage, RecordView, ProblemBody), ref_template=_REFERENCE
    )
    body = {
        "application/json": {"schema": {"anyOf": [event, {"type": "array", "items": event}]}},
        "application/x-ndjson": {"schema": {"type": "string"}},
    }
    post = _operation("postEvents", f"Count events. Refusals: {', '.join(REFUSALS)}.", answer, problem)
    post["requestBody"] = {"required": True, "content": body}
    board = _parameter("board", "path", {"type": "string"})
    limit = _parameter("limit", "query", {"type": "integer", "minimum": 1, "default": 100})
    cursor = _parameter("cursor", "query", {"type": "string"})
    key = _parameter("key", "path", {"type": "string"})
    around = _parameter("around", "query", {"type": "integer", "minimum": 0, "maximum": 100, "default": 0})
    one = _operation("getBoard", "One page of a board.", page, problem, [board, limit, cursor])
    record_view = _operation("getRecord", "One record with its neighbours.", record, problem, [board, key, around])
    return {
        "openapi": "3.1.0",
        "info": _INFO,
        "paths": {
            "/v1/events": {"post": post},
            "/v1/boards": {"get": _operation("listBoards", "Every board.", boards, problem)},
            "/v1/boards/{board}": {"get": one},
            "/v1/boards/{board}/records/{key}": {"get": record_view},
        },
        "components": {"schemas": components},
    }


@cache
def asyncapi_document() -> dict[str, Any]:
    """What `/asyncapi.json` serves."""
    messages = {"sync": Sync, "update": Update, "status": Status}
    schemas, components = msgspec.json.schema_components(messages.values(), ref_template=_REFERENCE)
    final = ", ".join(f"{code} {close.reason}" for code, close in CLOSE_CODES.items() if not close.reconnect)
    query = {"type": "object", "properties": {"limit": {"type": "integer", "minimum": 1}}}
    channel = {
        "address": "/v1/boards/{board}/live",
        "description": f"Come back after any close but these: {final}.",
        "parameters": {"board": {"description": "id of a board"}},
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
        "bindings": {"ws": {"method": "GET", "query": query}},
    }
    payloads = {
        name: {"summary": kind.__doc__, "payload": schema}
        for (name, kind), schema in zip(messages.items(), schemas, strict=True)
    }
    return {
        "asyncapi": "3.0.0",
        "info": _INFO,
        "channels": {"boardLive": channel},
        "operations": {"watchBoard": {"action": "send", "channel": {"$ref": "#/channels/boardLive"}}},
        "components": {"messages": payloads, "schemas": components},
    }


def _operation(
    name: str,
    summary: str,
    answer: dict[str, Any],
    problem: dict[str, Any],
    parameters: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """An operation that answers with a document, or with any of the problems."""
    codes: dict[int, list[str]] = {}
    for code, (status, _) in PROBLEMS.items():
        codes.setdefault(status, []).append(code)
    refused = {"application/problem+json": {"schema": problem}}
    return {
        "operationId": name,
        "summary": summary,
        "parameters": parameters or [],
        "responses": {
            "200": {"description": "As asked", "content": {"application/json": {"schema": answer}}},
            **{str(status): {"description": ", ".join(of), "content": refused} for status, of in codes.items()},
        },
    }


def _parameter(name: str, place: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


def _document(document: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(document), headers={"Cache-Control": "no-cache"}, media_type="application/json")
