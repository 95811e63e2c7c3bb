"""Rank lookups of many members, compared with the whole board and with lookups of single members."""

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from live.domain.board import Board
from live.domain.event import Extra, make_entry
from live.domain.ranking import Page, Record, neighbourhood
from live.domain.window import Forever, Periods
from live.errors import EpochLostError
from live.store.board.ledger import Ledger
from live.store.board.requests import SCRIPTS, Scripts
from live.store.connection.scripts import load
from tests.harness.board_model import Reference
from tests.harness.boards import built, open_ledger
from tests.harness.mutation import compiled, mutated

HOUR = 3_600_000
KINDS = [
    (ties, order, ranks)
    for ties in ("first", "last", "key")
    for order in ("desc", "asc")
    for ranks in ("ordinal", "dense", "competition")
]


def board_of(ties: str, order: str, ranks: str, **choices: Any) -> Board:
    """A board of all time."""
    return built(**{
        "id": "posts", "title": "posts", "window": Forever(), "clock": "event", "ties": ties, "sort_order": order,
        "ranks": ranks, **choices,
    })  # fmt: skip


async def look_up(ledger: Ledger, *wanted: tuple[str, int]) -> list[Page]:
    """Look up members; returns a page for each of them."""
    return [ledger.reader.page(encoded) for encoded in await ledger.reader.places(wanted)]


def shown(records: Any) -> list[tuple[str, int, int]]:
    """Member, score and rank of each record."""
    return [(record.member, record.score, record.rank) for record in records]


@pytest.mark.parametrize(("ties", "order", "ranks"), KINDS)
@settings(
    max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate]
)
@given(
    amounts=st.lists(st.tuples(st.integers(0, 11), st.integers(1, 2)), min_size=1, max_size=30),
    around=st.integers(0, 4),
)
async def test_every_lookup_matches_the_whole_board(
    valkey_url: str, ties: str, order: str, ranks: str, amounts: list[tuple[int, int]], around: int
) -> None:
    """With many ties, each member has the same record and neighbours as in a ranking by brute force."""
    board = board_of(ties, order, ranks)
    reference = Reference(board, HOUR)
    batch = [make_entry(f"k{number}", amount, 1000) for number, amount in amounts]
    reference.add(batch, 2000)
    whole = reference.ranking(2000)
    async with open_ledger(valkey_url, board) as ledger:
        await ledger.writer.add(batch)
        wanted = [(f"k{number}", around) for number in range(13)]
        for (member, _), page in zip(wanted, await look_up(ledger, *wanted), strict=True):
            assert page.rank_count == len(whole)
            assert page.total_score == sum(score for _, score, _ in whole)
            place = next((place for place, row in enumerate(whole) if row[0] == member), None)
            if place is None:
                assert page.records == ()
            else:
                assert page.start == max(0, place - around)
                assert shown(page.records) == whole[page.start : place + around + 1]


@pytest.mark.one_server
async def test_many_members_are_read_in_bounded_calls(valkey_url: str) -> None:
    """Hundreds of members with few and many neighbours are returned in order, each as if it was looked up alone."""
    chance = random.Random(2)
    async with open_ledger(valkey_url, board_of("first", "desc", "competition")) as ledger:
        for _ in range(5):
            await ledger.writer.add(
                [make_entry(f"k{chance.randrange(400)}", chance.randint(1, 9), 1000) for _ in range(300)]
            )
        wanted = [(f"k{chance.randrange(500)}", chance.choice([0, 1, 5, 50])) for _ in range(600)]
        await ledger.state.client.config_resetstat()
        pages = await look_up(ledger, *wanted)
        calls = (await ledger.state.client.info("commandstats"))["cmdstat_evalsha"]["calls"]
        assert 600 * 20 / 1500 < calls <= 600 * 70 / 1500
        for (member, around), page in zip(wanted, pages, strict=True):
            alone = await ledger.reader.find(member, around)
            assert shown(page.records) == ([] if alone is None else shown(alone.records))
            assert alone is None or (page.start, page.offset, page.epoch) == (alone.start, alone.offset, alone.epoch)
        assert await look_up(ledger) == []


async def test_neighbours_have_their_metadata(valkey_url: str) -> None:
    """With `ties = "last"`, the store adds a tag to each member's name."""
    async with open_ledger(valkey_url, board_of("last", "desc", "ordinal", operator="best")) as ledger:
        await ledger.writer.add(
            [make_entry(member, 5, 1000, None, Extra(None, b'{"n":"%s"}' % member.encode())) for member in "abc"]
        )
        (page,) = await look_up(ledger, ("b", 1))
        found = await ledger.reader.find("b", 1)
        assert found is not None
        assert page.records == found.records
        assert [bytes(record.metadata) for record in page.records] == [b'{"n":"c"}', b'{"n":"b"}', b'{"n":"a"}']  # type: ignore[arg-type]


async def test_a_hidden_member_has_no_rank(valkey_url: str) -> None:
    """A hidden member is no neighbour either. When it is shown again, it has a rank again."""
    async with open_ledger(valkey_url, board_of("first", "desc", "dense")) as ledger:
        await ledger.writer.add([make_entry(member, 5, 1000) for member in "abc"])
        await ledger.moderation.hide("b", hidden=True)
        hidden, other = await look_up(ledger, ("b", 1), ("a", 1))
        assert (hidden.records, hidden.rank_count) == ((), 2)
        assert shown(other.records) == [("a", 5, 1), ("c", 5, 1)]
        await ledger.moderation.hide("b", hidden=False)
        (again,) = await look_up(ledger, ("b", 1))
        assert shown(again.records) == [("a", 5, 1), ("b", 5, 1), ("c", 5, 1)]


async def test_a_process_learns_of_a_new_period(valkey_url: str) -> None:
    """Another process has begun a new period. The lookup reads the new period."""
    board = board_of("key", "desc", "ordinal", window=Periods(unit="hour", keep=3))
    async with open_ledger(valkey_url, board) as ledger:
        other = Ledger(ledger.state.client, board, ledger.state.settings)
        await ledger.writer.add([make_entry("a", 5, 1000)])
        (first,) = await look_up(other, ("a", 1))
        await ledger.writer.add([make_entry("b", 5, HOUR + 1000)])
        gone, there = await look_up(other, ("a", 1), ("b", 1))
        assert (shown(first.records), shown(gone.records), shown(there.records)) == ([("a", 5, 1)], [], [("b", 5, 1)])
        assert (first.slot, there.slot) == (0, 3600)


async def test_a_lost_board_has_no_ranks(valkey_url: str) -> None:
    """Records are not returned if the board has another epoch or no longer exists."""
    async with open_ledger(valkey_url, board_of("key", "desc", "ordinal")) as ledger:
        await ledger.writer.add([make_entry("a", 5, 1000)])
        await ledger.state.client.hset(ledger.state.keys.meta, "epoch", "another")
        with pytest.raises(EpochLostError):
            await ledger.reader.places([("a", 1)])
        await ledger.state.client.delete(ledger.state.keys.meta)
        with pytest.raises(EpochLostError):
            await ledger.reader.places([("a", 1)])


async def test_equal_lookups_do_not_depend_on_the_offset(valkey_url: str) -> None:
    """A change far away does not change a lookup. A nearby change and another number of records change it."""
    async with open_ledger(valkey_url, board_of("key", "desc", "ordinal")) as ledger:
        await ledger.writer.add(
            [make_entry(member, amount, 1000) for member, amount in zip("abcd", (9, 7, 5, 3), strict=True)]
        )
        (before,) = await ledger.reader.places([("a", 1)])
        for member, amount, same in (
            ("d", 1, True),
            ("b", 1, False),
            ("b", -1, True),
            ("e", 1, False),
            ("e", -1, True),
        ):
            await ledger.writer.add([make_entry(member, amount, 1000)])
            (after,) = await ledger.reader.places([("a", 1)])
            assert after.is_same(before) is same
            assert ledger.reader.page(after).offset > ledger.reader.page(before).offset


async def test_a_wrong_order_is_detected(valkey_url: str) -> None:
    """In the mutant, members with the same score come in the opposite order, which is not the order of the board."""
    right = "if view.order ~= 'turned' then return rows end"
    source = mutated(load("places"), {right: "if rows then return rows end"})
    mutant = compiled(valkey_url, SCRIPTS.places.changed(source))
    async with open_ledger(valkey_url, board_of("key", "desc", "ordinal")) as ledger:
        ledger.state.scripts = Scripts(places=mutant)
        await ledger.writer.add([make_entry(member, 5, 1000) for member in "abcd"])
        found = await ledger.reader.find("b", 1)
        assert found is not None
        (page,) = await look_up(ledger, ("b", 1))
        assert shown(page.records) != shown(found.records)


def test_neighbours_are_cut_from_a_larger_page() -> None:
    """The gap is to the record above, whether it is shown or not. The first record has no gap."""
    records = [Record(member, score, rank) for rank, (member, score) in enumerate((("a", 9), ("b", 7), ("c", 7)), 1)]
    assert neighbourhood(records, "a", 0) == (records[0], None, records[:1])
    assert neighbourhood(records, "b", 0) == (records[1], 2, records[1:2])
    assert neighbourhood(records, "c", 1) == (records[2], 0, records[1:])
