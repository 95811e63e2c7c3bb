"""The HTTP contract as OpenAPI 3.1, made from the structs that decode and encode, and from the tables of errors."""

from collections.abc import Mapping
from functools import cache
from typing import Final

from live import __version__
from live.boards.definition import RunningChoice
from live.domain.calendar import EXAMPLES
from live.domain.cloudevent import CloudEvent
from live.domain.event import MAX_SCORE, Event
from live.errors import REFUSALS
from live.ingest.posting import Answer
from live.ingest.replies import ProblemBody
from live.web.board_changes import Trail
from live.web.boards import BoardList, BoardPage
from live.web.describing import (
    ASKING,
    COUNT,
    KEYED,
    OF_BOARD,
    OF_KEY,
    PAGE,
    POSTING,
    RECORD,
    RECORDS,
    TEXT,
    UPGRADING,
    WATCHING,
    document,
    done,
    json_of,
    names_in,
    operation,
    parameter,
    tagged,
    text,
)
from live.web.openapi_admin import board_changes, get_trail, record_changes
from live.web.record_changes import Visibility
from live.web.records import RecordList, RecordView, Standing
from live.web.schemas import Json, contract_components, listed, reference

INFO: Final = {
    "title": "Live Board",
    "version": __version__,
    "description": "Producers post events; a ranking over a window is kept exact; every change reaches every viewer.",
    "contact": {"name": "Live Board"},
    "license": {"name": "MIT", "identifier": "MIT"},
}
_TAGS: Final[Mapping[str, str]] = {
    "events": "Producers post events.",
    "boards": "Everybody reads boards.",
    "records": "Everybody reads records.",
    "live": "Everybody watches boards.",
    "administration": "API keys with the verb `admin` change boards and records.",
    "pages": "People look at boards.",
    "operations": "Operators ask how the process fares.",
    "documents": "Programs read the contract.",
}

# What a viewer may ask for, on the live route and on the stream: schema and meaning of each parameter.
WATCHED: Final[Mapping[str, tuple[Json, str]]] = {
    "limit": ({"type": "integer", "minimum": 1, "default": 50}, "How many records to watch."),
    "interval": ({"type": "string", "examples": ["1s"]}, "Least time between two updates, up to 60s."),
    "epoch": ({"type": "string", "maxLength": 64}, "`epoch` of the last message, for a viewer that comes back."),
    "offset": ({"type": "integer", "minimum": 0}, "`offset` of the last message, for a viewer that comes back."),
    "key": ({"type": "string"}, "A key whose place is told in `around` messages."),
    "around": (
        {"type": "integer", "minimum": 0, "maximum": 50, "default": 0},
        "How many neighbours of the key are told on each side.",
    ),
}

_PERIOD: Final = parameter(
    "period", "query", {"type": "string", "default": "current", "examples": ["previous", *EXAMPLES.values()]},
    "Which period of a board with a ranking for each.",
)  # fmt: skip
_KNOWN: Final = parameter("If-None-Match", "header", {"type": "string"}, "`ETag` of an earlier answer.")
_WATCHED: Final = [parameter(name, "query", *asked) for name, asked in WATCHED.items()]
_SOCKET: Final = done(101, "The connection is a WebSocket now.")
_BINARY: Final = "An attribute of a CloudEvent in binary mode, percent-encoded. {} in that mode. {}"
_BODIES: Final = """The `Content-Type` says how the events come:

- `application/json`: one event, or an array of them.
- `application/x-ndjson`: one event on each line.
- `application/cloudevents+json`: one CloudEvent.
- `application/cloudevents-batch+json`: an array of CloudEvents.

With the header fields `ce-…` it is a CloudEvent in binary mode, and the body may be of any type.
`Content-Encoding: gzip` goes with each of them."""
_STRUCTS: Final = (
    Event, CloudEvent, Answer, BoardList, BoardPage, RecordView, RecordList, Standing, Trail, RunningChoice,
    Visibility, ProblemBody,
)  # fmt: skip


@cache
def openapi_document() -> Json:
    """What `/openapi.json` serves."""
    components = contract_components(_STRUCTS)
    return {
        "openapi": "3.1.0",
        "info": INFO,
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": meaning} for name, meaning in _TAGS.items()],
        "paths": {
            "/v1/events": {"post": _post(components["CloudEvent"]), "options": _options()},
            "/v1/events/live": {"get": _producer_socket()},
            "/v1/boards": {"get": _list_boards()},
            "/v1/boards/{board}": {"get": _get_board(), **board_changes()},
            "/v1/boards/{board}/records": {"get": _list_records()},
            "/v1/boards/{board}/records/{key}": {"get": _get_record(), **record_changes()},
            "/v1/records/{key}": {"get": _get_standing()},
            "/v1/boards/{board}/live": {"get": _watch_board()},
            "/v1/boards/{board}/stream": {"get": _stream_board()},
            "/v1/trail": {"get": get_trail()},
            **_pages(),
            **_operations(),
        },
        "components": {
            "schemas": components,
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key, `<id>.<secret>`, as `live keys add` prints it.",
                }
            },
        },
    }


@cache
def query_names(path: str, method: str) -> frozenset[str]:
    """The query parameters that an operation takes, by the document; none of what it does not name."""
    told = openapi_document()["paths"].get(path, {}).get("get" if method == "HEAD" else method.lower(), {})
    return names_in(told.get("parameters", ()), "query")


def _post(cloudevent: Json) -> Json:
    event, structured = reference(Event), reference(CloudEvent)
    once = parameter(
        "Idempotency-Key", "header", {"type": "string", "minLength": 1, "maxLength": 255},
        "The same key and body gives the same answer, and counts once. Another body with this key is refused.",
    )  # fmt: skip
    attributes = [
        parameter(
            f"ce-{name}", "header", {"type": "string"},
            _BINARY.format("Required" if name in cloudevent["required"] else "Optional", schema["description"]),
        )
        for name, schema in cloudevent["properties"].items()
    ]  # fmt: skip
    post = operation(
        "postEvents", "events", "Count events.",
        "The answer comes when the events are durable. A wrong event is refused by its index, the others count.\n\n"
        f"An event is refused with one of these codes:\n\n{listed(REFUSALS)}",
        document(Answer), POSTING, once, *attributes, security=KEYED,
    )  # fmt: skip
    # Of several JSON types with arrays, generators make code that can't tell them apart: so CloudEvents are one range.
    post["requestBody"] = {
        "required": True,
        "description": _BODIES,
        "content": {
            **json_of({"anyOf": [event, {"type": "array", "items": event}]}),
            "application/x-ndjson": {"schema": {"type": "string", "description": "One event on each line."}},
            "application/*": {"schema": {"anyOf": [structured, {"type": "array", "items": structured}]}},
        },
    }
    return post


def _options() -> Json:
    """The handshake of CloudEvents web hooks."""
    asked = [
        parameter("WebHook-Request-Origin", "header", {"type": "string"}, "A DNS name, or an origin."),
        parameter("WebHook-Request-Rate", "header", {"type": "integer", "minimum": 1}, "Requests a minute."),
        parameter("WebHook-Request-Callback", "header", {"type": "string"}, "Never called."),
    ]
    rate = {"type": "string", "pattern": r"^([1-9][0-9]*|\*)$"}
    granted = {
        "Allow": TEXT,
        "WebHook-Allowed-Origin": {"description": "What was asked for. Left out, it is not granted.", **TEXT},
        "WebHook-Allowed-Rate": {"description": "Requests a minute; `*` is no limit.", "schema": rate},
    }
    return operation(
        "greetWebHook", "events", "Shake hands with a web hook.",
        "The handshake of CloudEvents web hooks. It grants no access: the events need their API key.",
        done(200, "What is granted, in the header fields.", granted), ASKING, *asked,
    )  # fmt: skip


def _producer_socket() -> Json:
    return operation(
        "sendEvents", "events", "Send events over a WebSocket.",
        "Each message is a JSON body of `POST /v1/events`, and gets the same answer. See /asyncapi.json.",
        _SOCKET, UPGRADING | ASKING | {
            "credentials_required", "credentials_invalid", "scope_forbidden", "origin_forbidden"
        },
        security=KEYED,
    )  # fmt: skip


def _list_boards() -> Json:
    return operation("listBoards", "boards", "List all boards.", "Every board.", document(BoardList), ASKING)


def _get_board() -> Json:
    begin = {"type": "integer", "minimum": 0, "maximum": 10**9 - 1, "default": 0}
    exact = {"type": "integer", "minimum": -MAX_SCORE, "maximum": MAX_SCORE}
    return operation(
        "getBoard", "boards", "Read one page of a board.",
        "The top of the board, the page behind a cursor, or the page around a score.",
        tagged(BoardPage), PAGE, OF_BOARD,
        parameter("limit", "query", COUNT, "Most records in the page."),
        parameter("start", "query", begin, "How many records to pass over; a cursor goes on exactly."),
        parameter("cursor", "query", {"type": "string"}, "`next_cursor` or `prev_cursor` of an earlier page."),
        parameter("score", "query", exact, "The page around the place that this score has, or would have."),
        _PERIOD, _KNOWN,
        parameter("wait", "query", {"type": "string", "examples": ["30s"]},
                  "Answer when the top differs from `If-None-Match`, or after this time, up to 60s."),
    )  # fmt: skip


def _list_records() -> Json:
    several = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 100}
    keys = {**parameter("key", "query", several, "Given once for each key."), "required": True}
    return operation(
        "listRecords", "records", "Read the records of some keys.",
        "Keys that are not on the board are left out.", document(RecordList), RECORDS, OF_BOARD, keys, _PERIOD,
    )  # fmt: skip


def _get_record() -> Json:
    around = {"type": "integer", "minimum": 0, "maximum": 100, "default": 0}
    return operation(
        "getRecord", "records", "Read one record with its neighbours.",
        "Score, rank, and what is missing to the rank above.", tagged(RecordView), RECORD, OF_BOARD, OF_KEY,
        parameter("around", "query", around, "How many neighbours on each side."), _PERIOD, _KNOWN,
    )  # fmt: skip


def _get_standing() -> Json:
    return operation(
        "getStanding", "records", "Read the records of one key on all boards.",
        "Boards that do not have the key are left out.", document(Standing), ASKING, OF_KEY,
    )  # fmt: skip


def _watch_board() -> Json:
    return operation(
        "watchBoard", "live", "Watch a board over a WebSocket.",
        "A `sync` first, then `update`s. See /asyncapi.json.", _SOCKET, WATCHING | UPGRADING, OF_BOARD, *_WATCHED,
    )  # fmt: skip


def _stream_board() -> Json:
    last = parameter("Last-Event-ID", "header", {"type": "string"}, "`id` of the last event, to come back.")
    return operation(
        "streamBoard", "live", "Watch a board as server-sent events.",
        "The messages of the WebSocket; `event` is the type of a message. See /asyncapi.json.",
        text("text/event-stream", "Goes on until the board is removed or the server stops."), WATCHING,
        OF_BOARD, *_WATCHED, last,
    )  # fmt: skip


def _pages() -> Json:
    """What people look at."""
    several = parameter("board", "path", {"type": "string"}, "Id of a board, or of up to six, comma-separated.")
    key = parameter("key", "query", {"type": "string"}, "A key whose place is told.")
    page = text("text/html", "A page.")
    index = operation("showIndex", "pages", "Show all boards.", "Each with its leaders.", page, (), is_page=True)
    board = operation(
        "showBoard", "pages", "Show a board, or several side by side.", "The page follows the boards live.",
        page, RECORDS, several, _PERIOD, key, is_page=True,
    )  # fmt: skip
    embedded = operation(
        "embedBoard", "pages", "Show a board in a frame of another page.", "The same without the site around it.",
        page, RECORDS, several, _PERIOD, key, is_page=True,
    )  # fmt: skip
    return {"/": {"get": index}, "/boards/{board}": {"get": board}, "/embed/{board}": {"get": embedded}}


def _operations() -> Json:
    """What operators and programs ask."""
    state = {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]}
    well = {"200": {"description": "The process is well.", "content": json_of(state)}}
    contract = {"200": {"description": "The document.", "content": json_of({"type": "object"})}}
    metrics = text("text/plain", "Metrics in the text format of Prometheus.")
    page = text("text/html", "A page.")
    told = {
        "/healthz": ("getHealth", "operations", "Ask whether the process runs.", "It does if it answers.", well),
        "/readyz": ("getReadiness", "operations", "Ask whether the process can count.", "It asks the store.", well),
        "/metrics": ("getMetrics", "operations", "Read the metrics.", "Everybody may read them.", metrics),
        "/openapi.json": ("getOpenapi", "documents", "Read the HTTP contract.", "As OpenAPI 3.1.", contract),
        "/asyncapi.json": ("getAsyncapi", "documents", "Read the messages on sockets.", "As AsyncAPI 3.0.", contract),
        "/docs": ("showReference", "documents", "Read the API reference.", "This contract, for people.", page),
    }
    return {path: {"get": operation(*parts, (), is_page=True)} for path, parts in told.items()}
