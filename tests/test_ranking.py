"""The difference between two tops, and how it is applied: one is the inverse of the other."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.ranking import Record, apply, diff

scores = st.dictionaries(st.sampled_from("abcdefghijkl"), st.integers(-3, 3), max_size=12)
sizes = st.integers(0, 12)


def top(board: Mapping[str, int], size: int = 100) -> list[Record]:
    """The first records of a board, as the ledger orders them."""
    ordered = sorted(board.items(), key=lambda item: (-item[1], item[0].encode()))
    return [Record(key, score, rank) for rank, (key, score) in enumerate(ordered[:size], 1)]


@given(scores, scores, sizes)
def test_applying_a_difference_gives_the_new_top(old: dict[str, int], new: dict[str, int], size: int) -> None:
    """Any two tops of any size, whatever came, left, moved or slid."""
    before, after = top(old, size), top(new, size)
    assert apply(before, *diff(before, after)) == after


@given(st.lists(scores, max_size=6), sizes)
def test_differences_can_be_applied_one_after_another(boards: list[dict[str, int]], size: int) -> None:
    """A viewer that never asks again holds the last top."""
    held: list[Record] = []
    for board, following in zip([{}, *boards], boards, strict=False):
        held = apply(held, *diff(top(board, size), top(following, size)))
    assert held == (top(boards[-1], size) if boards else [])


@given(scores, scores, sizes)
def test_a_difference_names_only_what_changed(old: dict[str, int], new: dict[str, int], size: int) -> None:
    """A record that keeps its score, and stays in the top, never travels."""
    before, after = top(old, size), top(new, size)
    changed, removed = diff(before, after)
    kept = {(record.key, record.score) for record in before} & {(record.key, record.score) for record in after}
    assert not kept & {(record.key, record.score) for record in changed}
    assert set(removed) == {record.key for record in before} - {record.key for record in after}


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
def test_a_record_that_slides_does_not_travel(
    old: dict[str, int], new: dict[str, int], changed: list[tuple[str, int, int]], removed: list[str]
) -> None:
    """The new rank of what kept its score follows from the others."""
    assert diff(top(old), top(new)) == ([Record(*row) for row in changed], removed)
    assert apply(top(old), *diff(top(old), top(new))) == top(new)


def test_a_record_that_slides_into_a_cut_top_travels() -> None:
    """When the first of three leaves a top of two, the third comes in from below."""
    before, after = top({"a": 3, "b": 2, "c": 1}, 2), top({"b": 2, "c": 1}, 2)
    assert diff(before, after) == ([Record("c", 1, 2)], ["a"])


def test_applying_changes_neither_top_nor_difference() -> None:
    """One update is applied to the tops of many viewers."""
    before, changed, removed = top({"a": 2, "b": 1}), [Record("c", 3, 1)], ["b"]
    apply(before, changed, removed)
    assert (before, changed, removed) == (top({"a": 2, "b": 1}), [Record("c", 3, 1)], ["b"])
