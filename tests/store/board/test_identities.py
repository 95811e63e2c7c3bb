"""Identities: which events are duplicates, for how long, and how much memory that takes."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from live.domain.board import MOST_BUCKETS
from live.domain.board_file import make_board
from live.domain.choices import Choices
from live.domain.event import MAX_SCORE, Entry, make_entry
from live.journal.upkeep.checkpoints import prune
from live.store.board.batch import Batch
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.board.requests import SCRIPTS
from live.store.board.write.writer import identities_of, keys_of
from live.store.connection.client import connect
from live.store.connection.scripts import texts
from tests.harness.boards import changed, open_ledger, rolling_board
from tests.harness.clock import set_clock, with_clock
from tests.harness.folded import Folded
from tests.harness.invariants import drifted
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually, until_early

HOUR = 3600
DAY = 24 * HOUR
EVENT = rolling_board("4h", "1h", clock="event")


def identity(number: int) -> bytes:
    """The identity of an event."""
    return number.to_bytes(16, "big")


def like(number: int, member: str = "a", amount: int = 1, at: int | None = None) -> Entry:
    """A like with an identity, at a time in seconds since 1970."""
    return make_entry(member, amount, None if at is None else at * 1000, identity(number))


async def total(ledger: Ledger) -> int:
    """The sum of all scores."""
    total_score = (await ledger.reader.read(1)).total_score
    assert total_score is not None
    return total_score


async def duplicates(ledger: Ledger, *entries: Entry) -> list[int]:
    """Add a batch, and return the positions of its duplicates. No entry may be refused for another reason."""
    refused = (await ledger.writer.add(entries)).refused
    assert set(refused.values()) <= {"duplicate"}
    return sorted(refused)


async def buckets(ledger: Ledger) -> dict[str, int]:
    """The existing buckets, and when each of them expires, in milliseconds since 1970."""
    client: Any = ledger.state.client
    pattern = f"{ledger.state.keys.channel}:seen:*"
    found = {key.encode() async for key in client.names(pattern)}
    return {key.decode().rpartition(":")[2]: int(await client.execute_command("PEXPIRETIME", key)) for key in found}


async def test_an_identity_counts_once(any_store: str) -> None:
    """The identity repeats in one batch, in other batches and in other processes, with any member, amount and time."""
    async with open_ledger(any_store, rolling_board()) as ledger:
        assert await duplicates(ledger, like(1), like(2), like(1)) == [2]
        assert await duplicates(ledger, like(2, "b", 7), like(3), make_entry("a"), like(1, at=1)) == [0, 3]
        other = Ledger(ledger.state.client, ledger.state.board, ledger.state.settings)
        assert await duplicates(other, like(3), like(1), like(4)) == [0, 1]
        assert await duplicates(ledger, like(4)) == [0]
        assert await total(ledger) == 5
        assert await drifted(ledger.state.client, ledger.state.keys) == []


async def test_a_batch_of_duplicates_changes_nothing(valkey_url: str) -> None:
    """The store does not apply the batch."""
    async with open_ledger(valkey_url, rolling_board()) as ledger:
        first = await ledger.writer.add([like(1)])
        again = await ledger.writer.add([like(1), like(1, "b")])
        assert (first.offset, again.offset, again.refused) == (1, None, {0: "duplicate", 1: "duplicate"})
        assert (await ledger.reader.read(5)).offset == 1


async def test_an_identity_survives_a_crash_of_the_store(own_store: StoreProcess) -> None:
    """When the event is acknowledged, the identity is on disk. So it is known after `kill -9`."""
    async with open_ledger(own_store.url, rolling_board()) as ledger:
        await ledger.writer.add([like(1)])
        own_store.kill()
        own_store.start()
        assert await duplicates(ledger, like(1), like(2)) == [0]
        assert await total(ledger) == 2


async def test_boards_do_not_share_identities(valkey_url: str) -> None:
    """The same event counts on several boards, once each."""
    async with open_ledger(valkey_url, rolling_board()) as one:
        other = Ledger(one.state.client, rolling_board(board="other"), one.state.settings)
        assert await duplicates(one, like(1)) == await duplicates(other, like(1)) == []
        assert await duplicates(one, like(1)) == await duplicates(other, like(1)) == [0]


async def test_concurrent_events_count_once(any_store: str) -> None:
    """Sixteen writers send the same events, each in its own order and batches."""
    settings = fresh_settings(any_store)
    client = connect(any_store, settings)
    events = [like(number, f"k{number % 7}", number % 3 + 1) for number in range(300)]

    async def send(seed: int) -> int:
        ledger, mine = Ledger(client, rolling_board(), settings), list(events)
        random.Random(seed).shuffle(mine)
        return sum([len(await duplicates(ledger, *mine[start : start + 20])) for start in range(0, len(mine), 20)])

    assert sum(await asyncio.gather(*map(send, range(16)))) == 15 * len(events)
    ledger = Ledger(client, rolling_board(), settings)
    assert await total(ledger) == sum(amount for _, amount, *_ in events)
    assert await drifted(client, ledger.state.keys) == []
    await client.aclose()


async def test_a_refused_event_does_not_use_up_its_identity(valkey_url: str) -> None:
    """An event that is refused as late, early or too large counts when it is corrected and sent again."""
    async with open_ledger(valkey_url, rolling_board()) as ledger:
        now = int((await ledger.state.client.time())[0])
        bad = [like(1, at=now - 30 * HOUR), like(2, at=now + 2 * HOUR), like(3, amount=MAX_SCORE), like(4)]
        await ledger.writer.add([make_entry("a")])
        assert (await ledger.writer.add(bad)).refused == {0: "late", 1: "early", 2: "score_out_of_range"}
        assert await duplicates(ledger, like(1), like(2, at=now), like(3), like(4)) == [3]
        assert await total(ledger) == 5


async def test_the_first_valid_event_of_a_batch_takes_an_identity(valkey_url: str) -> None:
    """A later event with the same identity is a duplicate, even if it is late."""
    async with open_ledger(valkey_url, EVENT) as ledger:
        added = await ledger.writer.add(
            [make_entry("b", 1, 9 * HOUR * 1000), like(1, at=0), like(1, at=8 * HOUR), like(1, at=0)]
        )
        assert added.refused == {1: "late", 3: "duplicate"}


async def test_a_late_event_that_has_counted_is_a_duplicate(valkey_url: str) -> None:
    """A retry that arrives after its slot has expired is a duplicate, alone and among other events, in any process."""
    async with open_ledger(valkey_url, EVENT) as ledger:
        await ledger.writer.add([like(1, at=0), like(2, at=0), make_entry("a", 1, 0)])
        await ledger.writer.add([like(3, at=9 * HOUR)])
        assert (await ledger.writer.add([like(1, at=0)])).refused == {0: "duplicate"}
        other = Ledger(ledger.state.client, EVENT, ledger.state.settings)
        added = await other.writer.add([like(2, at=0), like(9, at=0), make_entry("a", 1, 0), like(4, at=9 * HOUR)])
        assert added.refused == {0: "duplicate", 1: "late", 2: "late"}


async def test_a_late_event_is_searched_in_the_newest_bucket(valkey_url: str) -> None:
    """An idle process may not know the bucket in which another process has counted."""
    async with open_ledger(valkey_url, EVENT, dedupe_window=1) as idle:
        await idle.writer.add([make_entry("a", 1, 9 * HOUR * 1000)])
        idle.state.buckets.newest -= 10
        busy = Ledger(idle.state.client, EVENT, idle.state.settings)
        await busy.writer.add([like(1, at=9 * HOUR)])
        await busy.writer.add([make_entry("a", 1, 20 * HOUR * 1000)])
        idle.state.clock.newest = 20 * HOUR
        assert (await idle.writer.add([like(1, at=9 * HOUR)])).refused == {0: "duplicate"}


@pytest.mark.slow
async def test_an_identity_is_known_for_the_dedupe_window(any_store: str) -> None:
    """A busy board also knows the identity for the whole window. Two windows later, the identity's bucket is gone."""
    async with open_ledger(any_store, rolling_board(), dedupe_window=1) as ledger:
        clock = asyncio.get_running_loop().time
        number, held = 1, 0
        for round_ in range(2):
            number += 1
            first, until = number, clock() + 1
            assert await duplicates(ledger, like(first)) == []
            # The store still knows the first identity, and puts new identities into new buckets.
            while clock() < until - 0.02:
                number += 1
                assert await duplicates(ledger, like(first), like(number)) == [0], (
                    f"the identity was forgotten in round {round_}"
                )
                held = max(held, len(await buckets(ledger)))

            async def gone(first: int = first) -> bool:
                await ledger.writer.add([like(first + 10**6 + int(clock() * 1000))])
                return await duplicates(ledger, like(first)) == []

            await eventually(gone)
        assert held == 2


@pytest.mark.parametrize("days", [0, 7, 30, 60])
async def test_a_board_chooses_how_long_it_remembers_identities(valkey_url: str, days: int) -> None:
    """Payments are sent again after 30 days. A checkpoint and a loaded board remember them too."""
    board = make_board(
        Choices(id="posts", window_choice="forever", dedupe_window=f"{days}d" if days else None, journal_events="90d")
    )
    settings = fresh_settings(valkey_url, journal="sqlite", dedupe_window=DAY)
    client = connect(valkey_url, settings)
    ledger = Ledger(client, board, settings, with_clock(SCRIPTS, settings))
    begin = 4_000_000_000 // DAY * DAY + HOUR
    try:
        await set_clock(client, settings, begin * 1000)
        assert await duplicates(ledger, like(0)) == []
        folded = Folded(client, ledger.state.keys, ledger.state.epoch or "")
        for day in range(1, (days or 1) + 1):
            await set_clock(client, settings, (begin + day * DAY) * 1000)
            assert await duplicates(ledger, like(0), like(day)) == [0], f"the identity was forgotten on day {day}"
        await folded.read()
        prune(folded.contents)
        other = msgspec.structs.replace(settings, key_prefix=f"{settings.key_prefix}b")
        await folded.load_as(board, Keys(other.key_prefix, board.id), "again")
        await set_clock(client, other, (begin + (days or 1) * DAY) * 1000)
        loaded = Ledger(client, board, other, with_clock(SCRIPTS, other))
        assert await duplicates(loaded, like(0), like(days or 1), like(99)) == [0, 1]
        for one, own in ((ledger, settings), (loaded, other)):
            await set_clock(client, own, (begin + (days or 1) * DAY * 5 // 4 + 2 * DAY) * 1000)
            assert await duplicates(one, like(0)) == []
    finally:
        await client.aclose()


async def test_a_board_can_choose_to_remember_identities_longer(valkey_url: str) -> None:
    """It also remembers those that it has counted before, and looks for them in a limited number of sets."""
    board = rolling_board()
    settings = fresh_settings(valkey_url, dedupe_window=HOUR)
    client = connect(valkey_url, settings)
    try:
        await set_clock(client, settings, 4_000_000_000 // HOUR * HOUR * 1000)
        for window, hours, known in (("0s", 0, False), ("3h", 0, True), ("3h", 3, True), ("30000h", 3, True)):
            longer = changed(board, dedupe_window=window)
            ledger = Ledger(client, longer, settings, with_clock(SCRIPTS, settings))
            await set_clock(client, settings, (4_000_000_000 // HOUR + hours) * HOUR * 1000)
            assert await duplicates(ledger, like(1)) == ([0] if known else [])
            batch = Batch(rules=longer.rules, identities=identities_of(ledger.state, texts([], 16)))
            assert len(keys_of(ledger.state, batch)) <= 8 + MOST_BUCKETS + 1
    finally:
        await client.aclose()


async def test_every_bucket_expires(valkey_url: str) -> None:
    """A bucket expires when its identities may be forgotten, even if no other event with an identity arrives."""
    async with open_ledger(valkey_url, rolling_board(), dedupe_window=100) as ledger:
        now = int((await ledger.state.client.time())[0])
        await ledger.writer.add([make_entry("a")])
        assert await buckets(ledger) == {}
        await ledger.writer.add([like(1)])
        ((start, expiry),) = (await buckets(ledger)).items()
        assert now - 100 < int(start) <= now + 5
        assert 200 <= expiry / 1000 - int(start) <= 500


async def test_old_buckets_are_deleted_as_a_whole(valkey_url: str) -> None:
    """The first event of a new bucket deletes the bucket that the dedupe window no longer needs.

    The previous bucket is still searched.
    """
    async with open_ledger(valkey_url, rolling_board(), dedupe_window=100_000) as ledger:
        await ledger.writer.add([make_entry("a")])
        client: Any = ledger.state.client
        for back, number in ((2, 1), (1, 2)):
            await client.sadd(ledger.state.keys.seen(ledger.state.buckets.newest - back * 100_000), identity(number))
        assert await duplicates(ledger, like(1), like(2), like(3)) == [1]
        newest = ledger.state.buckets.newest
        assert set(await buckets(ledger)) == {str(newest), str(newest - 100_000)}


async def test_setting_the_clock_back_forgets_no_identity(valkey_url: str) -> None:
    """While the clock of the board stands still, new identities go into the newest bucket.

    The store knows the identities in this bucket and in the bucket before it.
    """
    async with open_ledger(valkey_url, rolling_board(), dedupe_window=1000) as ledger:
        await ledger.state.open()
        client: Any = ledger.state.client
        later = ledger.state.buckets.newest + 3000
        await client.hset(ledger.state.keys.meta, mapping={"bucket": later, "clock": later * 1_000_000})
        await client.sadd(ledger.state.keys.seen(later), identity(1))
        await client.sadd(ledger.state.keys.seen(later - 1000), identity(2))
        assert await duplicates(ledger, like(1), like(2), like(3)) == [0, 1]
        assert set(await buckets(ledger)) == {str(later), str(later - 1000)}
        assert await client.smismember(ledger.state.keys.seen(later), [identity(3)]) == [1]


async def test_a_longer_window_needs_more_buckets(valkey_url: str) -> None:
    """Buckets keep the length with which a board was created. A window of three such lengths needs four buckets."""
    async with open_ledger(valkey_url, rolling_board(), dedupe_window=1000) as ledger:
        await ledger.state.open()
        longer = Ledger(ledger.state.client, ledger.state.board, fresh_settings("", dedupe_window=3000))
        longer.state.keys = ledger.state.keys
        await longer.state.open()
        client: Any = ledger.state.client
        for back in range(1, 5):
            await client.sadd(ledger.state.keys.seen(ledger.state.buckets.newest - back * 1000), identity(back))
        assert await duplicates(longer, *[like(number) for number in range(1, 5)]) == [0, 1, 2]


async def test_the_largest_batch_may_have_identities(any_store: str) -> None:
    """Three thousand identities fit into one call, whether all are new, all are known, or one is known."""
    many = [like(number, f"k{number}") for number in range(3000)]
    async with open_ledger(any_store, rolling_board()) as ledger:
        assert await duplicates(ledger, *many) == []
        assert await duplicates(ledger, *many) == list(range(3000))
        fresh = [like(number + 5000, f"k{number}") for number in range(2999)]
        assert await duplicates(ledger, *fresh[:1500], like(7), *fresh[1500:]) == [1500]
        assert await total(ledger) == 5999


async def scripts_run(client: Any) -> int:
    """The number of scripts that a store has run."""
    found = await client.info("commandstats")
    return sum(stats["calls"] for name, stats in found.items() if name.startswith("cmdstat_eval"))


@pytest.mark.parametrize("repeat", [1, 1000])
async def test_a_batch_of_duplicates_is_one_call(own_store: StoreProcess, repeat: int) -> None:
    """A body that repeats one identity can't keep the store busy."""
    await until_early("hour")  # a new slot takes one more call
    async with open_ledger(own_store.url, rolling_board()) as ledger:
        await ledger.writer.add([like(1)])
        before = await scripts_run(ledger.state.client)
        assert await duplicates(ledger, *[like(1)] * repeat) == list(range(repeat))
        assert await scripts_run(ledger.state.client) == before + 1


async def used_memory(client: Any) -> int:
    """The bytes in use, by the store's own count."""
    return int((await client.info("memory"))["used_memory"])


async def fill(ledger: Ledger, count: int) -> None:
    """Count events with random identities, for one member."""
    chance = random.Random(count)
    for _ in range(count // 1000):
        batch: Sequence[Entry] = [make_entry("a", 1, None, chance.randbytes(16)) for _ in range(1000)]
        await ledger.writer.add(batch)


@pytest.mark.one_server
@pytest.mark.slow
async def test_an_identity_takes_at_most_100_bytes(any_store: str) -> None:
    """The store reports the bytes of 140,000 identities, a size at which its hash table has just grown."""
    async with open_ledger(any_store, rolling_board()) as ledger:
        await ledger.writer.add([make_entry("a")])
        before = await used_memory(ledger.state.client)
        for count in (66_000, 74_000):
            await fill(ledger, count)
        each = (await used_memory(ledger.state.client) - before) / 140_000
        await ledger.state.client.unlink(*map(ledger.state.keys.seen, map(int, await buckets(ledger))))
        assert 16 < each <= 100
