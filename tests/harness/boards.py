"""The boards that most tests use."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from live.domain.board import Board
from live.domain.board_file import BoardChoice, make_board
from live.domain.ranking import Page
from live.domain.window import WindowChoice
from live.store.board.ledger import Ledger
from live.store.board.read.reader import BoardReader, Mode, Selection
from live.store.connection.client import connect
from tests.harness.settings import fresh_settings


def rolling_board(
    window: str = "24h", slot: str = "1h", clock: str = "server", board: str = "posts", ties: str = "key"
) -> Board:
    """A board on a rolling window, fed by likes."""
    made = make_board(BoardChoice(id=board, window=WindowChoice(rolling=window, slot=slot), clock=clock, ties=ties))  # type: ignore[arg-type]
    return msgspec.structs.replace(made, visibility="public")


BOARD: Final = rolling_board()


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
