"""The errors of the client. A wrong argument raises ValueError. Every other error is a `LiveBoardError`."""

from typing import Final

import msgspec

_MAX_SHOWN: Final = 300  # characters of a response that is not a problem document


class LiveBoardError(Exception):
    """The base class of all errors of the client. The message says what is wrong and, where possible, what to do."""


class NotALiveBoardError(LiveBoardError):
    """No Live Board server answers at the URL."""


class ServerUnavailableError(LiveBoardError):
    """The server was unavailable for longer than the patience of the client.

    If a response was lost, `in_doubt` is true: the last events may have been counted. Send them again with the same
    ids, and each of them counts once.
    """

    def __init__(self, message: str, *, in_doubt: bool = False) -> None:
        super().__init__(message)
        self.in_doubt = in_doubt


class OutcomeUnknownError(LiveBoardError):
    """A response was lost and the events have no ids, or the producer was closed before the response.

    The server may have counted these events, so the client does not send them again.
    """


class WatchEndedError(LiveBoardError):
    """The server closed the connection of a watcher permanently. `code` is the close code, from 3500 to 3999."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"the server closed the connection: {reason or 'no reason given'} ({code})")
        self.code = code
        self.reason = reason


class RequestRefusedError(LiveBoardError):
    """The server refused a whole request, and would refuse the same request again.

    `status` is the HTTP status. `code` is the stable code of the problem, such as `board_not_found`, and `detail` has
    more information. If the response does not come from Live Board, `code` and `detail` are empty.
    """

    def __init__(self, status: int, body: bytes, message: str = "") -> None:
        problem = read_problem(body)
        text = body[:_MAX_SHOWN].decode(errors="replace")
        super().__init__(message or f"the server refused the request with {status}: {text}")
        self.status = status
        self.code = problem.code
        self.detail = problem.detail


class AccessRefusedError(RequestRefusedError):
    """The API key is missing, unknown or revoked, or does not permit the request (401 or 403)."""


class Problem(msgspec.Struct):
    """The part of a problem document (RFC 9457) that the client uses."""

    code: str = ""
    detail: str = ""


def read_problem(body: bytes) -> Problem:
    """Read a problem document. If the body is something else, return an empty problem."""
    try:
        return msgspec.json.decode(body, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Problem()
