"""What is written so that store keys hold what the journal says, and what is left out because nothing has changed."""

import tracemalloc
from collections.abc import Callable
from typing import Any, Final

import pytest

from live.domain.board import Board
from live.domain.window import Forever, Periods
from live.journal.state.difference import ContentsDifference, Tracked
from live.journal.state.snapshot import Ranking, Snapshot
from live.store.board.keys import Keys
from tests.harness.boards import built
from tests.harness.mutation import must_be_caught, replaced

DAY: Final = 86_400
PLACE: Final = (0, 1, 1)


def difference_of(board: Board) -> ContentsDifference:
    """The difference between an empty board and its journal."""
    return ContentsDifference(board, Keys("live", board.id))


def advance(difference: ContentsDifference, data: Snapshot, now: int) -> None:
    """Write the difference at a time, in seconds."""
    for _ in difference.advance(data, 1000 * now):
        pass


def costs_little() -> None:
    """Change one of many members."""
    difference = difference_of(built(id="ever", title="e", window=Forever(), ties="first"))
    members = [f"m{number}" for number in range(50_000)]
    data = Snapshot(slots={0: dict.fromkeys(members, 1)}, rankings={"": Ranking(reached=dict.fromkeys(members, PLACE))})
    advance(difference, data, DAY)
    data.slots[0]["m7"] = 2
    tracemalloc.start()
    try:
        advance(difference, data, DAY)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000, "a change costs as much as the whole slot"


def test_a_change_does_not_cost_as_much_as_the_whole_slot() -> None:
    """The board is paused while the last changes are written."""
    costs_little()


@pytest.mark.mutant
def test_a_copy_of_the_whole_slot_is_detected() -> None:
    """The mutant makes a set of all members for each change."""
    right = ContentsDifference._records

    def wasteful(self: ContentsDifference, *given: Any) -> object:
        for slot in self._data.slots.values():
            set(slot)
        return right(self, *given)

    with must_be_caught("a copy of the slot"), replaced(ContentsDifference, "_records", wasteful):
        costs_little()


def test_nothing_stays_of_a_period_that_leaves_during_the_load() -> None:
    """Hidden members keep their places while the board keeps the period, even if their amounts cancel out."""
    board = built(id="days", title="d", window=Periods(unit="day", keep=1), ties="last")
    difference = difference_of(board)
    ranking = Ranking(reached=dict.fromkeys(("ann", "cat", "dan"), PLACE), metadata={"ann": b"{}"})
    data = Snapshot(slots={0: {"ann": 1, "cat": 2}, DAY: {"ann": 3}}, hidden={"cat", "dan"})
    data.rankings = {":0": ranking, f":{DAY}": Ranking(reached={"ann": PLACE})}
    advance(difference, data, DAY)
    of_period = {name: size for name, size in difference.sizes.items() if name.endswith(":0")}
    assert sorted(size for size in of_period.values() if size) == [1, 1, 2, 3]
    advance(difference, data, 2 * DAY)
    left = {name: size for name, size in difference.sizes.items() if name.endswith(":0") and size}
    assert left == {}, "something stays of the period"


@pytest.mark.parametrize(
    "change",
    [
        lambda held: held.clear(),
        lambda held: held.update(b=2),
        lambda held: held.setdefault("b", 2),
        lambda held: held.popitem(),
        lambda held: held.__ior__({"b": 2}),
    ],
)
def test_no_change_goes_unnoticed(change: Callable[[Tracked[str, int]], object]) -> None:
    """A dictionary refuses what it would not remember."""
    held = Tracked({"a": 1})
    with pytest.raises(TypeError, match="remembered"):
        change(held)
    assert (held, held.was) == ({"a": 1}, {})
