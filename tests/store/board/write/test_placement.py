"""Where the entries of a batch counted, and which were a new best."""

import pytest

from live.store.board.write.placement import Placement, placements_of
from tests.harness.plans import HOUR, SERVER, forever, like, plan, plan_on


@pytest.mark.parametrize(
    ("order", "beaten", "best"),
    [("desc", 5, [False, True, False, True]), ("asc", 5, [False, False, False, True]),
     ("asc", 6, [True, False, False, True]), ("desc", 7, [False, False, False, True])],
)  # fmt: skip
def test_a_new_best_beats_the_store_and_the_batch(order: str, beaten: int, best: list[bool]) -> None:
    """An equal one beats nothing. The first amount of a member is its best."""
    board = forever(operator="best", sort_order=order)
    entries = [like("a", 5), like("a", 7), like("a", 7), like("b", 0)]
    made = plan_on(board, entries, 0)
    found = placements_of(board, made, entries, range(4), [b"%d" % beaten, b""])
    assert found == {number: Placement(0, is_best) for number, is_best in enumerate(best)}


def test_elsewhere_an_entry_has_only_its_slot() -> None:
    """So has a best one if the reply of the store was lost. A refused entry has none."""
    entries = [like("a", 1, 9 * HOUR), like("a", 1, 0), like("b")]
    made = plan(entries, 10 * HOUR)
    assert placements_of(SERVER, made, entries, range(3), [b"1", b"1"]) == {
        0: Placement(9 * HOUR, None), 2: Placement(10 * HOUR, None)
    }  # fmt: skip
    lost = plan_on(forever(operator="best"), entries[2:], 0)
    assert placements_of(forever(operator="best"), lost, entries[2:], [0], []) == {0: Placement(0, None)}
