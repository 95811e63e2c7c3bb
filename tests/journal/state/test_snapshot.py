"""A `Snapshot` names events and tags as the store does."""

import pytest

from live.boards.definitions import read_board
from live.journal.state.snapshot import Logged, logged_of, name_of, reached_of, tag_of


@pytest.mark.parametrize(
    ("order", "time", "tag"),
    [
        ("asc", 9, b"\x40\0\0\0\0\x09\0\0\0\0\5\0\0\7"),
        ("desc", 9, b"\xbf\xff\xff\xff\xff\xf6\xff\xff\xff\xff\xfa\xff\xff\xf8"),
        ("asc", -1, b"\x3f\xff\xff\xff\xff\xff\0\0\0\0\5\0\0\7"),
    ],
)
def test_a_tag_rises_or_falls_with_time(order: str, time: int, tag: bytes) -> None:
    """A tag has six bytes of the time, five of the offset and three of the number. A time may be before 1970."""
    board = read_board("b", {"ties": "first", "sort_order": order})
    assert tag_of(board, (time, 5, 7)) == tag
    assert reached_of(board.shape.encode(), tag) == (time, 5, 7)


def test_the_name_of_an_event_has_its_place_amount_and_member() -> None:
    """A member may have spaces."""
    event = Logged(9, 5, 7, "a b", -3)
    assert name_of(event) == b"\0\0\0\0\5\0\0\7-3 a b"
    assert logged_of(name_of(event), 9) == event
