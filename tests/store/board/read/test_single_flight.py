"""Shared reads: each caller sees everything that happened before it asked, and a held page is never out of date."""

import asyncio
import random
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from live.domain.event import make_entry
from live.domain.ranking import Page
from live.store.board.ledger import Ledger
from live.store.board.read import single_flight
from live.store.board.read.reader import Selection
from live.store.board.read.single_flight import SharedPages, SingleFlight
from live.store.connection.client import connect
from live.store.registry.presence import Presence
from tests.harness.boards import built, changed, open_ledger, rolling_board
from tests.harness.mutation import replaced
from tests.harness.settings import fresh_settings

TOP = Selection("rank", 0, "", 100)


def shared(ledger: Ledger) -> SharedPages:
    """Shared reads over the client of a ledger."""
    return SharedPages(Presence(ledger.state.client))


async def test_a_read_after_an_acknowledgement_contains_the_event(any_store: str) -> None:
    """All clients read the same page and share reads, so that a read is in progress all the time."""
    async with open_ledger(any_store, rolling_board()) as ledger:
        reads, chosen = shared(ledger), random.Random(1)

        async def client(name: str) -> None:
            for number in range(1, 9):
                await ledger.writer.add([make_entry(name, 1, None)])
                for _ in range(chosen.randint(0, 3)):
                    await asyncio.sleep(0)
                page = (await reads.read(ledger.reader, TOP)).page
                scores = {record.member: record.score for record in page.records}
                assert scores.get(name) == number, "an acknowledged event is missing"

        await asyncio.gather(*(client(f"k{number}") for number in range(30)))


@pytest.mark.parametrize("seed", range(20))
async def test_a_call_answers_those_that_came_before_it_began(seed: int) -> None:
    """The callers, their changes and the calls take turns at random."""
    calls, chosen, value = SingleFlight(), random.Random(seed), 0

    async def call() -> int:
        seen = value
        for _ in range(chosen.randint(0, 5)):
            await asyncio.sleep(0)
        return seen

    async def caller() -> None:
        nonlocal value
        for _ in range(10):
            for _ in range(chosen.randint(0, 5)):
                await asyncio.sleep(0)
            value += 1
            known = value
            assert await calls.call("a", call) >= known, "a caller got an older value than it knew"

    await asyncio.gather(*(caller() for _ in range(10)))


async def test_concurrent_readers_share_calls() -> None:
    """After the call in progress, one more call serves everyone who came during the first call."""
    calls, count, begun, gate = SingleFlight(), 0, asyncio.Event(), asyncio.Event()

    async def call() -> int:
        nonlocal count
        count += 1
        begun.set()
        await gate.wait()
        return count

    first = asyncio.create_task(calls.call("a", call))
    await begun.wait()
    others = [asyncio.create_task(calls.call("a", call)) for _ in range(50)]
    await asyncio.sleep(0)
    assert count == 1
    gate.set()
    assert [await first, *await asyncio.gather(*others)] == [1, *[2] * 50]


async def test_a_crowd_shares_a_bounded_number_of_calls() -> None:
    """After a call for many callers, the next call begins a moment later, and serves all callers that wait by then."""
    calls, begun = SingleFlight(), list[float]()
    loop = asyncio.get_running_loop()

    async def call() -> None:
        begun.append(loop.time())

    async def client() -> None:
        for _ in range(5):
            await calls.call("a", call)
            await asyncio.sleep(0.001 * random.random())

    calls._pace = 60
    for _ in range(50):
        await calls.call("a", call)
    calls._pace = 0.05
    begun.clear()
    await asyncio.gather(*(client() for _ in range(2 * single_flight._CROWD)))
    assert len(begun) <= 10
    assert all(later - earlier > 0.04 for earlier, later in pairwise(begun[:5]))


async def test_a_callback_that_raises_disturbs_nobody() -> None:
    """The other callers still get the result of the call, and so do later callers."""
    calls, results = SingleFlight(), list[int]()

    async def call() -> int:
        return 1

    def fail(_result: int) -> None:
        raise ValueError("a mistake")

    for callback in (fail, results.append):
        calls.join("a", call, callback)
    assert await calls.call("a", call) == 1
    assert results == [1], "a caller has no result"
    assert await calls.call("a", call) == 1


async def test_a_failed_call_fails_its_callers_only() -> None:
    """Callers that came during the failed call have their own call. A caller that left disturbs nobody."""
    calls, outcomes = SingleFlight(), iter([ValueError("first"), None])
    begun, gate = asyncio.Event(), asyncio.Event()

    async def call() -> str:
        outcome = next(outcomes)
        begun.set()
        await gate.wait()
        if outcome is not None:
            raise outcome
        return "fine"

    failing = [asyncio.create_task(calls.call("a", call)) for _ in range(3)]
    await begun.wait()
    fine, left = asyncio.create_task(calls.call("a", call)), failing.pop()
    left.cancel()
    await asyncio.sleep(0)
    gate.set()
    for task in failing:
        with pytest.raises(ValueError, match="first"):
            await task
    assert await fine == "fine"


async def test_a_read_is_a_use_of_the_board(valkey_url: str) -> None:
    """A board that somebody reads does not expire."""
    async with open_ledger(valkey_url, changed(rolling_board(), idle_ttl="1h")) as ledger:
        await ledger.state.open()
        meta = ledger.state.keys.meta
        await ledger.state.call("HSET", meta, "used", "1")
        await shared(ledger).read(ledger.reader, TOP)
        assert int(await ledger.state.call("HGET", meta, "used")) > 1


async def test_viewers_are_counted_at_most_once_in_a_moment(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts of a few boards are remembered. When there are too many counts, all of them are forgotten."""
    counted = list[str]()

    async def count(_presence: Presence, board: str) -> int:
        counted.append(board)
        return len(counted)

    monkeypatch.setattr(single_flight, "_MOST_COUNTS", 2)
    monkeypatch.setattr(single_flight, "_COUNT_SERVES", 60)
    async with open_ledger(valkey_url, rolling_board()) as ledger:
        reads = shared(ledger)
        with replaced(Presence, "count", count):
            assert [await reads.viewers(board) for board in ("a", "b", "a", "b", "c", "a")] == [1, 2, 1, 2, 3, 4]
            monkeypatch.setattr(single_flight, "_COUNT_SERVES", 0)
            assert [await reads.viewers(board) for board in ("d", "d")] == [5, 6]


async def test_a_page_of_the_past_has_a_time_or_a_revision(valkey_url: str) -> None:
    """A page of the present has neither a time nor a revision."""
    async with open_ledger(valkey_url, rolling_board()) as ledger:
        found = await shared(ledger).read(ledger.reader, TOP)
    assert [found.is_past, found._replace(as_of=0).is_past, found._replace(revision=1).is_past] == [False, True, True]


def bare(page: Page) -> dict[str, Any]:
    """The content of a page."""
    return msgspec.structs.asdict(page)


async def _change(ledger: Ledger, plain: Ledger, chosen: random.Random, step: int) -> None:
    member = f"k{chosen.randrange(8)}"
    match chosen.randrange(5):
        case 0 | 1:
            await plain.writer.add([make_entry(member, 1, None)])
        case 2:
            await plain.moderation.hide(member, hidden=chosen.random() < 0.5)
        case 3:
            board = msgspec.structs.replace(plain.state.board, title=f"title {step}")
            plain.state.board = ledger.state.board = board
        case _:
            pass


async def test_a_held_page_is_never_out_of_date(any_store: str) -> None:
    """Events, hidden records and new definitions change the board."""
    settings = fresh_settings(any_store)
    client = connect(any_store, settings)
    ledger = Ledger(client, built(id="posts", title="posts"), settings)
    plain = Ledger(client, built(id="posts", title="posts"), settings)
    reads, chosen = SharedPages(Presence(client)), random.Random(7)
    selections = [TOP, Selection("rank", 2, "", 3), Selection("score", 2, "", 5), Selection("around", 1, "k1", 0)]
    try:
        for step in range(60):
            await _change(ledger, plain, chosen, step)
            for _ in range(2):
                for selection in selections:
                    board, page, *_ = await reads.read(ledger.reader, selection)
                    own = await plain.reader.select(selection)
                    assert (board, bare(page)) == (own.board, bare(own.page)), f"step {step}"
    finally:
        await client.aclose()


@pytest.mark.slow
async def test_a_page_of_an_unchanged_board_is_the_same_object(valkey_url: str) -> None:
    """Everything that was made from the page can be reused. The number of held pages is limited."""
    async with open_ledger(valkey_url, rolling_board()) as ledger:
        reads = shared(ledger)
        await ledger.writer.add([make_entry("a", 1, None)])
        first = (await reads.read(ledger.reader, TOP)).page
        assert (await reads.read(ledger.reader, TOP, counted=True)).page is first
        await ledger.writer.add([make_entry("a", 1, None)])
        assert (await reads.read(ledger.reader, TOP)).page is not first

        for start in range(3000):
            await reads.read(ledger.reader, Selection("rank", start, "", 1))
        assert len(reads._held) < 2700
        assert reads._size == sum(reading.page.made.size for reading in reads._held.values())


async def test_the_memory_of_held_pages_is_limited(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit includes everything that was made from the pages. Dropped pages do not count."""
    most = 400_000
    monkeypatch.setattr(single_flight, "_MOST_MEMORY", most)
    async with open_ledger(valkey_url, rolling_board()) as ledger:
        await ledger.writer.add([make_entry(f"k{number}", 1, None) for number in range(30)])
        reads, chosen, dropped = shared(ledger), random.Random(3), 0
        pages: list[Page] = []
        for step in range(300):
            selection = Selection("rank", chosen.randrange(20), "", chosen.randrange(1, 30))
            pages.append((await reads.read(ledger.reader, selection)).page)
            chosen.choice(pages[-20:]).made.keep(chosen.randrange(4), step, chosen.randrange(40_000))
            held = [reading.page for reading in reads._held.values()]
            assert sum(page.made.size for page in held) == reads._size <= most
            dropped += pages[-1] is not pages[0] and pages[0] not in held
        assert len(held) > 3
        assert dropped


async def test_a_page_larger_than_the_memory_is_read(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is read, but not held in memory."""
    monkeypatch.setattr(single_flight, "_MOST_MEMORY", 10)
    async with open_ledger(valkey_url, rolling_board()) as ledger:
        await ledger.writer.add([make_entry("a", 1, None)])
        reads = shared(ledger)
        assert [(await reads.read(ledger.reader, TOP)).page.names for _ in range(2)] == [(b"a",), (b"a",)]
        assert not reads._held
        assert reads._size == 0


async def test_the_names_of_held_pages_count(valkey_url: str) -> None:
    """The names in a page count as its memory, and so does the name in its selection."""
    most = 300_000
    async with open_ledger(valkey_url, rolling_board()) as ledger:
        await ledger.writer.add([make_entry(f"k{number}".ljust(1000, "x"), 1, None) for number in range(20)])
        reads = shared(ledger)
        with patch.object(single_flight, "_MOST_MEMORY", most):
            for number in range(60):
                await reads.read(ledger.reader, Selection("rank", number % 10, "", 10 + number % 3))
                await reads.read(ledger.reader, Selection("around", 0, f"none{number}".ljust(1000, "x"), 0))
        pages = [reading.page for reading in reads._held.values()]
        texts = sum(
            len(record.member) + len(name)
            for page in pages
            for record, name in zip(page.records, page.names, strict=True)
        )
        assert 0 < texts + sum(len(selection.name) for _, selection in reads._held) <= most
