"""The difference between two tops, and applying it."""

from collections.abc import Mapping, Sequence
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from live.domain.ranking import Ranks, Record, apply, diff, position, ranks_of, with_ranks

KINDS: tuple[Ranks, ...] = get_args(Ranks)
kinds = st.sampled_from(KINDS)
scores = st.dictionaries(st.sampled_from("abcdefghijkl"), st.integers(-3, 3), max_size=12)
sizes = st.integers(0, 12)
# Tops of a board that breaks ties by time: scores fall, and members with equal scores come in any order.
orders = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 2), st.sampled_from([UNSET, b"{}", b"[]"])),
    max_size=8,
    unique_by=lambda row: row[0],
)


def top(board: Mapping[str, int], size: int = 100) -> list[Record]:
    """The first records of a board in the order of the ledger."""
    ordered = sorted(board.items(), key=lambda item: (-item[1], item[0].encode()))
    return [Record(member, score, rank) for rank, (member, score) in enumerate(ordered[:size], 1)]


def in_order(rows: Sequence[tuple[str, int, object]], ranks: Ranks) -> list[Record]:
    """The records of a board with metadata; equal scores keep the given order."""
    ordered = sorted(rows, key=lambda row: -row[1])
    records = [
        Record(member, score, 0, {"n": score}, msgspec.Raw(text) if isinstance(text, bytes) else UNSET)
        for member, score, text in ordered
    ]
    return with_ranks(records, ranks)


@given(orders, orders, sizes, kinds)
def test_any_order_of_equal_scores_can_become_any_other(
    old: list[tuple[str, int, object]], new: list[tuple[str, int, object]], size: int, ranks: Ranks
) -> None:
    """A rank can change while the score stays, and metadata while the rank stays, in each kind of ranks."""
    before, after = in_order(old, ranks)[:size], in_order(new, ranks)[:size]
    assert apply(before, *diff(before, after), ranks) == after


@given(st.permutations("abcdef"), st.permutations("abcdef"))
def test_the_fewest_records_are_sent(old: list[str], new: list[str]) -> None:
    """The longest common subsequence of both tops is not sent. The test finds it by trying every subset."""
    before, after = (in_order([(member, 1, UNSET) for member in keys], "ordinal") for keys in (old, new))
    changed, removed = diff(before, after)
    longest = max(
        len(keys)
        for choice in range(2**6)
        if [member for i, member in enumerate(old) if choice >> i & 1]
        == (keys := [member for member in new if choice >> old.index(member) & 1])
    )
    assert (len(changed), removed) == (6 - longest, [])
    assert [record.rank for record in changed] == sorted(record.rank for record in changed)


@given(scores, scores, sizes)
def test_applying_a_difference_gives_the_new_top(old: dict[str, int], new: dict[str, int], size: int) -> None:
    """The property covers any two tops of any size."""
    before, after = top(old, size), top(new, size)
    assert apply(before, *diff(before, after)) == after


@given(st.lists(scores, max_size=6), sizes)
def test_differences_can_be_applied_one_after_another(boards: list[dict[str, int]], size: int) -> None:
    """A viewer that applies every difference holds the last top."""
    held: list[Record] = []
    for board, following in zip([{}, *boards], boards, strict=False):
        held = apply(held, *diff(top(board, size), top(following, size)))
    assert held == (top(boards[-1], size) if boards else [])


@given(scores, scores, sizes)
def test_a_difference_contains_only_changes(old: dict[str, int], new: dict[str, int], size: int) -> None:
    """A record that keeps its score and stays in the top is not sent."""
    before, after = top(old, size), top(new, size)
    changed, removed = diff(before, after)
    kept = {(record.member, record.score) for record in before} & {(record.member, record.score) for record in after}
    assert not kept & {(record.member, record.score) for record in changed}
    assert set(removed) == {record.member for record in before} - {record.member for record in after}


@pytest.mark.parametrize(
    ("old", "new", "changed", "removed"),
    [
        ({}, {}, [], []),
        ({"a": 1}, {"a": 1}, [], []),
        ({}, {"a": 1}, [("a", 1, 1)], []),
        ({"a": 1}, {}, [], ["a"]),
        ({"a": 3, "b": 2}, {"a": 3, "b": 4}, [("b", 4, 1)], []),
        ({"a": 3, "b": 2, "c": 1}, {"b": 2, "c": 1}, [], ["a"]),
        ({"a": 3, "b": 2, "c": 1}, {"a": 3, "b": 2, "c": 1, "n": 9}, [("n", 9, 1)], []),
        ({"a": 2, "b": 1}, {"a": 1, "b": 2}, [("b", 2, 1), ("a", 1, 2)], []),
    ],
    ids=["nothing", "same", "comes", "leaves", "overtakes", "slides up", "slides down", "swaps"],
)
def test_a_record_that_only_changes_its_rank_is_not_sent(
    old: dict[str, int], new: dict[str, int], changed: list[tuple[str, int, int]], removed: list[str]
) -> None:
    """A viewer finds the new rank from the other records."""
    assert diff(top(old), top(new)) == ([Record(*row) for row in changed], removed)
    assert apply(top(old), *diff(top(old), top(new))) == top(new)


def test_a_record_that_enters_a_limited_top_is_sent() -> None:
    """When the first of three records leaves the board, the third record enters a top of two."""
    before, after = top({"a": 3, "b": 2, "c": 1}, 2), top({"b": 2, "c": 1}, 2)
    assert diff(before, after) == ([Record("c", 1, 2)], ["a"])


def test_applying_a_difference_modifies_nothing() -> None:
    """One update is applied to the tops of many viewers."""
    before, changed, removed = top({"a": 2, "b": 1}), [Record("c", 3, 1)], ["b"]
    apply(before, changed, removed)
    assert (before, changed, removed) == (top({"a": 2, "b": 1}), [Record("c", 3, 1)], ["b"])


def test_new_metadata_is_a_change() -> None:
    """Fields follow from the score, so they are not compared."""
    old = [Record("a", 2, 1, {"x": 2}, msgspec.Raw(b'{"v":1}')), Record("b", 1, 2)]
    new = [Record("a", 2, 1, {"x": 2}, msgspec.Raw(b'{"v":2}')), Record("b", 1, 2)]
    assert diff(old, new) == ([new[0]], [])
    assert apply(old, *diff(old, new)) == new


RANKED = [
    ("ordinal", [9, 7, 7, 7, 4, 4, 1], [1, 2, 3, 4, 5, 6, 7]),
    ("dense", [9, 7, 7, 7, 4, 4, 1], [1, 2, 2, 2, 3, 3, 4]),
    ("competition", [9, 7, 7, 7, 4, 4, 1], [1, 2, 2, 2, 5, 5, 7]),
    ("ordinal", [0, 0], [1, 2]),
    ("dense", [-1, 0, 0, 5], [1, 2, 2, 3]),
    ("competition", [-1, 0, 0, 5], [1, 2, 2, 4]),
    ("dense", [], []),
]


@pytest.mark.parametrize(("ranks", "values", "expected"), RANKED)
def test_equal_scores_share_ranks_by_the_kind_of_the_board(
    ranks: Ranks, values: list[int], expected: list[int]
) -> None:
    """Ranks are 1 2 3 4, 1 2 2 3 or 1 2 2 4, in either sort order."""
    assert ranks_of(values, 1, 0, ranks) == expected


@given(st.lists(st.integers(0, 4), max_size=12), kinds, st.data())
def test_the_ranks_of_a_page_match_those_of_the_board(values: list[int], ranks: Ranks, data: st.DataObject) -> None:
    """The page may begin anywhere, also between equal scores, if the rank of its first record is given."""
    values.sort(reverse=True)
    whole = ranks_of(values, 1, 0, ranks)
    start = data.draw(st.integers(0, len(values)))
    first = whole[start] if start < len(values) else 0
    assert ranks_of(values[start:], first, start, ranks) == whole[start:]


def test_a_record_has_a_position_if_its_rank_differs() -> None:
    """On a board without shared ranks, no record has the field `position`."""
    records = [Record("a", 5, 0), Record("b", 5, 0), Record("c", 3, 0)]
    assert with_ranks(records, "ordinal") == [Record("a", 5, 1), Record("b", 5, 2), Record("c", 3, 3)]
    competition = with_ranks(records, "competition")
    assert [(record.rank, record.position) for record in competition] == [(1, UNSET), (1, 2), (3, UNSET)]
    dense = with_ranks(records, "dense")
    assert [(record.rank, record.position) for record in dense] == [(1, UNSET), (1, 2), (2, 3)]
    assert msgspec.json.encode(dense[1]) == b'{"key":"b","score":5,"rank":1,"position":2}'
    assert (position(3, 3), position(2, 3)) == (UNSET, 3)
