"""All errors: problems (RFC 9457), refusals of single events, and close codes of sockets."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class ProblemType(NamedTuple):
    """A reason why a whole request is refused: its HTTP status and title. `PROBLEMS` has the reasons by stable code."""

    status: int
    title: str


PROBLEMS: Final[Mapping[str, ProblemType]] = {
    "malformed_request": ProblemType(400, "The request is not valid HTTP/1.1"),
    "malformed_body": ProblemType(400, "The body can't be parsed"),
    "idempotency_key_invalid": ProblemType(400, "The Idempotency-Key is malformed"),
    "host_invalid": ProblemType(400, "The Host header is missing, repeated or malformed"),
    "parameter_invalid": ProblemType(400, "A query parameter is unknown or out of range"),
    "cursor_invalid": ProblemType(400, "The cursor was not made by this server"),
    "credentials_required": ProblemType(401, "An API key is required"),
    "credentials_invalid": ProblemType(401, "The API key is not valid"),
    "scope_forbidden": ProblemType(403, "The API key does not permit this"),
    "origin_forbidden": ProblemType(403, "Pages from that origin may not connect"),
    "likes_not_allowed": ProblemType(403, "The board has no like button"),
    "api_key_not_found": ProblemType(404, "There is no such API key or secret"),
    "api_key_invalid": ProblemType(422, "The API key or token can't be made like this"),
    "cookie_required": ProblemType(403, "The browser does not keep the cookie"),
    "not_found": ProblemType(404, "There is nothing at this path"),
    "board_not_found": ProblemType(404, "There is no such board"),
    "host_forbidden": ProblemType(421, "This server does not serve that host"),
    "record_voted": ProblemType(409, "The record has votes"),
    "board_open_to_all": ProblemType(409, "The board does not register members"),
    "correction_refused": ProblemType(409, "The board refuses this correction"),
    "too_many_members": ProblemType(409, "There is no room for more members"),
    "record_invalid": ProblemType(422, "The member or its metadata is invalid"),
    "event_not_found": ProblemType(404, "The board has not counted this event"),
    "event_kept": ProblemType(409, "The board can't take the event back"),
    "record_not_found": ProblemType(404, "The member is not on the board"),
    "item_not_found": ProblemType(404, "The member has no item"),
    "period_not_found": ProblemType(404, "The period is not kept"),
    "past_unavailable": ProblemType(404, "The journal does not reach back to that time"),
    "past_too_large": ProblemType(400, "The query of the past takes too long"),
    "method_not_allowed": ProblemType(405, "The path does not support this method"),
    "request_timeout": ProblemType(408, "The request did not arrive in time"),
    "likes_closed": ProblemType(409, "The board takes no likes now"),
    "ticket_required": ProblemType(403, "Voting needs a ticket"),
    "votes_used": ProblemType(409, "The visitor has no votes left"),
    "vote_unknown": ProblemType(409, "The visitor has not given this vote"),
    "votes_fixed": ProblemType(409, "The votes of the board are final"),
    "like_refused": ProblemType(409, "The board refuses this like"),
    "too_many_items": ProblemType(409, "The server has its maximum number of items"),
    "board_fixed": ProblemType(409, "The stored data rules out this change"),
    "too_many_boards": ProblemType(409, "The server has its maximum number of boards"),
    "body_too_large": ProblemType(413, "The body is too large"),
    "too_many_events": ProblemType(413, "The body contains too many events"),
    "unsupported_media_type": ProblemType(415, "The media type or encoding of the body is not supported"),
    "item_invalid": ProblemType(422, "The title, URL or picture of a member is invalid"),
    "board_invalid": ProblemType(422, "The definition of the board has mistakes"),
    "upgrade_required": ProblemType(426, "This path needs a WebSocket handshake"),
    "rate_exceeded": ProblemType(429, "The client exceeds its rate"),
    "headers_too_large": ProblemType(431, "The headers are too large"),
    "internal_error": ProblemType(500, "The server failed; its log has the cause"),
    "store_unavailable": ProblemType(503, "The store is unavailable; nothing was counted"),
    "journal_behind": ProblemType(503, "The journal's database is behind or unavailable; nothing was counted"),
    "outcome_unknown": ProblemType(503, "The store did not confirm the request, which may have been carried out"),
    "epoch_lost": ProblemType(503, "The store lost the board's data"),
    "overloaded": ProblemType(503, "Too many events or requests are waiting"),
    "too_many_connections": ProblemType(503, "The server has its maximum number of connections"),
    "stopping": ProblemType(503, "The server is shutting down"),
    "too_many_viewers": ProblemType(503, "The server has its maximum number of viewers"),
}

EPOCH_LOST_DETAIL: Final = (
    "the store lost data of the board, or of all boards. Nothing was counted, and nothing counts until an operator "
    "restores the data, or runs `live recover`. The server's log says what is lost"
)

REFUSALS: Final[Mapping[str, str]] = {
    "event_invalid": "the event does not have the documented form",
    "key_invalid": "the key is empty, too long, not in NFC, `.`, `..`, or contains control or format characters",
    "board_forbidden": "the API key does not include this board",
    "board_unknown": "the event names a board that does not exist",
    "board_is_union": "the board is a union; post to the boards that it adds up",
    "type_unknown": "no board takes events of this type or category",
    "time_required": "the board uses the time of its events, and this event has no `time`",
    "late": (
        "by the clock of the board (the store's, or the newest event's with `clock = event`), the event's slot has "
        "left the `window` or is leaving it; `grace` keeps a period open for longer"
    ),
    "early": "the event's time is more than a minute ahead of the store's clock",
    "board_unavailable": "this board could not be reached or is overloaded; another board counted the event",
    "fields_invalid": "the board's score is made of fields, and a field is missing, unknown or out of range",
    "metadata_invalid": "the metadata is not a JSON object, is too large, or contains control or format characters",
    "actor_required": "the board counts votes, and the event names no actor",
    "quota_exceeded": "the actor has no votes left, for this member or in total",
    "vote_missing": "the actor takes back or replaces a vote that it has not given",
    "votes_final": "the board does not let votes be taken back or changed (`votes.changes = false`)",
    "replaces_invalid": "the event replaces a vote, and the board counts no votes",
    "ticket_missing": (
        "the board counts only votes with a ticket, which voters open at /t, or with a viewer token whose `likes` "
        "names the board"
    ),
    "entrant_unknown": "the board counts registered members only, and this member is not registered",
    "not_open": "voting has not started",
    "closed": "voting has ended",
    "frozen": "the board is frozen",
    "amount_too_large": "the amount is further from zero than the board or the API key allows",
    "board_full": "the board has its maximum number of members or voters, and the event names a new one",
    "score_out_of_range": "the score of the member would leave the range in which it is exact, or a field its bounds",
    "amount_required": "the board keeps amounts as scores, and the event has no amount",
    "not_counted": "the request is strict, and another event in the request is refused",
}
# The codes of refusals whose reason may pass: the same event may count later, or the same request may succeed later.
RETRYABLE: Final = frozenset(
    {
        "early", "board_unavailable", "not_open", "frozen", "board_full", "not_counted",
        "request_timeout", "likes_closed", "too_many_members", "too_many_items", "too_many_boards", "rate_exceeded",
        "internal_error", "store_unavailable", "journal_behind", "outcome_unknown", "epoch_lost", "overloaded",
        "too_many_connections", "stopping", "too_many_viewers",
    }
)  # fmt: skip


class Close(NamedTuple):
    """The reason why a socket closes, and whether the client should reconnect."""

    reason: str
    reconnect: bool


SHUTTING_DOWN: Final = 3001
SLOW: Final = 3008
FAILED: Final = 3009
REPLACED: Final = 3010
BAD_REQUEST: Final = 3501
BOARD_DELETED: Final = 3502
TOKEN_EXPIRED: Final = 3503

CLOSE_CODES: Final[Mapping[int, Close]] = {
    SHUTTING_DOWN: Close("the server is shutting down", reconnect=True),
    SLOW: Close("too slow", reconnect=True),
    FAILED: Close("the delay failed", reconnect=True),
    REPLACED: Close("another client needs the place", reconnect=True),
    BAD_REQUEST: Close("bad request", reconnect=False),
    BOARD_DELETED: Close("board deleted", reconnect=False),
    TOKEN_EXPIRED: Close("token expired", reconnect=False),
}


class ProblemError(Exception):
    """A request is refused as a whole. `code` is one of `PROBLEMS`. `headers` are added to the response.

    `near` is a path that is similar to the requested path. The HTML page of the problem has a link to it.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        retry_after: int | None = None,
        headers: Mapping[str, str] | None = None,
        near: str | None = None,
    ) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.retry_after = retry_after
        self.headers = headers or {}
        self.near = near


class StoreUnavailableError(Exception):
    """The store is unavailable. If `unknown` is true, it may have executed the last command.

    `public` is the reason as everyone may see it, for example without addresses; by default the whole reason.
    """

    def __init__(self, reason: str, *, unknown: bool = False, public: str | None = None) -> None:
        super().__init__(reason)
        self.unknown = unknown
        self.public = reason if public is None else public


class JournalBehindError(StoreUnavailableError):
    """Too much of the journal waits to be moved to SQL. Nothing was counted."""


class EpochLostError(Exception):
    """The store lost data: a board has an unexpected epoch or a lower offset, or a definition is older (I8).

    `board` names a board with an unexpected epoch. Perhaps it was deleted.
    """

    def __init__(self, reason: str, board: str = "") -> None:
        super().__init__(reason)
        self.board = board


class SetupError(Exception):
    """The program can't start as configured. The message says what is wrong and what to do."""


class NotFoundError(SetupError):
    """A command was given a name that does not exist. The message suggests the nearest name if it is similar."""


class JournalError(StoreUnavailableError):
    """The SQL database does not answer, or refuses a statement."""


class JournalLoginError(JournalError):
    """The SQL server does not accept the user or the password."""


class JournalBrokenError(JournalError, SetupError):
    """The database is damaged, or its files were replaced. Only an operator can repair it."""
