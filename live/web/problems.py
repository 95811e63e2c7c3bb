"""Refusals of whole requests as `application/problem+json` (RFC 9457)."""

from http import HTTPStatus
from typing import Final

import msgspec
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from live.errors import PROBLEMS, EpochLostError, ProblemError, StoreUnavailableError
from live.metrics import PROBLEMS_ANSWERED

log = structlog.get_logger()

_RETRY_AFTER: Final = 2  # seconds until a store that is away is worth another try
_BY_STATUS: Final = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}


class ProblemBody(msgspec.Struct, frozen=True):
    """The document that a refused client gets; `code` is stable, `detail` is for people."""

    type: str
    title: str
    status: int
    code: str
    detail: str


def problem_response(problem: ProblemError) -> Response:
    """The answer to a refused request."""
    status, title = PROBLEMS[problem.code]
    PROBLEMS_ANSWERED.labels(problem.code).inc()
    body = ProblemBody("about:blank", title, status, problem.code, problem.detail)
    headers = {"Cache-Control": "no-store"}
    if problem.retry_after is not None:
        headers["Retry-After"] = str(problem.retry_after)
    return Response(msgspec.json.encode(body), status, headers, media_type="application/problem+json")


def as_problem(error: Exception) -> ProblemError:
    """What a client is told of an error; the details of our own faults stay in the log."""
    match error:
        case ProblemError():
            return error
        case StoreUnavailableError():
            log.warning("the store is away", reason=str(error))
            code = "outcome_unknown" if error.unknown else "store_unavailable"
            return ProblemError(code, "try again later", retry_after=_RETRY_AFTER)
        case EpochLostError():
            log.error("the store lost a board", reason=str(error))
            return ProblemError("epoch_lost", "nothing was counted; an operator has to look", retry_after=60)
        case HTTPException():
            code = _BY_STATUS.get(error.status_code, "internal_error")
            return ProblemError(code, HTTPStatus(error.status_code).phrase)
        case _:
            return ProblemError("internal_error", "see the server's log")


async def answer_problem(request: Request, error: Exception) -> Response:
    """Starlette's handler for everything that a route raises."""
    response = problem_response(as_problem(error))
    if isinstance(error, HTTPException) and error.headers:
        response.headers.update(error.headers)
    if response.status_code == HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("a request failed", method=request.method, path=request.url.path, exc_info=error)
    return response


def whole_number(connection: HTTPConnection, name: str, default: int, least: int, most: int) -> int:
    """A query parameter that is a whole number in a range.

    Raises:
        ProblemError: `parameter_invalid`, naming the range.
    """
    text = connection.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= 9 and least <= int(text) <= most):  # noqa: PLR2004
        raise ProblemError("parameter_invalid", f"`{name}` is a whole number from {least} to {most}")
    return int(text)
