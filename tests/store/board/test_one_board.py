"""A board that is redefined during a call: the request and the page belong to the same definition."""

from typing import Any

import msgspec
import pytest

from live.domain.board_file import make_board
from live.domain.choices import Choices
from live.domain.event import make_entry
from live.domain.ranking import Page
from live.domain.window import Periods, WindowChoice
from live.journal.log.entries import content
from live.store.board.batch import decode_batch
from live.store.board.ledger import Ledger
from live.store.board.read.reader import read_tops
from live.store.board.requests import SCRIPTS
from live.store.connection.scripts import Script
from tests.harness.boards import built, open_ledger, rolling_board

HOUR = 3600


class Changing(Script[Any]):
    """A script that redefines the board while it runs, and records the requests that it receives."""

    def __init__(self, name: str, ledger: Ledger, **choices: Any) -> None:
        super().__init__(name, getattr(SCRIPTS, name).request)
        self.requests: list[Any] = []
        self._ledger = ledger
        self._choices = choices

    async def __call__(self, store: Any, keys: Any, request: Any) -> list[Any]:
        self.requests.append(request)
        reply = await super().__call__(store, keys, request)
        self._ledger.state.board = msgspec.structs.replace(self._ledger.state.board, **self._choices)
        return reply


async def test_a_process_that_opens_a_board_knows_its_clock(valkey_url: str) -> None:
    """The first call of the process has the right slot, and need not be repeated."""
    board = rolling_board(clock="event")
    async with open_ledger(valkey_url, board) as ledger:
        await ledger.writer.add([make_entry("a", 1, 9 * HOUR * 1000)])
        another = Ledger(ledger.state.client, board, ledger.state.settings)
        await another.state.open()
        assert another.state.planned().current == ledger.state.planned().current == 9 * HOUR


async def test_a_page_matches_the_requested_definition(any_store: str) -> None:
    """Redefining a board during a read does not change the page, in a single read and in a shared read."""
    async with open_ledger(any_store, rolling_board()) as ledger:
        await ledger.writer.add([make_entry("a", 5, None), make_entry("b", 5, None), make_entry("c", 3, None)])
        before = ledger.state.board
        for read in ("read", "places", "tops"):
            ledger.state.board = before
            changing = Changing("places" if read == "places" else "read", ledger, ranks="competition")
            name = {changing.name: changing}
            ledger.state.scripts = msgspec.structs.replace(SCRIPTS, **name)
            if read == "tops":

                def command(keys: Any, request: Any, changing: Changing = changing) -> Any:
                    ledger.state.board = msgspec.structs.replace(ledger.state.board, ranks="competition")
                    return Script.command(changing, keys, request)

                changing.command = command  # type: ignore[method-assign]
                (page,) = await read_tops(ledger.state.client, [(ledger.reader, 3)])
            elif read == "places":
                (page,) = [ledger.reader.page(encoded) for encoded in await ledger.reader.places([("b", 1)])]
            else:
                page = await ledger.reader.read(3)
            assert isinstance(page, Page)
            assert [record.rank for record in page.records] == [1, 2, 3]
            assert ledger.state.board.ranks == "competition"


async def test_a_batch_is_planned_and_applied_with_one_definition(any_store: str) -> None:
    """A new definition applies from the next plan on."""
    choice = Choices(id="posts", window_choice=WindowChoice(rolling="24h", slot="1h"), clock="event")
    board = msgspec.structs.replace(make_board(choice), operator="best", cap=2)
    async with open_ledger(any_store, board) as ledger:
        await ledger.writer.add([make_entry("now", 1, 100 * HOUR * 1000)])
        noting = Changing("add", ledger, cap=9)
        ledger.state.scripts = msgspec.structs.replace(SCRIPTS, add=noting)
        for _ in range(2):
            await ledger.writer.add([make_entry("late", 1, 0, bytes(16)), make_entry("a", 1, 100 * HOUR * 1000)])
        assert [decode_batch(content(request.batch)).rules.cap for request in noting.requests] == [2, 9]


@pytest.mark.parametrize(("window", "name"), [(Periods(unit="day"), "2026-11-23"), (Periods(unit="day", last=2), None)])
async def test_a_page_names_the_period_that_was_read(valkey_url: str, window: Periods, name: str | None) -> None:
    """A page has no period if the board has one ranking over several periods, or no events on its event clock."""
    board = built(id="b", title="b", window=window, clock="event")
    async with open_ledger(valkey_url, board) as ledger:
        assert (await ledger.reader.read(3)).period is None
        await ledger.writer.add([make_entry("a", 5, 1795420800 * 1000)])
        page = await ledger.reader.read(3)
        assert page.period == name
        assert [(record.member, record.rank, record.score) for record in page.records] == [("a", 1, 5)]
