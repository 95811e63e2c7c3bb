"""`/docs`: the API reference, rendered on the server from the OpenAPI document."""

import asyncio
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
from jinja2 import Environment
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from live.errors import PROBLEMS
from live.web.contract.openapi import openapi_document
from live.web.contract.schemas import Json
from live.web.pages.display_modes import Surface
from live.web.pages.language import languages
from live.web.pages.preferences import THEMES
from live.web.pages.rendering import look, texts, visit_of
from live.web.services import live_of

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_LIMITS: Final = (
    ("default", "default ", ""), ("minimum", "at least ", ""), ("maximum", "at most ", ""),
    ("minLength", "at least ", " characters"), ("maxLength", "at most ", " characters"),
    ("minItems", "at least ", " items"), ("maxItems", "at most ", " items"),
    ("format", "format ", ""), ("pattern", "pattern ", ""),
)  # fmt: skip
_PLAIN: Final = 10_000  # from this number on, numbers are written with commas


async def show(request: Request) -> Response:
    """Show the API reference. The first rendering runs in a thread, because it takes long."""
    live, theme = live_of(request), visit_of(request).theme
    html = await asyncio.to_thread(_render, live.templates, live.settings.root_path, theme)
    return HTMLResponse(html, headers={"Cache-Control": "no-cache", "Vary": "Cookie"})


@lru_cache(maxsize=len(THEMES))
def _render(templates: Environment, root: str, theme: str | None) -> str:
    document = openapi_document()
    every = [(method.upper(), path, spec) for path, item in document["paths"].items() for method, spec in item.items()]
    groups = [(tag, [one for one in every if tag["name"] in one[2]["tags"]]) for tag in document["tags"]]
    page = templates.get_template("docs.html")
    schemas = document["components"]["schemas"]
    return page.render(
        **texts(languages()["en"]),
        **look(Surface(), theme, f"{root}/docs"),
        info=document["info"],
        groups=groups,
        problems=PROBLEMS,
        schemas=schemas,
        type_words=type_words,
        prose=prose,
    )


def type_words(schema: Json) -> Markup:
    """Write the type of a value in words, with links to the schemas."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return Markup('<a href="#{0}">{0}</a>').format(name)
    if "anyOf" in schema:
        return Markup(" or ").join(type_words(part) for part in schema["anyOf"])
    if "enum" in schema:
        words = Markup(", ").join(_code(value) for value in schema["enum"])
    elif schema.get("type") == "array":
        words = Markup("array of ") + type_words(schema["items"])
    elif isinstance(values := schema.get("additionalProperties"), dict):
        words = Markup("object whose values are ") + type_words(values)
    else:
        words = escape(schema.get("type", "any value"))
    parts = [words]
    for name, before, after in _LIMITS:
        if name in schema:
            limit = schema[name]
            if isinstance(limit, int) and not isinstance(limit, bool):
                shown = escape(f"{limit:,}" if abs(limit) >= _PLAIN else limit)
            else:
                shown = _code(limit)
            parts.append(escape(before) + shown + after)
    return Markup(", ").join(parts)


def _code(value: Any) -> Markup:  # noqa: ANN401 - any value of JSON
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return Markup("<code>{}</code>").format(text)


def prose(text: str) -> Markup:
    """Turn the Markdown of a description into HTML."""
    return Markup(_markdown().render(text))  # noqa: S704 - HTML in the text is escaped by the renderer


@cache
def _markdown() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # noqa: PLC0415 - it would take a seventh of the start of a server

    return MarkdownIt("js-default")  # HTML in the text is escaped
