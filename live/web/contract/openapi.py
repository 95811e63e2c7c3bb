"""The HTTP contract as OpenAPI 3.1, `/openapi.json`: a table of all operations, with the structs of their bodies."""

from collections.abc import Mapping
from functools import cache
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from live import __version__
from live.boards.definition import RunningChoice
from live.domain import views
from live.domain.calendar import EXAMPLES
from live.domain.cloudevent import CloudEvent
from live.domain.event import MAX_SCORE, Answer, IncomingEvent
from live.domain.item import Item
from live.errors import REFUSALS
from live.fanout.subscription import MOST_AROUND
from live.ingest.replies import ProblemBody, Reply
from live.ingest.standings import MOST_RECORDS as MOST_EVENT_RECORDS
from live.store.board.write.correction import Corrected
from live.web.contract.forms import LIKE_FORM, PREFERENCES, TICKET_FORM
from live.web.contract.operations import (
    OPERATION_TAGS,
    STRING,
    TEXT,
    body_of,
    choice,
    document,
    done,
    json_of,
    made,
    members,
    operation,
    parameter,
    query,
    tagged,
    text,
    whole,
)
from live.web.contract.schemas import Json, contract_components, listed, reference
from live.web.http.responses import kept_json, negotiated
from live.web.pages.board import LONGEST_SEARCH, MOST_PAGES
from live.web.pages.language import TAGS
from live.web.pages.preferences import THEMES
from live.web.reads.boards import MAX_START, BaselineView
from live.web.reads.entrants import DEFAULT_ENTRANTS, MOST_ENTRANTS
from live.web.reads.history import MAX_MEMBERS as MOST_HISTORIES
from live.web.reads.history import MAX_STEPS, Explanation
from live.web.reads.items import MOST_READ
from live.web.reads.records import MAX_AROUND, MOST_FOUND, MOST_RECORDS
from live.web.reads.search import LONGEST_PREFIX
from live.web.reads.slots import DEFAULT_POINTS, MAX_MEMBERS, MAX_POINTS, SlotList
from live.web.reads.votes import MOST_ASKED, VoterView
from live.web.services import live_of
from live.web.writes.admin import (
    DEFAULT_ENTRIES,
    MAX_ENTRIES,
    MOST_WRITTEN,
    AuditLog,
    ItemChanges,
    ItemChoice,
    RecordChange,
)
from live.web.writes.keys import KeyChoice, KeyList, MadeKey, SignedToken, TokenChoice
from live.web.writes.likes import Liked

INFO: Final = {
    "title": "Live Board",
    "version": __version__,
    "description": "Producers post events. The server keeps an exact ranking and sends every change to every viewer.",
    "contact": {"name": "Live Board"},
    "license": {"name": "MIT", "identifier": "MIT"},
}
_KEY_SCHEME: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key, `<id>.<secret>`, as `live keys add` prints it.",
}
_STRUCTS: Final = (
    IncomingEvent, CloudEvent, Answer, views.BoardList, views.BoardPage, SlotList, BaselineView, views.RecordView,
    views.RecordList, views.MemberRecords, AuditLog, RunningChoice, RecordChange, Corrected, Item, ItemChoice,
    ItemChanges, views.ItemList, views.HistoryList, Explanation, views.EntrantList, Liked, VoterView, KeyList,
    KeyChoice, MadeKey, TokenChoice, SignedToken, ProblemBody,
)  # fmt: skip

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
_REMOVING: Final = _ADMIN | _BOARD | {"board_fixed", "board_in_file", "outcome_unknown"}
_CHANGING: Final = _REMOVING | _BODY | {"unsupported_media_type", "board_invalid", "too_many_members"}
_ENTERING: Final = _ADMIN | _BOARD | {"record_invalid", "outcome_unknown"}
_ITEMS: Final = _ADMIN | _BODY | {"item_invalid", "too_many_items", "outcome_unknown"}
_KEYS: Final = _ADMIN | _BODY | {"api_key_invalid", "outcome_unknown"}
_POSTING: Final = _ADMIN | _BODY | {
    "idempotency_key_invalid", "too_many_events", "unsupported_media_type",
    "outcome_unknown", "overloaded", "journal_behind", "stopping",
}  # fmt: skip
_LIKING: Final = _BODY | {
    "board_not_found", "record_not_found", "origin_forbidden", "likes_not_allowed", "cookie_required", "likes_closed",
    "votes_used", "vote_unknown", "votes_fixed", "ticket_required", "like_refused", "unsupported_media_type",
    "outcome_unknown", "overloaded",
}  # fmt: skip

# Parameters of several operations.
_TIME: Final = {"type": "string", "format": "date-time"}
_COUNT: Final = whole(1, default=100)
_OF_BOARD: Final = parameter("board", "path", STRING, "Id of a board.")
_OF_ID: Final = parameter("key", "path", STRING, "Id of the API key.")
_SECRET: Final = query("secret", STRING, "Revoke only the secret with this fingerprint.")
_OF_KEY: Final = parameter("key", "path", STRING, "The member, percent-encoded.")
_KEY_ASKED: Final = {**query("key", STRING, "The member, for proxies that refuse `%2F` in a path."), "required": True}
_KNOWN: Final = parameter("If-None-Match", "header", STRING, "`ETag` of an earlier response.")
_PERIOD: Final = query(
    "period", {"type": "string", "default": "current", "examples": ["previous", *EXAMPLES.values()]},
    "The period, on calendar boards.",
)  # fmt: skip
_AS_OF: Final = query(
    "as_of", _TIME,
    "Read the board as it was at this time, with everything that was counted before. "
    "This needs a journal. `LIVE_JOURNAL_EVENTS` says how far back you can read.",
)  # fmt: skip
_POINTS: Final = query("limit", whole(1, MAX_POINTS, DEFAULT_POINTS), "Largest number of points.")
_SPAN: Final = (
    query("from", _TIME, "The time of the first step. By default a day before `to`."),
    query("to", _TIME, "The latest time that a step may have. By default now."),
    query("step", {"type": "string", "default": "1h"},
          f"The time between two steps, such as `5m` or `1d`. At most {MAX_STEPS} steps."),
)  # fmt: skip
# The parameters of a viewer, on the live route and on the stream.
WATCHED: Final = (
    query("limit", whole(1, default=50), "Number of records to watch."),
    query("interval", {"type": "string", "examples": ["1s"]}, "Minimum time between two updates, up to 60s."),
    query("epoch", {"type": "string", "maxLength": 64}, "`epoch` of the last message, to resume."),
    query("offset", whole(0), "`offset` of the last message, to resume."),
    query("key", STRING, "A member whose rank is sent in `around` messages."),
    query("around", whole(0, MOST_AROUND, 0), "Number of neighbours of the member on each side."),
    query("delay", {"type": "string", "examples": ["45s"]},
          "Receive each message this much later: a whole number of seconds, from 5s to 5m."),
    query("token", STRING, "A viewer token, for browsers, which can't send header fields here."),
)  # fmt: skip
_TOKEN: Final = query(
    "token", STRING, "A viewer token. The response sets a cookie, and redirects to the address without the token."
)
_SHOWN: Final = (
    parameter("board", "path", STRING, "Ids of up to six boards, comma-separated."), _PERIOD, _AS_OF,
    query("key", STRING, "A member whose rank is shown."), query("limit", _COUNT, "The number of records."), _TOKEN,
)  # fmt: skip
_LANG: Final = choice(
    "lang", "The language. By default the visitor's choice, or else the best one in `Accept-Language`.", *TAGS
)
_LOOK: Final = (
    _LANG,
    choice("theme", "The theme. By default the visitor's choice, or else the theme of the system (`auto`).", *THEMES),
)

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
_CONTRACT: Final = {"200": {"description": "The document.", "content": json_of({"type": "object"})}}
_HTML: Final = text("text/html", "A page.")

# Every operation, by path and method.
_NAMED: Final[Mapping[str, Json]] = {
    "/v1/events": {
        "post": operation(
            "postEvents", "events", "Post events.",
            "The server responds after the store has synced the events to disk. It refuses invalid events by their "
            f"index, and counts the others.\n\nThese codes say why an event is refused:\n\n{listed(REFUSALS)}",
            {**document(Answer), "422": _REFUSED}, _POSTING,
            query("strict", {"type": "boolean", "default": False},
                  "Refuse the request with 422 if an event is refused. Each board counts all of its events, or none."),
            parameter("Prefer", "header", STRING, "`handling=strict` is the same as `strict=true`."),
            query("rank", {"type": "boolean", "default": False},
                  "Return the record of the member of each event that counted or is a duplicate, on each board. A body "
                  f"that needs more than {MOST_EVENT_RECORDS:,} records is refused."),
            parameter("Idempotency-Key", "header", {"type": "string", "minLength": 1, "maxLength": 255},
                      "Each event counts once if it is sent again at the same index of a body with the same value."),
            body=_EVENTS, is_keyed=True,
        ),
    },
    "/v1/boards": {"get": operation(
        "listBoards", "boards", "List all boards.", "Returns their definitions.", document(views.BoardList), _ASKING,
    )},
    "/v1/boards/{board}": {
        "get": operation(
            "getBoard", "boards", "Read one page of a board.",
            "Returns the top of the board, the page after a cursor, or the page around a score.",
            tagged(views.BoardPage), _PAGE, _OF_BOARD,
            query("limit", _COUNT, "Maximum number of records."),
            query("start", whole(0, MAX_START, 0), "Number of records to skip. Use a cursor to continue exactly."),
            query("cursor", STRING, "`next_cursor` or `prev_cursor` of an earlier page."),
            query("score", whole(-MAX_SCORE, MAX_SCORE),
                  "Return the page around the place that this score has or would have."),
            _PERIOD, _KNOWN,
            _AS_OF,
        ),
        "put": operation(
            "putBoard", "administration", "Create a board, or replace its choices.",
            "Omitted choices get their defaults.", {"201": _BOARD_MADE, **_BOARD_SHOWN},
            _CHANGING - {"board_not_found"} | {"too_many_boards"}, _OF_BOARD,
            body=body_of(reference(RunningChoice), "application/json"), is_keyed=True,
        ),
        "patch": operation(
            "patchBoard", "administration", "Change some choices of a board.", "Omitted choices stay unchanged.",
            _BOARD_SHOWN, _CHANGING, _OF_BOARD,
            body=body_of(reference("BoardPatch"), "application/merge-patch+json", "application/json"), is_keyed=True,
        ),
        "delete": operation(
            "deleteBoard", "administration", "Delete a board.", "This deletes everything that the board owns.",
            done(204, "The board is deleted."), _REMOVING, _OF_BOARD, is_keyed=True,
        ),
    },
    "/v1/boards/{board}/definition": {"get": operation(
        "getDefinition", "boards", "Read the definition of a board.",
        "Returns the choices that `PUT /v1/boards/{board}` takes, also for boards of the boards file. The response "
        "leaves out choices with their default, and parts of a union that the request may not read.",
        document(RunningChoice), _BOARD, _OF_BOARD,
    )},
    "/v1/boards/{board}/entrants": {"get": operation(
        "listEntrants", "boards", "List the registered members of a contest.",
        "The members are in no particular order. Hidden members are left out. Together, the pages list each member "
        "that is registered from the first request to the last. If others register meanwhile, members can be twice.",
        document(views.EntrantList), _BOARD | {"board_open_to_all", "cursor_invalid"}, _OF_BOARD,
        query("limit", whole(1, MOST_ENTRANTS, DEFAULT_ENTRANTS),
              "About how many members. A page can have more: up to 512."),
        query("cursor", STRING, "`next_cursor` of an earlier page."),
    )},
    "/v1/boards/{board}/records": {"get": operation(
        "listRecords", "records", "Read the records of several members, or find members.",
        "Give either `key` or `prefix`. Members that are not on the board are omitted.", document(views.RecordList),
        _RECORDS | {"cursor_invalid", "overloaded"}, _OF_BOARD, members(MOST_RECORDS), _PERIOD,
        query("prefix", {"type": "string", "minLength": 1, "maxLength": LONGEST_PREFIX},
              "Find members with a word in their name or title that begins with this text, without accents and case."),
        query("limit", whole(1, MOST_RECORDS, MOST_FOUND), "Maximum number of members that a `prefix` finds."),
        query("cursor", STRING, "`next_cursor` of an earlier reply to the same `prefix`."),
    )},
    "/v1/boards/{board}/records/{key}": {
        "get": operation(
            "getRecord", "records", "Read one record with its neighbours.",
            "Returns the score and the rank of the member, and its gap to the next rank.", tagged(views.RecordView),
            _RECORD | _RECORDS, _OF_BOARD, _OF_KEY,
            query("around", whole(0, MAX_AROUND, 0), "Number of neighbours on each side."), _PERIOD, _KNOWN, _AS_OF,
        ),
        "put": operation(
            "putRecord", "administration", "Register a contestant.", "A second request replaces the metadata.",
            {**done(201, "The member is registered."), **done(204, "The metadata is replaced.")},
            _ENTERING | _BODY | {"board_open_to_all", "too_many_members"}, _OF_BOARD, _OF_KEY,
            body=body_of(reference("Metadata"), "application/json"), is_keyed=True,
        ),
        "patch": operation(
            "patchRecord", "administration", "Hide a record, show it again, or correct its score.",
            "The events of a hidden record still count. A correction has a reason, which the journal keeps. It "
            "changes no metadata.",
            {**document(Corrected), **done(204, "The record is hidden or shown.")},
            _ENTERING | _BODY | {"correction_refused", "journal_behind"}, _OF_BOARD, _OF_KEY,
            body=body_of(reference(RecordChange), "application/json"), is_keyed=True,
        ),
        "delete": operation(
            "deleteRecord", "administration", "Withdraw a contestant.", "A contestant with votes can't be withdrawn.",
            done(204, "The contestant is withdrawn."),
            _ENTERING | {"record_not_found", "record_voted", "board_open_to_all"}, _OF_BOARD, _OF_KEY, is_keyed=True,
        ),
    },
    "/v1/records/{key}": {"get": operation(
        "getStanding", "records", "Read the records of one member on all boards.",
        "Boards without the member are omitted.", document(views.MemberRecords), _ASKING, _OF_KEY,
    )},
    "/v1/boards/{board}/records/{key}/slots": {"get": operation(
        "getSlots", "records", "Read the scores of one member by slot.",
        "Returns the score of the member over the window, with the oldest point first. If the window has more than "
        "`limit` slots, each point is the sum of several slots.",
        document(SlotList), _RECORD, _OF_BOARD, _OF_KEY, _POINTS,
    )},
    "/v1/boards/{board}/slots": {"get": operation(
        "listSlots", "boards", "Read scores by slot.",
        "Returns the scores of members over the window, with the oldest point first. If the window has more than "
        "`limit` slots, each point is the sum of several slots. Without `key`, the response has the members that were "
        "the first 100 of the board when the newest point began.",
        document(SlotList), _BOARD, _OF_BOARD, members(MAX_MEMBERS), _POINTS,
    )},
    "/v1/boards/{board}/records/{key}/explanation": {"get": operation(
        "getExplanation", "records", "Read what a score consists of.",
        "Returns how much each slot adds to the score, and the newest changes of the score. This needs a journal.",
        document(Explanation), _RECORD, _OF_BOARD, _OF_KEY, _AS_OF,
    )},
    "/v1/boards/{board}/records/{key}/history": {"get": operation(
        "getHistory", "records", "Read how the score and rank of a record changed.",
        "Returns the score and rank at each time, or null without a record at that time. This needs a journal.",
        document(views.HistoryList), _BOARD | _PAST, _OF_BOARD, _OF_KEY, *_SPAN,
    )},
    "/v1/boards/{board}/history": {"get": operation(
        "listHistory", "boards", "Read how the scores and ranks of some records changed.",
        "Returns the same as `getHistory`, for several members. Without `key`, the response has no records: "
        "it says only since when the journal has the board.",
        document(views.HistoryList), _BOARD | _PAST, _OF_BOARD, members(MOST_HISTORIES), *_SPAN,
    )},
    "/v1/boards/{board}/baseline": {"get": operation(
        "getBaseline", "boards", "Read the ranks and scores of an hour ago, or of the last day or week.",
        "Everyone gets the same response. Compare it with the current page to see who moved, and who gained how much.",
        document(BaselineView), _BOARD, _OF_BOARD,
    )},
    "/v1/items": {
        "get": operation(
            "listItems", "records", "Read the titles of several members.",
            "Members without a title are omitted. The response is at most a second old.", document(views.ItemList),
            _ASKING, members(MOST_READ, is_required=True),
        ),
        "put": operation(
            "putItems", "administration", "Give several members titles.",
            f"Stores up to {MOST_WRITTEN:,} titles, or none if one is invalid.", done(204, "The titles are stored."),
            _ITEMS, body=body_of(reference(ItemChanges), "application/json"), is_keyed=True,
        ),
    },
    "/v1/items/{key}": {
        "get": operation(
            "getItem", "records", "Read the title of a member.", "The response includes the link and the picture.",
            document(Item), _ASKING | {"item_not_found"}, _OF_KEY,
        ),
        "put": operation(
            "putItem", "administration", "Give a member a title.",
            "Pages show the title instead of the member, on all boards. This needs an API key for all boards.",
            done(204, "The title is stored."), _ITEMS, _OF_KEY,
            body=body_of(reference(ItemChoice), "application/json"), is_keyed=True,
        ),
        "delete": operation(
            "deleteItem", "administration", "Delete the title of a member.",
            "This succeeds even if the member has no title.",
            done(204, "The member has no title any more."), _ADMIN | {"outcome_unknown"}, _OF_KEY, is_keyed=True,
        ),
    },
    "/v1/boards/{board}/live": {"get": operation(
        "watchBoard", "live", "Watch a board over a WebSocket.",
        "Sends a `sync`, then `update`s. See /asyncapi.json.", done(101, "The connection is now a WebSocket."),
        _WATCHING | {"upgrade_required"}, _OF_BOARD, *WATCHED,
    )},
    "/v1/boards/{board}/stream": {"get": operation(
        "streamBoard", "live", "Watch a board as server-sent events.",
        "Sends the same messages as the WebSocket. `event` is the type of a message. See /asyncapi.json.",
        text("text/event-stream", "A stream that ends when the board is deleted or the server shuts down."),
        _WATCHING, _OF_BOARD, *WATCHED,
        parameter("Last-Event-ID", "header", STRING, "`id` of the last event, to resume."),
    )},
    "/v1/trail": {"get": operation(
        "getTrail", "administration", "Read the audit log.",
        "Returns the actions of administrators, newest first. An API key that is limited to some boards gets only the "
        "entries of these boards.", document(AuditLog), _ADMIN,
        query("limit", whole(1, MAX_ENTRIES, DEFAULT_ENTRIES), "Maximum number of entries."), is_keyed=True,
    )},
    "/v1/keys": {"get": operation(
        "listKeys", "keys", "List the API keys.", "Secrets are left out.", document(KeyList), _ADMIN, is_keyed=True,
    )},
    "/v1/keys/{key}": {
        "put": operation(
            "putKey", "keys", "Create an API key.", "If the API key exists, this adds a second secret.",
            made(MadeKey), _KEYS, _OF_ID, body=body_of(reference(KeyChoice), "application/json"), is_keyed=True,
        ),
        "delete": operation(
            "deleteKey", "keys", "Revoke an API key.", "With `secret`, this revokes only that secret.",
            done(204, "The secrets are revoked."), _KEYS | {"api_key_not_found"}, _OF_ID, _SECRET, is_keyed=True,
        ),
    },
    "/v1/tokens": {"post": operation(
        "signToken", "keys", "Sign a viewer token.", "This needs `LIVE_TOKEN_SECRET`.", made(SignedToken), _KEYS,
        body=body_of(reference(TokenChoice), "application/json"), is_keyed=True,
    )},
    "/": {"get": operation(
        "showIndex", "pages", "Show the list of boards.", "Each board has its first records, which update live.",
        _HTML, _ASKING,
        query("page", whole(1, MOST_PAGES, 1), "Number of the page of the list. A page beyond the last one is empty."),
        query("q", {"type": "string", "maxLength": LONGEST_SEARCH},
              "List only boards with this text in their id or title, in upper or lower case."),
        *_LOOK, _TOKEN, is_page=True,
    )},
    "/boards/{board}": {"get": operation(
        "showBoard", "pages", "Show a board, or several side by side.", "The page updates live.", _HTML,
        _RECORDS | _PAST, *_SHOWN,
        choice("display", "A display on a wall: ten records, readable across a room.", "wall"), *_LOOK,
        query("rotate", {"type": "string", "examples": ["20s"]},
              "On a wall: show the pages of the boards one after another, each for this time."),
        query("without", STRING, "On a wall: parts to leave out, separated by commas: clock, qr, ticker."),
        query("start", whole(0, MAX_START, 0), "Number of records to skip. A page with a start does not update."),
        query("contestants", STRING,
              "The place from which to list contestants without votes. Links of the page have it."),
        query("find", {"type": "string", "maxLength": LONGEST_PREFIX},
              "List members with a word in their name or title that begins with this text."),
        is_page=True,
    )},
    "/embed/{board}": {"get": operation(
        "embedBoard", "pages", "Show a board in a frame of another page.",
        "Shows the page without header, footer and controls. The frame sends its height to the outer page, "
        'as a message `{"type": "live-board:height", "height": 480}`.',
        _HTML, _RECORDS | _PAST, *_SHOWN, _LANG,
        query("rows", whole(1, default=10), "The number of records."),
        choice("theme", "The theme. By default light; `auto` is the theme of the system.", *THEMES),
        choice("bg", "Let the background of the page around the frame show through.", "transparent"), is_page=True,
    )},
    "/overlay/{board}": {"get": operation(
        "overlayBoard", "pages", "Show only the rows, on a transparent background, for video software.",
        "The overlay has no controls. It says when it is not live.", _HTML, _RECORDS | _PAST, *_SHOWN, _LANG,
        query("rows", whole(1, default=8), "The number of records."),
        choice("theme", "The theme. By default dark.", "light", "dark"),
        choice("without", "Leave out the news below the rows.", "ticker"),
        query("scale", {"type": "number", "minimum": 0.5, "maximum": 5}, "Multiply all sizes by this."), is_page=True,
    )},
    "/boards/{board}/records/{key}": {"get": operation(
        "showRecord", "pages", "Show one record.",
        "Shows the score of the member in each slot of the window, its rank and its neighbours. The page updates live.",
        _HTML, _RECORD, _OF_BOARD, _OF_KEY, *_LOOK, _TOKEN, is_page=True,
    )},
    "/boards/{board}/likes": {"post": operation(
        "likeMember", "pages", "Like a member as a visitor.",
        "The like buttons of pages use this. The request needs the `Origin` of this server and a cookie, which the 307 "
        "response to the first request sets. Programs post events instead. `Accept: application/json` asks for JSON.",
        {**document(Liked), **done(303, "The like counts. See the board.", {"Location": TEXT}),
         **done(307, "Repeat the request with the cookie.", {"Location": TEXT, "Set-Cookie": TEXT})},
        _LIKING, _OF_BOARD, body=body_of(LIKE_FORM, "application/x-www-form-urlencoded"), is_page=True,
    ), "get": operation(
        "likeMemberAgain", "pages", "Send a like again that had to wait.",
        "Only the page that refuses a like with 429 or 503, without script, has the address of this, with a signature.",
        done(303, "See the board.", {"Location": TEXT}),
        _LIKING, _OF_BOARD, query("key", STRING, "The member."), choice("page", "The page to return to.", "record"),
        query("until", STRING, "When it ends."), query("signature", STRING, "The signature."), *_LOOK, is_page=True,
    )},
    "/t": {"get": operation(
        "showTicketForm", "pages", "Open a ticket, or show the form for its code.",
        "The QR code of a ticket has its whole code. A cookie then makes the browser the voter with this ticket.",
        {**_HTML, **done(303, "See the board.", {"Location": TEXT, "Set-Cookie": TEXT})},
        {"parameter_invalid", "ticket_required"}, query("code", STRING, "The code."), *_LOOK, is_page=True,
    ), "post": operation(
        "openTicket", "pages", "Open a ticket by its code.", "A wrong code gets the form again, with 403 or 429.",
        done(303, "See the board.", {"Location": TEXT, "Set-Cookie": TEXT}),
        _BODY | {"origin_forbidden", "unsupported_media_type"},
        body=body_of(TICKET_FORM, "application/x-www-form-urlencoded"), is_page=True,
    )},
    "/boards/{board}/votes": {"get": operation(
        "getVotes", "pages", "Return the votes of a visitor.",
        "The script of pages asks which members have a vote of the visitor, whom a cookie names, in this period.",
        document(VoterView), _BOARD | {"likes_closed"}, _OF_BOARD,
        query("key", {"type": "array", "items": STRING, "maxItems": MOST_ASKED}, "The members to look at."),
        is_page=True,
    )},
    "/preferences": {"post": operation(
        "choosePreferences", "pages", "Choose the theme or the language of the pages.",
        "The form at the foot of each page uses this. Cookies remember the choice.",
        done(303, "See the page again.", {"Location": TEXT, "Set-Cookie": TEXT}),
        _BODY | {"origin_forbidden", "unsupported_media_type"},
        body=body_of(PREFERENCES, "application/x-www-form-urlencoded"), is_page=True,
    )},
    "/boards/{board}/qr.svg": {"get": operation(
        "getQrCode", "pages", "Show the address of a board as a QR code.", "The code leads to `/boards/{board}`.",
        text("image/svg+xml", "The QR code."), _BOARD, _OF_BOARD, is_page=True,
    )},
    "/boards/{board}/records.csv": {"get": operation(
        "downloadRecords", "pages", "Download the first records of a board as CSV.",
        "The table is in UTF-8. A text that a spreadsheet would run as a formula begins with an apostrophe.",
        text("text/csv", "The records."), _RECORDS | _PAST, _OF_BOARD, _PERIOD,
        query("limit", _COUNT, "The number of records."), is_page=True,
    )},
    "/healthz": {"get": operation(
        "getHealth", "operations", "Check that the process runs.", "The status is 200 while the process runs.",
        {"200": {"description": "The process is healthy.", "content": json_of(_ALIVE)}}, (), is_page=True,
    )},
    "/readyz": {"get": operation(
        "getReadiness", "operations", "Check that the process can count.", "The check writes to the store.",
        {"200": {"description": "The process can count and serve.", "content": json_of(_READY)}}, (), is_page=True,
    )},
    "/metrics": {"get": operation(
        "getMetrics", "operations", "Read the metrics.",
        "On a server with a private board, this needs an API key with the verb `read` or `admin`, and the metrics name "
        "only the boards that the API key includes. `LIVE_METRICS` changes this rule.",
        text("text/plain", "Metrics in the Prometheus text format."),
        {"credentials_required", "credentials_invalid", "scope_forbidden"}, is_keyed=True, is_page=True,
    )},
    "/openapi.json": {"get": operation(
        "getOpenapi", "documents", "Read the OpenAPI document.", "Returns this API as OpenAPI 3.1.", _CONTRACT, (),
        is_page=True,
    )},
    "/asyncapi.json": {"get": operation(
        "getAsyncapi", "documents", "Read the AsyncAPI document.", "Returns the messages on sockets as AsyncAPI 3.0.",
        _CONTRACT, (), is_page=True,
    )},
    "/boards.schema.json": {"get": operation(
        "getBoardsSchema", "documents", "Read the schema of boards files.", "Returns a JSON Schema, for editors.",
        _CONTRACT, (), is_page=True,
    )},
    "/docs": {"get": operation(
        "showReference", "documents", "Show the API reference.", "Shows this document as a page.", _HTML, (),
        is_page=True,
    )},
}  # fmt: skip


def by_query(path: str) -> str:
    """Return the path of an operation that has the member in the query instead of the path: `/v1/item?key=`.

    Other paths stay as they are.
    """
    for several, one in (("/records/", "/record"), ("/items/", "/item")):
        path = path.replace(f"{several}{{key}}", one).replace(f"{several}{{key:path}}", one)
    return path


def _queried(made: Json) -> Json:
    """Return an operation that has the member in the query instead of the path."""
    parameters = [_KEY_ASKED if one == _OF_KEY else one for one in made["parameters"]]
    return {**made, "operationId": f"{made['operationId']}ByQuery", "parameters": parameters}


_PATHS: Final = {
    **_NAMED,
    **{
        by_query(path): {method: _queried(made) for method, made in operations.items()}
        for path, operations in _NAMED.items()
        if by_query(path) != path
    },
}
for _status in ("500", "503"):  # a process that is not ready says why in the form of `_READY`
    _PATHS["/readyz"]["get"]["responses"][_status]["content"] = json_of(_READY)


async def openapi(request: Request) -> Response:
    """Return the HTTP contract as OpenAPI 3.1."""
    return negotiated(request, _reply(live_of(request).settings.root_path or "/"))


@cache
def _reply(root: str) -> Reply:
    return kept_json({**openapi_document(), "servers": [{"url": root}]})


@cache
def openapi_document() -> Json:
    """Make the document at `/openapi.json`, for a server at the root of its host."""
    return {
        "openapi": "3.1.0",
        "info": INFO,
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": meaning} for name, meaning in OPERATION_TAGS.items()],
        "paths": _PATHS,
        "components": {"schemas": contract_components(_STRUCTS), "securitySchemes": {"key": _KEY_SCHEME}},
    }


@cache
def query_names(path: str, method: str) -> frozenset[str]:
    """Name the parameters that the query of an operation may have."""
    described = _PATHS.get(path, {}).get(method.lower(), {})
    return frozenset(each["name"] for each in described.get("parameters", ()) if each["in"] == "query")
