"""Counts in messages agree with their nouns."""

import pytest

from live.domain.counts import counted


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 boards"), (1, "1 board"), (2, "2 boards"), (1_234, "1,234 boards")]
)
def test_a_noun_agrees_with_its_count(count: int, shown: str) -> None:
    """Large counts have separators."""
    assert counted(count, "board") == shown


def test_an_irregular_plural_is_given() -> None:
    """It is not used for one."""
    assert [counted(count, "entry", "entries") for count in (1, 2)] == ["1 entry", "2 entries"]
