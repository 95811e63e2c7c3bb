"""Which entries of a strict request must not count."""

import pytest

from live.domain.event import Extra, make_entry
from live.store.board.write.writer import refusing, withheld_by


@pytest.mark.parametrize(
    ("known", "planned", "withheld"),
    [
        ({}, {}, set()),
        ({}, {1: "late"}, {0, 2}),
        ({1: "duplicate"}, {}, set()),
        ({1: "duplicate"}, {2: "late"}, {0}),
        ({}, {1: "duplicate", 2: "late"}, {0, 1}),
        ({2: "board_full"}, {0: "not_counted"}, {0, 1}),
        ({}, {3: "late"}, {4}),
    ],
)
def test_a_refusal_withholds_the_others_of_its_range(
    known: dict[int, str], planned: dict[int, str], withheld: set[int]
) -> None:
    """An entry that was counted before is no refusal, and is not withheld."""
    assert withheld_by([range(3), range(3, 5)], known, planned) == withheld


def test_a_withheld_entry_keeps_everything_else() -> None:
    """The store can still find that a withheld entry was counted before."""
    assert refusing(make_entry("a", 2, 3, b"4")) == ("a", 2, 3, b"4", Extra(refused="not_counted"))
    assert refusing(make_entry("a", 2, 3, b"4", Extra("me")))[4] == Extra("me", refused="not_counted")
