"""The operations of the server, by path and method: their handlers, and what the contract says of them."""

from typing import Final

from live.domain import views
from live.domain.choices import Choices
from live.domain.decoding import CloudEvent
from live.domain.event import Answer, IncomingEvent
from live.domain.item import Item
from live.maintenance.rules import RuleChange
from live.maintenance.void import Outcome
from live.store.board.write.correction import Corrected
from live.web.api import admin, boards, health, history, items, keys, records, stream
from live.web.contract.operation import (
    FORM,
    HTML,
    STRING,
    TEXT,
    Operation,
    Operations,
    body_of,
    document,
    done,
    header,
    json_of,
    made,
    tagged,
    text,
)
from live.web.contract.schemas import Json, reference
from live.web.pages import board as pages
from live.web.pages import likes, preferences, sharing, ticket
from live.web.pages import record as record_page
from live.web.pages.language import TAGS
from live.web.pages.preferences import BACK, THEMES
from live.web.pages.ticket import admitting

# The problems that operations can have, besides the problems of every request.
_ASKING: Final = frozenset({"parameter_invalid"})
_BOARD: Final = _ASKING | {"board_not_found"}
_RECORDS: Final = _BOARD | {"period_not_found"}
_PAST: Final = frozenset({"past_unavailable", "past_too_large"})
_RECORD: Final = _BOARD | _PAST | {"record_not_found"}
_PAGE: Final = _RECORDS | _PAST | {"cursor_invalid", "too_many_viewers", "stopping"}
_WATCHING: Final = _BOARD | {"origin_forbidden", "past_unavailable", "too_many_viewers", "stopping"}
_ADMIN: Final = _ASKING | {"credentials_required", "credentials_invalid", "origin_forbidden", "scope_forbidden"}
_BODY: Final = frozenset({"malformed_body", "body_too_large"})
_REMOVING: Final = _ADMIN | _BOARD | {"board_fixed", "outcome_unknown"}
_CHANGING: Final = _REMOVING | _BODY | {"unsupported_media_type", "board_invalid", "too_many_members"}
_ENTERING: Final = _ADMIN | _BOARD | {"record_invalid", "outcome_unknown"}
_ITEMS: Final = _ADMIN | _BODY | {"item_invalid", "too_many_items", "outcome_unknown"}
_KEYS: Final = _ADMIN | _BODY | {"api_key_invalid", "outcome_unknown"}
_POSTING: Final = _ADMIN | _BODY | {
    "idempotency_key_invalid", "too_many_events", "unsupported_media_type",
    "outcome_unknown", "overloaded", "journal_behind", "stopping",
}  # fmt: skip
_FORM: Final = _BODY | {"origin_forbidden", "unsupported_media_type"}
_LIKING: Final = _FORM | {
    "board_not_found", "record_not_found", "likes_not_allowed", "cookie_required", "likes_closed",
    "votes_used", "vote_unknown", "votes_fixed", "ticket_required", "like_refused",
    "outcome_unknown", "overloaded",
}  # fmt: skip

# Request bodies and responses that are not a single struct.
_BODIES: Final = """The `Content-Type` selects the form of the body:

- `application/json`: one event, or an array of events.
- `application/x-ndjson`: one event on each line.
- `application/cloudevents+json`: one CloudEvent.
- `application/cloudevents-batch+json`: an array of CloudEvents.

Each form may use `Content-Encoding: gzip`."""
_EVENT: Final = reference(IncomingEvent)
_CLOUD_EVENT: Final = reference(CloudEvent)
_EVENTS: Final = {
    "required": True,
    "description": _BODIES,
    "content": {
        **json_of({"anyOf": [_EVENT, {"type": "array", "items": _EVENT}]}),
        "application/x-ndjson": {"schema": {"type": "string", "description": "One event on each line."}},
        # If several media types have arrays, code generators can't tell them apart. So the media types of CloudEvents
        # share one range.
        "application/*": {"schema": {"anyOf": [_CLOUD_EVENT, {"type": "array", "items": _CLOUD_EVENT}]}},
    },
}
_REFUSED: Final = {**document(Answer)["200"], "description": "The request is strict, and an event is refused."}
_BOARD_SHOWN: Final = document(views.BoardSummary)
_BOARD_MADE: Final = {**_BOARD_SHOWN["200"], "description": "Created.", "headers": {"Location": TEXT}}
_ALIVE: Final[Json] = {
    "type": "object",
    "properties": {"status": STRING, "version": STRING, "commit": STRING},
    "required": ["status", "version", "commit"],
}
_READY: Final[Json] = {
    "type": "object",
    "properties": {
        "status": {"type": "string", "enum": ["ready", "degraded", "not_ready"]},
        "journal": {"type": "string", "enum": ["ok", "degraded"]},
        "reasons": {"type": "array", "items": STRING},
    },
    "required": ["status"],
}
_LIKE_FORM: Final = {
    "type": "object",
    "properties": {
        "key": {"type": "string", "description": "The member."},
        "replaces": {"type": "string", "description": "On a board with votes, the member whose vote is taken back."},
        "undo": {"type": "string", "description": "Instead of `key`: only take the vote for this member back."},
        "page": {"type": "string", "enum": ["record"], "description": "Whether to return to the page of the record."},
    },
}
_TICKET_FORM: Final = {"type": "object", "properties": {"code": STRING}, "required": ["code"]}
_PREFERENCES: Final = {
    "type": "object",
    "properties": {
        "theme": {"type": "string", "enum": list(THEMES)},
        "lang": {"type": "string", "enum": list(TAGS)},
        "back": {"type": "string", "pattern": f"^{BACK}$", "maxLength": 4096, "description": "The page to return to."},
    },
    "required": ["back"],
}
_SEE_BOARD: Final = done(303, "See the board.", "Location")
_ADMITTED: Final = done(303, "See the board.", "Location", "Set-Cookie")
_SEVERAL: Final = {"board": "Ids of up to six boards, comma-separated."}
_API_KEY: Final = {"key": "Id of the API key."}


# Processes of all roles serve these.
ALWAYS: Final[Operations] = {
    "/healthz": {"GET": Operation(
        health.get_health, "operations", {"200": {"description": "The process is healthy.", "content": json_of(_ALIVE)}}
    )},
    "/readyz": {"GET": Operation(
        health.get_readiness, "operations",
        {
            "200": {"description": "The process can count and serve.", "content": json_of(_READY)},
            # A process that is not ready says why in the same form.
            "500": {"content": json_of(_READY)},
            "503": {"content": json_of(_READY)},
        },
    )},
    "/metrics": {"GET": Operation(
        health.get_metrics, "operations", text("text/plain", "Metrics in the Prometheus text format."),
        {"credentials_required", "credentials_invalid", "scope_forbidden"},
    )},
    "/preferences": {"POST": Operation(
        preferences.choose_preferences, "pages", done(303, "See the page again.", "Location", "Set-Cookie"), _FORM,
        body_of(_PREFERENCES, FORM),
    )},
}  # fmt: skip
# Processes that count events serve these.
COUNTING: Final[Operations] = {
    "/v1/events": {"POST": Operation(
        stream.post_events, "events", {**document(Answer), "422": _REFUSED}, _POSTING, _EVENTS,
        fields=(
            header("Prefer", STRING, "`handling=strict` is the same as `strict=true`."),
            header("Idempotency-Key", {"type": "string", "minLength": 1, "maxLength": 255},
                  "Each event counts once if it is sent again at the same index of a body with the same value."),
        ),
    )},
    "/boards/{board}/likes": {
        "POST": Operation(
            likes.like_member, "pages",
            {**document(likes.Liked), **done(303, "The like counts. See the board.", "Location"),
             **done(307, "Repeat the request with the cookie.", "Location", "Set-Cookie")},
            _LIKING, body_of(_LIKE_FORM, FORM),
        ),
        "GET": Operation(likes.like_member_again, "pages", _SEE_BOARD, _LIKING),
    },
    "/t": {
        "GET": Operation(
            ticket.show_ticket_form, "pages", {**HTML, **_ADMITTED}, {"parameter_invalid", "ticket_required"}
        ),
        "POST": Operation(ticket.open_ticket, "pages", _ADMITTED, _FORM, body_of(_TICKET_FORM, FORM)),
    },
}  # fmt: skip
# The pages that people open most, which are tried first because each attempt takes time.
PAGES: Final[Operations] = {
    "/boards/{board}": {
        "GET": Operation(admitting(pages.show_board), "pages", HTML, _RECORDS | _PAST, places=_SEVERAL)
    },
    "/boards/{board}/records/{key:path}": {
        "GET": Operation(admitting(record_page.show_record), "pages", HTML, _RECORD)
    },
    "/": {"GET": Operation(admitting(pages.show_index), "pages", HTML, _ASKING)},
}  # fmt: skip
# The other routes of boards, in the order in which they are tried. Processes that serve viewers take GET; processes
# that serve administrators take the other methods.
BOARDS: Final[Operations] = {
    "/v1/boards/{board}/records/{key:path}/slots": {
        "GET": Operation(history.get_slots, "records", document(history.SlotList), _RECORD)
    },
    "/v1/boards/{board}/records/{key:path}/history": {
        "GET": Operation(history.get_history, "records", document(views.HistoryList), _BOARD | _PAST)
    },
    "/v1/boards/{board}/records/{key:path}/explanation": {
        "GET": Operation(history.get_explanation, "records", document(history.Explanation), _RECORD)
    },
    "/v1/boards/{board}": {
        "GET": Operation(boards.get_board, "boards", tagged(views.BoardPage), _PAGE),
        "PUT": Operation(
            admin.put_board, "administration", {"201": _BOARD_MADE, **_BOARD_SHOWN},
            _CHANGING - {"board_not_found"} | {"too_many_boards"}, body_of(reference(Choices)),
        ),
        "PATCH": Operation(
            admin.patch_board, "administration", document(views.BoardSummary, RuleChange), _CHANGING | {"overloaded"},
            body_of(reference("BoardPatch"), "application/merge-patch+json", "application/json"),
        ),
        "DELETE": Operation(admin.delete_board, "administration", done(204, "The board is deleted."), _REMOVING),
    },
    "/v1/boards/{board}/records/{key:path}": {
        "GET": Operation(records.get_record, "records", tagged(views.RecordView), _RECORD | _RECORDS),
        "PUT": Operation(
            admin.put_record, "administration",
            {**done(201, "The member is registered."), **done(204, "The metadata is replaced.")},
            _ENTERING | _BODY | {"board_open_to_all", "too_many_members"}, body_of(reference("Metadata")),
        ),
        "PATCH": Operation(
            admin.patch_record, "administration",
            {**document(Corrected), **done(204, "The record is hidden or shown.")},
            _ENTERING | _BODY | {"correction_refused", "journal_behind"}, body_of(reference(admin.RecordChange)),
        ),
        "DELETE": Operation(
            admin.delete_record, "administration", done(204, "The contestant is withdrawn."),
            _ENTERING | {"record_not_found", "record_voted", "board_open_to_all"},
        ),
    },
    "/v1/boards/{board}/events/{id:path}": {
        "DELETE": Operation(
            admin.delete_event, "administration", document(Outcome),
            _ADMIN | _BOARD | {"event_not_found", "event_kept", "outcome_unknown", "overloaded"},
        ),
    },
    "/v1/items": {
        "GET": Operation(items.list_items, "records", document(views.ItemList), _ASKING),
        "PUT": Operation(
            admin.put_items, "administration", done(204, "The titles are stored."), _ITEMS,
            body_of(reference(admin.ItemChanges)),
        ),
    },
    "/v1/items/{key:path}": {
        "GET": Operation(items.get_item, "records", document(Item), _ASKING | {"item_not_found"}),
        "PUT": Operation(
            admin.put_item, "administration", done(204, "The title is stored."), _ITEMS,
            body_of(reference(admin.ItemChoice)),
        ),
        "DELETE": Operation(
            admin.delete_item, "administration", done(204, "The member has no title any more."),
            _ADMIN | {"outcome_unknown"},
        ),
    },
    "/v1/boards": {"GET": Operation(boards.list_boards, "boards", document(views.BoardList), _ASKING)},
    "/v1/boards/{board}/records": {"GET": Operation(
        records.list_records, "records", document(views.RecordList), _RECORDS | {"cursor_invalid", "overloaded"}
    )},
    "/v1/boards/{board}/slots": {"GET": Operation(history.list_slots, "boards", document(history.SlotList), _BOARD)},
    "/v1/boards/{board}/history": {
        "GET": Operation(history.list_history, "boards", document(views.HistoryList), _BOARD | _PAST)
    },
    "/v1/boards/{board}/definition": {
        "GET": Operation(boards.get_definition, "boards", document(Choices), _BOARD)
    },
    "/v1/boards/{board}/entrants": {"GET": Operation(
        records.list_entrants, "boards", document(views.EntrantList), _BOARD | {"board_open_to_all", "cursor_invalid"}
    )},
    "/v1/boards/{board}/baseline": {
        "GET": Operation(boards.get_baseline, "boards", document(boards.BaselineView), _BOARD)
    },
    "/v1/records/{key:path}": {
        "GET": Operation(records.get_standing, "records", document(views.MemberRecords), _ASKING)
    },
    "/v1/boards/{board}/stream": {"GET": Operation(
        stream.stream_board, "live",
        text("text/event-stream", "A stream that ends when the board is deleted or the server shuts down."),
        _WATCHING - {"stopping"},
        fields=(header("Last-Event-ID", STRING, "`id` of the last event, to resume."),),
    )},
    "/v1/boards/{board}/live": {"GET": Operation(
        stream.watch_board, "live", done(101, "The connection is now a WebSocket."), _WATCHING | {"upgrade_required"}
    )},
    "/boards/{board}/qr.svg": {
        "GET": Operation(sharing.get_qr_code, "pages", text("image/svg+xml", "The QR code."), _BOARD)
    },
    "/boards/{board}/records.csv": {
        "GET": Operation(sharing.download_records, "pages", text("text/csv", "The records."), _RECORDS | _PAST)
    },
    "/embed/{board}": {
        "GET": Operation(admitting(pages.embed_board), "pages", HTML, _RECORDS | _PAST, places=_SEVERAL)
    },
    "/boards/{board}/votes": {
        "GET": Operation(likes.get_votes, "pages", document(likes.VoterView), _BOARD | {"likes_closed"})
    },
    "/overlay/{board}": {
        "GET": Operation(admitting(pages.overlay_board), "pages", HTML, _RECORDS | _PAST, places=_SEVERAL)
    },
}  # fmt: skip
# The routes for administrators only.
ADMINISTRATION: Final[Operations] = {
    "/v1/trail": {"GET": Operation(admin.get_trail, "administration", document(admin.AuditLog), _ADMIN)},
    "/v1/keys": {"GET": Operation(keys.list_keys, "keys", document(keys.KeyList), _ADMIN)},
    "/v1/keys/{key}": {
        "PUT": Operation(
            keys.put_key, "keys", made(keys.MadeKey), _KEYS, body_of(reference(keys.KeyChoice)), places=_API_KEY
        ),
        "DELETE": Operation(
            keys.delete_key, "keys", done(204, "The secrets are revoked."), _KEYS | {"api_key_not_found"},
            places=_API_KEY,
        ),
    },
    "/v1/tokens": {"POST": Operation(
        keys.sign_token, "keys", made(keys.SignedToken), _KEYS, body_of(reference(keys.TokenChoice))
    )},
}  # fmt: skip


def by_query(path: str) -> str:
    """Return the path of an operation that has its member in the query instead, `/v1/item?key=`, or the same path."""
    for several, one in (("/records/", "/record"), ("/items/", "/item")):
        path = path.replace(f"{several}{{key}}", one).replace(f"{several}{{key:path}}", one)
    return path
