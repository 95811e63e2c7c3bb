"""Boards files for tests, and the messages that refuse them."""

import pytest

from live.domain.board import Board
from live.domain.board_file import parse_boards
from live.errors import SetupError

LEAVES = (
    "with a window that events leave: they are subtracted, which works only for sums; "
    'use a calendar window without `last`, or "forever"'
)


KINDS = 'window must be one of {rolling = …}, {sliding = …}, {calendar = …} and "forever"'


VOTES_LEAVE = '`votes` with a window that events leave: votes don\'t expire; use a calendar window, or "forever"'


CAPPED = "`cap` with `operator = incr`: a record that was cut off would start again from zero; use best or set"


SLOT_OF_DAYS = (
    "`slot` does not apply to a window with `calendar`, which takes calendar, timezone, week_start, day_start, "
    "last, keep, grace"
)


TOO_MANY = (
    "a 0..9007199254740992 takes 9007199254740993 values, "
    "more than the 2^53 = 9007199254740992 that a score can hold exactly"
)


LAST = "`last` makes one ranking of several periods; `keep` and `grace` need a ranking for each period"


def mistakes(text: str) -> list[str]:
    """Return the lines of the message that refuses a boards file."""
    with pytest.raises(SetupError) as caught:
        parse_boards(text)
    return str(caught.value).split("\n")


def board_of(*lines: str) -> Board:
    """The board that these lines of a boards file define."""
    (board,) = parse_boards("\n".join(('[[board]]\nid = "b"', *lines)))
    return board


UNITS = "there are: day, hour, month, quarter, week, year"


WEEKDAYS = "there are: friday, monday, saturday, sunday, thursday, tuesday, wednesday"


VOTES = "votes = { per_key = 1 }"


SCORE = 'score = [{ field = "a", max = 9 }]'


FOREVER = 'window = "forever"'


DAYS = 'window = { calendar = "day" }'


LEAVING = ['window = { rolling = "24h" }', 'window = { sliding = "1h" }', 'window = { calendar = "day", last = 7 }']
