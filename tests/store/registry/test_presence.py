"""Viewer counts: over all processes, correct after a crash, and deleted with the board."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from live.boards.admin import BoardAdmin
from live.errors import StoreUnavailableError
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.board.usage import keys_of, measure
from live.store.connection.client import Store, connect
from live.store.connection.pipelined import SharedConnection, Word
from live.store.connection.scripts import Script
from live.store.registry.presence import BEAT, PRESENT, Presence, PresenceRequest
from tests.harness.boards import rolling_board
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess

TTL = round(3000 * BEAT)
EARLIER = -TTL // 3  # milliseconds: as old as one heartbeat


class Watched:
    """Boards in a store, and processes with viewers."""

    def __init__(self, client: Store, prefix: str, script: Script[Any]) -> None:
        self.client: Any = client
        self.prefix = prefix
        self.keys = Keys(prefix, "posts")
        self._script = script

    def process(self) -> Presence:
        """Add a process."""
        return Presence(self.client, self._script)

    async def held(self, process: Presence) -> bytes | None:
        """The stored report of a process."""
        found: bytes | None = await self.client.hget(self.keys.viewers, process._process)
        return found

    async def report(self, name: str, count: int, shift: int) -> None:
        """Write a report of a process, with a time that is `shift` milliseconds after the store's clock."""
        seconds, micros = await self.client.time()
        await self.client.hset(self.keys.viewers, name, f"{count} {seconds * 1000 + micros // 1000 + shift}")


@asynccontextmanager
async def watched(
    store: str, script: Script[Any] = PRESENT, boards: Sequence[str] = ("posts",)
) -> AsyncIterator[Watched]:
    """Yield boards that exist in the store."""
    settings = fresh_settings(store)
    client = connect(store, settings)
    try:
        for board in boards:
            await Ledger(client, rolling_board(board=board), settings).state.open()
        yield Watched(client, settings.key_prefix, script)
    finally:
        await client.aclose()


async def test_viewers_are_counted_over_all_processes(any_store: str) -> None:
    """Viewers of a crashed process do not count, and a board that does not exist has no viewers."""
    async with watched(any_store, PRESENT) as made:
        one, two = made.process(), made.process()
        assert await one.count("posts") == 0
        assert not await made.client.exists(made.keys.viewers)
        assert await one.report({"posts": 3}) == {"posts": 3}
        assert await two.report({"posts": 4}) == {"posts": 7}
        assert await one.report({"posts": 2}) == {"posts": 6}
        assert 0 < await made.client.pttl(made.keys.viewers) <= TTL

        await made.report("late", 10, EARLIER)
        await made.report("crashed", 100, -TTL)
        await made.report("ahead", 1000, TTL + 60_000)  # this report is from before the clock was set back
        assert await one.count("posts") == 16
        assert await made.client.hlen(made.keys.viewers) == 5, "counting the viewers wrote something"
        assert await two.report({"posts": 4}) == {"posts": 16}
        assert not {b"crashed", b"ahead"} & set(await made.client.hkeys(made.keys.viewers))

        assert await one.report({"posts": 0}) == {"posts": 14}
        assert await made.held(one) is None
        await made.client.hdel(made.keys.viewers, "late")
        await two.leave()
        assert not await made.client.exists(made.keys.viewers)

        await made.client.delete(made.keys.meta)
        assert await one.report({"posts": 1}) == {}
        assert await one.count("posts") == 0
        assert not await made.client.exists(made.keys.viewers)


async def test_each_report_renews_the_store_key(valkey_url: str) -> None:
    """The store key stays while somebody watches. It expires when every process has crashed."""
    async with watched(valkey_url) as made:
        one, two = made.process(), made.process()
        await one.report({"posts": 1})
        await two.report({"posts": 1})
        await made.client.pexpire(made.keys.viewers, TTL // 2)
        await two.report({"posts": 0})
        assert await made.client.pttl(made.keys.viewers) <= TTL // 2, "a process without viewers renewed the store key"
        await one.report({"posts": 1})
        assert await made.client.pttl(made.keys.viewers) > TTL // 2


class Counting(Script[PresenceRequest]):
    """A script that records for which boards it runs."""

    def __init__(self) -> None:
        super().__init__("present", PresenceRequest)
        self.boards: list[str] = []

    def command(self, keys: Sequence[str], request: PresenceRequest) -> tuple[Word, ...]:
        self.boards.append(keys[1].partition("{")[2].partition("}")[0])
        return super().command(keys, request)


async def test_boards_without_viewers_are_not_reported(valkey_url: str) -> None:
    """The store learns once that the viewers of a board have left. A report has each watched board once."""
    script = Counting()
    async with watched(valkey_url, script, ("a", "b", "c")) as made:
        process = made.process()
        await process.count("a")  # the store now knows the script
        script.boards.clear()
        runs = []
        for counts in ({"a": 0, "b": 0}, {"a": 1, "b": 2, "c": 0}, {"a": 0, "b": 2}, {"a": 0, "b": 2}, {"c": 1}):
            await process.report(counts)
            runs.append("".join(script.boards))
            script.boards.clear()
        assert runs == ["", "ab", "ab", "b", "c"]
        await process.leave()
        await process.leave()
        assert script.boards == ["b", "c"]
        assert all([await process.count(board) == 0 for board in "abc"])


async def test_deleted_boards_are_forgotten(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process does not remember boards that the store no longer has."""
    script = Counting()
    async with watched(valkey_url, script) as made:
        process = made.process()
        await process.count("posts")
        script.boards.clear()
        await process.report({"posts": 1})
        monkeypatch.setattr("live.store.registry.presence._TTL", 0.0)
        assert await process.report({"posts": 0}) == {}
        assert script.boards == ["posts"]


async def test_a_lost_report_is_corrected(own_store: StoreProcess) -> None:
    """The reply or the report may be lost. The next report corrects the count either way."""
    async with watched(own_store.url) as made:
        process = made.process()
        assert await process.report({"posts": 5}) == {"posts": 5}
        own_store.kill()
        with pytest.raises(StoreUnavailableError):
            await process.report({"posts": 0})
        with pytest.raises(StoreUnavailableError):
            await process.count("posts")
        own_store.start()
        assert await process.count("posts") == 5
        assert await process.report({"posts": 0}) == {"posts": 0}
        assert await made.held(process) is None


class Pieces(SharedConnection):
    """A connection that records how many commands each packet has, and how many packets are in flight at once."""

    def __init__(self, store: Store) -> None:
        super().__init__(store.connection_pool, 5)
        self.sizes: list[int] = []
        self.under_way = self.most = 0

    async def calls(self, commands: Sequence[tuple[Word, ...]]) -> list[Any]:
        self.sizes.append(len(commands))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            return await super().calls(commands)
        finally:
            self.under_way -= 1


@pytest.mark.one_server
async def test_many_boards_are_reported_in_pieces(any_store: str) -> None:
    """The pieces follow one another and do not block the store, even if it has forgotten the script."""
    boards = [f"b{number}" for number in range(150)]
    async with watched(any_store, boards=boards) as made:
        await made.client.servers.shared.close()
        made.client.servers.shared = connection = Pieces(made.client)
        process = made.process()
        counts = {board: number % 7 + 1 for number, board in enumerate(boards)}
        for _ in range(2):
            connection.sizes.clear()
            assert await process.report({**counts, "none": 3}) == counts
            assert (connection.sizes, connection.most) == ([64, 64, 23], 1)
            await made.client.script_flush()
        await made.client.delete(Keys(made.prefix, "b7").viewers)
        await made.client.set(Keys(made.prefix, "b7").viewers, "no hash")
        del counts["b7"]
        assert await process.report({**counts, "b7": 1}) == counts, "the count has a board that failed"
        with pytest.raises(StoreUnavailableError, match="WRONGTYPE"):
            await process.report({"b7": 1})


async def test_a_removed_board_leaves_nothing(any_store: str) -> None:
    """The viewer count of the board is deleted with the board, and a late report of a process writes nothing."""
    settings = fresh_settings(any_store)
    client = connect(any_store, settings)
    board_admin = BoardAdmin(client, settings)
    await board_admin.put("brief", {}, "ann")
    process = Presence(client)
    assert await process.report({"brief": 2}) == {"brief": 2}
    assert Keys(settings.key_prefix, "brief").viewers in (await keys_of(client, ["brief"]))["brief"]
    await board_admin.delete("brief", "ann")
    assert (await keys_of(client, ["brief"]))["brief"] == []
    assert await process.report({"brief": 2}) == {}
    assert (await keys_of(client, ["brief"]))["brief"] == []

    await board_admin.put("brief", {}, "ann")
    assert await process.count("brief") == 0
    assert await process.report({"brief": 1}) == {"brief": 1}
    await client.aclose()


async def test_viewer_counts_are_part_of_a_board(any_store: str) -> None:
    """The store key of the counts is part of the board's fixed size."""
    async with watched(any_store) as made:
        await made.process().report({"posts": 1})
        names = (await keys_of(made.client, ["posts"]))["posts"]
        assert made.keys.viewers in names
        with_them, without = (
            await measure(made.client, "posts", names),
            await measure(made.client, "posts", [name for name in names if name != made.keys.viewers]),
        )
        assert with_them.bytes > without.bytes
        assert {part.cost.kind for part in with_them.parts} == {"fixed"}
