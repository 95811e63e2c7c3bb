"""The last pages of a board: which positions can be recovered, and for how long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.domain.ranking import Page, Record
from live.fanout.variant import PageHistory


def page(offset: int, epoch: str = "e", size: int = 3, count: int = 5) -> Page:
    """Return a page of at most `size` records, of a board with `count` records."""
    records = tuple(Record(f"k{rank}", 10 - rank, rank) for rank in range(1, min(size, count) + 1))
    return Page(epoch=epoch, offset=offset, rank_count=count, total_score=0, start=0, records=records)


def known(history: PageHistory, epoch: str = "e", size: int = 3) -> list[int]:
    """The known offsets."""
    return [offset for offset in range(20) if history.find(epoch, offset, size)]


def test_the_last_pages_are_kept() -> None:
    """The history keeps as many pages as its size says, and drops the oldest first."""
    history = PageHistory(3)
    for offset in (1, 2, 5, 7):
        history.add(page(offset))
    assert known(history) == [2, 5, 7]
    assert history.find(None, 5, 3) is None


def test_a_history_of_size_zero_is_empty() -> None:
    """Every reconnecting viewer then receives the whole top."""
    history = PageHistory(0)
    history.add(page(1))
    assert known(history) == []


def test_a_new_epoch_clears_the_history() -> None:
    """An offset that goes back clears the history too."""
    history = PageHistory(9)
    history.add(page(4))
    history.add(page(5))
    history.add(page(3))
    assert known(history) == [3]
    history.add(page(4, "f"))
    assert (known(history), known(history, "f")) == ([], [4])


def test_a_cleared_history_starts_again() -> None:
    """New pages of the same epoch are kept."""
    history = PageHistory(9)
    history.add(page(4))
    history.clear()
    assert known(history) == []
    history.add(page(4))
    assert known(history) == [4]


def test_a_page_serves_only_viewers_of_its_size() -> None:
    """A short page is not enough for a larger top, unless it has the whole board.

    A longer page replaces a page of the same offset.
    """
    history = PageHistory(9)
    history.add(page(1))
    assert (known(history, size=3), known(history, size=4)) == ([1], [])
    history.add(page(1, size=4))
    history.add(page(1, size=2))
    assert (known(history, size=4), known(history, size=5)) == ([1], [])
    history.add(page(2, size=9))
    assert known(history, size=100) == [2]


@pytest.mark.slow
@given(st.integers(0, 4), st.lists(st.tuples(st.sampled_from("ef"), st.integers(0, 8)), max_size=30))
def test_a_history_never_exceeds_its_size_or_returns_a_wrong_page(size: int, steps: list[tuple[str, int]]) -> None:
    """The property covers any sequence of pages."""
    history = PageHistory(size)
    for epoch, offset in steps:
        history.add(page(offset, epoch))
        assert len(history._pages) <= size
        for name in "ef":
            for at in range(9):
                found = history.find(name, at, 3)
                assert found is None or (found.epoch, found.offset) == (name, at)
        assert bool(size) == (history.find(epoch, offset, 3) is not None)
