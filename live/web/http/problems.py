"""Errors as `application/problem+json` (RFC 9457)."""

from http import HTTPStatus
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from live.errors import EPOCH_LOST_DETAIL, EpochLostError, ProblemError, StoreUnavailableError
from live.ingest import replies

_BY_STATUS: Final = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}


def as_problem(error: Exception) -> ProblemError:
    """The problem that a client receives for an error, including Starlette's own errors."""
    if isinstance(error, HTTPException):
        code = _BY_STATUS.get(error.status_code, "internal_error")
        return ProblemError(code, HTTPStatus(error.status_code).phrase, headers=error.headers)
    return replies.as_problem(error)


def problem_response(error: Exception) -> Response:
    """The response for an error."""
    return as_response(replies.problem_reply(as_problem(error)))


def public_reason(error: Exception) -> str:
    """Why something is not possible, for everyone. The log has what is not for everyone, such as addresses."""
    match error:
        case StoreUnavailableError():
            return error.public
        case EpochLostError():
            return EPOCH_LOST_DETAIL
        case ProblemError():
            return error.detail
        case _:
            return "the server failed; its log has the cause"


def as_response(reply: replies.Reply) -> Response:
    """A reply as a Starlette response."""
    response = Response(reply.body, reply.status)
    response.raw_headers = reply.headers
    return response


def reply_of(response: Response) -> replies.Reply:
    """A Starlette response with a body as a reply."""
    fields = dict(response.raw_headers)
    cache, media_type = fields.pop(b"cache-control"), fields.pop(b"content-type")
    del fields[b"content-length"]
    return replies.Reply(response.status_code, media_type, bytes(response.body), tuple(fields.items()), cache)


async def answer_problem(_request: Request, error: Exception) -> Response:
    """Starlette's handler for the errors of routes."""
    return problem_response(error)
