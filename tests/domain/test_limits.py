"""Limits of prefixes in a boards file: what they are, and the mistakes that are found."""

import pytest

from live.domain.board_file import parse_boards
from live.domain.limits import PrefixLimits
from live.errors import SetupError

BOARD = '[[board]]\nid = "acme-june"\nmax_members = 10\n'


def test_limits_are_read_with_and_without_boards() -> None:
    """A limit that is left out does not apply. A file may define limits alone, for boards that are made at run time."""
    text = '[limits."acme-*"]\nboards = 3\nmembers = 1000\nviewers = 0\nrate = 50\n[limits."b*"]\n'
    acme = PrefixLimits(prefix="acme-", boards=3, members=1000, viewers=0, rate=50)
    for boards in (parse_boards(text), parse_boards(BOARD + text)):
        assert boards.limits_of("acme-june") == acme
        assert boards.limits_of("beta") == PrefixLimits(prefix="b")
        assert boards.limits_of("acme") is boards.limits_of("x-acme-") is None
    assert (acme.burst, acme.pattern) == (100, "acme-*")


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("[limits.acme]\nboards = 1", "'acme' is not the beginning of board ids with `*` after it, such as acme-*"),
        ('[limits."*"]\nboards = 1', "'*' is not the beginning of board ids"),
        ('[limits."A*"]\nboards = 1', "'A*' is not the beginning of board ids"),
        ("limits = 3", 'limits: expected tables, got 3; write [limits."acme-*"]'),
        ('[limits]\n"acme-*" = 3', '[limits."acme-*"]: expected a table, got 3'),
        ('[limits."acme-*"]\nborads = 3', '[limits."acme-*"]: `borads`: there is no choice `borads`; did you mean'),
        ('[limits."acme-*"]\nrate = 0', '[limits."acme-*"]: `rate`: expected a whole number'),
        ('[limits."acme-*"]\nrate = inf', '[limits."acme-*"]: `rate`: expected a whole number'),
        ('[limits."acme-*"]\nmembers = "many"', '[limits."acme-*"]: `members`: expected a whole number'),
        (
            '[limits."acme-*"]\n[limits."b*"]\n[limits."acme-eu-*"]',
            '[limits."acme-eu-*"]: its boards have the limits of "acme-*" already; a board has one prefix',
        ),
        (
            BOARD + '[limits."acme-*"]\nboards = 0',
            '`boards` of [limits."acme-*"] in the boards file is 0, and the file has 1 of these boards',
        ),
        (
            BOARD + '[[board]]\nid = "acme-b"\n[limits."acme-*"]\nmembers = 11',
            "is 11, and the `max_members` of its boards in the file add up to 10000010",
        ),
    ],
)  # fmt: skip
def test_a_mistake_says_what_to_write(text: str, mistake: str) -> None:
    """The message names the table with the mistake."""
    with pytest.raises(SetupError) as caught:
        parse_boards(text)
    assert mistake in str(caught.value)
