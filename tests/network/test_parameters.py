"""Parameters of a query: whole numbers in a range."""

import pytest

from live.errors import ProblemError
from live.network.parameters import is_whole, whole_number


@pytest.mark.parametrize(("text", "number"), [("1", 1), ("10", 10), ("007", 7), ("5", 5)])
def test_a_number_in_the_range_is_accepted(text: str, number: int) -> None:
    """Both ends of the range are valid. A missing parameter has its default, which may be outside the range."""
    assert whole_number({"limit": text}, "limit", 50, 1, 10) == number
    assert whole_number({"other": text}, "limit", 50, 1, 10) == 50


@pytest.mark.parametrize("text", ["", "0", "11", "-1", "+1", " 1", "1.0", "1e1", "x", "²", "٣", "1" * 17, "1" * 5000])
def test_an_invalid_number_is_refused(text: str) -> None:
    """The answer names the parameter and the range."""
    with pytest.raises(ProblemError) as refused:
        whole_number({"limit": text}, "limit", 50, 1, 10)
    assert refused.value.code == "parameter_invalid"
    assert refused.value.detail == "`limit` must be a whole number from 1 to 10"


@pytest.mark.parametrize(
    ("text", "whole"), [("0", True), ("9" * 16, True), ("9" * 17, False), ("", False), ("-0", False), ("٣", False)]
)
def test_a_whole_number_has_few_ascii_digits(text: str, whole: object) -> None:
    """`int` can parse such a number quickly."""
    assert is_whole(text) is whole
