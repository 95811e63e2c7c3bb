"""The last pages of a board: what is known again, and for how long."""

from hypothesis import given
from hypothesis import strategies as st

from live.domain.ranking import Page, Record
from live.fanout.history import History


def page(offset: int, epoch: str = "e", size: int = 3, count: int = 5) -> Page:
    """A page of so many records, on a board of `count`."""
    records = tuple(Record(f"k{rank}", 10 - rank, rank) for rank in range(1, min(size, count) + 1))
    return Page(epoch=epoch, offset=offset, rank_count=count, total_score=0, start=0, records=records)


def known(history: History, epoch: str = "e", size: int = 3) -> list[int]:
    """The offsets that are known."""
    return [offset for offset in range(20) if history.find(epoch, offset, size)]


def test_the_last_pages_are_known() -> None:
    """As many as its size, the oldest go first."""
    history = History(3)
    for offset in (1, 2, 5, 7):
        history.add(page(offset))
    assert known(history) == [2, 5, 7]
    assert history.find(None, 5, 3) is None


def test_without_a_size_nothing_is_known() -> None:
    """Whoever comes back gets the whole top."""
    history = History(0)
    history.add(page(1))
    assert known(history) == []


def test_another_life_of_the_board_begins_anew() -> None:
    """Of another epoch, or with an offset that goes back: nothing from before is known."""
    history = History(9)
    history.add(page(4))
    history.add(page(5))
    history.add(page(3))
    assert known(history) == [3]
    history.add(page(4, "f"))
    assert (known(history), known(history, "f")) == ([], [4])


def test_what_a_renewed_board_was_is_forgotten() -> None:
    """And what it is from then on is known, in the same epoch."""
    history = History(9)
    history.add(page(4))
    history.clear()
    assert known(history) == []
    history.add(page(4))
    assert known(history) == [4]


def test_a_page_serves_those_who_saw_no_more_of_it() -> None:
    """A short one does not serve a large top, unless that was all there was; a longer one of the same offset does."""
    history = History(9)
    history.add(page(1))
    assert (known(history, size=3), known(history, size=4)) == ([1], [])
    history.add(page(1, size=4))
    history.add(page(1, size=2))
    assert (known(history, size=4), known(history, size=5)) == ([1], [])
    history.add(page(2, size=9))
    assert known(history, size=100) == [2]


@given(st.integers(0, 4), st.lists(st.tuples(st.sampled_from("ef"), st.integers(0, 8)), max_size=30))
def test_it_holds_no_more_than_its_size_and_nothing_wrong(size: int, steps: list[tuple[str, int]]) -> None:
    """Whatever comes: what is found is the page that was asked for."""
    history = History(size)
    for epoch, offset in steps:
        history.add(page(offset, epoch))
        assert len(history._pages) <= size
        for name in "ef":
            for at in range(9):
                found = history.find(name, at, 3)
                assert found is None or (found.epoch, found.offset) == (name, at)
        assert bool(size) == (history.find(epoch, offset, 3) is not None)
