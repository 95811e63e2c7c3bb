"""Subscriptions: parsed from a query, or from a position in one word."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.domain.reader import NOBODY, Reader
from live.errors import ProblemError
from live.fanout.frames import position_id
from live.fanout.intervals import viewer_interval
from live.fanout.subscription import Subscription, WatchParameters


def parse(**query: str) -> Subscription:
    """The subscription in a query."""
    return Subscription.of(WatchParameters.read(query), NOBODY)


def test_the_member_of_a_token_need_not_be_named() -> None:
    """Viewers that ask for neighbours receive the neighbours of the token's member, unless they name another member."""
    reader = Reader(member="own")
    queries: list[dict[str, str]] = [{}, {"around": "1"}, {"around": "1", "key": "a"}, {"key": "a"}]
    assert [Subscription.of(WatchParameters.read(query), reader).member for query in queries] == [None, "own", "a", "a"]


def test_a_subscription_has_defaults() -> None:
    """A subscription starts with the first fifty records, at the board's interval, without a position."""
    assert parse() == Subscription(size=50)


@pytest.mark.parametrize(
    ("query", "changes"),
    [
        ({"limit": "100"}, {"size": 100}),
        ({"interval": "1ms"}, {"interval": 1}),
        ({"interval": "1.5s"}, {"interval": 1500}),
        ({"interval": "60s"}, {"interval": 60_000}),
        ({"epoch": "e", "offset": "0"}, {"epoch": "e", "offset": 0}),
        ({"epoch": "e" * 64, "offset": "12"}, {"epoch": "e" * 64, "offset": 12}),
        ({"key": "a", "around": "3"}, {"member": "a", "around": 3}),
        ({"delay": "5s"}, {"delay": 5}),
        ({"delay": "5m"}, {"delay": 300}),
    ],
)
def test_each_parameter_changes_its_choice(query: dict[str, str], changes: dict[str, Any]) -> None:
    """What a query does not mention keeps its default."""
    assert parse(**query) == Subscription(**{"size": 50, **changes})


@pytest.mark.parametrize(
    "query", [{"epoch": "e"}, {"offset": "1"}, {"epoch": "e", "offset": "-1"}, {"epoch": "e" * 65, "offset": "1"}]
)
def test_half_a_position_is_ignored(query: dict[str, str]) -> None:
    """The viewer is not refused, and starts with the whole top."""
    assert parse(**query) == Subscription(size=50)


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ({"limits": "1"}, "there is no parameter `limits`; did you mean `limit`?"),
        ({"limit": "0"}, "`limit` must be a whole number from 1 to 100"),
        ({"limit": "101"}, "`limit` must be a whole number from 1 to 100"),
        ({"key": ""}, "`key` can't be on a board: key is empty"),
        ({"around": "51"}, "`around` must be a whole number from 0 to 50"),
        *(
            ({"interval": text}, "`interval` must be a duration from 1ms to 60s")
            for text in ("", "0s", "0.4ms", "60.001s", "x")
        ),
        *(
            ({"delay": text}, "`delay` must be a whole number of seconds from 5s to 5m")
            for text in ("0s", "4s", "5.5s", "301s", "1h", "soon")
        ),
        *(
            ({"delay": "5s", name: value}, f"`delay` shows what everybody sees: leave out `{name}`")
            for name, value in (("limit", "10"), ("interval", "1s"), ("key", "a"), ("around", "1"))
        ),
    ],
)
def test_values_out_of_range_are_refused(query: dict[str, str], detail: str) -> None:
    """The detail says what is allowed."""
    with pytest.raises(ProblemError) as refused:
        parse(**query)
    assert (refused.value.code, refused.value.detail) == ("parameter_invalid", detail)


@pytest.mark.parametrize(
    ("interval", "of_board", "paced"),
    [(0, 100, 100), (50, 100, 100), (100, 100, 100), (101, 100, 200), (1000, 100, 1600), (60_000, 1, 65_536)],
)
def test_intervals_are_rounded_up_to_shared_ones(interval: int, of_board: int, paced: int) -> None:
    """The board's interval is doubled until it is at least as slow as requested."""
    assert viewer_interval(of_board, interval) == paced


@given(st.text("0123456789abcdef", min_size=1, max_size=64), st.integers(0, 10**16 - 1))
def test_a_written_position_can_be_read(epoch: str, offset: int) -> None:
    """The text is the id of an event in a stream, or the `ETag` of a page, which has more parts."""
    word, expected = position_id(epoch, offset), Subscription(size=1, epoch=epoch, offset=offset)
    for text in (word, f"{word}:0c5d00ff", f"{word}:0c5d00ff:-3600"):
        assert Subscription(size=1).since(text) == expected
        assert Subscription(size=1, epoch="older", offset=1).since(text) == expected


@pytest.mark.parametrize("word", ["", "*", "e", "e:", ":1", "e:x", "e:-1", "e:1.0", f"e:{'1' * 17}", f"{'e' * 65}:1"])
def test_an_invalid_position_is_ignored(word: str) -> None:
    """An earlier position of the subscription stays."""
    for subscription in (Subscription(size=1), Subscription(size=1, epoch="e", offset=7)):
        assert subscription.since(word) is subscription
