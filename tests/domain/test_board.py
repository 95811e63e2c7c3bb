"""Boards: what follows from their choices, and which boards an event feeds, with which weight."""

from typing import Any

import msgspec
import pytest

from live.domain.board import DEFAULT_BOARD, Board, Boards
from live.domain.choices import BOARD_ID, Votes
from live.domain.packing import Field, Packing
from live.domain.window import Forever, Periods, Rolling, Sliding
from tests.harness.boards import built, changed

PACKING = Packing((Field(name="levels", high=99),))


def make(name: str = "b", **choices: Any) -> Board:
    """A board with some choices."""
    return built(id=name, title=name, **choices)


@pytest.mark.parametrize(
    ("operator", "order", "operation"),
    [
        ("incr", "desc", "incr"), ("incr", "asc", "incr"), ("set", "desc", "set"), ("set", "asc", "set"),
        ("best", "desc", "max"), ("best", "asc", "min"),
    ],
)  # fmt: skip
def test_best_depends_on_the_sort_order(operator: str, order: str, operation: str) -> None:
    """`best` keeps the highest score with `desc` and the lowest with `asc`. Other operators ignore the order."""
    assert make(operator=operator, sort_order=order).operation == operation


@pytest.mark.parametrize(
    ("ties", "order", "tags", "reading"),
    [
        ("first", "desc", "falling", "backward"), ("first", "asc", "rising", "forward"),
        ("last", "desc", "rising", "backward"), ("last", "asc", "falling", "forward"),
        ("key", "desc", "key", "turned"), ("key", "asc", "key", "forward"),
    ],
)  # fmt: skip
def test_tags_follow_the_reading_order(ties: str, order: str, tags: str, reading: str) -> None:
    """Of two records with equal scores, the record that `ties` puts ahead comes first in the reading order."""
    board = make(ties=ties, sort_order=order)
    assert (board.tags, board.reading) == (tags, reading)
    earlier, later = (1, 2) if tags == "rising" else (2, 1)
    if ties != "key":
        ahead = max(earlier, later) if reading == "backward" else min(earlier, later)
        assert ahead == (earlier if ties == "first" else later)


@pytest.mark.parametrize(
    ("choices", "bare", "described"),
    [
        ({}, True, False),
        ({"operator": "set"}, False, True),
        ({"operator": "best"}, False, True),
        ({"operator": "best", "score": PACKING}, False, True),
        ({"votes": Votes(per_key=1)}, False, True),
        ({"sort_order": "asc", "ties": "last", "ranks": "dense", "clock": "event"}, True, False),
    ],
)
def test_a_plain_sum_needs_only_an_amount(choices: dict[str, Any], bare: object, described: object) -> None:
    """A board asks for fields, actors and metadata only if it uses them."""
    board = make(**choices)
    assert (board.bare, board.described) == (bare, described)


OTHERS: list[dict[str, Any]] = [
    {"window": Rolling(86_400, 1800)},
    {"window": Rolling(43_200, 3600)},
    {"window": Sliding(86_400)},
    {"window": Forever()},
    {"window": Periods(unit="day")},
    {"window": Periods(unit="day", last=7)},
    {"window": Periods(unit="day", timezone="Asia/Shanghai")},
    {"window": Periods(unit="week")},
    {"window": Periods(unit="week", week_start="sunday")},
    {"window": Periods(unit="week", day_start="09:00")},
    {"operator": "set"},
    {"operator": "best"},
    {"operator": "best", "sort_order": "asc"},
    {"ties": "last"},
    {"ties": "key"},
    {"ranks": "dense"},
    {"clock": "event"},
    {"score": PACKING},
    {"score": Packing((Field(name="levels", sort_order="asc", high=99),))},
]


def test_boards_with_different_data_have_different_shapes() -> None:
    """Each choice that changes the stored data changes the shape. An encoded shape can be read back."""
    shapes = [make(**choices).shape for choices in [{}, *OTHERS]]
    assert len({shape.encode() for shape in shapes}) == len(shapes)
    for shape in shapes:
        assert msgspec.json.decode(shape.encode(), type=type(shape)).encode() == shape.encode()
        assert "\n" not in shape.encode()


@pytest.mark.parametrize(
    "choices",
    [
        {"title": "Another"},
        {"source": frozenset({"play"})},
        {"categories": frozenset({"x"})},
        {"ranks": "competition"},
        {"cap": 5},
        {"votes": Votes(per_actor=3)},
        {"ties": "last", "sort_order": "asc"},
    ],
)
def test_boards_with_the_same_data_have_the_same_shape(choices: dict[str, Any]) -> None:
    """Choices that only decide what is accepted, kept or shown may change at any start.

    In the last case, `last` with `asc` uses the same tags as `first` with `desc`.
    """
    assert changed(make(), **choices).shape == make().shape


def test_the_number_of_kept_periods_may_change() -> None:
    """A new `keep` or `grace` changes nothing in the store."""
    one, other = (make(window=Periods(unit="day", keep=keep, grace=keep)) for keep in (1, 9))
    assert one.shape == other.shape


def test_the_default_board_counts_likes_of_a_day() -> None:
    """The default board counts the likes of a day. The first member to reach a score is ahead."""
    assert (DEFAULT_BOARD.id, DEFAULT_BOARD.title) == ("posts", "Most liked")
    assert (DEFAULT_BOARD.window, DEFAULT_BOARD.ties) == (Rolling(86_400, 3600), "first")
    assert BOARD_ID.fullmatch(DEFAULT_BOARD.id)


def test_a_type_feeds_every_board_that_has_it_as_source() -> None:
    """The boards are in the order of the file. An unknown type feeds no board."""
    one, two, three = (
        make(name, source=frozenset(source))
        for name, source in (("one", {"like"}), ("two", {"like", "play"}), ("three", {"play"}))
    )
    boards = Boards([one, two, three])
    assert boards.fed_by("like", None) == [one, two]
    assert boards.fed_by("play", None) == [two, three]
    assert boards.fed_by("share", None) == []
    assert list(boards.by_id) == ["one", "two", "three"]


def test_a_category_narrows_the_boards() -> None:
    """A board with categories accepts only events in one of them. A board without categories accepts every event."""
    every = make("every", source=frozenset({"like"}))
    some = make("some", source=frozenset({"like"}), categories=frozenset({"cats", "dogs"}))
    boards = Boards([every, some])
    assert boards.fed_by("like", "cats") == [every, some]
    assert boards.fed_by("like", "dogs") == [every, some]
    assert boards.fed_by("like", "birds") == [every]
    assert boards.fed_by("like", None) == [every]


def test_a_union_is_fed_by_its_boards_with_their_weights() -> None:
    """A union counts an event once, with the sum of the weights of all parts that the event feeds."""
    one, two = (make(name, source=frozenset({"like"})) for name in ("one", "two"))
    both = make("both", source=frozenset(), union={"one": 1, "two": -3})
    twice = make("twice", source=frozenset(), union={"two": 2, "three": 1})
    boards = Boards([both, one, two, twice])
    assert boards.fed_by("like", None) == [one, two]
    assert boards.with_unions([one, two]) == [(one, 1), (two, 1), (both, -2), (twice, 2)]
    assert boards.with_unions([one]) == [(one, 1), (both, 1)]
    assert boards.with_unions([]) == []
    assert Boards([one]).with_unions([one]) == [(one, 1)]
