"""The HTTP contract as OpenAPI 3.1, made from the structs of requests and responses and from the tables of errors."""

from collections.abc import Mapping
from functools import cache
from typing import Final

from live import __version__
from live.boards.definition import RunningChoice
from live.domain.cloudevent import CloudEvent
from live.domain.event import MAX_SCORE, Answer, IncomingEvent
from live.domain.item import Item
from live.errors import REFUSALS
from live.ingest.replies import ProblemBody
from live.web.contract.board_document import BoardPage
from live.web.contract.openapi_pages import page_operations
from live.web.contract.operations import (
    ADMIN,
    AS_OF,
    ASKING,
    BOARD,
    CHANGING,
    COUNT,
    ENTERING,
    EXPLAIN,
    ITEMS,
    KEYED,
    OF_BOARD,
    OF_KEY,
    PAGE,
    PAST,
    PERIOD,
    POSTING,
    RECORD,
    RECORDS,
    REMOVING,
    SOCKET,
    TEXT,
    TIME,
    UPGRADING,
    WATCHING,
    body_of,
    document,
    done,
    json_of,
    names_in,
    operation,
    parameter,
    tagged,
    text,
)
from live.web.contract.schemas import Json, contract_components, listed, reference
from live.web.reads.baseline import BaselineView
from live.web.reads.boards import BoardList, BoardSummary
from live.web.reads.history import MAX_MEMBERS as MOST_HISTORIES
from live.web.reads.history import MAX_STEPS, Explanation, HistoryList
from live.web.reads.items import MOST_READ, MOST_WRITTEN, ItemChanges, ItemChoice, ItemList
from live.web.reads.records import MemberRecords, RecordList, RecordView, Visibility
from live.web.reads.slots import DEFAULT_SLOTS, MAX_MEMBERS, MAX_SLOTS, SlotList
from live.web.writes.admin import AuditLog
from live.web.writes.likes import Liked

INFO: Final = {
    "title": "Live Board",
    "version": __version__,
    "description": "Producers post events. The server keeps an exact ranking and sends every change to every viewer.",
    "contact": {"name": "Live Board"},
    "license": {"name": "MIT", "identifier": "MIT"},
}
KEY_SCHEME: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key, `<id>.<secret>`, as `live keys add` prints it.",
}
_TAGS: Final[Mapping[str, str]] = {
    "events": "Post events.",
    "boards": "Read boards. No API key is needed.",
    "records": "Read records. No API key is needed.",
    "live": "Watch boards. No API key is needed.",
    "administration": "Change boards and records. This needs an API key with the verb `admin`.",
    "pages": "HTML pages for people.",
    "operations": "Health and metrics for operators.",
    "documents": "Descriptions of this API.",
}

# What a viewer may ask for, on the live route and on the stream: schema and meaning of each parameter.
WATCHED: Final[Mapping[str, tuple[Json, str]]] = {
    "limit": ({"type": "integer", "minimum": 1, "default": 50}, "Number of records to watch."),
    "interval": ({"type": "string", "examples": ["1s"]}, "Minimum time between two updates, up to 60s."),
    "epoch": ({"type": "string", "maxLength": 64}, "`epoch` of the last message, to resume."),
    "offset": ({"type": "integer", "minimum": 0}, "`offset` of the last message, to resume."),
    "key": ({"type": "string"}, "A member whose rank is sent in `around` messages."),
    "around": (
        {"type": "integer", "minimum": 0, "maximum": 50, "default": 0},
        "Number of neighbours of the member on each side.",
    ),
    "at": ({"type": "string", "format": "date-time"}, "Watch the board from this time on. Needs a journal."),
    "speed": (
        {"type": "number", "minimum": 0.1, "maximum": 100, "default": 1},
        "How fast the messages after `at` follow.",
    ),
    "delay": ({"type": "string", "examples": ["45s"]}, "Watch the board as it was this long ago. Needs a journal."),
}

_SLOTS: Final = parameter(
    "limit", "query", {"type": "integer", "minimum": 1, "maximum": MAX_SLOTS, "default": DEFAULT_SLOTS},
    "Number of slots.",
)  # fmt: skip
_KNOWN: Final = parameter("If-None-Match", "header", {"type": "string"}, "`ETag` of an earlier response.")
_WATCHED: Final = [parameter(name, "query", *options) for name, options in WATCHED.items()]
_STRUCTS: Final = (
    IncomingEvent, CloudEvent, Answer, BoardList, BoardPage, SlotList, BaselineView, RecordView, RecordList,
    MemberRecords, AuditLog, RunningChoice, Visibility, Item, ItemChoice, ItemChanges, ItemList, HistoryList,
    Explanation, Liked, ProblemBody,
)  # fmt: skip


@cache
def openapi_document() -> Json:
    """The document at `/openapi.json`."""
    components = contract_components(_STRUCTS)
    return {
        "openapi": "3.1.0",
        "info": INFO,
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": meaning} for name, meaning in _TAGS.items()],
        "paths": {
            "/v1/events": {"post": _post_events(components["CloudEvent"]), "options": _greet_webhook()},
            "/v1/boards": {"get": _list_boards()},
            "/v1/boards/{board}": {"get": _get_board(), **_board_changes()},
            "/v1/boards/{board}/records": {"get": _list_records()},
            "/v1/boards/{board}/records/{key}": {"get": _get_record(), **_record_changes()},
            "/v1/records/{key}": {"get": _get_member_records()},
            "/v1/boards/{board}/records/{key}/slots": {"get": _get_slots()},
            "/v1/boards/{board}/slots": {"get": _list_slots()},
            **_past_operations(),
            "/v1/boards/{board}/baseline": {"get": _get_baseline()},
            **_item_operations(),
            "/v1/boards/{board}/live": {"get": _watch_board()},
            "/v1/boards/{board}/stream": {"get": _stream_board()},
            "/v1/trail": {"get": _get_audit_log()},
            **page_operations(),
            **_operations(),
        },
        "components": {
            "schemas": components,
            "securitySchemes": {"key": KEY_SCHEME},
        },
    }


@cache
def query_names(path: str, method: str) -> frozenset[str]:
    """The query parameters of an operation, according to the document."""
    operation = openapi_document()["paths"].get(path, {}).get(method.lower(), {})
    return names_in(operation.get("parameters", ()), "query")


def _list_boards() -> Json:
    return operation(
        "listBoards", "boards", "List all boards.", "All boards with their definitions.", document(BoardList), ASKING
    )


def _get_board() -> Json:
    begin = {"type": "integer", "minimum": 0, "maximum": 10**9 - 1, "default": 0}
    exact = {"type": "integer", "minimum": -MAX_SCORE, "maximum": MAX_SCORE}
    return operation(
        "getBoard", "boards", "Read one page of a board.",
        "The top of the board, the page after a cursor, or the page around a score.",
        tagged(BoardPage), PAGE, OF_BOARD,
        parameter("limit", "query", COUNT, "Maximum number of records."),
        parameter("start", "query", begin, "Number of records to skip. Use a cursor to continue exactly."),
        parameter("cursor", "query", {"type": "string"}, "`next_cursor` or `prev_cursor` of an earlier page."),
        parameter("score", "query", exact, "Return the page around the place that this score has or would have."),
        PERIOD, _KNOWN,
        parameter("wait", "query", {"type": "string", "examples": ["30s"]},
                  "Wait until the top differs from `If-None-Match`, up to this time. At most 60s."),
        AS_OF,
    )  # fmt: skip


def _list_records() -> Json:
    several = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 100}
    keys = {**parameter("key", "query", several, "Repeat it for each member."), "required": True}
    return operation(
        "listRecords", "records", "Read the records of several members.",
        "Members that are not on the board are omitted.", document(RecordList), RECORDS, OF_BOARD, keys, PERIOD,
    )  # fmt: skip


def _get_record() -> Json:
    around = {"type": "integer", "minimum": 0, "maximum": 100, "default": 0}
    return operation(
        "getRecord", "records", "Read one record with its neighbours.",
        "Its score and rank, and the gap to the next rank.", _record_or_explanation(), RECORD, OF_BOARD, OF_KEY,
        parameter("around", "query", around, "Number of neighbours on each side."), PERIOD, _KNOWN, AS_OF, EXPLAIN,
    )  # fmt: skip


def _record_or_explanation() -> Json:
    answer = tagged(RecordView)
    schemas: list[Json] = [reference(RecordView), reference(Explanation)]
    answer["200"]["content"]["application/json"]["schema"] = {"anyOf": schemas}
    return answer


def _list_slots() -> Json:
    several = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_MEMBERS}
    return operation(
        "listSlots", "boards", "Read scores by slot.",
        "The scores of members in each of the newest slots of the window, the oldest slot first. Without `key`, the "
        "members are the first 100 of the board, read once for each new slot.",
        document(SlotList), BOARD, OF_BOARD,
        parameter("key", "query", several, "Repeat it for each member."), _SLOTS,
    )  # fmt: skip


def _get_slots() -> Json:
    return operation(
        "getSlots", "records", "Read the scores of one member by slot.",
        "The score of the member in each of the newest slots of the window, the oldest slot first.",
        document(SlotList), RECORD - {"period_not_found"}, OF_BOARD, OF_KEY, _SLOTS,
    )  # fmt: skip


def _get_baseline() -> Json:
    return operation(
        "getBaseline", "boards", "Read the ranks at the start of the hour.",
        "The same for everyone. Compare them with the current ranks to see who moved.",
        document(BaselineView), BOARD, OF_BOARD,
    )  # fmt: skip


def _get_member_records() -> Json:
    return operation(
        "getStanding", "records", "Read the records of one member on all boards.",
        "Boards without the member are omitted.", document(MemberRecords), ASKING, OF_KEY,
    )  # fmt: skip


def _watch_board() -> Json:
    return operation(
        "watchBoard", "live", "Watch a board over a WebSocket.",
        "Sends a `sync`, then `update`s. See /asyncapi.json.", SOCKET, WATCHING | UPGRADING, OF_BOARD, *_WATCHED,
    )  # fmt: skip


def _stream_board() -> Json:
    last = parameter("Last-Event-ID", "header", {"type": "string"}, "`id` of the last event, to resume.")
    return operation(
        "streamBoard", "live", "Watch a board as server-sent events.",
        "The same messages as on the WebSocket. `event` is the type of a message. See /asyncapi.json.",
        text("text/event-stream", "A stream that ends when the board is deleted or the server shuts down."), WATCHING,
        OF_BOARD, *_WATCHED, last,
    )  # fmt: skip


_READY: Final[Json] = {
    "type": "object",
    "properties": {
        "status": {"type": "string"},
        "journal": {"type": "string", "enum": ["ok", "degraded"]},
        "reasons": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["status"],
}


def _operations() -> Json:
    """Health, metrics and documents."""
    state = {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]}
    well = {"200": {"description": "The process is healthy.", "content": json_of(state)}}
    able = {"200": {"description": "The process can count and serve.", "content": json_of(_READY)}}
    contract = {"200": {"description": "The document.", "content": json_of({"type": "object"})}}
    metrics = text("text/plain", "Metrics in the Prometheus text format.")
    page = text("text/html", "A page.")
    pages = {
        "/healthz": (
            "getHealth",
            "operations",
            "Check that the process runs.",
            "It returns 200 while the process runs.",
            well,
        ),
        "/readyz": ("getReadiness", "operations", "Check that the process can count.", "It writes to the store.", able),
        "/metrics": ("getMetrics", "operations", "Read the metrics.", "No API key is needed.", metrics),
        "/openapi.json": (
            "getOpenapi",
            "documents",
            "Read the OpenAPI document.",
            "This API as OpenAPI 3.1.",
            contract,
        ),
        "/asyncapi.json": (
            "getAsyncapi",
            "documents",
            "Read the AsyncAPI document.",
            "The messages on sockets as AsyncAPI 3.0.",
            contract,
        ),
        "/docs": ("showReference", "documents", "Show the API reference.", "This document as a page.", page),
    }
    paths = {path: {"get": operation(*parts, (), is_page=True)} for path, parts in pages.items()}
    for status in ("500", "503"):
        paths["/readyz"]["get"]["responses"][status]["content"] = json_of(_READY)
    return paths


_SPAN: Final = (
    parameter("from", "query", TIME, "The first time. By default a day before `to`."),
    parameter("to", "query", TIME, "The last time. By default now."),
    parameter("step", "query", {"type": "string", "default": "1h"},
              f"The time between two steps, such as `5m` or `1d`. At most {MAX_STEPS} steps."),
)  # fmt: skip


def _past_operations() -> Json:
    """The histories of records."""
    several = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MOST_HISTORIES}
    keys = {**parameter("key", "query", several, "Repeat it for each member."), "required": True}
    one = operation(
        "getHistory", "records", "Read how a record moved.",
        "Its score and rank at each time, null where it was not on the board. This needs a journal.",
        document(HistoryList), RECORD - {"period_not_found", "record_not_found"} | PAST,
        OF_BOARD, OF_KEY, *_SPAN,
    )  # fmt: skip
    some = operation(
        "listHistory", "boards", "Read how some records moved.",
        "The same for several members.", document(HistoryList), BOARD | PAST, OF_BOARD, keys, *_SPAN,
    )  # fmt: skip
    return {
        "/v1/boards/{board}/records/{key}/history": {"get": one},
        "/v1/boards/{board}/history": {"get": some},
    }


def _item_operations() -> Json:
    """Reads, writes and deletes titles."""
    return {
        "/v1/items": {"get": _list_items(), "put": _put_items()},
        "/v1/items/{key}": {"get": _get_item(), "put": _put_item(), "delete": _delete_item()},
    }


def _list_items() -> Json:
    several = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MOST_READ}
    keys = {**parameter("key", "query", several, "Repeat it for each member."), "required": True}
    return operation(
        "listItems", "records", "Read the titles of several members.",
        "Members without a title are omitted. The response is at most a second old.", document(ItemList), ASKING, keys,
    )  # fmt: skip


def _get_item() -> Json:
    return operation(
        "getItem", "records", "Read the title of a member.", "With its link and its picture, if it has them.",
        document(Item), ASKING | {"item_not_found"}, OF_KEY,
    )  # fmt: skip


def _put_items() -> Json:
    put = operation(
        "putItems", "administration", "Give several members titles.",
        f"Up to {MOST_WRITTEN:,} of them: all, or none if one is invalid.", done(204, "The titles are stored."),
        ADMIN | ITEMS, security=KEYED,
    )  # fmt: skip
    put["requestBody"] = body_of(reference(ItemChanges), "application/json")
    return put


def _put_item() -> Json:
    put = operation(
        "putItem", "administration", "Give a member a title.",
        "Pages show it instead of the member, on all boards. The API key must not be limited to some boards.",
        done(204, "The title is stored."), ADMIN | ITEMS, OF_KEY, security=KEYED,
    )  # fmt: skip
    put["requestBody"] = body_of(reference(ItemChoice), "application/json")
    return put


def _delete_item() -> Json:
    return operation(
        "deleteItem", "administration", "Delete the title of a member.", "It also succeeds if there is none.",
        done(204, "The member has no title."), ADMIN, OF_KEY, security=KEYED,
    )  # fmt: skip


def _get_audit_log() -> Json:
    """The audit log."""
    limit = parameter("limit", "query", {**COUNT, "maximum": 1000}, "Maximum number of entries.")
    return operation(
        "getTrail", "administration", "Read the audit log.",
        "Changes of the boards that the API key includes, newest first.", document(AuditLog), ADMIN, limit,
        security=KEYED,
    )  # fmt: skip


def _board_changes() -> Json:
    """Creates, changes and deletes a run-time board."""
    shown = document(BoardSummary)
    made = {"201": {**shown["200"], "description": "Created.", "headers": {"Location": TEXT}}, **shown}
    put = operation(
        "putBoard", "administration", "Create a board, or replace its choices.",
        "Omitted choices get their defaults.", made,
        CHANGING - {"board_not_found"} | {"too_many_boards"}, OF_BOARD, security=KEYED,
    )  # fmt: skip
    patch = operation(
        "patchBoard", "administration", "Change some choices of a board.",
        "Omitted choices stay unchanged.", shown, CHANGING, OF_BOARD, security=KEYED,
    )  # fmt: skip
    delete = operation(
        "deleteBoard", "administration", "Delete a board.", "This deletes everything that the board owns.",
        done(204, "The board is deleted."), REMOVING, OF_BOARD, security=KEYED,
    )  # fmt: skip
    put["requestBody"] = body_of(reference(RunningChoice), "application/json")
    patch["requestBody"] = body_of(reference("BoardPatch"), "application/merge-patch+json", "application/json")
    return {"put": put, "patch": patch, "delete": delete}


def _record_changes() -> Json:
    """Registers, withdraws, hides and shows a record."""
    own = ENTERING - {"record_not_found", "record_voted", "board_open_to_all"} | {"malformed_body", "body_too_large"}
    put = operation(
        "putRecord", "administration", "Register a contestant.", "Or replace the metadata of a contestant.",
        {**done(201, "The member is registered."), **done(204, "The metadata is replaced.")},
        own | {"board_open_to_all", "too_many_members"}, OF_BOARD, OF_KEY, security=KEYED,
    )  # fmt: skip
    patch = operation(
        "patchRecord", "administration", "Hide a record, or show it again.", "A hidden record keeps counting.",
        done(204, "The record is hidden or shown."), own, OF_BOARD, OF_KEY, security=KEYED,
    )  # fmt: skip
    delete = operation(
        "deleteRecord", "administration", "Withdraw a contestant.", "A contestant with votes can't be withdrawn.",
        done(204, "The contestant is withdrawn."), ENTERING, OF_BOARD, OF_KEY, security=KEYED,
    )  # fmt: skip
    put["requestBody"] = body_of(reference("Metadata"), "application/json")
    patch["requestBody"] = body_of(reference(Visibility), "application/json")
    return {"put": put, "patch": patch, "delete": delete}


_BINARY: Final = "An attribute of a CloudEvent in binary mode, percent-encoded. {} in this mode. {}"
_BODIES: Final = """The `Content-Type` selects the form of the body:

- `application/json`: one event, or an array of them.
- `application/x-ndjson`: one event on each line.
- `application/cloudevents+json`: one CloudEvent.
- `application/cloudevents-batch+json`: an array of CloudEvents.

With `ce-…` headers, the request is a CloudEvent in binary mode, and the body may have any type.
Each form may use `Content-Encoding: gzip`."""


def _post_events(cloudevent: Json) -> Json:
    """Posts events. `cloudevent` is the schema of a CloudEvent."""
    event, structured = reference(IncomingEvent), reference(CloudEvent)
    once = parameter(
        "Idempotency-Key", "header", {"type": "string", "minLength": 1, "maxLength": 255},
        "Requests with the same value and body return the same response and count once. Another body is refused.",
    )  # fmt: skip
    attributes = [
        parameter(
            f"ce-{name}", "header", {"type": "string"},
            _BINARY.format("Required" if name in cloudevent["required"] else "Optional", schema["description"]),
        )
        for name, schema in cloudevent["properties"].items()
    ]  # fmt: skip
    post = operation(
        "postEvents", "events", "Post events.",
        "The server responds after the store has synced the events to disk. A wrong event is refused by its index; the "
        "others count.\n\n"
        f"These codes say why an event is refused:\n\n{listed(REFUSALS)}",
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


def _greet_webhook() -> Json:
    """The CloudEvents webhook handshake."""
    headers = [
        parameter("WebHook-Request-Origin", "header", {"type": "string"}, "A DNS name, or an origin."),
        parameter("WebHook-Request-Rate", "header", {"type": "integer", "minimum": 1}, "Requests per minute."),
        parameter("WebHook-Request-Callback", "header", {"type": "string"}, "Never called."),
    ]
    rate = {"type": "string", "pattern": r"^([1-9][0-9]*|\*)$"}
    granted = {
        "Allow": TEXT,
        "WebHook-Allowed-Origin": {
            "description": "The requested origin. Without this header, the request is not granted.",
            **TEXT,
        },
        "WebHook-Allowed-Rate": {"description": "Requests per minute; `*` means no limit.", "schema": rate},
    }
    return operation(
        "greetWebHook", "events", "Answer a webhook handshake.",
        "The CloudEvents webhook handshake. It grants no access: events still need an API key.",
        done(200, "The headers say what is granted.", granted), ASKING, *headers,
    )  # fmt: skip
