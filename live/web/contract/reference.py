"""`/docs`: the operations and the codes of the API on a page that needs no script."""

import re
from collections.abc import Iterator

from jinja2 import Environment
from markupsafe import Markup, escape

from live.errors import PROBLEMS, REFUSALS
from live.web.contract.schemas import Json
from live.web.pages.display_modes import Surface
from live.web.pages.language import languages
from live.web.pages.rendering import look, texts

_LIMITS = (
    ("default", "default {}"), ("minimum", "at least {}"), ("maximum", "at most {}"),
    ("minLength", "at least {} characters"), ("maxLength", "at most {} characters"),
    ("minItems", "at least {} times"), ("maxItems", "at most {} times"), ("format", "{}"),
)  # fmt: skip


def render(templates: Environment, root: str, theme: str | None, document: Json) -> str:
    """Draw the page of an OpenAPI document."""
    every = [(method, path, spec) for path, item in document["paths"].items() for method, spec in item.items()]
    shown = [one for one in every if not one[2]["operationId"].endswith("ByQuery")]
    return templates.get_template("docs.html").render(
        **texts(languages()["en"]),
        **look(Surface(), theme, f"{root}/docs"),
        groups=[(tag, [one for one in shown if tag["name"] in one[2]["tags"]]) for tag in document["tags"]],
        problems=PROBLEMS,
        refusals=REFUSALS,
        fields_of=lambda operation: list(_fields_of(operation, document["components"]["schemas"])),
        type_words=type_words,
        prose=prose,
    )


def _fields_of(operation: Json, schemas: Json) -> Iterator[tuple[str, str, Json, bool]]:
    """Return the name, the place, the schema and the need of everything that a request can have."""
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
