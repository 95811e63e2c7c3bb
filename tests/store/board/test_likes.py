"""How long a board with a like button remembers identities: as long as their likes are in the window."""

from typing import Any, Final

import pytest

from live.domain.board import Board
from live.domain.board_file import make_board
from live.domain.choices import Choices
from live.domain.event import make_entry
from live.domain.window import WindowChoice
from live.store.board.ledger import Ledger
from live.store.board.requests import SCRIPTS
from live.store.board.rotation import catch_up
from live.store.connection.client import connect
from tests.harness.clock import set_clock, with_clock
from tests.harness.settings import fresh_settings

MINUTE: Final = 60_000
T0: Final = 4_000_000_000_000 // (60 * MINUTE) * 60 * MINUTE  # long after the store's real time
WINDOWS: Final = {
    "rolling": WindowChoice(rolling="3h", slot="1h"),
    "one slot": WindowChoice(rolling="3h", slot="3h"),
    "sliding": WindowChoice(sliding="3h"),
}


async def scores(store: str, board: Board) -> list[int]:
    """The score of a member that one visitor likes every ten minutes for 24 hours, after each like."""
    settings = fresh_settings(store, dedupe_window=3600)
    client = connect(store, settings)
    found = []
    try:
        await set_clock(client, settings, T0)
        ledger = Ledger(client, board, settings, with_clock(SCRIPTS, settings))
        for minute in range(0, 24 * 60, 10):
            await set_clock(client, settings, T0 + minute * MINUTE)
            await ledger.writer.add([make_entry("Ada", identity=b"0123456789abcdef")])
            await catch_up(ledger.rotator)
            page = await ledger.reader.read(1)
            found.append(page.records[0].score if page.records else 0)
    finally:
        await client.aclose()
    return found


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("kind", [{"like_button": True}, {"union": ("a", "b")}], ids=["board", "union"])
async def test_a_visitor_has_one_like_in_a_window(valkey_url: str, window: WindowChoice, kind: dict[str, Any]) -> None:
    """`dedupe_window` is only an hour.

    Still, the visitor can't like again before the window of the board has passed.
    """
    board = make_board(Choices(id="posts", window_choice=window, **kind))
    found = await scores(valkey_url, board)
    assert max(found) == 1
    assert found.count(1) < len(found)
    assert found[-30:].count(1) > 0


async def test_the_test_can_fail(valkey_url: str) -> None:
    """On a board without a like button, an identity expires while its like still counts.

    A repeated like then counts twice.
    """
    assert max(await scores(valkey_url, make_board(Choices(id="posts", window_choice=WINDOWS["rolling"])))) > 1
