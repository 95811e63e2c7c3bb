"""A board that is defined anew while a call is under way: what was asked, and what is answered, are of one board."""

from typing import Any

import msgspec

from live.domain.board_file import BoardChoice, make_board
from live.domain.event import make_entry
from live.domain.ranking import Page
from live.domain.window_choice import WindowChoice
from live.store.board.ledger import Ledger
from live.store.board.reader import read_tops
from live.store.board.state import SCRIPTS
from live.store.connection.scripts import Script
from tests.harness.boards import open_ledger, rolling_board

HOUR = 3600


class Changing(Script):
    """A script during whose call the board is defined anew, and that notes with which arguments it was called."""

    def __init__(self, name: str, ledger: Ledger, **choices: Any) -> None:
        super().__init__(name)
        self.arguments: list[list[Any]] = []
        self._ledger = ledger
        self._choices = choices

    async def __call__(self, store: Any, keys: Any, arguments: Any) -> list[Any]:
        self.arguments.append(list(arguments))
        reply = await super().__call__(store, keys, arguments)
        self._ledger.board = msgspec.structs.replace(self._ledger.board, **self._choices)
        return reply


async def test_a_page_is_of_the_board_that_was_asked_for(any_store: str) -> None:
    """A board that is defined anew while it is read changes nothing of what was read, alone and with others."""
    async with open_ledger(any_store, rolling_board()) as ledger:
        await ledger.add([make_entry("a", 5, None), make_entry("b", 5, None), make_entry("c", 3, None)])
        before = ledger.board
        for read in ("read", "places", "tops"):
            ledger.board = before
            changing = Changing("places" if read == "places" else "read", ledger, ranks="competition")
            name = {changing.name: changing}
            ledger._scripts = msgspec.structs.replace(SCRIPTS, **name)
            if read == "tops":

                def command(keys: Any, arguments: Any, changing: Changing = changing) -> Any:
                    ledger.board = msgspec.structs.replace(ledger.board, ranks="competition")
                    return Script.command(changing, keys, arguments)

                changing.command = command  # type: ignore[method-assign]
                (page,) = await read_tops(ledger._client, [(ledger, 3)])
            elif read == "places":
                (page,) = [ledger.page(spot) for spot in await ledger.places([("b", 1)])]
            else:
                page = await ledger.read(3)
            assert isinstance(page, Page)
            assert [record.rank for record in page.records] == [1, 2, 3]
            assert ledger.board.ranks == "competition"


async def test_a_batch_is_planned_and_applied_by_one_board(any_store: str) -> None:
    """A board that is defined anew while a plan is awaited is that of the next plan."""
    choice = BoardChoice(id="posts", window=WindowChoice(rolling="24h", slot="1h"), clock="event")
    board = msgspec.structs.replace(make_board(choice), operator="best", cap=2)
    async with open_ledger(any_store, board) as ledger:
        await ledger.add([make_entry("now", 1, 100 * HOUR * 1000)])
        noting = Changing("add", ledger, cap=9)
        ledger._scripts = msgspec.structs.replace(SCRIPTS, add=noting)
        for _ in range(2):
            await ledger.add([make_entry("late", 1, 0, bytes(16)), make_entry("a", 1, 100 * HOUR * 1000)])
        assert [arguments[17] for arguments in noting.arguments] == [2, 9]
