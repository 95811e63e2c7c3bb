"""The HTTP contract as OpenAPI 3.1, `/openapi.json`, made from the table of operations and the structs of bodies."""

import asyncio
from functools import cache, lru_cache
from typing import Final

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from live.boards.definition import RunningChoice
from live.domain import views
from live.domain.cloudevent import CloudEvent
from live.domain.event import Answer, IncomingEvent
from live.domain.item import Item
from live.ingest.replies import ProblemBody, Reply
from live.store.board.write.correction import Corrected
from live.web.contract.asyncapi import get_asyncapi
from live.web.contract.boards_file import get_boards_schema
from live.web.contract.operations import HTML, INFO, OPERATION_TAGS, Operation, Operations, json_of
from live.web.contract.reference import render
from live.web.contract.schemas import Json, contract_components
from live.web.http.responses import kept_json, negotiated
from live.web.operations import ADMINISTRATION, ALWAYS, BOARDS, COUNTING, PAGES, by_query
from live.web.pages.preferences import THEMES
from live.web.pages.rendering import visit_of
from live.web.reads.boards import BaselineView
from live.web.reads.history import Explanation
from live.web.reads.slots import SlotList
from live.web.reads.votes import VoterView
from live.web.services import live_of
from live.web.writes.admin import AuditLog, ItemChanges, ItemChoice, RecordChange
from live.web.writes.keys import KeyChoice, KeyList, MadeKey, SignedToken, TokenChoice
from live.web.writes.likes import Liked

_KEY_SCHEME: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key, `<id>.<secret>`, as `live keys add` prints it.",
}
_STRUCTS: Final = (
    IncomingEvent, CloudEvent, Answer, views.BoardList, views.BoardPage, SlotList, BaselineView, views.RecordView,
    views.RecordList, views.MemberRecords, AuditLog, RunningChoice, RecordChange, Corrected, Item, ItemChoice,
    ItemChanges, views.ItemList, views.HistoryList, Explanation, views.EntrantList, Liked, VoterView, KeyList,
    KeyChoice, MadeKey, TokenChoice, SignedToken, ProblemBody,
)  # fmt: skip


async def get_openapi(request: Request) -> Response:
    """Read the OpenAPI document.

    Returns this API as OpenAPI 3.1.
    """
    return negotiated(request, _reply(live_of(request).settings.root_path or "/"))


async def show_reference(request: Request) -> Response:
    """Show the API reference.

    Shows the operations of this API as a page.
    """
    live, theme = live_of(request), visit_of(request).theme
    html = await asyncio.to_thread(_page, live.templates, live.settings.root_path, theme)
    return HTMLResponse(html, headers={"Cache-Control": "no-cache", "Vary": "Cookie"})


_DOCUMENT: Final = {"200": {"description": "The document.", "content": json_of({"type": "object"})}}
DOCUMENTS: Final[Operations] = {
    "/openapi.json": {"GET": Operation(get_openapi, "documents", _DOCUMENT)},
    "/asyncapi.json": {"GET": Operation(get_asyncapi, "documents", _DOCUMENT)},
    "/boards.schema.json": {"GET": Operation(get_boards_schema, "documents", _DOCUMENT)},
    "/docs": {"GET": Operation(show_reference, "documents", HTML)},
}
"""The operations that describe this API. Processes of all roles serve them."""


@lru_cache(maxsize=len(THEMES))
def _page(templates: Environment, root: str, theme: str | None) -> str:
    return render(templates, root, theme, openapi_document())


@cache
def _reply(root: str) -> Reply:
    return kept_json({**openapi_document(), "servers": [{"url": root}]})


@cache
def openapi_document() -> Json:
    """Make the document at `/openapi.json`, for a server at the root of its host."""
    every = {**COUNTING, **BOARDS, **PAGES, **ADMINISTRATION, **ALWAYS, **DOCUMENTS}
    paths: Json = {}
    for route, operations in every.items():
        path = route.replace(":path", "")
        paths[path] = {method.lower(): each.described(path) for method, each in operations.items()}
    for route, operations in every.items():
        if (path := by_query(route)) != route:
            paths[path] = {method.lower(): each.described(path, by_query=True) for method, each in operations.items()}
    return {
        "openapi": "3.1.0",
        "info": INFO,
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": meaning} for name, meaning in OPERATION_TAGS.items()],
        "paths": paths,
        "components": {"schemas": contract_components(_STRUCTS), "securitySchemes": {"key": _KEY_SCHEME}},
    }
