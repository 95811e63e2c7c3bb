"""The meaning of a response to a POST of events: counted, not accepted, possibly counted, or refused."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

import msgspec

from live.client.errors import NotALiveBoardError, RequestRefusedError
from live.client.target import ACCESS_REFUSED, access_refused
from live.domain.event import Answer

_OK: Final = 200
_TOO_MANY: Final = 429
_NOT_TAKEN: Final = frozenset({408, _TOO_MANY, 503})  # nothing was counted, so it is safe to retry
_LOST: Final = frozenset({500, 502, 504})  # from a failed server or a proxy; the server may have counted the events
_MAX_PAUSE: Final = 86_400.0
_MAX_SHOWN: Final = 300


class FailedAttempt(NamedTuple):
    """Why an attempt failed that can be retried.

    `retry_after` is the number of seconds that the server asks to wait. With `lost`, the events may have been counted.
    With `paced`, the server works but wants fewer events.
    """

    problem: str
    retry_after: float | None = None
    lost: bool = False
    paced: bool = False


_decode_answer = msgspec.json.Decoder(Answer).decode


def read_answer(status: int, body: bytes, retry_after: str, url: str, api_key: str | None) -> Answer | FailedAttempt:
    """Read the response to a POST of events. `retry_after` is the header, or empty.

    Raises:
        AccessRefusedError: the API key is missing or not accepted.
        RequestRefusedError: the server refuses this request for another reason.
        NotALiveBoardError: the response does not come from Live Board.
    """
    if status == _OK:
        try:
            return _decode_answer(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise NotALiveBoardError(f"the server at {url} is not a Live Board server") from None
    failure = read_failure(status, body, retry_after)
    if failure is not None:
        return failure
    if status in ACCESS_REFUSED:
        raise access_refused(status, body, api_key)
    raise RequestRefusedError(status, body)


def read_failure(status: int, body: bytes, retry_after: str) -> FailedAttempt | None:
    """Why the same request may succeed later; None if the status says that it will not."""
    problem = f"{status}: {body[:_MAX_SHOWN].decode(errors='replace')}"
    pause = parse_retry_after(retry_after)
    if status in _LOST or b'"outcome_unknown"' in body:
        return FailedAttempt(problem, pause, lost=True)
    if status in _NOT_TAKEN:
        return FailedAttempt(problem, pause, paced=status == _TOO_MANY)
    return None


def parse_retry_after(value: str) -> float | None:
    """The seconds in a `Retry-After` header, which can also hold a date; at most a day. None if it holds neither."""
    if value.isdecimal():
        return min(float(value), _MAX_PAUSE)
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    return min(max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds()), _MAX_PAUSE)
