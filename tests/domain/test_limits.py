"""Limits of prefixes in a boards file: what they are, and the mistakes that are found."""

import msgspec
import pytest

from live.domain.board_file import parse_boards
from live.domain.limits import PrefixLimits, limits_of
from live.errors import SetupError

BOARD = '[[board]]\nid = "acme-june"\nmax_members = 10\n'


def test_limits_are_read_with_and_without_boards() -> None:
    """A limit that is left out does not apply. A file may define limits alone, for boards that are made over HTTP."""
    text = '[limits."acme-*"]\nboards = 3\nmembers = 1000\nviewers = 0\nrate = 50\n[limits."b*"]\n'
    acme = PrefixLimits(prefix="acme-", boards=3, members=1000, viewers=0, rate=50)
    for boards in (parse_boards(text), parse_boards(BOARD + text)):
        assert limits_of("acme-june", boards.limits) == acme
        assert limits_of("beta", boards.limits) == PrefixLimits(prefix="b")
        assert limits_of("acme", boards.limits) is limits_of("x-acme-", boards.limits) is None
    assert (acme.client.burst, acme.pattern) == (100, "acme-*")


def test_servers_of_other_versions_read_stored_limits() -> None:
    """Their order is part of the tag of a definition, which all servers must agree on. A later version may add one."""
    limits = PrefixLimits(prefix="acme-", boards=3, rate=50)
    stored = msgspec.json.encode(limits)
    assert stored == b'{"prefix":"acme-","boards":3,"members":null,"viewers":null,"rate":50}'
    assert msgspec.json.decode(stored[:-1] + b',"later":1}', type=PrefixLimits) == limits


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
