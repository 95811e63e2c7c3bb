"""Scores and totals are exact whatever the amounts, and no member uses up the range of another member."""

import asyncio
from collections import Counter
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from live.domain.board import Board
from live.domain.event import MAX_SCORE, make_entry
from live.domain.packing import Field, Packing
from live.domain.window import Forever, Periods, Rolling, Sliding, Window
from live.store.board.ledger import Ledger
from live.store.board.read.reader import total_of
from tests.harness.boards import built, open_ledger
from tests.harness.checked import checked, mended

HOUR: Final = 3600
FOREVER: Final = built(id="b", title="b", window=Forever(), clock="event", ties="key")
CODE: Final = "score_out_of_range"


async def scores(ledger: Ledger) -> tuple[dict[str, int], int | None]:
    """Every score, and the total of the board."""
    page = await ledger.reader.read(1000)
    return {record.member: record.score for record in page.records}, page.total_score


async def require_clean(ledger: Ledger) -> None:
    """Check that every score and the total equal the sums of the slots."""
    report = await checked(ledger.state.client, ledger.state.settings, ledger.state.board)
    assert report.clean, report


def board_of(window: Window) -> Board:
    """A board of sums with an event clock."""
    return built(id="b", title="b", window=window, clock="event", ties="key")


async def test_one_member_does_not_use_up_the_range_of_others(any_store: str) -> None:
    """The total of all scores is exact, even if it is too large for one number of the store."""
    async with open_ledger(any_store, FOREVER) as ledger:
        most = FOREVER.most
        added = await ledger.writer.add([make_entry(f"k{number}", most, 0) for number in range(600)])
        assert (dict(added.refused), added.widest) == ({}, most)
        assert (await ledger.writer.add([make_entry("k1", 1, 0), make_entry("other", 1, 0)])).refused == {0: CODE}
        found, total = await scores(ledger)
        assert total == 600 * most + 1 == sum(found.values()) > 2**62
        await ledger.moderation.hide("k2", hidden=True)
        assert (await scores(ledger))[1] == 599 * most + 1
        await ledger.moderation.hide("k2", hidden=False)
        await require_clean(ledger)
        await ledger.writer.add([make_entry(f"k{number}", -2 * most + 5, 0) for number in range(300)])
        await ledger.writer.add([make_entry(f"k{number}", -most, 0) for number in range(600)])
        found, total = await scores(ledger)
        assert total == sum(found.values())
        await require_clean(ledger)


async def test_a_total_beyond_64_bits_is_repaired_exactly(valkey_url: str) -> None:
    """The check also counts in integers of any size."""
    board = built(id="b", title="b", window=Forever(), operator="set", ties="key", clock="event")
    async with open_ledger(valkey_url, board) as ledger:
        for first in (0, 1000, 2000):
            await ledger.writer.add([make_entry(f"k{number}", MAX_SCORE, 0) for number in range(first, first + 1000)])
        assert (await ledger.reader.read(1)).total_score == 3000 * MAX_SCORE > 2**64
        await ledger.state.client.hincrby(ledger.state.keys.meta, "high", -3)
        await mended(ledger.state.client, ledger.state.settings, board)
        assert (await ledger.reader.read(1)).total_score == 3000 * MAX_SCORE
        await require_clean(ledger)


async def test_opposite_amounts_in_different_slots_stay_exact(any_store: str) -> None:
    """Each slot takes only its part of the range, so either slot may expire first."""
    board = board_of(Rolling(24 * HOUR, HOUR))
    async with open_ledger(any_store, board) as ledger:
        first, most = 1000 * HOUR, board.most
        sign = [1, -1]
        for hour in range(25):
            entries = [make_entry("a", sign[hour % 2] * most, (first + hour * HOUR) * 1000)]
            assert (await ledger.writer.add(entries)).refused == {}
            over = await ledger.writer.add([make_entry("a", sign[hour % 2], (first + hour * HOUR) * 1000)])
            assert over.refused == {0: CODE}
        for hour in range(25, 60):
            await ledger.writer.add([make_entry("b", 1, (first + hour * HOUR) * 1000)])
            while await ledger.rotator.rotate() is None:
                pass
            await require_clean(ledger)
        assert await scores(ledger) == ({"b": 25}, 25)


amounts = st.one_of(
    st.integers(-MAX_SCORE, MAX_SCORE), st.sampled_from([MAX_SCORE - 1, 1 - MAX_SCORE, MAX_SCORE // 2, -1, 1])
)
SPAN: Final = 20
WINDOWS: Final = {
    "sliding": board_of(Sliding(SPAN)),
    "rolling": board_of(Rolling(2 * SPAN, SPAN)),
    "last": board_of(Periods(unit="hour", last=3)),
    "forever": FOREVER,
}
few = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@few
@given(
    st.sampled_from(sorted(WINDOWS)),
    st.lists(
        st.lists(st.tuples(st.sampled_from("ab"), amounts, st.integers(0, 4)), min_size=1, max_size=5), max_size=25
    ),
)
def test_extreme_amounts_are_exact(valkey_url: str, name: str, batches: list[Any]) -> None:
    """Every accepted amount is counted exactly at any time, when it arrives and when it expires."""
    asyncio.run(_extreme(valkey_url, WINDOWS[name], batches))


async def _extreme(store: str, board: Board, batches: list[list[tuple[str, int, int]]]) -> None:
    accepted: list[tuple[str, int, int]] = []
    now = 10**5 * HOUR
    async with open_ledger(store, board, rotation_step=2) as ledger:
        for batch in [*batches, *([[("b", 1, 4)]] * 8)]:
            entries = []
            for member, amount, step in batch:
                now += step * (HOUR // 4 if isinstance(board.window, Periods) else 2)
                entries.append((member, amount, now))
            added = await ledger.writer.add([make_entry(member, amount, at * 1000) for member, amount, at in entries])
            assert set(added.refused.values()) <= {CODE}
            accepted += [entry for index, entry in enumerate(entries) if index not in added.refused]
            while await ledger.rotator.rotate() is None:
                pass
            found, total = await scores(ledger)
            expected = alive(board, accepted, max((at for *_, at in accepted), default=None))
            assert (found, total) == (expected, sum(expected.values()))
            await require_clean(ledger)


def alive(board: Board, accepted: list[tuple[str, int, int]], newest: int | None) -> dict[str, int]:
    """Compute the scores from all accepted events by brute force."""
    window, sums = board.window, Counter[str]()
    for member, amount, at in accepted:
        assert newest is not None
        if isinstance(window, Sliding):
            counts = at > newest - window.length
        else:
            counts = window.slot_at(at).start >= window.oldest(window.slot_at(newest).start)
        sums[member] += amount if counts else 0
    return {member: score for member, score in sums.items() if score}


async def test_a_sliding_window_is_bounded_by_all_of_its_events(valkey_url: str) -> None:
    """Opposite amounts that add up to zero expire one by one. So the sum of the other amounts could be out of range."""
    board, half = WINDOWS["sliding"], MAX_SCORE // 2
    async with open_ledger(valkey_url, board) as ledger:
        at = 10**6 * 1000
        added = await ledger.writer.add(
            [make_entry("a", half, at), make_entry("a", -half + 1, at + 1), make_entry("b", 1, at)]
        )
        assert added.refused == {}
        refused = await ledger.writer.add([make_entry("a", half, at + 2), make_entry("a", -half, at + 2)])
        assert refused.refused == {0: CODE, 1: CODE}
        assert (await ledger.writer.add([make_entry("b", half, at + 2)])).refused == {}
        await ledger.writer.add([make_entry("b", 1, at + SPAN * 1000)])
        while await ledger.rotator.rotate() is None:
            pass
        assert (await scores(ledger))[0] == {"a": -half + 1, "b": half + 1}
        await ledger.writer.add([make_entry("b", 1, at + SPAN * 1000 + 1)])
        while await ledger.rotator.rotate() is None:
            pass
        assert await ledger.state.client.exists(ledger.state.keys.taken) == 0
        assert (await ledger.writer.add([make_entry("a", half, at + SPAN * 1000 + 2)])).refused == {}


async def test_packed_scores_and_set_keep_the_whole_range(any_store: str) -> None:
    """Scores of these boards are not sums of amounts, so every member may have the highest score."""
    packed = Packing((Field(name="points", high=MAX_SCORE - 1),))
    for choices in ({"operator": "set"}, {"operator": "best"}, {"operator": "best", "score": packed}):
        board = built(id="b", title="b", window=Forever(), clock="event", ties="key", **choices)
        async with open_ledger(any_store, board) as ledger:
            top = MAX_SCORE - 1
            for _ in range(3):
                added = await ledger.writer.add([make_entry(f"k{number}", top, 0) for number in range(700)])
                assert added.refused == {}
            found, total = await scores(ledger)
            assert set(found.values()) == {top}
            assert total == (None if board.packing else 700 * top)


async def test_a_member_out_of_range_costs_one_more_call(valkey_url: str) -> None:
    """The extra call finds all events of that member, however many other events are in the batch."""
    async with open_ledger(valkey_url, FOREVER) as ledger:
        await ledger.writer.add([make_entry("a", FOREVER.most, 0)])
        calls = 0
        add = ledger.state.scripts.add

        async def counting(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            return await add(*arguments)

        ledger.state.scripts = type(
            "Counting",
            (),
            {**{n: getattr(ledger.state.scripts, n) for n in ("open", "read")}, "add": staticmethod(counting)},
        )()
        entries = [make_entry(f"k{number}", 1, 0) for number in range(500)]
        added = await ledger.writer.add(
            [*entries, make_entry("a", 1, 0), make_entry("a", -2, 0), make_entry("a", 2, 0)]
        )
        assert dict(added.refused) == {500: CODE}
        assert calls == 2


def test_a_sum_in_two_parts_is_one_number() -> None:
    """The higher part counts in units of 2^40, also in negative sums."""
    assert [total_of(text) for text in (b"7", b"-7", b"0+1", b"-1+1", b"5+-2")] == [7, -7, 2**40, 2**40 - 1, 5 - 2**41]


@pytest.mark.parametrize(("window", "live"), [(Rolling(24 * HOUR, HOUR), 25), (Periods(unit="day", last=7), 7)])
def test_all_possible_slots_share_the_range(window: Window, live: int) -> None:
    """The range has room for slots that wait to be subtracted, and for more slots that events may open."""
    server, event = built(id="b", title="b", window=window), board_of(window)
    assert (server.most_slots, event.most_slots) == (2 * live + 64, 2 * live + 8192)
    assert all(board.most * board.most_slots < MAX_SCORE for board in (server, event))
