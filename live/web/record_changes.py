"""PUT, PATCH and DELETE of a record: contestants are registered, records are hidden and shown."""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from live.domain.event import Event, event_fault, key_fault
from live.errors import ProblemError
from live.store.board.ledger import Ledger
from live.web.board_changes import admin_of
from live.web.bodies import read_object
from live.web.records import get_record
from live.web.state import live_of


class Visibility(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether to hide a record. A hidden record keeps counting but has no rank."""

    hidden: bool


async def serve_record(request: Request) -> Response:
    """One record: read it, register or withdraw its member, hide or show it."""
    return await _METHODS[request.method](request)


async def put_record(request: Request) -> Response:
    """Register a key for a contest with its metadata, a JSON object; or give it other metadata."""
    ledger, key = await _changed(request)
    _require_contest(ledger)
    metadata = await _body(request)
    read_object(metadata, "record_invalid", "the body is one JSON object, the key's metadata")
    fault = event_fault(Event(key=key, metadata=msgspec.Raw(metadata)))
    if fault is not None:
        raise ProblemError("record_invalid", fault[1])
    made = await ledger.moderation.enter(key, metadata)
    return Response(status_code=HTTPStatus.CREATED if made else HTTPStatus.NO_CONTENT, headers=_NOT_KEPT)


async def delete_record(request: Request) -> Response:
    """Withdraw a key that is registered for a contest, and has no vote."""
    ledger, key = await _changed(request)
    _require_contest(ledger)
    await ledger.moderation.withdraw(key)
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=_NOT_KEPT)


async def patch_record(request: Request) -> Response:
    """Hide a record, or show it again."""
    ledger, key = await _changed(request)
    like = 'the body is like {"hidden": true}'
    body = read_object(await _body(request), "record_invalid", like)
    try:
        wanted = msgspec.convert(body, Visibility)
    except msgspec.ValidationError as error:
        raise ProblemError("record_invalid", f"{like}: {error}") from None
    await ledger.moderation.hide(key, hidden=wanted.hidden)
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=_NOT_KEPT)


_NOT_KEPT: Final = {"Cache-Control": "no-store"}
_METHODS: Final[Mapping[str, Callable[[Request], Awaitable[Response]]]] = {
    "GET": get_record,
    "HEAD": get_record,
    "PUT": put_record,
    "PATCH": patch_record,
    "DELETE": delete_record,
}


async def _changed(request: Request) -> tuple[Ledger, str]:
    """The board that an administrator changes, and the key."""
    await admin_of(request)
    ledger = await live_of(request).use(request.path_params["board"])
    key: str = request.path_params["key"]
    fault = key_fault(key)
    if fault is not None:
        raise ProblemError("record_invalid", fault)
    return ledger, key


def _require_contest(ledger: Ledger) -> None:
    if ledger.state.board.votes is None:
        raise ProblemError("board_open_to_all", "only a board with `votes` registers members")


async def _body(request: Request) -> bytes:
    """The body as it is; JSON is judged by who reads it."""
    return await live_of(request).intake.collect(request.stream())
