"""Requests of administrators: their API key, their JSON bodies, and the audit log at `/v1/trail`."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from live.domain.producer import Principal
from live.errors import ProblemError
from live.network.parameters import whole_number
from live.store.registry.definitions import AuditEntry
from live.web.http.middleware import client_of
from live.web.http.responses import NOT_STORED
from live.web.services import live_of

_MOST_LEVELS: Final = 32  # no board or contestant needs more, and every JSON parser accepts as many
_TOO_DEEP: Final = f"the JSON is nested deeper than {_MOST_LEVELS} levels"
_DEFAULT_LIMIT: Final = 100
_MAX_LIMIT: Final = 1000


async def admin_of(request: Request) -> Principal:
    """Return the producer whose API key may change the board of this request, or any board if the path names none.

    Raises:
        ProblemError: `credentials_required`, `credentials_invalid`, `scope_forbidden`, `origin_forbidden` or
            `rate_exceeded`.
    """
    authorization = request.headers.get("authorization")
    live = live_of(request)
    producer = live.authenticator.authorize(
        None if authorization is None else authorization.encode("latin-1"), client_of(request), "admin"
    )
    await live.rate_limiter.admit(producer)
    if "board" in request.path_params:
        producer.require_board(request.path_params["board"])
    return producer


async def unlimited_admin_of(request: Request) -> Principal:
    """Return the producer whose API key may change what all boards show.

    Raises:
        ProblemError: as `admin_of`; `scope_forbidden` also if the API key is limited to some boards.
    """
    producer = await admin_of(request)
    if producer.is_limited:
        raise ProblemError("scope_forbidden", "the API key is limited to some boards, and titles appear on all of them")
    return producer


async def read_body(request: Request) -> bytes:
    """Read the whole body of a request.

    Raises:
        ProblemError: `body_too_large`.
    """
    return await live_of(request).intake.collect(request.stream())


def read_object(body: bytes, code: str, expected: str) -> dict[str, Any]:
    """Decode the JSON object of a body.

    Args:
        body: the body of a request.
        code: the problem to raise for any other JSON.
        expected: what the body must be, in words.

    Raises:
        ProblemError: `code`, or `malformed_body` if the JSON is nested deeper than 32 levels.
    """
    try:
        value = msgspec.json.decode(body, type=dict[str, Any])
    except RecursionError:
        raise ProblemError("malformed_body", _TOO_DEEP) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProblemError(code, f"{expected}: {error}") from None
    level: list[Any] = [value]
    for _ in range(_MOST_LEVELS):  # level by level, so that this can't recurse too deeply itself
        inner = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [each for several in inner for each in several]
        if not level:
            return value
    raise ProblemError("malformed_body", _TOO_DEEP)


class AuditLog(msgspec.Struct, frozen=True):
    """The audit log: who changed which boards, newest first."""

    trail: Sequence[AuditEntry]


async def get_audit_log(request: Request) -> Response:
    """Return the newest changes of the boards that the API key includes."""
    live, producer = live_of(request), await admin_of(request)
    limit = whole_number(request.query_params, "limit", _DEFAULT_LIMIT, 1, _MAX_LIMIT)
    entries = await live.board_admin.definitions.audit_log(limit)
    visible = [entry for entry in entries if producer.refusal(entry.board) is None]
    return Response(msgspec.json.encode(AuditLog(visible)), headers=NOT_STORED, media_type="application/json")
