"""The boards that most tests use."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

import msgspec

from live.domain.board import Board
from live.domain.board_file import make_board
from live.domain.choices import Choices
from live.domain.ranking import Page
from live.domain.window import Forever, Periods, Rolling, Sliding, Window, WindowChoice, format_duration
from live.store.board.ledger import Ledger
from live.store.board.read.reader import BoardReader, Mode, Selection
from live.store.connection.client import connect
from tests.harness.settings import fresh_settings


def rolling_board(
    window: str = "24h", slot: str = "1h", clock: str = "server", board: str = "posts", ties: str = "key"
) -> Board:
    """A board on a rolling window, fed by likes."""
    made = make_board(Choices(id=board, window_choice=WindowChoice(rolling=window, slot=slot), clock=clock, ties=ties))  # type: ignore[arg-type]
    return msgspec.structs.replace(made, visibility="public")


BOARD: Final = rolling_board()


def built(**values: Any) -> Board:
    """A public board without contradictions being checked. Values may be as code reads them, such as a `Window`."""
    return Board(**{"visibility": "public", **_choices(values)})


def changed(board: Board, **values: Any) -> Board:
    """A copy of a board with other values, which may be as code reads them."""
    return msgspec.structs.replace(board, **_choices(values))


def _choices(values: dict[str, Any]) -> dict[str, Any]:
    """Translate values that code reads into the choices from which they follow."""
    translated = dict(values)
    if "window" in values:
        translated["window_choice"] = written(translated.pop("window"))
    if source := translated.pop("source", None):
        translated["types"] = tuple(sorted(source))
    if "categories" in values:
        translated["category"] = tuple(sorted(translated.pop("categories")))
    if "union" in values:
        translated |= {"union": tuple(values["union"]), "weights": tuple(values["union"].values())}
    if values.get("score") is not None:
        translated["score"] = values["score"].fields
    return translated


def written(window: Window) -> WindowChoice | Literal["forever"]:
    """The table that defines a window."""
    match window:
        case Rolling(length, slot):
            return WindowChoice(rolling=format_duration(length * 1000), slot=format_duration(slot * 1000))
        case Sliding(length):
            return WindowChoice(sliding=format_duration(length * 1000))
        case Periods():
            plain = Periods(unit=window.unit)
            names = ("timezone", "week_start", "day_start", "last", "keep")
            given = {name: getattr(window, name) for name in names if getattr(window, name) != getattr(plain, name)}
            grace = format_duration(window.grace * 1000) if window.grace else None
            return WindowChoice(calendar=window.unit, grace=grace, **given)
        case Forever():
            return "forever"


@asynccontextmanager
async def open_ledger(store: str, board: Board, **changes: Any) -> AsyncIterator[Ledger]:
    """A ledger on a new board in a store; `changes` replace settings."""
    settings = fresh_settings(store, **changes)
    client = connect(store, settings)
    try:
        yield Ledger(client, board, settings)
    finally:
        await client.aclose()


async def select_page(
    reader: BoardReader, mode: Mode, place: tuple[int, str | bytes] | None, limit: int, period: int | None = None
) -> Page:
    """The page at a place; see `Selection`."""
    assert place is not None
    return (await reader.select(Selection(mode, *place, limit, period))).page
