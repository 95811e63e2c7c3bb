"""Everything that can go wrong, in tables: problems (RFC 9457), refusals of single events, close codes of sockets."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Problem(NamedTuple):
    """What a whole request is refused with: HTTP status and title of one stable `code`."""

    status: int
    title: str


PROBLEMS: Final[Mapping[str, Problem]] = {
    "malformed_request": Problem(400, "The request is not HTTP as RFC 9112 has it"),
    "malformed_body": Problem(400, "The body can't be read"),
    "idempotency_key_invalid": Problem(400, "The Idempotency-Key is malformed"),
    "host_invalid": Problem(400, "The header field Host is missing, stands twice or is malformed"),
    "forwarded_invalid": Problem(400, "What a proxy tells of the client can't be read"),
    "parameter_invalid": Problem(400, "A query parameter is unknown or out of range"),
    "cursor_invalid": Problem(400, "The cursor was not made by this server"),
    "credentials_required": Problem(401, "An API key is required"),
    "credentials_invalid": Problem(401, "The API key is not valid"),
    "scope_forbidden": Problem(403, "The API key is not for this"),
    "origin_forbidden": Problem(403, "Pages of that origin may not connect"),
    "not_found": Problem(404, "Nothing is served at this path"),
    "board_not_found": Problem(404, "There is no such board"),
    "host_forbidden": Problem(421, "This server does not answer for that host"),
    "record_voted": Problem(409, "The record has votes"),
    "board_open_to_all": Problem(409, "The board registers no keys"),
    "too_many_members": Problem(409, "The board holds as many members as it may"),
    "record_invalid": Problem(422, "The key or its metadata can't be taken"),
    "record_not_found": Problem(404, "The key is not on the board"),
    "period_not_found": Problem(404, "The period is not kept"),
    "method_not_allowed": Problem(405, "The path does not take this method"),
    "request_timeout": Problem(408, "The request did not arrive in time"),
    "board_fixed": Problem(409, "What is stored forbids the change of the board"),
    "too_many_boards": Problem(409, "The server holds as many boards as it may"),
    "board_in_file": Problem(409, "The board is one of the boards file, and fixed by it"),
    "body_too_large": Problem(413, "The body is larger than the server takes"),
    "too_many_events": Problem(413, "The body holds more events than the server takes"),
    "unsupported_media_type": Problem(415, "The body is of a type that the server does not read"),
    "idempotency_key_reused": Problem(422, "The Idempotency-Key was used for another body"),
    "board_invalid": Problem(422, "The definition of the board has mistakes"),
    "upgrade_required": Problem(426, "This path speaks WebSocket"),
    "rate_exceeded": Problem(429, "The producer sends more than it may"),
    "headers_too_large": Problem(431, "The header fields are larger than the server takes"),
    "internal_error": Problem(500, "The server failed; the fault is logged"),
    "store_unavailable": Problem(503, "The store is away; nothing was counted"),
    "outcome_unknown": Problem(503, "The store's answer was lost; the body may have been counted"),
    "epoch_lost": Problem(503, "The store lost the board's data"),
    "overloaded": Problem(503, "More events are waiting than the server holds"),
    "too_many_connections": Problem(503, "The server holds as many connections as it may"),
    "stopping": Problem(503, "The server stops"),
    "too_many_viewers": Problem(503, "The server holds as many viewers as it may"),
}

EPOCH_LOST_DETAIL: Final = (
    "the store lost data, so nothing was counted and nothing will be until an operator restores the data or accepts "
    "the loss with `live serve --accept-loss`; the server's log says what was lost"
)

REFUSALS: Final[Mapping[str, str]] = {
    "event_invalid": "the event is not of the documented form",
    "field_duplicate": "a field stands twice in the event",
    "key_invalid": "the key is empty, too long, not in NFC, or holds control or bidi characters",
    "board_forbidden": "the API key is not for this board",
    "board_unknown": "the event names a board that does not exist",
    "board_is_union": "the board is a union: post to the boards that it adds up",
    "type_unknown": "no board takes events of this type, or of this category",
    "time_required": "the board runs on the time in its events, and this one has none",
    "late": "the event's slot has left the window, or has begun to",
    "early": "the event's time is too far in the future",
    "board_unavailable": "this board could not be reached or holds too many waiting events; another board counted it",
    "fields_invalid": "the board's score is made of fields, and these are not as it takes them",
    "metadata_invalid": "metadata is no JSON object, or is too large",
    "actor_required": "the board counts votes, and the event names no actor",
    "quota_exceeded": "the actor has no vote left, for this key or in all",
    "vote_missing": "the actor takes a vote back that it has not given",
    "entrant_unknown": "only registered keys are counted, and this is none",
    "not_open": "voting has not begun",
    "closed": "voting is over",
    "frozen": "the board takes no events",
    "amount_too_large": "the amount is further from zero than the board, or the API key, allows",
    "board_full": "the board holds as many members, or voters, as it may, and this one is new",
    "score_out_of_range": "the score of the member would leave the range in which it is exact",
}


class Close(NamedTuple):
    """How a socket ends: a reason, and whether the client is to come back."""

    reason: str
    reconnect: bool


LEAVING: Final = 3001
SLOW: Final = 3008
KEY_REVOKED: Final = 3500
BAD_REQUEST: Final = 3501
BOARD_GONE: Final = 3502

CLOSE_CODES: Final[Mapping[int, Close]] = {
    LEAVING: Close("the server stops", reconnect=True),
    SLOW: Close("too slow", reconnect=True),
    KEY_REVOKED: Close("the key is good no more", reconnect=False),
    BAD_REQUEST: Close("bad request", reconnect=False),
    BOARD_GONE: Close("the board is gone", reconnect=False),
}


class ProblemError(Exception):
    """A request is refused as a whole; `code` is a key of `PROBLEMS`, `headers` go with the answer."""

    def __init__(
        self, code: str, detail: str, *, retry_after: int | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.retry_after = retry_after
        self.headers = headers or {}


class StoreUnavailableError(Exception):
    """The store does not work for us now; with `unknown`, it may have done what it was last told."""

    def __init__(self, reason: str, *, unknown: bool = False) -> None:
        super().__init__(reason)
        self.unknown = unknown


class EpochLostError(Exception):
    """The store lost data: it holds another epoch than was known, a lower offset, or an older definition (I8)."""


class SetupError(Exception):
    """The program can't start as it was told to; the message says what is wrong and what to do."""
