"""`/docs`: the API reference, rendered on the server from the OpenAPI document."""

import asyncio
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any, Final

import msgspec
from jinja2 import Environment
from markdown_it import MarkdownIt
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from live.web.contract.openapi import openapi_document
from live.web.contract.schemas import Json
from live.web.pages.language import languages
from live.web.pages.rendering import texts
from live.web.services import live_of

_LIMITS: Final = (
    ("default", "default ", ""), ("minimum", "at least ", ""), ("maximum", "at most ", ""),
    ("minLength", "at least ", " characters"), ("maxLength", "at most ", " characters"),
    ("minItems", "at least ", " items"), ("maxItems", "at most ", " items"),
    ("format", "format ", ""), ("pattern", "pattern ", ""),
)  # fmt: skip
_PLAIN: Final = 10_000  # numbers from here on are written with commas
_markdown: Final = MarkdownIt("js-default")  # HTML in the text is escaped


class FieldEntry(msgspec.Struct, frozen=True):
    """A parameter, a header or a property: its name, its type as HTML, and what it means as HTML."""

    name: str
    place: str
    required: bool
    kind: Markup
    meaning: Markup


class Content(msgspec.Struct, frozen=True):
    """A body of a media type."""

    media_type: str
    kind: Markup


class ResponseEntry(msgspec.Struct, frozen=True):
    """A response by its status."""

    status: str
    meaning: Markup
    headers: tuple[FieldEntry, ...]
    contents: tuple[Content, ...]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation; `answers` are the successful responses, `errors` the others."""

    id: str
    method: str
    path: str
    summary: str
    meaning: Markup
    needs_key: bool
    parameters: tuple[FieldEntry, ...]
    body: Markup
    contents: tuple[Content, ...]
    answers: tuple[ResponseEntry, ...]
    errors: tuple[ResponseEntry, ...]


class TaggedOperations(msgspec.Struct, frozen=True):
    """The operations with a tag."""

    name: str
    meaning: Markup
    operations: tuple[Operation, ...]


class Schema(msgspec.Struct, frozen=True):
    """An object of the contract with its properties."""

    name: str
    meaning: Markup
    fields: tuple[FieldEntry, ...]


async def show(request: Request) -> Response:
    """Show the API reference. The first rendering runs in a thread, because it takes long."""
    html = await asyncio.to_thread(_render, live_of(request).templates)
    return HTMLResponse(html, headers={"Cache-Control": "no-cache"})


@lru_cache(maxsize=1)
def _render(templates: Environment) -> str:
    page = templates.get_template("docs.html")
    return page.render(**texts(languages()["en"]), info=openapi_document()["info"], groups=groups(), schemas=schemas())


@cache
def groups() -> tuple[TaggedOperations, ...]:
    """Every operation of the contract, by tag."""
    document = openapi_document()
    found = [(method, path, spec) for path, item in document["paths"].items() for method, spec in item.items()]
    return tuple(
        TaggedOperations(
            tag["name"],
            _prose(tag["description"]),
            tuple(_operation(*one) for one in found if tag["name"] in one[2]["tags"]),
        )
        for tag in document["tags"]
    )


@cache
def schemas() -> tuple[Schema, ...]:
    """Every schema of the contract."""
    return tuple(
        Schema(name, _prose(schema.get("description", "")), tuple(_properties(schema)))
        for name, schema in openapi_document()["components"]["schemas"].items()
    )


def _operation(method: str, path: str, spec: Json) -> Operation:
    body = spec.get("requestBody", {})
    answers = [_answer(status, answer) for status, answer in sorted(spec["responses"].items())]
    return Operation(
        id=spec["operationId"],
        method=method.upper(),
        path=path,
        summary=spec["summary"],
        meaning=_prose(spec["description"]),
        needs_key=bool(spec["security"]),
        parameters=tuple(_parameter(parameter) for parameter in spec["parameters"]),
        body=_prose(body.get("description", "")),
        contents=_contents(body),
        answers=tuple(answer for answer in answers if answer.status < "4"),
        errors=tuple(answer for answer in answers if answer.status >= "4"),
    )


def _answer(status: str, spec: Json) -> ResponseEntry:
    headers = tuple(
        FieldEntry(
            name, "header", required=False, kind=_kind(header["schema"]), meaning=_prose(header.get("description", ""))
        )
        for name, header in spec.get("headers", {}).items()
    )
    return ResponseEntry(status, _prose(spec["description"]), headers, _contents(spec))


def _contents(spec: Json) -> tuple[Content, ...]:
    return tuple(Content(name, _kind(content["schema"])) for name, content in spec.get("content", {}).items())


def _parameter(spec: Json) -> FieldEntry:
    return FieldEntry(spec["name"], spec["in"], spec["required"], _kind(spec["schema"]), _prose(spec["description"]))


def _properties(schema: Json) -> Iterator[FieldEntry]:
    required = schema.get("required", ())
    for name, spec in schema.get("properties", {}).items():
        yield FieldEntry(name, "", name in required, _kind(spec), _prose(spec.get("description", "")))


def _kind(schema: Json) -> Markup:
    """The type of a value in words, with links to the schemas."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return Markup('<a href="#{0}">{0}</a>').format(name)
    if "anyOf" in schema:
        return Markup(" or ").join(_kind(part) for part in schema["anyOf"])
    if "enum" in schema:
        kind = Markup(", ").join(_code(value) for value in schema["enum"])
    elif schema.get("type") == "array":
        kind = Markup("array of ") + _kind(schema["items"])
    elif isinstance(values := schema.get("additionalProperties"), dict):
        kind = Markup("object whose values are ") + _kind(values)
    else:
        kind = escape(schema.get("type", "any value"))
    limits = [escape(before) + _limit(schema[name]) + after for name, before, after in _LIMITS if name in schema]
    return Markup(", ").join([kind, *limits])


def _limit(value: object) -> Markup:
    """A limit as people read it."""
    if isinstance(value, int) and not isinstance(value, bool):
        return escape(f"{value:,}" if abs(value) >= _PLAIN else value)
    return _code(value)


def _code(value: Any) -> Markup:  # noqa: ANN401 - any value of JSON
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return Markup("<code>{}</code>").format(text)


def _prose(text: str) -> Markup:
    """Markdown of the contract as HTML."""
    return Markup(_markdown.render(text))  # noqa: S704 - HTML in the text is escaped by the renderer
