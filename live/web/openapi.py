"""The HTTP contract as OpenAPI 3.1, made from the structs that decode and encode, and from the tables of errors."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from live import __version__
from live.calendar import EXAMPLES
from live.cloudevent import CloudEvent
from live.errors import PROBLEMS, REFUSALS
from live.event import MAX_SCORE, Event
from live.ingest.posting import Answer
from live.lifecycle.definition import RunningChoice
from live.replies import ProblemBody
from live.web.board_changes import Trail
from live.web.boards import BoardList, BoardPage, BoardSummary
from live.web.record_changes import Visibility
from live.web.records import RecordList, RecordView, Standing

Json = dict[str, Any]

INFO: Final = {"title": "Live Board", "version": __version__, "license": {"name": "MIT"}}
REFERENCE: Final = "#/components/schemas/{name}"

# What a viewer may ask for, on the live route and on the stream: schema and meaning of each parameter.
WATCHING: Final[Mapping[str, tuple[Json, str]]] = {
    "limit": ({"type": "integer", "minimum": 1, "default": 50}, "how many records to watch"),
    "interval": ({"type": "string", "examples": ["1s"]}, "least time between two updates, up to 60s"),
    "epoch": ({"type": "string", "maxLength": 64}, "of the last message, for one who comes back"),
    "offset": ({"type": "integer", "minimum": 0}, "of the last message, for one who comes back"),
    "key": ({"type": "string"}, "one whose place is told in `around` messages"),
    "around": (
        {"type": "integer", "minimum": 0, "maximum": 50, "default": 0},
        "how many neighbours it has on each side",
    ),
}

# The problems that only some operations have; every other may befall any request.
_POSTING: Final = frozenset(
    {
        "malformed_body", "idempotency_key_invalid", "credentials_required", "credentials_invalid", "scope_forbidden",
        "body_too_large", "too_many_events", "unsupported_media_type", "idempotency_key_reused", "rate_exceeded",
        "outcome_unknown", "overloaded",
    }
)  # fmt: skip
_BOARD: Final = frozenset({"board_not_found"})
_READING: Final = _BOARD | {"parameter_invalid"}
_RECORDS: Final = _READING | {"period_not_found"}
_PAGE: Final = _RECORDS | {"cursor_invalid"}
_RECORD: Final = _RECORDS | {"record_not_found"}
_WATCHING: Final = _READING | {"origin_forbidden", "too_many_viewers", "stopping"}
_LIVE: Final = _WATCHING | {"upgrade_required"}
_WAITING: Final = _PAGE | {"too_many_viewers", "stopping"}
_ADMIN: Final = frozenset({"credentials_required", "credentials_invalid", "scope_forbidden", "rate_exceeded"})
_REMOVING: Final = _ADMIN | _BOARD | {"board_fixed", "board_in_file", "outcome_unknown"}
_CHANGING: Final = _REMOVING | {"malformed_body", "body_too_large", "unsupported_media_type", "board_invalid"}
_ENTERING: Final = frozenset({"record_invalid", "record_voted", "board_open_to_all"})
_ANY: Final = frozenset(PROBLEMS) - _ENTERING - _POSTING - _PAGE - _RECORD - _LIVE - _CHANGING

_SECONDS: Final = {"description": "seconds until another try is worth while", "schema": {"type": "integer"}}
_TEXT: Final[Json] = {"schema": {"type": "string"}}
# Header fields of refusals, by the status that they come with.
_HEADERS: Final[Mapping[int, Json]] = {
    401: {"WWW-Authenticate": _TEXT},
    405: {"Allow": _TEXT},
    426: {"Upgrade": _TEXT},
    429: {"Retry-After": _SECONDS, "RateLimit-Policy": _TEXT, "RateLimit": _TEXT},
    503: {"Retry-After": _SECONDS},
}
_ETAG: Final = {
    "ETag": {
        "description": "epoch and offset of the board: what is ranked, and not how many watch",
        "schema": {"type": "string"},
    }
}
_ONCE: Final = "The same key and body gives the same answer, and counts once; another body with it is refused."
_BINARY: Final = "CloudEvents' binary mode, percent-encoded; needed in that mode: {}"
_STRUCTS: Final = (
    Event, CloudEvent, Answer, BoardList, BoardPage, RecordView, RecordList, Standing, Trail, RunningChoice,
    Visibility,
    ProblemBody,
)  # fmt: skip


@cache
def openapi_document() -> Json:
    """What `/openapi.json` serves."""
    components = _components()
    board = _parameter("board", "path", {"type": "string"})
    limit = _parameter("limit", "query", {"type": "integer", "minimum": 1, "default": 100})
    cursor = _parameter("cursor", "query", {"type": "string"}, "`next_cursor` or `prev_cursor` of an earlier page")
    begin = {"type": "integer", "minimum": 0, "maximum": 10**9 - 1, "default": 0}
    start = _parameter("start", "query", begin, "how many records to pass over; a cursor goes on exactly")
    exact = {"type": "integer", "minimum": -MAX_SCORE, "maximum": MAX_SCORE}
    score = _parameter("score", "query", exact, "the page around the place that this score has, or would have")
    named = {"type": "string", "default": "current", "examples": ["previous", *EXAMPLES.values()]}
    period = _parameter("period", "query", named, "of a board with a ranking for each period")
    several = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 100}
    keys = {**_parameter("key", "query", several, "given once for each"), "required": True}
    key = _parameter("key", "path", {"type": "string"}, "percent-encoded")
    around = _parameter("around", "query", {"type": "integer", "minimum": 0, "maximum": 100, "default": 0})
    known = _parameter("If-None-Match", "header", {"type": "string"}, "`ETag` of an earlier answer")
    until = {"type": "string", "examples": ["30s"]}
    wait = _parameter("wait", "query", until, "answer when the top is another than `If-None-Match` says; up to 60s")
    watched = [_parameter(name, "query", schema, meaning) for name, (schema, meaning) in WATCHING.items()]
    last = _parameter("Last-Event-ID", "header", {"type": "string"}, "`id` of the last event, for one who comes back")
    boards = _operation("listBoards", "Every board.", _answer(BoardList), ())
    one = _operation(
        "getBoard", "One page of a board.", _answer(BoardPage, _ETAG), _WAITING,
        board, limit, start, cursor, score, period, known, wait,
    )  # fmt: skip
    records = _operation(
        "listRecords", "The records of some keys; those that have none are left out.", _answer(RecordList), _RECORDS,
        board, keys, period,
    )  # fmt: skip
    record = _operation(
        "getRecord", "One record with its neighbours.", _answer(RecordView, _ETAG), _RECORD,
        board, key, around, period, known,
    )  # fmt: skip
    standing = _operation("getStanding", "One key on every board that it is on.", _answer(Standing), (), key)
    deeds = _parameter("limit", "query", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100})
    trail = _operation("getTrail", "Who changed which boards.", _answer(Trail), _ADMIN | {"parameter_invalid"}, deeds)
    live = _operation("watchBoard", "A WebSocket; see /asyncapi.json.", _upgraded(), _LIVE, board, *watched)
    stream = _operation(
        "streamBoard", "The same as server-sent events; see /asyncapi.json.", _streamed(), _WATCHING,
        board, *watched, last,
    )  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": INFO,
        "paths": {
            "/v1/events": {"post": _post(components["CloudEvent"]), "options": _options()},
            "/v1/boards": {"get": boards},
            "/v1/boards/{board}": {"get": one, **_changes(board)},
            "/v1/boards/{board}/records": {"get": records},
            "/v1/boards/{board}/records/{key}": {"get": record, **_record_changes(board, key)},
            "/v1/records/{key}": {"get": standing},
            "/v1/boards/{board}/live": {"get": live},
            "/v1/boards/{board}/stream": {"get": stream},
            "/v1/trail": {"get": _keyed(trail)},
        },
        "components": {
            "schemas": components,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "`<id>.<secret>`, as `live keys add` prints"}
            },
        },
    }


def _components() -> Json:
    """The schemas of the structs, with what their types can't say."""
    _, components = msgspec.json.schema_components(_STRUCTS, ref_template=REFERENCE)
    components["ProblemBody"]["properties"]["code"]["enum"] = list(PROBLEMS)
    components["Rejection"]["properties"]["code"]["enum"] = list(REFUSALS)
    choices = components["RunningChoice"]  # the id is in the path
    del choices["properties"]["id"]
    choices["required"].remove("id")
    components["CloudEvent"]["propertyNames"] = {"pattern": "^([a-z0-9]+|data_base64)$"}
    return components


def _post(cloudevent: Json) -> Json:
    event, structured = _reference(Event), _reference(CloudEvent)
    once = _parameter("Idempotency-Key", "header", {"type": "string", "minLength": 1, "maxLength": 255}, _ONCE)
    summary = f"Count events; answered when they are durable. Refusals: {', '.join(REFUSALS)}."
    attributes = [
        _parameter(f"ce-{name}", "header", schema, _BINARY.format("yes" if name in cloudevent["required"] else "no"))
        for name, schema in cloudevent["properties"].items()
    ]
    post = _operation("postEvents", summary, _answer(Answer), _POSTING, once, *attributes)
    post["security"] = [{}, {"key": []}]
    post["requestBody"] = {
        "required": True,
        "description": "Also with `Content-Encoding: gzip`. In CloudEvents' binary mode the body may be of any type.",
        "content": {
            "application/json": {"schema": {"anyOf": [event, {"type": "array", "items": event}]}},
            "application/x-ndjson": {"schema": {"type": "string", "description": "an event a line"}},
            "application/cloudevents+json": {"schema": structured},
            "application/cloudevents-batch+json": {"schema": {"type": "array", "items": structured}},
        },
    }
    return post


def _changes(board: Json) -> Json:
    """What makes, changes and removes a board while the server runs."""
    shown = _answer(BoardSummary)
    made = {"201": {**shown["200"], "description": "Made", "headers": {"Location": _TEXT}}, **shown}
    put = _operation("putBoard", "Make a board, or give it other choices.", made, _CHANGING - _BOARD, board)
    patch = _operation("patchBoard", "Change some choices; null takes one back.", shown, _CHANGING, board)
    gone = {"204": {"description": "It is gone, with everything it owned"}}
    delete = _operation("deleteBoard", "Remove a board.", gone, _REMOVING, board)
    put["requestBody"] = {"required": True, "content": {"application/json": {"schema": _reference(RunningChoice)}}}
    some = {"schema": {"type": "object"}}
    patch["requestBody"] = {
        "required": True, "content": {"application/merge-patch+json": some, "application/json": some}
    }  # fmt: skip
    return {"put": _keyed(put), "patch": _keyed(patch), "delete": _keyed(delete)}


def _record_changes(board: Json, key: Json) -> Json:
    """What registers, withdraws, hides and shows a record."""
    done = {"204": {"description": "Done"}}
    own = _ADMIN | _BOARD | {"record_invalid", "body_too_large"}
    made = {"201": {"description": "Registered"}, **done}
    put = _operation("putRecord", "Register a key for a contest.", made, own | {"board_open_to_all"}, board, key)
    patch = _operation("patchRecord", "Hide a record, or show it again.", done, own, board, key)
    contest = own | {"board_open_to_all", "record_not_found", "record_voted"}
    delete = _operation("deleteRecord", "Withdraw a registered key without votes.", done, contest, board, key)
    put["requestBody"] = {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
    patch["requestBody"] = {"required": True, "content": {"application/json": {"schema": _reference(Visibility)}}}
    return {"put": _keyed(put), "patch": _keyed(patch), "delete": _keyed(delete)}


def _keyed(operation: Json) -> Json:
    """An operation for keys with the verb `admin`; on a server of this machine alone that has no keys, for anybody."""
    return {**operation, "security": [{}, {"key": []}]}


def _options() -> Json:
    """The handshake of CloudEvents web hooks."""
    asked = [
        _parameter("WebHook-Request-Origin", "header", {"type": "string"}, "a DNS name, or an origin"),
        _parameter("WebHook-Request-Rate", "header", {"type": "integer", "minimum": 1}, "requests a minute"),
        _parameter(
            "WebHook-Request-Callback", "header", {"type": "string"}, "Not called; the answer is given at once."
        ),
    ]
    rate = {"type": "string", "pattern": r"^([1-9][0-9]*|\*)$"}
    granted = {
        "Allow": _TEXT,
        "WebHook-Allowed-Origin": {"description": "what was asked for; left out, it is not granted", **_TEXT},
        "WebHook-Allowed-Rate": {"description": "requests a minute; `*` is no limit", "schema": rate},
    }
    answer = {"200": {"description": "What is granted, in the headers", "headers": granted}}
    return _operation("greetWebHook", "The handshake of CloudEvents web hooks.", answer, (), *asked)


def _operation(name: str, summary: str, answer: Json, problems: Iterable[str], *parameters: Json) -> Json:
    """An operation that answers as asked, or with one of its problems, or with one that any request may meet."""
    own = _ANY.union(problems)
    return {
        "operationId": name,
        "summary": summary,
        "parameters": list(parameters),
        "responses": {**answer, **_refusals(code for code in PROBLEMS if code in own)},
    }


def _refusals(codes: Iterable[str]) -> Json:
    by_status: dict[int, list[str]] = {}
    for code in codes:
        by_status.setdefault(PROBLEMS[code].status, []).append(code)
    content = {"application/problem+json": {"schema": _reference(ProblemBody)}}
    return {
        str(status): {"description": ", ".join(of), "content": content, "headers": _HEADERS.get(status, {})}
        for status, of in by_status.items()
    }


def _answer(struct: type, headers: Json | None = None) -> Json:
    """A document as asked for; one that has a tag need not be sent again."""
    content = {"application/json": {"schema": _reference(struct)}}
    answer: Json = {"200": {"description": "As asked", "content": content, "headers": headers or {}}}
    if headers is not None:
        answer["304"] = {"description": "Nothing has changed", "headers": headers}
    return answer


def _upgraded() -> Json:
    return {"101": {"description": "The connection is a WebSocket now"}}


def _streamed() -> Json:
    content = {
        "text/event-stream": {"schema": {"type": "string", "description": "the type of a message is its `event`"}}
    }
    return {"200": {"description": "Goes on until the board is removed, or the server stops", "content": content}}


def _reference(struct: type) -> Json:
    return {"$ref": REFERENCE.format(name=struct.__name__)}


def _parameter(name: str, place: str, schema: Json, description: str | None = None) -> Json:
    parameter = {"name": name, "in": place, "required": place == "path", "schema": schema}
    return parameter if description is None else {**parameter, "description": description}
