"""A boards file with several mistakes: each board has a report."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from live.boards.definitions import DefinitionError, read_board
from live.domain.board_file import make_board, parse_boards, read_table
from live.domain.choices import Choices, Votes
from live.domain.packing import NAME_FORM, Field
from live.domain.text import ID_FORM
from live.domain.window import WindowChoice
from live.errors import SetupError
from tests.domain.board_files import CAPPED, LEAVES, SLOT_OF_DAYS, VOTES_LEAVE, mistakes


def test_all_contradictions_are_reported_at_once() -> None:
    """There is one line for each mistake, so you can correct the file in one go."""
    text = """
    [[board]]
    id = "Posts"
    cap = 5
    window = { rolling = "24h", slot = "7h" }
    [[board]]
    title = "no id"
    [[board]]
    id = "a"
    [[board]]
    id = "a"
    [[board]]
    id = "u"
    union = ["a", "nowhere"]
    [[board]]
    id = "v"
    operator = "best"
    votes = { opens = 2026-01-02T00:00:00Z, closes = 2026-01-01T00:00:00Z }
    score = [{ field = "A", max = 1 }]
    [[boards]]
    id = "b"
    """
    assert mistakes(text) == [
        "boards: unknown name; boards are [[board]] tables",
        f"board 1 ('Posts'): id = 'Posts' is not an id: {ID_FORM}",
        f"board 1 ('Posts'): {CAPPED}",
        "board 1 ('Posts'): the window (86400s) is not a multiple of its slot (25200s)",
        "board 2: `id`: missing",
        "board 4 ('a'): another board has this id",
        "board 6 ('v'): `votes` with `operator = best`: votes are added; use incr",
        "board 6 ('v'): `votes` closes before it opens",
        f"board 6 ('v'): `operator = best` {LEAVES}",
        f"board 6 ('v'): {VOTES_LEAVE}",
        "board 6 ('v'): score: the field 'A' is not a name: " + NAME_FORM,
        "board 'u': its union: there is no board `nowhere`; there are: Posts, a, v",
    ]


def test_the_first_invalid_choice_of_each_board_is_reported() -> None:
    """Contradictions of a board, and of a union with the board, are reported when its choices are valid."""
    text = """
    [[board]]
    id = "week"
    titel = "Week"
    cap = "many"
    [[board]]
    id = "day"
    window = { calendar = "day", timezone = "Mars", grace = "soon", week_start = "monday", slot = "1h" }
    [[board]]
    id = "month"
    votes = { per_key = 0, per_actor = 0, opens = "now" }
    [[board]]
    id = "hours"
    window = { rolling = "1", slot = "x" }
    operator = "best"
    score = [{ field = "A", min = 3, max = 2 }, { field = "b", max = 9 }, { field = "b", max = 9 }]
    [[board]]
    id = "game"
    window = "forever"
    operator = "best"
    score = [{ field = "a", max = "9" }, { max = 9, order = "up" }, 5]
    [[board]]
    id = "all"
    union = ["week", "days"]
    window = "forever"
    [[board]]
    id = "all"
    cap = 0
    """
    assert mistakes(text) == [
        "board 1 ('week'): `titel`: there is no choice `titel`; did you mean `title`?",
        f"board 2 ('day'): {SLOT_OF_DAYS}",
        "board 2 ('day'): `week_start` does not apply to a calendar of days, only to weeks",
        "board 2 ('day'): grace: 'soon' is not a duration; expected a number and ms, s, m, h or d, like 24h",
        "board 2 ('day'): unknown timezone 'Mars'; expected an IANA name such as Asia/Shanghai",
        "board 3 ('month'): `votes.per_key`: expected a whole number of at least 1, got 0",
        "board 4 ('hours'): rolling: '1' is not a duration; expected a number and ms, s, m, h or d, like 24h",
        "board 4 ('hours'): slot: 'x' is not a duration; expected a number and ms, s, m, h or d, like 24h",
        f"board 4 ('hours'): `operator = best` {LEAVES}",
        "board 4 ('hours'): score: the field 'A' is not a name: " + NAME_FORM,
        "board 4 ('hours'): score: the field A 3..2 is empty: its minimum is above its maximum",
        "board 5 ('game'): `score[0].max`: expected a whole number, got \"9\"",
        "board 7 ('all'): `cap`: expected a whole number from 1 to 100,000, got 0",
        "board 7 ('all'): another board has this id",
        "board 'all': its union: there is no board `days`; did you mean `day`?",
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('votes = { opens = "now" }',
         '`votes.opens`: expected a time with a time zone, such as 2026-11-22T12:00:00Z, got "now"'),
        ("score = [{ max = 9 }]", "`score[0].field`: missing"),
        ("score = [5]", "`score[0]`: expected a table with field, order, min, max, got 5"),
        ("title = 5", "`title`: expected a text of 1 to 200 characters, got 5"),
        ('types = ["a", 5]', "`types[1]`: expected a text of 1 to 64 characters, got 5"),
        ("a = 1\ncap = 0", "`a`: there is no choice `a`; there are: "),
        ('"a - at `$.cap" = 1', "`a"),
        ('"a - at `$.score[0].max" = 1', "`a"),
    ],
)  # fmt: skip
def test_a_message_names_the_choice_and_what_it_may_be(line: str, message: str) -> None:
    """No name of a choice misleads the report."""
    (found,) = mistakes(f'[[board]]\nid = "b"\n{line}')
    assert found.startswith(f"board 1 ('b'): {message}")


def test_a_mistake_stays_one_line() -> None:
    """Names may hold characters that `str.splitlines` takes for the end of a line."""
    assert mistakes(
        """
        [[board]]
        id = "b"
        operator = "best"
        window = "forever"
        score = [{ field = "a\\u2028b\\u0085c", min = 1, max = 0 }]
        """
    ) == [
        "board 1 ('b'): score: the field 'a\\u2028b\\x85c' is not a name: " + NAME_FORM,
        "board 1 ('b'): score: the field a\u2028b\x85c 1..0 is empty: its minimum is above its maximum",
    ]


def test_an_invalid_interval_is_reported_with_other_mistakes() -> None:
    """All mistakes of a board are reported together."""
    found = mistakes('[[board]]\nid = "B"\nconflation_interval = "fast"')
    assert len(found) == 2
    assert "conflation_interval: 'fast' is not a duration" in found[1]


_NAMES = ["", "a.b", "a[0]", "score[0]", "votes.per_key", "window.calendar", "\x84", "journal = totals"]
_CHOICES = [*Choices.__struct_fields__, *Field.__struct_fields__, *Votes.__struct_fields__,
            *WindowChoice.__struct_fields__]  # fmt: skip
_WORDS = ["7d", "1h", "day", "incr", "best", "forever", "2026-11-21T12:00:00Z", "UTC", "like", "a", "b"]
_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.sampled_from(_WORDS)
    | st.sampled_from([2**63, -(2**64), 10**400, -1, 1, 2]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from([*_NAMES, *_CHOICES]) | st.text(max_size=2), inner, max_size=5),
)  # fmt: skip
_tables = st.dictionaries(
    st.sampled_from([*_NAMES, *_CHOICES, "window", "votes", "score", "union"]) | st.text(max_size=2),
    _values,
    max_size=8,
)


@settings(derandomize=True, max_examples=300, deadline=None)
@given(table=_tables)
@example(table={"votes": {"per_key": "x"}, "union": ["\x84"], "score": {"": -1, "interval": {"a": 1}}})
@example(table={"id": "a", "score": {"field": "f", "max": 1}, "operator": "best", "window": "forever"})
@example(table={"id": "a", "score": [{"field": "f", "max": 1, "": 1}], "score[0]": 1})
@example(table={"id": "a", "window": {"calendar": 5}, "window.calendar": {"": 5}})
def test_no_table_stops_the_report(table: dict[str, Any]) -> None:
    """For any table, either a mistake is found, or there is a board."""
    with suppress(ValueError):
        make_board(read_table(table, Choices))
    with suppress(DefinitionError):
        read_board("a", table)


@pytest.mark.parametrize("name", ['""', '"a.b"', '"a[0]"', '"votes.per_key"', '"\\u0084"'])
@pytest.mark.parametrize("above", ["", "[board.votes]\n", "[board.window]\n", "[board.score]\n", "[[board.score]]\n"])
def test_strange_names_are_reported(name: str, above: str) -> None:
    """A strange name may be at any depth of a boards file."""
    with pytest.raises(SetupError, match="board 1"):
        parse_boards(f'[[board]]\nid = "a"\n{above}{name} = 1\n')
