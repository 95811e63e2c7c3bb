"""The board admin: what is left half done is taken over, nothing is revived, and nothing is taken that is another's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import msgspec
import pytest

from live.boards.admin import ABANDONED, BoardAdmin
from live.boards.definition import read_board
from live.domain.board import Board, Boards
from live.domain.event import make_entry
from live.errors import EpochLostError, ProblemError
from live.settings import Settings
from live.store.board.beginnings import create
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.connection.client import Store, connect
from live.store.registry.definitions import Definition
from tests.harness.boards import rolling_board
from tests.harness.settings import fresh_settings

KISS: Final[dict[str, Any]] = {"source": ["kiss"], "window": "forever"}


class House:
    """A board admin, and a look at what it does."""

    def __init__(self, client: Store, settings: Settings) -> None:
        self.client = client
        self.settings = settings
        self.board_admin = BoardAdmin(client, settings, Boards([rolling_board()]))
        self.keys = Keys(settings.key_prefix, "b")

    async def define(self, definition: Definition) -> None:
        """Leave a definition behind, as who died on the way would have."""
        found = await self.board_admin.definitions.load()
        assert await self.board_admin.definitions.keep(found.version, "b", definition, None)

    async def definition(self) -> Definition | None:
        return (await self.board_admin.definitions.load()).boards.get("b")

    async def owned(self) -> list[bytes]:
        """Every key of the board."""
        return [key async for key in self.client.scan_iter(match=f"{self.keys.channel}*", count=1000)]

    async def ledger(self) -> Ledger:
        """A ledger as a process has it that has heard of the board."""
        definition = await self.definition()
        assert definition is not None
        return Ledger(self.client, read_board("b", definition.choices), self.settings, born=definition.epoch)

    async def refused(self, work: Any) -> tuple[str, str]:
        """Code and detail of a refusal."""
        with pytest.raises(ProblemError) as problem:
            await work
        return problem.value.code, problem.value.detail


@asynccontextmanager
async def house(store: str) -> AsyncIterator[House]:
    """A board admin on a key prefix of its own."""
    settings = fresh_settings(store)
    client = connect(store, settings)
    try:
        yield House(client, settings)
    finally:
        await client.aclose()


async def test_a_board_goes_with_everything_it_owns(any_store: str) -> None:
    """Thousands of keys in steps, of every kind; and nothing of a board whose name only begins the same."""
    async with house(any_store) as made:
        assert await made.board_admin.put("b", {"window": {"calendar": "hour", "keep": 900}, "clock": "event"}, "ann")
        assert await made.board_admin.put("b2", KISS, "ann")
        ledger = await made.ledger()
        await ledger.writer.add(
            [make_entry(f"k{i}", 1, i * 3_600_000, bytes([i % 256] * 16)) for i in range(1, 800, 300)]
        )
        for number in range(3000):
            await made.client.hset(ledger.state.keys.slot(number), "a", 1)
        await made.client.zadd(ledger.state.keys.slots, {str(number): number for number in range(3000)})
        assert len(await made.owned()) > 3000
        await made.board_admin.delete("b", "ann")
        assert await made.owned() == []
        assert await made.client.exists(Keys(made.settings.key_prefix, "b2").meta)
        with pytest.raises(EpochLostError):
            await ledger.writer.add([make_entry("a")])
        with pytest.raises(EpochLostError):
            await Ledger(made.client, ledger.state.board, made.settings, born=ledger.state.born).state.open()
        assert await made.owned() == []


async def test_of_many_puts_at_once_one_makes(any_store: str) -> None:
    """The others change what it has made; the last one's choices stand, and there is one board."""
    async with house(any_store) as made:
        outcomes = await asyncio.gather(
            *(made.board_admin.put("b", {**KISS, "title": f"t{i}"}, f"p{i}") for i in range(8))
        )
        assert sorted(outcomes) == [False] * 7 + [True]
        entries = await made.board_admin.definitions.audit_log(100)
        assert [entry.what for entry in entries] == ["changed"] * 7 + ["created"]
        definition = await made.definition()
        assert definition is not None
        assert definition.choices == entries[0].choices
        assert definition.revision == 8
        ledger = await made.ledger()
        await ledger.state.open()


async def test_puts_and_deletes_in_a_heap_leave_a_whole_board_or_none(any_store: str) -> None:
    """Whatever goes first, at the end the store holds either a definition and its life, or nothing."""
    async with house(any_store) as made:
        for _ in range(10):

            async def delete() -> None:
                with suppress(ProblemError):  # there may be none
                    await made.board_admin.delete("b", "ann")

            works: list[Any] = [made.board_admin.put("b", KISS, "ann") for _ in range(3)] + [delete() for _ in range(3)]
            await asyncio.gather(*works)
            definition = await made.definition()
            if definition is None:
                assert await made.owned() == []
            else:
                assert definition.state == "live"
                await (await made.ledger()).state.open()


async def test_an_abandoned_making_is_taken_over(any_store: str) -> None:
    """With what it had born; the one who comes late to finish it changes nothing."""
    async with house(any_store) as made:
        board = read_board("b", KISS)
        abandoned = Definition(
            epoch="0badbad0",
            choices=KISS,
            state="making",
            since=(await made.board_admin.definitions.load()).now - ABANDONED - 1,
        )
        await made.define(abandoned)
        assert await create(made.client, made.keys, board, abandoned.epoch) is None
        assert await made.board_admin.put("b", KISS, "ann")
        definition = await made.definition()
        assert definition is not None
        assert definition.epoch != abandoned.epoch
        await made.board_admin.finish("b", abandoned)
        assert await create(made.client, made.keys, board, abandoned.epoch) == (definition.epoch, True)
        await (await made.ledger()).state.open()


async def test_a_life_that_nobody_knows_is_cleared_away(any_store: str) -> None:
    """Who makes a board finds what a maker has left that lost its place and died."""
    async with house(any_store) as made:
        assert await create(made.client, made.keys, read_board("b", KISS), "0badbad0") is None
        assert await made.board_admin.put("b", KISS, "ann")
        await (await made.ledger()).state.open()


async def test_an_abandoned_leaving_is_finished(any_store: str) -> None:
    """By whoever meets it; then the id is free."""
    async with house(any_store) as made:
        await made.board_admin.put("b", KISS, "ann")
        held = await made.definition()
        assert held is not None
        await made.define(msgspec.structs.replace(held, state="leaving"))
        assert (await made.refused(made.board_admin.patch("b", {}, "ann")))[0] == "board_not_found"
        assert await made.owned() == []
        assert await made.definition() is None


async def test_a_board_of_a_file_is_not_touched(any_store: str) -> None:
    """Neither one of ours, nor what the store holds of another server's."""
    async with house(any_store) as made:
        for work in (
            made.board_admin.put("posts", KISS, "ann"),
            made.board_admin.patch("posts", {}, "ann"),
            made.board_admin.delete("posts", "ann"),
        ):
            assert (await made.refused(work))[0] == "board_in_file"
        other = Ledger(made.client, Board(id="b", title="b"), made.settings)
        await other.state.open()
        assert (await made.refused(made.board_admin.put("b", KISS, "ann")))[0] == "board_in_file"
        assert await made.definition() is None
        await other.writer.add([make_entry("a")])


async def test_a_part_of_a_union_may_go(any_store: str) -> None:
    """It must be there when the union is made, and can go before the union does."""
    async with house(any_store) as made:
        union = {"union": ["b", "posts"], "window": {"rolling": "24h", "slot": "1h"}}
        code, detail = await made.refused(made.board_admin.put("u", union, "ann"))
        assert (code, "no board `b`" in detail) == ("board_invalid", True)
        await made.board_admin.put("b", {}, "ann")
        assert await made.board_admin.put("u", union, "ann")
        await made.board_admin.delete("b", "ann")
        await made.board_admin.patch("u", {"title": "left"}, "ann")
        await made.board_admin.delete("u", "ann")


async def test_the_trail_tells_what_was_done(any_store: str) -> None:
    """A change that changes nothing leaves no trace."""
    async with house(any_store) as made:
        await made.board_admin.put("b", KISS, "ann")
        await made.board_admin.put("b", KISS, "bob")
        await made.board_admin.patch("b", {"title": "B"}, "bob")
        await made.board_admin.patch("b", {"frozen": True}, "cat")
        await made.board_admin.patch("b", {"frozen": None}, "cat")
        await made.board_admin.delete("b", "dan")
        entries = await made.board_admin.definitions.audit_log(10)
        told = [(entry.who, entry.what, entry.board) for entry in reversed(entries)]
        assert told == [
            ("ann", "created", "b"), ("bob", "changed", "b"), ("cat", "frozen", "b"), ("cat", "thawed", "b"),
            ("dan", "deleted", "b"),
        ]  # fmt: skip
        assert entries[2].choices == {**KISS, "title": "B", "frozen": True}
        now = (await made.board_admin.definitions.load()).now * 1000
        assert all(now - 60_000 < entry.at < now + 2000 for entry in entries)
        assert len(await made.board_admin.definitions.audit_log(2)) == 2


async def test_there_are_no_more_boards_than_may_be(any_store: str) -> None:
    """Those of the file count, many makers at once do not pass the limit, and who deletes one makes room."""
    async with house(any_store) as made:
        settings = msgspec.structs.replace(made.settings, max_boards=4)
        keepers = [BoardAdmin(made.client, settings, Boards([rolling_board()])) for _ in range(2)]
        puts = [keepers[number % 2].put(f"b{number}", KISS, "ann") for number in range(8)]
        outcomes = await asyncio.gather(*puts, return_exceptions=True)
        refused = [outcome.code for outcome in outcomes if isinstance(outcome, ProblemError)]
        assert (outcomes.count(True), refused) == (3, ["too_many_boards"] * 5)
        kept = sorted((await made.board_admin.definitions.load()).boards)
        assert len(kept) == 3
        assert not await keepers[0].put(kept[0], {**KISS, "title": "Changed"}, "ann")
        await keepers[0].delete(kept[0], "ann")
        assert await keepers[0].put("another", KISS, "ann")
