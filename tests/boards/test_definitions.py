"""Definitions of boards: their mistakes, how they are changed, and what can't change."""

from typing import Any

import pytest

from live.boards.admin import BoardAdmin
from live.boards.definitions import DefinitionError, all_boards, forbidden, merge, read_board, unruled
from live.domain.choices import DEFAULT_TYPE
from live.domain.window import Forever
from live.errors import SetupError
from live.store.connection.client import connect
from live.store.registry.definitions import Definition
from tests.harness.definitions import EVERY_KIND
from tests.harness.settings import fresh_settings


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
    assert (board.window, board.idle_seconds, board.frozen) == (Forever(), 7200, True)
    assert board.votes is not None
    assert (board.votes.per_actor, board.votes.opens_at) == (3, 1_767_225_600_000)


def test_the_first_invalid_choice_is_reported() -> None:
    """Contradictions are reported when all choices are valid, and then all of them."""
    assert mistakes("B!", id="x", title=5) == ["`id`: the id is the one in the path"]
    assert mistakes("B!", title=5, operator="most") == ["`title`: expected a text of 1 to 200 characters, got 5"]
    found = mistakes("B!", cap=3, idle_ttl="0s", window={"rolling": "1h", "slot": "7m"})
    assert [line.split(" ")[0] for line in found] == ["id", "`cap`", "idle_ttl:", "the"]


def test_contradictory_choices_are_reported() -> None:
    """The messages are those of the boards file."""
    (line,) = mistakes(cap=3)
    assert line.startswith("`cap` with `operator = incr`")
    assert mistakes(idle_ttl="1.5s") == ["idle_ttl: '1.5s' is not a whole number of seconds"]
    assert mistakes(idle_ttl="0s") == ["idle_ttl: '0s' is less than 1s"]
    assert mistakes(idle_ttl="soon")[0].startswith("idle_ttl: 'soon' is not a duration")
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
    """A definition has the choices that a board was made from. Defaults are left out."""
    choices = EVERY_KIND[name]
    board = read_board("b", choices)
    assert board.definition == choices
    assert read_board("b", board.definition) == board


def test_choices_that_say_nothing_new_are_left_out() -> None:
    """A choice is left out if its value is the default. Durations stay as they are written."""
    window = {"rolling": "24h", "slot": "1h"}
    assert read_board("b", {"title": "b", "types": [DEFAULT_TYPE], "window": window, "frozen": False}).definition == {}
    assert read_board("b", {"window": {"rolling": "1440m"}}).definition == {"window": {"rolling": "1440m"}}


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


async def test_all_boards_are_read_with_their_epochs(any_store: str) -> None:
    """A half-created or half-deleted board is left out."""
    settings = fresh_settings(any_store)
    client = connect(any_store, settings)
    try:
        admin = BoardAdmin(client, settings)
        await admin.put("made", {"window": "forever"}, "ann")
        made = await admin.defined("made")
        assert made is not None
        for name, definition in {
            "begun": Definition(epoch="e", choices={}, state="making"),
            "left": Definition(epoch="e", choices={}, state="leaving"),
        }.items():
            assert await admin.definitions.keep((await admin.definitions.load()).version, {name: definition})
        found = await all_boards(client)
        assert {name: (board.title, epoch) for name, (board, epoch) in found.items()} == {"made": ("made", made.epoch)}
    finally:
        await client.aclose()


async def test_a_definition_of_a_later_version_is_named(any_store: str) -> None:
    """If one definition can't be read, a command names its board and stops. It does not go on with the other boards."""
    settings = fresh_settings(any_store)
    client = connect(any_store, settings)
    try:
        admin = BoardAdmin(client, settings)
        later = Definition(epoch="e", choices={"window": "of the moon"})
        assert await admin.definitions.keep((await admin.definitions.load()).version, {"later": later})
        with pytest.raises(SetupError, match="the definition of board 'later' can't be read"):
            await all_boards(client)
    finally:
        await client.aclose()


@pytest.mark.parametrize(
    ("other", "is_possible"),
    [
        ({"window": {"rolling": "8h"}}, True),
        ({"window": {"rolling": "8h", "slot": "2h"}}, False),
        ({"window": "forever"}, False),
        ({"score": [{"field": "goals", "max": 99}]}, True),
        ({"score": [{"field": "goals", "max": 5}]}, False),
    ],
)
def test_totals_of_fields_stay_in_their_ranges(other: dict[str, Any], is_possible: bool) -> None:  # noqa: FBT001
    """Each slot bounds them, so the slots keep their length, and ranges only grow."""
    choices = {"window": {"rolling": "4h"}, "operator": "incr", "score": [{"field": "goals", "max": 9}]}
    found = list(unruled(read_board("b", choices), read_board("b", choices | other)))
    assert (found == []) == is_possible
