"""A boards file with a mistake: the message names the board and the choice."""

import pytest

from live.domain.board_file import make_board
from live.domain.calendar import Unit
from live.domain.choices import BaselineAge, Choices
from live.domain.window import Periods, WindowChoice
from tests.domain.board_files import KINDS, LAST, SLOT_OF_DAYS, TOO_MANY, UNITS, WEEKDAYS, mistakes

LAST_RANGE = "`window.last`: expected a whole number from 2 to 1,000, got"
KEEP_RANGE = "`window.keep`: expected a whole number from 0 to 1,000, got"


@pytest.mark.parametrize("board_id", ["a", "0", "a-b_c", "9lives", "a" * 64])
def test_a_valid_id_is_accepted(board_id: str) -> None:
    """An id has 1 to 64 of the characters a-z, 0-9, - and _. It begins with a letter or a digit."""
    assert make_board(Choices(id=board_id)).id == board_id


@pytest.mark.parametrize(
    "board_id",
    ["", "A", "-a", "_a", "a b", "a.b", "a/b", "../a", "{}", "*", "{a}b", "a}b{c", "é", "a\n", "a:b", "a" * 65],
)
def test_an_invalid_id_is_refused(board_id: str) -> None:
    """An id of other characters could change the hash tag, the path or the channel that contains it."""
    with pytest.raises(ValueError, match="is not an id"):
        make_board(Choices(id=board_id))


def test_a_mistake_is_reported_with_its_board() -> None:
    """The message has the number and the id of the board, and what is wrong."""
    for line, message in [
        ("windows = 1", "`windows`: there is no choice `windows`; did you mean `window`?"),
        ('operator = "sum"', "`operator`: there is no value `sum`; there are: best, incr, set"),
        ('sort_order = "up"', "`sort_order`: there is no value `up`; there are: asc, desc"),
        ('ties = "name"', "`ties`: there is no value `name`; there are: first, key, last"),
        ('ranks = "modified"', "`ranks`: there is no value `modified`; there are: competition, dense, ordinal"),
        ('clock = "sundial"', "`clock`: there is no value `sundial`; there are: event, server"),
        ('score = [{ field = "a" }]', "`score[0].max`: missing"),
        (
            'score = [{ field = "a", max = 1, order = "up" }]',
            "`score[0].order`: there is no value `up`; there are: asc, desc",
        ),
        ("window = {}", KINDS),
        ('window = { slot = "1h" }', KINDS),
        ('window = { rolling = "24h", sliding = "24h" }', KINDS),
        (
            'window = { rolling = "24h", slots = "1h" }',
            "`window.slots`: there is no choice `slots`; did you mean `slot`?",
        ),
        ('window = { rolling = "24h", slot = "7h" }', "the window (86400s) is not a multiple of its slot (25200s)"),
        (
            'window = { rolling = "24h", last = 3 }',
            "`last` does not apply to a window with `rolling`, which takes rolling, slot",
        ),
        (
            'window = { sliding = "1h", slot = "1m" }',
            "`slot` does not apply to a window with `sliding`, which takes sliding",
        ),
        ('window = { sliding = "0s" }', "a window must be at least 1s"),
        ('window = { sliding = "1500ms" }', "sliding = '1500ms' is not a whole number of seconds"),
        (
            'window = { calendar = "fortnight" }',
            "`window.calendar`: there is no value `fortnight`; " + UNITS,
        ),
        (
            'window = { calendar = "day", slot = "1h" }',
            SLOT_OF_DAYS,
        ),
        (
            'window = { calendar = "day", timezone = "Mars/Olympus" }',
            "unknown timezone 'Mars/Olympus'; expected an IANA name such as Asia/Shanghai",
        ),
        (
            'window = { calendar = "day", week_start = "sunday" }',
            "`week_start` does not apply to a calendar of days, only to weeks",
        ),
        (
            'window = { calendar = "week", week_start = "x" }',
            "`window.week_start`: there is no value `x`; " + WEEKDAYS,
        ),
        (
            'window = { calendar = "hour", day_start = "09:00" }',
            "`day_start` does not apply to a calendar of hours",
        ),
        (
            'window = { calendar = "day", day_start = "9am" }',
            "day_start = '9am' is not a time from 00:00 to 23:59",
        ),
        ('unit = "km"\nformat = "duration"', "`unit` with `format = duration`: `1:23` needs no unit; leave it out"),
        (
            "scale = 2\nunit = 'votes'\nvotes = {}\nwindow = 'forever'",
            "`scale` or `format` with `votes`: a vote is whole; only `unit` works, like `votes`",
        ),
        (
            "unit = 's'\noperator = 'best'\nscore = [{ field = 'a', max = 9 }]\nwindow = 'forever'",
            "`unit`, `scale` or `format` with `score`: no unit fits all fields; name it in a field, like `time_ms`",
        ),
        ('window = { calendar = "day", last = 1 }', LAST_RANGE + " 1"),
        (
            'window = { calendar = "day", last = 1001 }',
            LAST_RANGE + " 1001",
        ),
        ('window = { calendar = "day", keep = -1 }', KEEP_RANGE + " -1"),
        (
            'window = { calendar = "day", keep = 1001 }',
            KEEP_RANGE + " 1001",
        ),
        ('window = { calendar = "day", last = 7, keep = 3 }', LAST),
        ('window = { calendar = "day", last = 7, grace = "1h" }', LAST),
        ('window = { calendar = "day", grace = "0.5s" }', "grace = '0.5s' is not a whole number of seconds"),
    ]:
        assert mistakes(f'[[board]]\nid = "ok"\n[[board]]\nid = "b"\n{line}') == [f"board 2 ('b'): {message}"]


@pytest.mark.parametrize("zone", ["", "..", "../etc/passwd", "/etc/localtime", "Europe", "a\0b", "é", "x" * 300])
def test_an_unknown_time_zone_is_refused(zone: str) -> None:
    """A made-up zone name opens no other file, and raises only a `ValueError`."""
    with pytest.raises(ValueError, match="unknown timezone"):
        Periods(unit="day", timezone=zone)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            '{ field = "A", max = 1 }',
            "the field 'A' is not a name: write 1 to 64 of a-z, 0-9 and _, and begin with a letter, like `time_ms`",
        ),
        ('{ field = "a", min = 2, max = 1 }', "the field a 2..1 is empty: its minimum is above its maximum"),
        ('{ field = "a", max = 1 }, { field = "a", max = 1 }', "field a is repeated"),
        (
            '{ field = "a", max = 9007199254740992 }',
            TOO_MANY,
        ),
    ],
)
def test_invalid_fields_are_refused(fields: str, message: str) -> None:
    """The message is that of the error which `Field` or `Packing` raises."""
    text = f'[[board]]\nid = "b"\nwindow = "forever"\noperator = "set"\nscore = [{fields}]'
    assert mistakes(text) == [f"board 1 ('b'): score: {message}"]


@pytest.mark.parametrize("entry", ["1", '"posts"', "[]", "true"])
def test_an_entry_that_is_not_a_table_is_refused(entry: str) -> None:
    """The message has the number of the entry."""
    (line,) = mistakes(f"board = [{entry}]")
    assert line.startswith("board 1: expected a table, got ")


@pytest.mark.parametrize("board_id", ["5", "[1]", '{ a = "b" }', "2026-01-01"])
def test_an_id_of_another_type_is_refused(board_id: str) -> None:
    """The union after the board is still checked, and this check does not fail on the id."""
    text = f'[[board]]\nid = {board_id}\n[[board]]\nid = "u"\nunion = ["x", "y"]'
    assert "expected a text" in mistakes(text)[0]


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("0s", "less than 1ms"),
        ("0.4ms", "less than 1ms"),
        ("60.001s", "more than 60s"),
        ("61s", "more than 60s"),
        ("1h", "more than 60s"),
    ],
)
def test_a_conflation_interval_out_of_range_is_refused(text: str, bound: str) -> None:
    """The interval must be from a millisecond to a minute."""
    (mistake,) = mistakes(f'[[board]]\nid = "b"\nconflation_interval = "{text}"')
    assert mistake.endswith(f"conflation_interval: '{text}' is {bound}")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('journal_periods = "90d"', "`journal_periods` with a window without periods"),
        ('journal_periods = "90d"\nwindow = { calendar = "day", last = 2 }', "with a window without periods"),
        ('journal_events = "90d"\njournal = "off"', "`journal_events` with `journal = off`"),
        ('journal = "all"', "there is no value `all`; there are: events, off"),
    ],
)
def test_what_a_journal_can_not_keep_is_refused(line: str, message: str) -> None:
    """Some choices need another window or `journal`."""
    (mistake,) = mistakes(f'[[board]]\nid = "b"\n{line}')
    assert message in mistake


def test_a_calendar_board_keeps_its_periods_for_a_time() -> None:
    """The choice `journal_periods` says for how long."""
    board = make_board(Choices(id="b", window_choice=WindowChoice(calendar="day"), journal_periods="90d"))
    assert board.journal_periods == "90d"


@pytest.mark.parametrize(("unit", "baseline"), [("hour", "day"), ("day", "day"), ("day", "week"), ("week", "week")])
def test_the_baseline_of_a_board_is_not_longer_than_its_periods(unit: Unit, baseline: BaselineAge) -> None:
    """The ranking of a period begins empty, so there is nothing to compare with at its start."""
    with pytest.raises(ValueError, match=f"`baseline = {baseline}` with a window of one {unit}: it begins empty"):
        make_board(Choices(id="a", window_choice=WindowChoice(calendar=unit), baseline=baseline))
    assert make_board(Choices(id="a", window_choice=WindowChoice(calendar="month"), baseline=baseline))
    assert make_board(Choices(id="a", window_choice=WindowChoice(calendar=unit, last=7), baseline=baseline))
