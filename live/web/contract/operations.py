"""Makes the parts of an operation of the contract: its parameters, its bodies, its responses and its problems."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from live.errors import PROBLEMS
from live.ingest.replies import ProblemBody
from live.web.contract.schemas import Json, listed, reference

STRING: Final[Json] = {"type": "string"}
TEXT: Final[Json] = {"schema": STRING}

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


def operation(  # noqa: PLR0913 - each is one part of an operation
    name: str,
    tag: str,
    summary: str,
    description: str,
    answers: Json,
    problems: Collection[str],
    *parameters: Json,
    body: Json | None = None,
    is_keyed: bool = False,
    is_page: bool = False,
) -> Json:
    """Describe an operation with its successful responses, its problems, and the problems that every request can have.

    `is_keyed` says that the operation needs an API key, unless a setting of the server allows it to anybody. Reads
    take an API key too, for private boards. `is_page` says that refusals are also available in HTML.
    """
    by_status: dict[int, dict[str, str]] = {}
    for code, problem in PROBLEMS.items():
        if code in problems or code in _EVERYWHERE or (code == _LIMITED and tag != "operations"):
            by_status.setdefault(problem.status, {})[code] = problem.title
    refusal: dict[str, Any] = {"application/problem+json": {"schema": reference(ProblemBody)}}
    if is_page:
        refusal["text/html"] = TEXT
    refusals = {
        str(status): _with_headers({"description": listed(of), "content": dict(refusal)}, _HEADERS.get(status))
        for status, of in by_status.items()
    }
    return {
        "operationId": name,
        "tags": [tag],
        "summary": summary,
        "description": description,
        "security": [{}, {"key": []}] if is_keyed or tag in _READING else [],
        "parameters": list(parameters),
        "responses": {**answers, **refusals},
        **({} if body is None else {"requestBody": body}),
    }


def document(struct: type, headers: Json | None = None) -> Json:
    """Describe a response with a JSON document."""
    return {"200": _with_headers({"description": "Success.", "content": json_of(reference(struct))}, headers)}


def made(struct: type) -> Json:
    """Describe a response with the created object."""
    return {"201": {"description": "Created.", "content": json_of(reference(struct))}}


def tagged(struct: type) -> Json:
    """Describe a response with a document that has an `ETag`, and 304."""
    return {**document(struct, _ETAG), "304": {"description": "Not modified.", "headers": _ETAG}}


def text(media_type: str, description: str) -> Json:
    """Describe a response with text of a media type."""
    return {"200": {"description": description, "content": {media_type: TEXT}}}


def done(status: int, description: str, headers: Json | None = None) -> Json:
    """Describe a response without a body."""
    return {str(status): _with_headers({"description": description}, headers)}


def body_of(schema: Json, *media_types: str) -> Json:
    """Describe a required body."""
    return {"required": True, "content": {media_type: {"schema": schema} for media_type in media_types}}


def json_of(schema: Json) -> Json:
    """Describe the content of a JSON document."""
    return {"application/json": {"schema": schema}}


def query(name: str, schema: Json, description: str) -> Json:
    """Describe a parameter of the query."""
    return parameter(name, "query", schema, description)


def parameter(name: str, place: str, schema: Json, description: str) -> Json:
    """Describe a parameter in the path, the query or the header. Parameters in the path are required."""
    return {"name": name, "in": place, "required": place == "path", "schema": schema, "description": description}


def choice(name: str, meaning: str, *values: str) -> Json:
    """Describe a parameter of the query with few values."""
    return query(name, {"type": "string", "enum": list(values)}, meaning)


def members(most: int, *, is_required: bool = False) -> Json:
    """Describe the parameter `key`, which can be repeated."""
    several = {"type": "array", "items": STRING, "minItems": 1, "maxItems": most}
    return {**query("key", several, "Repeat it for each member."), "required": is_required}


def whole(least: int, most: int | None = None, default: int | None = None) -> Json:
    """Describe a whole number in a range."""
    given = {"minimum": least, "maximum": most, "default": default}
    return {"type": "integer", **{name: value for name, value in given.items() if value is not None}}


def _with_headers(answer: Json, headers: Json | None) -> Json:
    return answer if headers is None else {**answer, "headers": headers}
