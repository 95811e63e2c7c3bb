"""The page of one board: its definition as TOML and JSON, its memory, and what an administrator can do with it."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.responses import Response

from live.domain.board import Board
from live.errors import ProblemError
from live.store.board.usage import measure
from live.web.admin.admin_page import NO_FORM, AdminPage, Desk, Form
from live.web.admin.boards import row_of
from live.web.admin.calls import ApiCall
from live.web.reads.boards import visible_choices

_LONGEST: Final = 1024 * 1024  # bytes of a boards file that are searched for a board
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")  # names that need no quotes
_AT_RUN_TIME: Final = ("frozen", "idle_ttl")  # choices that a boards file does not have

_MOST_SLOTS: Final = 100  # newest slots whose memory is measured


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


def board_toml(board: str, choices: Mapping[str, Any]) -> str:
    """Write choices as a table of a boards file. Leave out choices that only a run-time board has."""
    lines = [
        f"{_name(name)} = {_value(value)}"
        for name, value in {"id": board, **choices}.items()
        if value is not None and name not in _AT_RUN_TIME
    ]
    return "\n".join(("[[board]]", *lines))


def line_of(path: Path, board: str) -> int | None:
    """Return the number of the line of a boards file that has the id of a board. Return None if it is not found."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LONGEST)
    except (OSError, UnicodeDecodeError):
        return None
    has_id = re.compile(rf"""\s*id\s*=\s*["']{re.escape(board)}["']""")
    return next((number for number, line in enumerate(text.split("\n"), 1) if has_id.match(line)), None)


def _value(value: Any) -> str:  # noqa: ANN401 - any JSON
    if isinstance(value, Mapping):
        inner = (f"{_name(name)} = {_value(one)}" for name, one in value.items() if one is not None)
        return f"{{ {', '.join(inner)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    # Texts, numbers, true and false look the same in TOML and in JSON, except for this character in a text.
    return msgspec.json.encode(value).decode().replace("\x7f", r"\u007f")


def _name(name: str) -> str:
    return name if _BARE.fullmatch(name) else _value(name)
