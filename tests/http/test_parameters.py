"""Parameters of a query: a struct reads them, and refuses what it does not know."""

from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta
from starlette.datastructures import QueryParams

from live.errors import ProblemError
from live.http.parameters import Parameters, Time, is_whole


class Wanted(Parameters, frozen=True, kw_only=True):
    """One parameter of each kind."""

    limit: Annotated[int, Meta(ge=1, le=10)] = 5
    most: Annotated[int, Meta(ge=1)] = 50
    score: Annotated[int, Meta(ge=-3, le=3, extra={"valid": "a small number"})] | None = None
    begin: Time | None = msgspec.field(name="from", default=None)
    rank: bool = False
    side: Literal["left", "right"] = "left"
    prefix: Annotated[str, Meta(min_length=1, max_length=4)] | None = None
    find: Annotated[str, Meta(max_length=4)] = ""
    members: Annotated[list[str], Meta(min_length=1, max_length=2)] = msgspec.field(name="key", default_factory=list)


def read(query: str) -> Wanted:
    """What a query asks for."""
    return Wanted.read(QueryParams(query))


@pytest.mark.parametrize(("text", "number"), [("1", 1), ("10", 10), ("007", 7), ("5", 5)])
def test_a_number_in_the_range_is_accepted(text: str, number: int) -> None:
    """Both ends of the range are valid."""
    assert read(f"limit={text}").limit == number


@pytest.mark.parametrize("text", ["", "0", "11", "-1", "%2B1", " 1", "1.0", "1e1", "x", "²", "٣", "1" * 17, "1" * 5000])
def test_an_invalid_number_is_refused(text: str) -> None:
    """The answer names the parameter and the range."""
    assert refusal(f"limit={text}") == "`limit` must be a whole number from 1 to 10"


def refusal(query: str) -> str:
    """The detail with which a query is refused."""
    with pytest.raises(ProblemError) as refused:
        read(query)
    assert refused.value.code == "parameter_invalid"
    return refused.value.detail


def test_each_kind_of_parameter_is_read() -> None:
    """What a query leaves out has its default."""
    assert read("") == Wanted()
    everything = (
        "limit=2&most=7&score=-3&from=1970-01-01T01:00:00.5%2B01:00&rank=true&side=right&prefix=abcd&key=a&key=b"
    )
    assert read(everything) == Wanted(
        limit=2, most=7, score=-3, begin=500, rank=True, side="right", prefix="abcd", members=["a", "b"]
    )


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("limt=1", "there is no parameter `limt`; did you mean `limit`?"),
        ("score=-4", "`score` must be a small number"),
        ("score=--1", "`score` must be a small number"),
        ("from=2026-11-22T12:00:00", "`from` must be a time with its zone, such as 2026-11-22T12:00:00Z"),
        ("from=0001-01-01T00:00:00%2B23:59", "`from` must be a time with its zone, such as 2026-11-22T12:00:00Z"),
        ("from=", "`from` must be a time with its zone, such as 2026-11-22T12:00:00Z"),
        ("rank=1", "`rank` must be true or false"),
        ("side=up", "`side` must be left or right"),
        ("prefix=", "`prefix` must have 1 to 4 characters"),
        ("prefix=abcde", "`prefix` must have 1 to 4 characters"),
        ("find=abcde", "`find` must have at most 4 characters"),
        ("key=a&key=b&key=c", "give `key` 1 to 2 times"),
    ],
)
def test_an_invalid_parameter_is_refused(query: str, detail: str) -> None:
    """The detail says what is valid."""
    assert refusal(query) == detail


def test_the_last_of_repeated_values_counts() -> None:
    """Only a list takes several values."""
    assert read("limit=x&limit=2").limit == 2


def test_an_unknown_parameter_without_a_similar_one_lists_all() -> None:
    """The detail lists all parameters that exist. A long unknown name is cut."""
    with pytest.raises(ProblemError, match="there is no parameter `zzz`; there are: find, from, key, limit, most,"):
        read("zzz=1")
    with pytest.raises(ProblemError, match="there is no parameter `zzz`; there are: key"):
        Parameters.read({"zzz": ""}, ["key"])
    with pytest.raises(ProblemError, match="there is no parameter `zzz`; there are none"):
        Parameters.read({"zzz": ""})
    with pytest.raises(ProblemError) as caught:
        Parameters.read({"z" * 5000: ""})
    assert len(caught.value.detail) < 150


@pytest.mark.parametrize(
    ("text", "whole"), [("0", True), ("9" * 16, True), ("9" * 17, False), ("", False), ("-0", False), ("٣", False)]
)
def test_a_whole_number_has_few_ascii_digits(text: str, whole: object) -> None:
    """`int` can parse such a number quickly."""
    assert is_whole(text) is whole
