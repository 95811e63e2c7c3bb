"""PUT, PATCH and DELETE /v1/boards/{board}: boards that come, change and go while the server runs; GET /v1/trail."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from live.domain.producer import Producer
from live.errors import ProblemError, StoreUnavailableError
from live.network.parameters import whole_number
from live.store.registry.definitions import Deed
from live.web.boards import get_board, summary_of
from live.web.bodies import read_object
from live.web.clients import client_of
from live.web.state import Live, live_of

_ANONYMOUS: Final = "anonymous"
_MOST_DEEDS: Final = 1000
_JSON: Final = ("application/json", "application/merge-patch+json", "")


class Trail(msgspec.Struct, frozen=True):
    """The audit log: who changed which boards, newest first."""

    trail: Sequence[Deed]


async def serve_board(request: Request) -> Response:
    """One board: read, create, change or delete it."""
    return await _METHODS[request.method](request)


async def put_board(request: Request) -> Response:
    """Make a board, or give it other choices."""
    live, producer = live_of(request), await admin_of(request)
    board = request.path_params["board"]
    made = await live.board_admin.put(board, await _choices(live, request), producer.id or _ANONYMOUS, producer)
    return await _shown(live, board, HTTPStatus.CREATED if made else HTTPStatus.OK)


async def patch_board(request: Request) -> Response:
    """Change some choices of a board."""
    live, producer = live_of(request), await admin_of(request)
    board = request.path_params["board"]
    await live.board_admin.patch(board, await _choices(live, request), producer.id or _ANONYMOUS, producer)
    return await _shown(live, board, HTTPStatus.OK)


async def delete_board(request: Request) -> Response:
    """Remove a board with everything it owns."""
    live, producer = live_of(request), await admin_of(request)
    await live.board_admin.delete(request.path_params["board"], producer.id or _ANONYMOUS)
    await live.registry.look()
    return Response(status_code=HTTPStatus.NO_CONTENT, headers={"Cache-Control": "no-store"})


async def get_trail(request: Request) -> Response:
    """Who changed which boards; a key for some boards sees what was done to these."""
    live, producer = live_of(request), await admin_of(request)
    limit = whole_number(request.query_params, "limit", 100, 1, _MOST_DEEDS)
    deeds = await live.board_admin.definitions.trail(limit)
    seen = [deed for deed in deeds if producer.refusal(deed.board) is None]
    return Response(
        msgspec.json.encode(Trail(seen)), headers={"Cache-Control": "no-store"}, media_type="application/json"
    )


_METHODS: Final[Mapping[str, Callable[[Request], Awaitable[Response]]]] = {
    "GET": get_board,
    "HEAD": get_board,
    "PUT": put_board,
    "PATCH": patch_board,
    "DELETE": delete_board,
}


async def admin_of(request: Request) -> Producer:
    """Who asks, with a key that is for changing this board."""
    authorization = request.headers.get("authorization")
    live = live_of(request)
    producer = live.authenticator.authorize(
        None if authorization is None else authorization.encode("latin-1"), client_of(request), "admin"
    )
    await live.rate_limiter.admit(producer)
    if "board" in request.path_params:
        producer.require_board(request.path_params["board"])
    return producer


async def _choices(live: Live, request: Request) -> dict[str, Any]:
    """The body: one JSON object."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() not in _JSON:
        raise ProblemError("unsupported_media_type", "send application/json")
    body = await live.intake.collect(request.stream())
    return read_object(body, "malformed_body", "the body must be one JSON object with the choices")


async def _shown(live: Live, board: str, status: HTTPStatus) -> Response:
    """The board as it is now, in this process too."""
    await live.registry.look()
    shown = live.boards.by_id.get(board)
    if shown is None:
        raise StoreUnavailableError(f"board {board} can't be run here", unknown=True)
    headers = {"Cache-Control": "no-store"}
    if status == HTTPStatus.CREATED:
        headers["Location"] = f"{live.settings.root_path}/v1/boards/{board}"
    return Response(msgspec.json.encode(summary_of(shown)), status, headers, "application/json")
