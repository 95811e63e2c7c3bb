"""What boards hold and need: counted without opening them, and estimated for another load."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest

from live.boards.definitions import read_board
from live.domain.event import Entry, Extra, make_entry
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.board.usage import _FIXED, COSTS, KeyUsage, Memory, count, keys_of, measure
from live.store.connection.client import Store, connect
from tests.harness.settings import fresh_settings

FEW = 3000
SMALL = 500  # with this many members, the store packs the collections
HOUR = 3_600_000

KINDS: dict[str, dict[str, Any]] = {
    "rolling": {"ties": "key", "clock": "event"},
    "tagged": {"ties": "first", "clock": "event"},
    "dense": {"ranks": "dense", "window": "forever"},
    "calendar": {"window": {"calendar": "hour"}, "clock": "event"},
    "sliding": {"window": {"sliding": "24h"}},
    "best": {"window": "forever", "operator": "best"},
    "votes": {"window": "forever", "votes": {"per_actor": 5}},
    "identified": {"window": "forever"},
}


def load(kind: str, members: range) -> Sequence[Entry]:
    """Events for a number of members, with the same distribution for every number."""
    entries = []
    for member in members:
        for turn in range(3 if kind in {"rolling", "tagged", "sliding"} else 1):
            time = None if KINDS[kind].get("clock") != "event" else turn * HOUR if kind != "calendar" else HOUR
            extra = Extra(f"actor{member:09}", b'{"colour":"blue"}' if kind == "best" else None)
            identity = member.to_bytes(16, "big") if kind == "identified" else None
            entries.append(make_entry(f"member{member:09}", 1 + member % 1000, time, identity, extra))
    if kind == "votes":
        return [(key, 1, time, identity, extra) for key, _, time, identity, extra in entries]
    return entries


async def settled(client: Store) -> Memory:
    """The memory of the board once the store has resized its hash tables, which it does piece by piece."""
    before: Memory | None = None
    while True:
        held = await measure(client, "b", (await keys_of(client, ["b"]))["b"])
        if before is not None and held.bytes == before.bytes:
            return held
        before = held
        await asyncio.sleep(0.15)  # this pause is longer than the store's pause between two pieces


def test_an_estimate_multiplies_what_grows() -> None:
    """Events grow with members unless their number is given.

    A large collection tells how many bytes one more element takes.
    """
    ranking, log = KeyUsage(COSTS["ranking"], 1000, 10), KeyUsage(COSTS["log"], 500, 5)
    held = Memory(members=10, events=5, parts=[ranking, log, KeyUsage(_FIXED, 70, 3)])
    assert (held.bytes, held.per_member, held.per_event) == (1570, 100.0, 100.0)
    loads = [(20, None), (None, 10), (20, 5)]
    assert [held.predict(*load) for load in loads] == [20 * 93 + 10 * 94 + 70, 930 + 940 + 70, 1860 + 470 + 70]
    quiet = msgspec.structs.replace(held, events=0)
    assert (quiet.per_event, quiet.predict(20, 7)) == (None, 20 * 93 + 10 * 94 + 70)
    empty = msgspec.structs.replace(held, members=0)
    assert (empty.per_member, empty.predict(20, 7)) == (None, None)
    assert [KeyUsage(COSTS["seen"], 5130, count).each for count in (512, 513)] == [41, 10]


@pytest.mark.parametrize("kind", KINDS)
async def test_memory_by_members_is_estimated(any_store: str, kind: str) -> None:
    """The estimate is right within 20 % for up to four times as many members, although hash tables grow in steps."""
    settings = fresh_settings(any_store)
    async with AsyncExitStack() as stack:
        client = connect(any_store, settings)
        stack.push_async_callback(client.aclose)
        board = read_board("b", KINDS[kind])
        ledger = Ledger(client, board, settings)

        async def fill(members: range) -> Memory:
            entries = load(kind, members)
            for first in range(0, len(entries), 1000):
                assert not (await ledger.writer.add(entries[first : first + 1000])).refused
            return await settled(client)

        few = await fill(range(FEW))
        assert few.members == FEW
        assert (few.per_event is not None) == (kind in {"sliding", "votes", "identified"})
        for before, times in ((1, 2), (2, 3), (3, 4)):
            predicted = few.predict(times * FEW, None)
            many = await fill(range(before * FEW, times * FEW))
            assert many.members == times * FEW
            assert predicted == pytest.approx(many.bytes, rel=0.2)
        assert (await count(client, board)).records == 4 * FEW


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_a_small_board_is_estimated_by_the_costs_of_large_ones(valkey_url: str, kind: str) -> None:
    """The store packs small collections, so an estimate from the bytes of their own elements would be too low."""
    settings = fresh_settings(valkey_url)
    async with AsyncExitStack() as stack:
        client = connect(valkey_url, settings)
        stack.push_async_callback(client.aclose)
        ledger = Ledger(client, read_board("b", KINDS[kind]), settings)
        await ledger.writer.add(load(kind, range(SMALL)))
        predicted = (await settled(client)).predict(3 * SMALL, None)
        # With only twice as many members, the store would begin to resize hash tables. If it is busy, it may leave this
        # unfinished for long.
        await ledger.writer.add(load(kind, range(SMALL, 3 * SMALL)))
        many = await settled(client)
        assert predicted == pytest.approx(many.bytes, rel=0.2)


async def test_memory_by_events_is_estimated_separately(valkey_url: str) -> None:
    """The estimate is right within 20 % for four times as many events with identities, of the same members."""
    settings = fresh_settings(valkey_url)
    client = connect(valkey_url, settings)
    ledger = Ledger(client, read_board("b", {"window": "forever"}), settings)

    async def fill(events: range) -> Memory:
        for first in range(events.start, events.stop, 1000):
            numbers = range(first, first + 1000)
            await ledger.writer.add(
                [make_entry(f"member{i % 1000:09}", 1, None, i.to_bytes(16, "big")) for i in numbers]
            )
        return await settled(client)

    few = await fill(range(5000))
    assert (few.members, few.events) == (1000, 5000)
    assert few.predict(None, 20_000) == pytest.approx((await fill(range(5000, 20_000))).bytes, rel=0.2)
    await client.aclose()


async def test_counting_does_not_open_a_board(any_store: str) -> None:
    """A board without data is reported without an epoch, and without an estimate."""
    settings = fresh_settings(any_store)
    client = connect(any_store, settings)
    census = await count(client, read_board("b", {"title": "B"}))
    assert (census.epoch, census.records, census.offset, census.title) == (None, 0, 0, "B")
    assert not await client.exists(Keys(settings.key_prefix, "b").meta)
    memory = await measure(client, "b", [])
    assert (memory.bytes, memory.per_member, memory.per_event, memory.predict(5, None)) == (0, None, None, None)
    await client.aclose()


async def test_only_own_store_keys_are_counted(valkey_url: str) -> None:
    """Store keys of a board whose id begins with the same letters are not counted."""
    settings = fresh_settings(valkey_url)
    client = connect(valkey_url, settings)
    for name in ("b", "bb"):
        await Ledger(client, read_board(name, {}), settings).writer.add([make_entry("a", 1)])
    found = await keys_of(client, ["b", "none"])
    assert found["none"] == []
    assert Keys(settings.key_prefix, "b").meta in found["b"]
    assert all("{b}" in name for name in found["b"])
    gone = Keys(settings.key_prefix, "b").slot(1)
    measured = [await measure(client, "b", names) for names in (found["b"], [gone, *found["b"]])]
    assert measured[0] == measured[1], "a store key that was deleted meanwhile changes the result"
    await client.aclose()


async def test_a_census_tells_what_a_board_is(valkey_url: str) -> None:
    """A board without data has no epoch."""
    settings = fresh_settings(valkey_url)
    client = connect(valkey_url, settings)
    board = read_board("b", {"window": "forever", "title": "B"})
    empty = await count(client, board)
    assert (empty.board, empty.title, empty.epoch, empty.offset, empty.records, empty.frozen) == (
        "b", "B", None, 0, 0, False,
    )  # fmt: skip
    ledger = Ledger(client, board, settings)
    await ledger.writer.add([make_entry("x"), make_entry("y")])
    for frozen in (False, True):
        found = await count(client, board)
        assert (found.epoch, found.offset, found.records, found.frozen) == (ledger.state.epoch, 1, 2, frozen)
        await client.hset(ledger.state.keys.meta, "frozen", "1")
    await client.aclose()
