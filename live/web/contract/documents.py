"""The documents that describe the server, made from the table of operations and from the structs of its messages.

`/openapi.json` is the HTTP contract as OpenAPI 3.1, with `/docs` as its page. `/asyncapi.json` has the messages of the
WebSocket as AsyncAPI 3.0. `/boards.schema.json` is the JSON Schema of a boards file: editors check a TOML file against
it and offer the choices, if the first line of the file names the schema (`#:schema <address>`).
"""

import asyncio
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from inspect import getdoc
from typing import Any, Final

from jinja2 import Environment
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from live.domain.choices import Choices
from live.domain.limits import PREFIX, LimitsChoice
from live.domain.views import Alive, Around, Status, Sync, Update, Viewers
from live.domain.window import WINDOW_KINDS
from live.errors import CLOSE_CODES, PROBLEMS, REFUSALS
from live.fanout.subscription import WatchParameters
from live.http.reply import Reply
from live.web.contract.operation import HTML, INFO, OPERATION_TAGS, Operation, Operations, json_of, parameters_of
from live.web.contract.schemas import Json, components_of, contract_components, reference
from live.web.operations import ADMINISTRATION, ALWAYS, BOARDS, COUNTING, PAGES, by_query
from live.web.pages.language import languages
from live.web.pages.parameters import PageParameters
from live.web.pages.preferences import THEMES
from live.web.pages.rendering import look, texts, visit_of
from live.web.parts import live_of
from live.web.responses import kept_json, negotiated

_REFERENCE: Final = "#/$defs/{name}"  # of the schema of boards files
_MESSAGES: Final = {str(kind.__struct_config__.tag): kind for kind in (Sync, Update, Status, Viewers, Around, Alive)}
_LIMITS = (
    ("default", "default {}"), ("minimum", "at least {}"), ("maximum", "at most {}"),
    ("minLength", "at least {} characters"), ("maxLength", "at most {} characters"),
    ("minItems", "at least {} times"), ("maxItems", "at most {} times"), ("format", "{}"),
)  # fmt: skip
_KEY_SCHEME: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key, `<id>.<secret>`, as `live keys add` prints it.",
}


async def get_openapi(request: Request) -> Response:
    """Read the OpenAPI document.

    Returns this API as OpenAPI 3.1.
    """
    return negotiated(request, _reply("openapi", live_of(request).settings.root_path or "/"))


async def get_asyncapi(request: Request) -> Response:
    """Read the AsyncAPI document.

    Returns the messages on sockets as AsyncAPI 3.0.
    """
    return negotiated(request, _reply("asyncapi"))


async def get_boards_schema(request: Request) -> Response:
    """Read the schema of boards files.

    Returns a JSON Schema, for editors.
    """
    return negotiated(request, _reply("boards"))


@cache
def _reply(name: str, root: str = "/") -> Reply:
    if name == "openapi":
        return kept_json({**openapi_document(), "servers": [{"url": root}]})
    return kept_json(asyncapi_document() if name == "asyncapi" else boards_file_schema())


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
        "components": {"schemas": contract_components(), "securitySchemes": {"key": _KEY_SCHEME}},
    }


@cache
def asyncapi_document() -> dict[str, Any]:
    """Make the document at `/asyncapi.json`."""
    final = ", ".join(f"{code} {close.reason}" for code, close in CLOSE_CODES.items() if not close.reconnect)
    asked = parameters_of(WatchParameters)
    query = {each["name"]: {**each["schema"], "description": each["description"]} for each in asked}
    return {
        "asyncapi": "3.0.0",
        "info": {
            **INFO,
            # AsyncAPI has no field `identifier` here
            "license": {"name": "MIT", "url": "https://opensource.org/license/mit"},
            "tags": [{"name": "live", "description": "Watch boards."}],
        },
        "channels": {
            "boardLive": {
                "address": "/v1/boards/{board}/live",
                "description": f"Reconnect after any close except these: {final}.",
                "parameters": {"board": {"description": "Id of a board."}},
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in _MESSAGES},
                "bindings": {"ws": {"method": "GET", "query": {"type": "object", "properties": query}}},
            },
        },
        "operations": {
            "watchBoard": {
                "action": "send",
                "description": "A viewer receives a `sync`, then `update`s. Only private boards need an API key.",
                "channel": {"$ref": "#/channels/boardLive"},
                "messages": [{"$ref": f"#/channels/boardLive/messages/{name}"} for name in _MESSAGES],
            },
        },
        "components": {
            # The summary is the first paragraph of the docstring; the schema has all of it.
            "messages": {
                name: {"summary": (getdoc(kind) or "").partition("\n\n")[0], "payload": reference(kind.__name__)}
                for name, kind in _MESSAGES.items()
            },
            "schemas": components_of(_MESSAGES.values()),
        },
    }


@cache
def boards_file_schema() -> Json:
    """Make the document at `/boards.schema.json`."""
    tables = components_of([Choices, LimitsChoice], _REFERENCE)
    tables["WindowChoice"]["oneOf"] = [{"required": [kind]} for kind in WINDOW_KINDS]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Boards of Live Board",
        "description": "Each [[board]] table defines a board, and each [limits] table limits the boards with a prefix.",
        "type": "object",
        "properties": {
            "board": {
                "description": "The boards, in the order in which pages list them.",
                "type": "array",
                "items": {"$ref": _REFERENCE.format(name="BoardChoice")},
                "minItems": 1,
            },
            "limits": {
                "description": "What all boards whose ids begin with a prefix may have together.",
                "type": "object",
                "patternProperties": {f"^{PREFIX.pattern}$": {"$ref": _REFERENCE.format(name=LimitsChoice.__name__)}},
                "additionalProperties": False,
            },
        },
        "anyOf": [{"required": ["board"]}, {"required": ["limits"]}],
        "additionalProperties": False,
        "$defs": tables,
    }


def render(templates: Environment, root: str, theme: str | None, document: Json) -> str:
    """Draw the page of an OpenAPI document."""
    every = [(method, path, spec) for path, item in document["paths"].items() for method, spec in item.items()]
    shown = [one for one in every if not one[2]["operationId"].endswith("ByQuery")]
    return templates.get_template("docs.html").render(
        **texts(languages()["en"]),
        **look(PageParameters(), theme, f"{root}/docs"),
        groups=[(tag, [one for one in shown if tag["name"] in one[2]["tags"]]) for tag in document["tags"]],
        problems=PROBLEMS,
        refusals=REFUSALS,
        fields_of=lambda operation: list(_fields_of(operation, document["components"]["schemas"])),
        type_words=type_words,
        prose=prose,
    )


def _fields_of(operation: Json, schemas: Json) -> Iterator[tuple[str, str, Json, bool]]:
    """Return the name, the place, the schema and the need of each field."""
    for given in operation["parameters"]:
        yield given["name"], given["in"], {**given["schema"], "description": given["description"]}, given["required"]
    for content in operation.get("requestBody", {"content": {}})["content"].values():
        schema = next(iter(content["schema"].get("anyOf", ())), content["schema"])  # one event, or several
        schema = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        for name, spec in schema.get("properties", {}).items():
            yield name, "body", spec, name in schema.get("required", ())
        return


def type_words(schema: Json) -> str:
    """Write the type and the limits of a value in words."""
    if "anyOf" in schema:
        return " or ".join(type_words(part) for part in schema["anyOf"])
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    kind = schema.get("type", "any value")
    words = ", ".join(map(str, schema["enum"])) if "enum" in schema else "list" if kind == "array" else kind
    return ", ".join([words, *(limit.format(schema[name]) for name, limit in _LIMITS if name in schema)])


def prose(text: str) -> Markup:
    """Turn the paragraphs, lists and code of a description into HTML."""
    blocks = []
    for block in text.split("\n\n"):
        words = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(block)))
        if words.startswith("- "):
            items = "".join(f"<li>{item}</li>" for item in words.removeprefix("- ").split("\n- "))
            blocks.append(f"<ul>{items}</ul>")
        else:
            blocks.append(f"<p>{words}</p>")
    return Markup("\n".join(blocks))  # noqa: S704 - the text is escaped above
