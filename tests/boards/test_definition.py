"""Definitions of run-time boards: their mistakes, how they are changed, and what can't change."""

from typing import Any

import pytest

from live.boards.definition import DefinitionError, choices_of, forbidden, merge, read_board
from live.domain.board_file import DEFAULT_TYPE
from live.domain.window import Forever
from tests.harness.definitions import EVERY_KIND


def mistakes(board: str = "b", **choices: Any) -> list[str]:
    """The mistakes in choices."""
    with pytest.raises(DefinitionError) as error:
        read_board(board, choices)
    assert str(error.value) == "\n".join(error.value.mistakes)
    return error.value.mistakes


def test_a_board_needs_no_choices() -> None:
    """Every choice has a default, as in the boards file. The choices `frozen` and `idle_ttl` are off."""
    board = read_board("b", {})
    assert (board.id, board.title, board.source) == ("b", "b", frozenset({"like"}))
    assert (board.frozen, board.idle_ttl) == (False, None)


def test_choices_are_those_of_the_boards_file() -> None:
    """Every choice of the boards file has a JSON form, including times."""
    board = read_board("b", {
        "window": "forever", "idle_ttl": "2h", "frozen": True,
        "votes": {"per_actor": 3, "opens": "2026-01-01T00:00:00Z", "closes": "2026-02-01T00:00:00+01:00"},
    })  # fmt: skip
    assert (board.window, board.idle_ttl, board.frozen) == (Forever(), 7200, True)
    assert board.votes is not None
    assert (board.votes.per_actor, board.votes.opens) == (3, 1_767_225_600_000)


def test_the_first_invalid_choice_is_reported() -> None:
    """Contradictions are reported when all choices are valid, and then all of them."""
    assert mistakes("B!", id="x", title=5) == ["`id`: the id is the one in the path"]
    assert mistakes("B!", title=5, operator="most") == ["`title`: expected a text of 1 to 200 characters, got 5"]
    found = mistakes("B!", cap=3, idle_ttl="0s", window={"rolling": "1h", "slot": "7m"})
    assert [line.split(" ")[0] for line in found] == ["id", "`cap`", "the", "`idle_ttl`:"]


def test_contradictory_choices_are_reported() -> None:
    """The messages are those of the boards file."""
    (line,) = mistakes(cap=3)
    assert line.startswith("`cap` with `operator = incr`")
    assert mistakes(idle_ttl="1.5s")[0].startswith("`idle_ttl`")
    assert mistakes(idle_ttl="soon")[0].startswith("`idle_ttl`")
    assert mistakes(idle_ttl=5) == ["`idle_ttl`: expected a text, got 5"]


def test_a_patch_merges() -> None:
    """Tables are merged and null removes a choice. The original choices stay unchanged."""
    choices = {"title": "a", "window": {"calendar": "day", "keep": 3}, "cap": 4}
    merged = merge(choices, {"title": "b", "window": {"keep": 5}, "cap": None, "frozen": True, "none": None})
    assert merged == {"title": "b", "window": {"calendar": "day", "keep": 5}, "frozen": True}
    assert choices["title"] == "a"
    assert merge({"window": "forever"}, {"window": {"calendar": "day"}}) == {"window": {"calendar": "day"}}


@pytest.mark.parametrize("name", EVERY_KIND)
def test_the_choices_of_a_board_define_it_again(name: str) -> None:
    """`choices_of` returns the choices that a board was made from. Defaults are left out."""
    choices = EVERY_KIND[name]
    board = read_board("b", choices)
    assert choices_of(board) == choices
    assert read_board("b", choices_of(board)) == board


def test_choices_that_say_nothing_new_are_left_out() -> None:
    """A choice is left out if its value is the default, even in another spelling."""
    board = read_board("b", {
        "title": "b", "types": [DEFAULT_TYPE], "window": {"rolling": "1440m", "slot": "3600s"}, "max_amount": 10**9,
    })  # fmt: skip
    assert choices_of(board) == {}
    assert choices_of(read_board("b", {"journal_periods": "36499.999d", "window": {"calendar": "day"}})) == {
        "journal_periods": "3153599913s", "window": {"calendar": "day"},
    }  # fmt: skip


DAY = {"window": {"calendar": "day"}}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {"title": "other", "types": ["kiss"], "category": ["art"], "idle_ttl": "1h", "frozen": True}),
        (DAY, {"window": {"calendar": "day", "keep": 3, "grace": "1h"}}),
        ({**DAY, "operator": "best", "cap": 5}, {**DAY, "operator": "best", "cap": 6}),
        ({**DAY, "operator": "best", "cap": 5}, {**DAY, "operator": "best"}),
        ({**DAY, "votes": {"per_key": 1}}, {**DAY, "votes": {"per_key": 2, "per_actor": 3}}),
        ({"ties": "key"}, {"ties": "key", "sort_order": "asc"}),
        ({}, {"ranks": "competition"}),
    ],
)
def test_changes_that_are_allowed(old: dict[str, Any], new: dict[str, Any]) -> None:
    """A change is allowed if it keeps the meaning of stored data."""
    assert list(forbidden(read_board("b", old), read_board("b", new))) == []


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ({}, {"window": "forever", "clock": "event", "ranks": "dense"}, ["window", "ranks", "clock"]),
        (DAY, {"window": {"calendar": "day", "last": 3}}, ["window"]),
        (DAY, {**DAY, "operator": "set", "ties": "last"}, ["operator", "ties"]),
        ({}, {"sort_order": "asc"}, ["sort_order"]),
        ({**DAY, "operator": "best", "ties": "key"}, {**DAY, "operator": "best", "ties": "key", "sort_order": "asc"},
         ["sort_order"]),
        ({**DAY, "operator": "set", "ties": "key", "cap": 5},
         {**DAY, "operator": "set", "ties": "key", "cap": 5, "sort_order": "asc"}, ["sort_order"]),
        ({**DAY, "operator": "best"}, {**DAY, "operator": "best", "cap": 5}, ["cap"]),
        ({**DAY, "operator": "best", "cap": 5}, {**DAY, "operator": "best", "cap": 4}, ["cap"]),
        (DAY, {**DAY, "votes": {"per_key": 1}}, ["votes"]),
        ({"union": ["a", "c"]}, {"union": ["a", "c"], "weights": [1, 2]}, ["union"]),
        ({}, {"union": ["a", "c"]}, ["union"]),
        ({**DAY, "operator": "set", "score": [{"field": "a", "max": 9}]},
         {**DAY, "operator": "set", "score": [{"field": "a", "max": 8}]}, ["score"]),
    ],
)  # fmt: skip
def test_changes_that_are_not_allowed(old: dict[str, Any], new: dict[str, Any], names: list[str]) -> None:
    """Each forbidden choice is named, with the reason."""
    found = list(forbidden(read_board("b", old), read_board("b", new)))
    assert [line.split("`")[1] for line in found] == names
    assert all(": " in line for line in found)
