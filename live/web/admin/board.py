"""The page of one board: its definition as TOML and JSON, its memory, and what an administrator can do with it."""

import asyncio
from typing import Final

from starlette.responses import Response

from live.domain.board import Board
from live.errors import ProblemError
from live.store.board.check.usage import measure
from live.web.admin.admin_page import NO_FORM, AdminPage, Desk, Form
from live.web.admin.boards import row_of
from live.web.admin.calls import ApiCall
from live.web.admin.toml import board_toml, line_of
from live.web.reads.boards import visible_choices

_MOST_SLOTS: Final = 100  # the newest slots, whose memory is measured


async def show(desk: Desk, error: Exception | None = None, _form: Form = NO_FORM) -> Response:
    """Show the board."""
    ledger = await desk.ledger(desk.request.path_params["board"])
    board = ledger.state.board
    in_file, file = board.id in desk.live.board_admin.in_file.by_id, desk.live.settings.boards
    definition = await desk.live.board_admin.defined(board.id)
    choices = visible_choices(desk.live, board, desk.visit.reader)
    if definition is not None and choices.get("union") in (None, definition.choices.get("union")):
        choices = definition.choices  # in the order in which they were written
    client, keys = desk.live.client, ledger.state.keys
    names = [keys.meta, keys.slots, *keys.fixed]
    names += [keys.seen(ledger.state.buckets.newest - back * ledger.state.buckets.span) for back in range(2)]
    for start in await client.call(keys.slots, "ZRANGE", keys.slots, -_MOST_SLOTS, -1):
        own = int(start)
        names += keys.of_slot(own) if ledger.state.board.window.tables else (keys.slot(own),)
    measured = await measure(client, desk.live.settings.key_prefix, ledger.state.board.id, list(dict.fromkeys(names)))
    return await desk.show(
        "board",
        error,
        row=await row_of(desk, ledger, await desk.live.activity.samples()),
        memory=measured.bytes,
        file=file if in_file else None,
        line=await asyncio.to_thread(line_of, file, board.id) if in_file and file is not None else None,
        toml=board_toml(board.id, choices),
        put=ApiCall("PUT", _path(board), choices),
        freeze=_freezing(board),
        delete=ApiCall("DELETE", _path(board)),
    )


async def freeze(desk: Desk, _form: Form) -> Response:
    """Freeze the board, or let it take events again."""
    board = (await desk.ledger(desk.request.path_params["board"])).state.board
    await desk.send(_freezing(board))
    return desk.done("thawed" if board.frozen else "frozen")


async def delete(desk: Desk, form: Form) -> Response:
    """Delete the board, if its id was typed in."""
    board = desk.request.path_params["board"]
    if form.get("id", "").strip() != board:
        raise ProblemError("board_invalid", f"type the id of the board, {board}, to delete it with all its data")
    ledger = await desk.ledger(board)
    await desk.send(ApiCall("DELETE", _path(ledger.state.board)))
    return desk.done("deleted", "")


def _path(board: Board) -> str:
    return f"/v1/boards/{board.id}"


def _freezing(board: Board) -> ApiCall:
    return ApiCall("PATCH", _path(board), {"frozen": not board.frozen})


PAGE: Final = AdminPage(path="boards/{board}", show=show, acts={"freeze": freeze, "delete": delete})
