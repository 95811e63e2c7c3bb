"""What a viewer asks for: read from a query, or from a position in one word."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.errors import ProblemError
from live.fanout.frames import position_id
from live.fanout.subscription import Subscription
from live.settings import Settings


def parse(**query: str) -> Subscription:
    """The wish in a query."""
    return Subscription.parse(query, Settings())


def test_nothing_asked_for_is_the_default() -> None:
    """The first fifty, as the board has it, from nothing."""
    assert parse() == Subscription(size=50)
    assert Subscription.parse({}, Settings(max_live_limit=20)).size == 20


@pytest.mark.parametrize(
    ("query", "changes"),
    [
        ({"limit": "100"}, {"size": 100}),
        ({"interval": "1ms"}, {"interval": 1}),
        ({"interval": "1.5s"}, {"interval": 1500}),
        ({"interval": "60s"}, {"interval": 60_000}),
        ({"epoch": "e", "offset": "0"}, {"epoch": "e", "offset": 0}),
        ({"epoch": "e" * 64, "offset": "12"}, {"epoch": "e" * 64, "offset": 12}),
        ({"key": "a", "around": "3"}, {"key": "a", "around": 3}),
    ],
)
def test_what_is_asked_for(query: dict[str, str], changes: dict[str, Any]) -> None:
    """Each parameter by itself."""
    assert parse(**query) == Subscription(**{"size": 50, **changes})


@pytest.mark.parametrize(
    "query", [{"epoch": "e"}, {"offset": "1"}, {"epoch": "e", "offset": "-1"}, {"epoch": "e" * 65, "offset": "1"}]
)
def test_half_a_position_is_none(query: dict[str, str]) -> None:
    """Who tells no more begins with the whole top; that is no reason to refuse anybody."""
    assert parse(**query) == Subscription(size=50)


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ({"limit": "0"}, "`limit` must be a whole number from 1 to 100"),
        ({"limit": "101"}, "`limit` must be a whole number from 1 to 100"),
        ({"around": "51"}, "`around` must be a whole number from 0 to 50"),
        *(
            ({"interval": text}, "`interval` must be a duration from 1ms to 60s")
            for text in ("", "0s", "0.4ms", "60.001s", "x")
        ),
    ],
)
def test_what_is_out_of_range_is_refused(query: dict[str, str], detail: str) -> None:
    """The answer names what is taken."""
    with pytest.raises(ProblemError) as refused:
        parse(**query)
    assert (refused.value.code, refused.value.detail) == ("parameter_invalid", detail)


@pytest.mark.parametrize(
    ("asked", "of_board", "paced"),
    [(0, 100, 100), (50, 100, 100), (100, 100, 100), (101, 100, 200), (1000, 100, 1600), (60_000, 1, 65_536)],
)
def test_a_pace_is_shared(asked: int, of_board: int, paced: int) -> None:
    """That of the board, or twice that, and again, until it is no faster than was asked for."""
    assert Subscription(size=1, interval=asked).pace(of_board) == paced


@given(st.text("0123456789abcdef", min_size=1, max_size=64), st.integers(0, 10**16 - 1))
def test_a_position_is_read_as_it_is_written(epoch: str, offset: int) -> None:
    """The id of an event, and the tag of a page, which may name a period too."""
    word, stood = position_id(epoch, offset), Subscription(size=1, epoch=epoch, offset=offset)
    for said in (word, f"{word}:1767225600", f"{word}:-3600"):
        assert Subscription(size=1).since(said) == stood
        assert Subscription(size=1, epoch="older", offset=1).since(said) == stood


@pytest.mark.parametrize("word", ["", "*", "e", "e:", ":1", "e:x", "e:-1", "e:1.0", f"e:{'1' * 17}", f"{'e' * 65}:1"])
def test_what_is_no_position_changes_nothing(word: str) -> None:
    """Neither for who came with another, nor for who came without."""
    for asked in (Subscription(size=1), Subscription(size=1, epoch="e", offset=7)):
        assert asked.since(word) is asked
