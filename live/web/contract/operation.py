"""An operation of the HTTP contract: the handler of a route, and what OpenAPI says of it."""

import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from inspect import getdoc
from typing import Final, TypeAlias, get_type_hints

import msgspec
from starlette.responses import Response

from live import __version__
from live.errors import PROBLEMS
from live.http.parameters import Parameters, fields_of
from live.http.reply import ProblemBody
from live.web.contract.schemas import Json, listed, reference

STRING: Final[Json] = {"type": "string"}
TEXT: Final[Json] = {"schema": STRING}

INFO: Final = {
    "title": "Live Board",
    "version": __version__,
    "description": "Producers post events. The server keeps an exact ranking and sends every change to every viewer.",
    "contact": {"name": "Live Board"},
    "license": {"name": "MIT", "identifier": "MIT"},
}
OPERATION_TAGS: Final[Mapping[str, str]] = {
    "events": "Post events.",
    "boards": "Read boards. Only private boards need an API key, with the verb `read` or `admin`.",
    "records": "Read records. Only private boards need an API key, with the verb `read` or `admin`.",
    "live": "Watch boards. Only private boards need an API key, with the verb `read` or `admin`.",
    "administration": "Change boards and records. This needs an API key with the verb `admin`.",
    "keys": "Make API keys and viewer tokens. This needs an API key for all boards, with the verb `admin`.",
    "pages": "HTML pages for people.",
    "operations": "Health and metrics for operators.",
    "documents": "Descriptions of this API.",
}
# Paths for programs, which get a problem document and no page if a request fails.
FOR_PROGRAMS: Final = (
    "/v1/", "/metrics", "/healthz", "/readyz", "/openapi.json", "/asyncapi.json", "/boards.schema.json",
)  # fmt: skip

# The problems that every request can have.
_EVERYWHERE: Final = frozenset(
    {
        "malformed_request", "host_invalid", "not_found", "host_forbidden", "method_not_allowed",
        "request_timeout", "headers_too_large", "internal_error", "store_unavailable", "epoch_lost",
        "too_many_connections",
    }
)  # fmt: skip

_LIMITED: Final = "rate_exceeded"  # every request can have this problem, except health checks and reads of metrics
_READING: Final = frozenset({"boards", "records", "live", "pages"})  # tags

_LENIENT: Final = frozenset({"operations", "documents"})  # tags
FORM: Final = "application/x-www-form-urlencoded"

_SECONDS: Final = {"description": "Seconds after which to try again.", "schema": {"type": "integer"}}
# Header fields of refusals, by status.
_HEADERS: Final[Mapping[int, Json]] = {
    401: {"WWW-Authenticate": TEXT},
    405: {"Allow": TEXT},
    426: {"Upgrade": TEXT},
    429: {"Retry-After": _SECONDS, "RateLimit-Policy": TEXT, "RateLimit": TEXT},
    503: {"Retry-After": _SECONDS},
}
_ETAG: Final = {
    "ETag": {"description": "Changes with the position, the period and the definition of the board.", **TEXT}
}
_PLACES: Final = {
    "board": "Id of a board.",
    "key": "The member, percent-encoded.",
    "id": "The `id` of an event, percent-encoded.",
}  # parameters of paths


class Operation(msgspec.Struct, frozen=True, dict=True):
    """The handler of a route and method, with its successful responses and its problems.

    The name of the handler is the id of the operation. The first line of its docstring is the summary, and the rest the
    description. If the handler takes a `query`, the type of this argument is the struct of its parameters.

    `places` says what the parameters of the path are, and `fields` are header fields that the handler reads.
    """

    handler: Callable[..., Awaitable[Response]]
    tag: str
    answers: Json
    problems: Collection[str] = ()
    body: Json | None = None
    places: Mapping[str, str] = {}
    fields: Sequence[Json] = ()

    @cached_property
    def query(self) -> type[Parameters] | None:
        """The struct of the parameters. None if the handler does not take them."""
        found: type[Parameters] | None = get_type_hints(self.handler).get("query")
        return found

    @property
    def is_lenient(self) -> bool:
        """Whether the query is ignored: that of forms, and that of routes for operators."""
        return self.query is None and (self.tag in _LENIENT or FORM in (self.body or {}).get("content", ()))

    @property
    def id(self) -> str:
        """The id of the operation: `getBoard` for the handler `get_board`."""
        first, *rest = self.handler.__name__.split("_")
        return first + "".join(word.capitalize() for word in rest)

    def described(self, path: str, *, by_query: bool = False) -> Json:
        """Describe the operation in OpenAPI. With `by_query`, the member is in the query instead of the path."""
        summary, _, description = (getdoc(self.handler) or "").partition("\n\n")
        asked = () if self.query is None else parameters_of(self.query)
        refusals = self._refusals(is_page=not path.startswith(FOR_PROGRAMS))
        placed = [
            _parameter(name, "path", STRING, self.places.get(name, _PLACES[name]))
            for name in re.findall(r"{(\w+)", path)
        ]
        fields = [*([_KNOWN] if "304" in self.answers else ()), *self.fields]
        return {
            "operationId": f"{self.id}ByQuery" if by_query else self.id,
            "tags": [self.tag],
            "summary": summary,
            "description": re.sub(r"(?<!\n)\n(?!\n)", " ", description),
            "security": [{}, {"key": []}] if self.tag in _READING or "credentials_required" in self.problems else [],
            "parameters": [*placed, *([_KEY_ASKED] if by_query else ()), *asked, *fields],
            "responses": {
                **self.answers,
                **{status: {**refusal, **self.answers.get(status, {})} for status, refusal in refusals.items()},
            },
            **({} if self.body is None else {"requestBody": self.body}),
        }

    def _refusals(self, *, is_page: bool) -> Json:
        """Describe the problems of the operation and those that every request can have, by status."""
        by_status: dict[int, dict[str, str]] = {}
        for code, problem in PROBLEMS.items():
            if code in self.problems or code in _EVERYWHERE or (code == _LIMITED and self.tag != "operations"):
                by_status.setdefault(problem.status, {})[code] = problem.title
        content: Json = {"application/problem+json": {"schema": reference(ProblemBody)}}
        if is_page:
            content["text/html"] = TEXT
        return {
            str(status): _with_headers({"description": listed(of), "content": dict(content)}, _HEADERS.get(status))
            for status, of in by_status.items()
        }


Operations: TypeAlias = Mapping[str, Mapping[str, Operation]]
"""Operations by path and method."""


def parameters_of(kind: type[Parameters]) -> Iterator[Json]:
    """Describe the parameters of a query."""
    schema = msgspec.json.schema_components([kind])[1][kind.__name__]
    for name, field in fields_of(kind).items():
        spec = schema["properties"][name]
        meaning, told = spec.pop("description", ""), field.extra.get("schema", {})
        for inner in spec.pop("anyOf", ()):  # the type, or null
            meaning = inner.pop("description", meaning)
            spec |= inner if inner != {"type": "null"} else {}
        if spec.get("default", 0) in (None, "", ()):  # of a parameter that is left out
            del spec["default"]
        if "enum" in spec:
            spec["type"] = "string"
        described = _parameter(name, "query", told if "type" in told else {**spec, **told}, meaning)
        yield {**described, "required": name in schema["required"]}


def document(*structs: type, headers: Json | None = None) -> Json:
    """Describe a response with a JSON document, or with one of several."""
    schemas = [reference(struct) for struct in structs]
    content = json_of(schemas[0] if len(schemas) == 1 else {"anyOf": schemas})
    return {"200": _with_headers({"description": "Success.", "content": content}, headers)}


def made(struct: type) -> Json:
    """Describe a response with the created object."""
    return {"201": {"description": "Created.", "content": json_of(reference(struct))}}


def tagged(struct: type) -> Json:
    """Describe a response with a document that has an `ETag`, and 304."""
    return {**document(struct, headers=_ETAG), "304": {"description": "Not modified.", "headers": _ETAG}}


def text(media_type: str, description: str) -> Json:
    """Describe a response with text of a media type."""
    return {"200": {"description": description, "content": {media_type: TEXT}}}


def done(status: int, description: str, *headers: str) -> Json:
    """Describe a response without a body, which has some header fields."""
    fields = dict.fromkeys(headers, TEXT)
    return {str(status): _with_headers({"description": description}, fields or None)}


def body_of(schema: Json, *media_types: str) -> Json:
    """Describe a required body, by default in JSON."""
    types = media_types or ("application/json",)
    return {"required": True, "content": {media_type: {"schema": schema} for media_type in types}}


def json_of(schema: Json) -> Json:
    """Describe the content of a JSON document."""
    return {"application/json": {"schema": schema}}


def header(name: str, schema: Json, description: str) -> Json:
    """Describe a header field that a request may have."""
    return _parameter(name, "header", schema, description)


def _parameter(name: str, place: str, schema: Json, description: str) -> Json:
    return {"name": name, "in": place, "required": place == "path", "schema": schema, "description": description}


def _with_headers(answer: Json, headers: Json | None) -> Json:
    return answer if headers is None else {**answer, "headers": headers}


_KNOWN: Final = header("If-None-Match", STRING, "`ETag` of an earlier response.")
_KEY_ASKED: Final = {
    **_parameter("key", "query", STRING, "The member, for proxies that refuse `%2F` in a path."),
    "required": True,
}
HTML: Final = text("text/html", "A page.")
