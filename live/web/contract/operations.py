"""Describes one operation of the contract: its parameters, its responses and its problems."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from live.domain.calendar import EXAMPLES
from live.errors import PROBLEMS
from live.ingest.replies import ProblemBody
from live.web.contract.schemas import Json, listed, reference

TEXT: Final[Json] = {"schema": {"type": "string"}}
PUBLIC: Final[list[Json]] = []
KEYED: Final[list[Json]] = [{}, {"key": []}]  # also without an API key, if the server allows that

# The problems of some operations. Every request can have the others.
POSTING: Final = frozenset(
    {
        "malformed_body", "idempotency_key_invalid", "credentials_required", "credentials_invalid", "scope_forbidden",
        "body_too_large", "too_many_events", "unsupported_media_type", "idempotency_key_reused", "rate_exceeded",
        "outcome_unknown", "overloaded", "parameter_invalid", "origin_forbidden", "journal_behind",
    }
)  # fmt: skip
ASKING: Final = frozenset({"parameter_invalid"})
BOARD: Final = ASKING | {"board_not_found"}
RECORDS: Final = BOARD | {"period_not_found"}
PAST: Final = frozenset({"past_unavailable", "past_too_large"})
RECORD: Final = RECORDS | PAST | {"record_not_found"}
PAGE: Final = RECORDS | PAST | {"cursor_invalid", "too_many_viewers", "stopping"}
WATCHING: Final = BOARD | {"origin_forbidden", "past_unavailable", "too_many_viewers", "stopping"}
ADMIN: Final = ASKING | {
    "credentials_required", "credentials_invalid", "origin_forbidden", "scope_forbidden", "rate_exceeded"
}  # fmt: skip
REMOVING: Final = ADMIN | BOARD | {"board_fixed", "board_in_file", "outcome_unknown"}
CHANGING: Final = REMOVING | {"malformed_body", "body_too_large", "unsupported_media_type", "board_invalid"}
ENTERING: Final = ADMIN | BOARD | {"record_invalid", "record_not_found", "record_voted", "board_open_to_all"}
ITEMS: Final = frozenset({"item_invalid", "too_many_items", "malformed_body", "body_too_large"})
_NO_ITEM: Final = frozenset({"item_not_found"})
LIKING: Final = frozenset(
    {
        "board_not_found", "record_not_found", "origin_forbidden", "likes_not_allowed", "cookie_required",
        "likes_closed", "like_refused", "unsupported_media_type", "malformed_body", "body_too_large", "rate_exceeded",
        "outcome_unknown", "overloaded",
    }
)  # fmt: skip
UPGRADING: Final = frozenset({"upgrade_required"})
_FULL: Final = frozenset({"too_many_boards", "too_many_members"})
_SOME: Final = POSTING | PAGE | RECORD | WATCHING | CHANGING | ENTERING | LIKING | ITEMS | UPGRADING | _FULL | _NO_ITEM
_ANY: Final = frozenset(PROBLEMS) - _SOME

_SECONDS: Final = {"description": "Seconds after which to try again.", "schema": {"type": "integer"}}
# Header fields of refusals, by the status that they come with.
_HEADERS: Final[Mapping[int, Json]] = {
    401: {"WWW-Authenticate": TEXT},
    405: {"Allow": TEXT},
    426: {"Upgrade": TEXT},
    429: {"Retry-After": _SECONDS, "RateLimit-Policy": TEXT, "RateLimit": TEXT},
    503: {"Retry-After": _SECONDS},
}
_ETAG: Final = {
    "ETag": {"description": "The epoch and offset of the board. It does not depend on the number of viewers.", **TEXT}
}


def operation(  # noqa: PLR0913 - each is one part of an operation
    name: str,
    tag: str,
    summary: str,
    description: str,
    answers: Json,
    problems: Collection[str],
    *parameters: Json,
    security: list[Json] = PUBLIC,
    is_page: bool = False,
) -> Json:
    """An operation with its successful responses, its problems, and the problems that every request can have."""
    return {
        "operationId": name,
        "tags": [tag],
        "summary": summary,
        "description": description,
        "security": security,
        "parameters": list(parameters),
        "responses": {**answers, **_refusals(_ANY.union(problems), is_page=is_page)},
    }


def document(struct: type, headers: Json | None = None) -> Json:
    """Responses with a JSON document."""
    return {"200": _with({"description": "Success.", "content": json_of(reference(struct))}, headers)}


def tagged(struct: type) -> Json:
    """Responses with a document that has an `ETag`, and 304."""
    return {**document(struct, _ETAG), "304": {"description": "Not modified.", "headers": _ETAG}}


def text(media_type: str, description: str, headers: Json | None = None) -> Json:
    """Responses with text of a media type."""
    return {"200": _with({"description": description, "content": {media_type: TEXT}}, headers)}


def done(status: int, description: str, headers: Json | None = None) -> Json:
    """Responses without a body."""
    return {str(status): _with({"description": description}, headers)}


def body_of(schema: Json, *media_types: str) -> Json:
    """A required body."""
    return {"required": True, "content": {media_type: {"schema": schema} for media_type in media_types}}


def json_of(schema: Json) -> Json:
    """The content of a JSON document."""
    return {"application/json": {"schema": schema}}


def parameter(name: str, place: str, schema: Json, description: str) -> Json:
    """A parameter in the path, the query or the header. Path parameters are required."""
    return {"name": name, "in": place, "required": place == "path", "schema": schema, "description": description}


def _with(answer: Json, headers: Json | None) -> Json:
    return answer if headers is None else {**answer, "headers": headers}


def _refusals(codes: Collection[str], *, is_page: bool) -> Json:
    """Responses with problems, by status. A page also refuses in HTML."""
    by_status: dict[int, dict[str, str]] = {}
    for code, problem in PROBLEMS.items():
        if code in codes:
            by_status.setdefault(problem.status, {})[code] = problem.title
    content: dict[str, Any] = {"application/problem+json": {"schema": reference(ProblemBody)}}
    if is_page:
        content["text/html"] = TEXT
    return {
        str(status): _with({"description": listed(of), "content": dict(content)}, _HEADERS.get(status))
        for status, of in by_status.items()
    }


def names_in(parameters: Iterable[Json], place: str) -> frozenset[str]:
    """The names of the parameters in a place such as the query."""
    return frozenset(parameter["name"] for parameter in parameters if parameter["in"] == place)


COUNT: Final[Json] = {"type": "integer", "minimum": 1, "default": 100}
OF_BOARD: Final = parameter("board", "path", {"type": "string"}, "Id of a board.")
OF_KEY: Final = parameter("key", "path", {"type": "string"}, "The member, percent-encoded.")
SOCKET: Final = done(101, "The connection is now a WebSocket.")
PERIOD: Final = parameter(
    "period", "query", {"type": "string", "default": "current", "examples": ["previous", *EXAMPLES.values()]},
    "The period, on calendar boards.",
)  # fmt: skip
TIME: Final = {"type": "string", "format": "date-time"}
AS_OF: Final = parameter(
    "as_of", "query", TIME,
    "Read the board as it was at this time: with everything that was counted before. "
    "This needs a journal. Beyond `LIVE_JOURNAL_EVENTS`, it is read as it was at the beginning of that hour.",
)  # fmt: skip
EXPLAIN: Final = parameter(
    "explain", "query", {"type": "string", "enum": ["true"]},
    "Return an `Explanation` instead: what the score consists of, and its newest changes. This needs a journal.",
)  # fmt: skip
