"""The file that defines boards: every choice has a default, every mistake is named, all at once."""

import typing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from live.domain.board import DEFAULT_BOARD, Board, ClockKind, Operator, SortOrder, Ties, Votes
from live.domain.board_file import BoardChoice, load_boards, make_board, parse_boards
from live.domain.calendar import Unit, Weekday
from live.domain.packing import Field, Packing
from live.domain.ranking import Ranks
from live.domain.window import Forever, Periods, Rolling, Sliding, Window
from live.errors import SetupError

LEAVES = (
    "with a window that events leave: they are subtracted, which works only for sums; "
    'use a calendar window without `last`, or "forever"'
)
KINDS = 'window must be one of {rolling = …}, {sliding = …}, {calendar = …} and "forever"'
VOTES_LEAVE = '`votes` with a window that events leave: votes don\'t expire; use a calendar window, or "forever"'
CAPPED = "`cap` with `operator = incr`: a record that was cut off would start again from zero; use best or set"
SLOT_OF_DAYS = (
    "`slot` does not apply to a window with `calendar`, which takes calendar, timezone, week_start, last, keep, grace"
)
TOO_MANY = (
    "a 0..9007199254740992 takes 9007199254740993 values, "
    "more than the 2^53 = 9007199254740992 that a score can hold exactly"
)
LAST = "`last` makes one ranking of several periods; `keep` and `grace` need a ranking for each period"


def mistakes(text: str) -> list[str]:
    """The lines that a boards file is refused with."""
    with pytest.raises(SetupError) as caught:
        parse_boards(text)
    return str(caught.value).splitlines()


def board_of(*lines: str) -> Board:
    """The board of a file that has but one."""
    (board,) = parse_boards("\n".join(('[[board]]\nid = "b"', *lines)))
    return board


def test_an_id_alone_is_a_board() -> None:
    """Every choice but the id has a default."""
    assert parse_boards('[[board]]\nid = "posts"') == [
        Board(id="posts", title="posts", source=frozenset({"like"}), window=Rolling(86_400, 3600))
    ]


def test_every_choice_is_taken_from_the_file() -> None:
    """What the file says is what the board is."""
    text = """
    [[board]]
    id = "songs_of-2026"
    title = "Songs · 歌"
    source = ["play", "share", "play"]
    category = ["pop"]
    window = { rolling = "7d", slot = "30m" }
    operator = "incr"
    sort_order = "asc"
    ties = "key"
    ranks = "dense"
    clock = "event"
    """
    assert parse_boards(text) == [
        Board(
            id="songs_of-2026",
            title="Songs · 歌",
            source=frozenset({"play", "share"}),
            categories=frozenset({"pop"}),
            window=Rolling(604_800, 1800),
            sort_order="asc",
            ties="key",
            ranks="dense",
            clock="event",
        )
    ]


def test_a_score_of_several_fields_is_taken() -> None:
    """Best levels, then fewest seconds; the least and the order of a field have defaults."""
    text = """
    [[board]]
    id = "runs"
    window = "forever"
    operator = "best"
    cap = 100000
    score = [
        { field = "levels", max = 99 },
        { field = "seconds", order = "asc", min = -5, max = 3600 },
    ]
    """
    assert parse_boards(text) == [
        Board(
            id="runs",
            title="runs",
            source=frozenset({"like"}),
            window=Forever(),
            operator="best",
            cap=100_000,
            score=Packing((Field("levels", "desc", 0, 99), Field("seconds", "asc", -5, 3600))),
        )
    ]


def test_the_rules_of_a_contest_are_taken() -> None:
    """Times are in any offset, and kept in milliseconds."""
    votes = "per_key = 1, per_actor = 4, opens = 2026-11-21T08:00:00+08:00, closes = 2026-11-22T00:00:00.5Z"
    board = board_of('window = "forever"', f"votes = {{ {votes}, registered = true }}")
    opens = int(datetime(2026, 11, 21, tzinfo=UTC).timestamp()) * 1000
    assert board.votes == Votes(per_key=1, per_actor=4, opens=opens, closes=opens + 86_400_500, registered=True)
    assert board_of('window = "forever"', "votes = {}").votes == Votes()


def test_a_union_is_taken_with_its_weights() -> None:
    """Each board counts once, unless there are weights; a union has no source."""
    parts = '[[board]]\nid = "x"\n[[board]]\nid = "y"\n[[board]]\nid = "u"\nunion = ["x", "y"]\n'
    assert [(board.union, board.source) for board in parse_boards(parts)][2] == ({"x": 1, "y": 1}, frozenset())
    assert parse_boards(parts + "weights = [5, -2]")[2].union == {"x": 5, "y": -2}


@pytest.mark.parametrize(
    ("line", "window"),
    [
        ('{ rolling = "48h" }', Rolling(172_800, 3600)),
        ('{ rolling = "90s", slot = "30s" }', Rolling(90, 30)),
        ('{ sliding = "3h" }', Sliding(10_800)),
        ('"forever"', Forever()),
        ('{ calendar = "day" }', Periods(unit="day")),
        ('{ calendar = "day", last = 7 }', Periods(unit="day", last=7)),
        (
            '{ calendar = "week", timezone = "Asia/Shanghai", week_start = "sunday", keep = 3, grace = "2h" }',
            Periods(unit="week", timezone="Asia/Shanghai", week_start="sunday", keep=3, grace=7200),
        ),
        *((f'{{ calendar = "{unit}" }}', Periods(unit=unit)) for unit in typing.get_args(Unit)),
        *(
            (f'{{ calendar = "week", week_start = "{day}" }}', Periods(unit="week", week_start=day))
            for day in typing.get_args(Weekday)
        ),
    ],
)
def test_every_window_is_taken(line: str, window: Window) -> None:
    """Rolling, sliding, calendar in each unit, and all time; half a rolling window is cut into hours."""
    assert board_of(f"window = {line}").window == window


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (name, value)
        for name, kind in (("operator", Operator), ("sort_order", SortOrder), ("ties", Ties), ("ranks", Ranks),
                           ("clock", ClockKind))
        for value in typing.get_args(kind)
    ],
)  # fmt: skip
def test_every_word_of_a_choice_is_taken(name: str, value: str) -> None:
    """On a board that goes for ever, each with each."""
    assert getattr(board_of('window = "forever"', f'{name} = "{value}"'), name) == value


def test_without_a_file_there_is_the_board_posts() -> None:
    """A newcomer needs no file."""
    assert load_boards(None).by_id == {"posts": DEFAULT_BOARD}
    assert (DEFAULT_BOARD.title, DEFAULT_BOARD.window) == ("Most liked", Rolling(86_400, 3600))


@pytest.mark.parametrize("board_id", ["a", "0", "a-b_c", "9lives", "a" * 64])
def test_an_id_that_fits_into_keys_and_paths_is_taken(board_id: str) -> None:
    """1 to 64 of a-z, 0-9, - and _, not beginning with - or _."""
    assert make_board(BoardChoice(id=board_id)).id == board_id


@pytest.mark.parametrize(
    "board_id",
    ["", "A", "-a", "_a", "a b", "a.b", "a/b", "../a", "{}", "*", "{a}b", "a}b{c", "é", "a\n", "a:b", "a" * 65],
)
def test_any_other_id_is_refused(board_id: str) -> None:
    """An id that could leave its hash tag, its path or its channel never becomes a board."""
    with pytest.raises(ValueError, match="does not match"):
        make_board(BoardChoice(id=board_id))


UP = "there is no value `up`; there are: asc, desc"
UNITS = "there are: day, hour, month, quarter, week, year"
WEEKDAYS = "there are: friday, monday, saturday, sunday, thursday, tuesday, wednesday"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("windows = 1", "`windows`: there is no choice `windows`; did you mean `window`?"),
        ('operator = "sum"', "`operator`: there is no value `sum`; there are: best, incr, set"),
        ('sort_order = "up"', "`sort_order`: there is no value `up`; there are: asc, desc"),
        ('ties = "name"', "`ties`: there is no value `name`; there are: first, key, last"),
        ('ranks = "modified"', "`ranks`: there is no value `modified`; there are: competition, dense, ordinal"),
        ('clock = "sundial"', "`clock`: there is no value `sundial`; there are: event, server"),
        ("source = []", "`source`: Expected `array` of length >= 1"),
        ('source = "like"', "`source`: Expected `array | null`, got `str`"),
        ('source = [""]', "`source[0]`: Expected `str` of length >= 1"),
        ("category = []", "`category`: Expected `array` of length >= 1"),
        ('category = ["a", ""]', "`category[1]`: Expected `str` of length >= 1"),
        ('union = ["a"]', "`union`: Expected `array` of length >= 2"),
        ("weights = [1.5]", "`weights[0]`: Expected `int`, got `float`"),
        ("weights = [9007199254740993]", "`weights[0]`: Expected `int` <= 9007199254740992"),
        ("title = 5", "`title`: Expected `str`, got `int`"),
        ("cap = 0", "`cap`: Expected `int` >= 1"),
        ("cap = 100001", "`cap`: Expected `int` <= 100000"),
        ("score = []", "`score`: Expected `array` of length >= 1"),
        ('score = [{ field = "a" }]', "`score[0].max`: missing"),
        (
            'score = [{ field = "a", max = 1, order = "up" }]',
            "`score[0].order`: there is no value `up`; there are: asc, desc",
        ),
        ('votes = { per_key = 0 }\nwindow = "forever"', "`votes.per_key`: Expected `int` >= 1"),
        ('votes = { per_actor = 0 }\nwindow = "forever"', "`votes.per_actor`: Expected `int` >= 1"),
        (
            'votes = { opens = 2026-01-01T00:00:00 }\nwindow = "forever"',
            "`votes.opens`: Expected `datetime` with a timezone component",
        ),
        ('window = "24h"', "`window`: Invalid enum value '24h'"),
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
        ('window = { calendar = "day", last = 1 }', "last = 1 must be from 2 to 1000 periods"),
        ('window = { calendar = "day", last = 1001 }', "last = 1001 must be from 2 to 1000 periods"),
        ('window = { calendar = "day", keep = -1 }', "keep = -1 must be from 0 to 1000 periods"),
        ('window = { calendar = "day", keep = 1001 }', "keep = 1001 must be from 0 to 1000 periods"),
        ('window = { calendar = "day", last = 7, keep = 3 }', LAST),
        ('window = { calendar = "day", last = 7, grace = "1h" }', LAST),
        ('window = { calendar = "day", grace = "0.5s" }', "grace = '0.5s' is not a whole number of seconds"),
    ],
)
def test_a_mistake_is_named_with_its_board(line: str, message: str) -> None:
    """The message names the board by number and id, and what is wrong with it."""
    assert mistakes(f'[[board]]\nid = "ok"\n[[board]]\nid = "b"\n{line}') == [f"board 2 ('b'): {message}"]


@pytest.mark.parametrize("zone", ["", "..", "../etc/passwd", "/etc/localtime", "Europe", "a\0b", "é", "x" * 300])
def test_a_time_zone_is_one_of_the_database(zone: str) -> None:
    """No other file is ever opened, and no name ends in a fault of its own."""
    with pytest.raises(ValueError, match="expected an IANA name such as Asia/Shanghai"):
        Periods(unit="day", timezone=zone)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ('{ field = "A", max = 1 }', "the field 'A' does not match ^[a-z][a-z0-9_]{0,63}$"),
        ('{ field = "a", min = 2, max = 1 }', "the field a 2..1 is empty: its minimum is above its maximum"),
        ('{ field = "a", max = 1 }, { field = "a", max = 1 }', "field a is repeated"),
        (
            '{ field = "a", max = 9007199254740992 }',
            TOO_MANY,
        ),
    ],
)
def test_fields_that_make_no_score_are_refused(fields: str, message: str) -> None:
    """With the message of the packing."""
    text = f'[[board]]\nid = "b"\nwindow = "forever"\noperator = "set"\nscore = [{fields}]'
    assert mistakes(text) == [f"board 1 ('b'): score: {message}"]


VOTES = "votes = { per_key = 1 }"
SCORE = 'score = [{ field = "a", max = 9 }]'
FOREVER = 'window = "forever"'
DAYS = 'window = { calendar = "day" }'
LEAVING = ['window = { rolling = "24h" }', 'window = { sliding = "1h" }', 'window = { calendar = "day", last = 7 }']


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        *(
            ([window, f'operator = "{operator}"'], f"`operator = {operator}` {LEAVES}")
            for window in LEAVING
            for operator in ("set", "best")
        ),
        *(
            (
                [window, VOTES],
                VOTES_LEAVE,
            )
            for window in LEAVING
        ),
        (
            [FOREVER, "cap = 10"],
            CAPPED,
        ),
        ([FOREVER, SCORE], "`score` with `operator = incr`: packed fields can't be added; use best or set"),
        (
            [FOREVER, 'operator = "best"', 'sort_order = "asc"', SCORE],
            "`score` with `sort_order = asc`: each field has its own `order`; leave it at desc",
        ),
        *(
            (
                [DAYS, f'operator = "{operator}"', VOTES],
                f"`votes` with `operator = {operator}`: votes are added; use incr",
            )
            for operator in ("set", "best")
        ),
        (
            [FOREVER, "votes = { opens = 2026-01-02T00:00:00Z, closes = 2026-01-02T00:00:00Z }"],
            "`votes` closes before it opens",
        ),
        (["weights = [1, 2]"], "`weights` needs `union`"),
    ],
)
def test_choices_that_make_no_sense_together_are_refused(lines: list[str], message: str) -> None:
    """The message says which they are, why, and what to choose instead."""
    text = "\n".join(('[[board]]\nid = "b"', *lines))
    assert mistakes(text) == [f"board 1 ('b'): {message}"]


@pytest.mark.parametrize("operator", ["set", "best"])
@pytest.mark.parametrize("window", [FOREVER, DAYS])
@pytest.mark.parametrize("more", [[], ["cap = 1"], [SCORE], [SCORE, "cap = 100000"]])
def test_where_nothing_leaves_every_operator_is_taken(operator: str, window: str, more: list[str]) -> None:
    """With a cap, and with packed fields."""
    assert board_of(window, f'operator = "{operator}"', *more).operator == operator


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['union = ["x", "x"]'], "`union` names a board twice; give it a weight instead"),
        (['union = ["x", "y"]', "weights = [1]"], "`weights` has 1 numbers for 2 boards in `union`"),
        *(
            (['union = ["x", "y"]', line], "`union` with `source` or `category`: a union counts what its boards count")
            for line in ('source = ["like"]', 'category = ["a"]')
        ),
        *(
            (['union = ["x", "y"]', FOREVER, line],
             "`union` with `votes` or an operator other than incr: a union only adds")
            for line in (VOTES, 'operator = "best"')
        ),
    ],
)  # fmt: skip
def test_a_union_that_is_none_is_refused(lines: list[str], message: str) -> None:
    """What a union says of itself is judged alone."""
    text = "\n".join(('[[board]]\nid = "x"\n[[board]]\nid = "y"\n[[board]]\nid = "u"', *lines))
    assert mistakes(text) == [f"board 3 ('u'): {message}"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ([], "its union: there is no board `y`; there are: x, z"),
        (['id = "y"', 'union = ["x", "z"]'], "its union names 'y', which is a union itself; name its boards instead"),
        (['id = "y"', FOREVER, 'operator = "best"'], "its union names 'y', whose scores are not plain sums"),
        (['id = "y"', FOREVER, VOTES], "its union names 'y', whose scores are not plain sums"),
        (['id = "y"', FOREVER], "its union names 'y', which has another window or clock"),
        (['id = "y"', 'window = { rolling = "12h" }'], "its union names 'y', which has another window or clock"),
        (['id = "y"', 'clock = "event"'], "its union names 'y', which has another window or clock"),
    ],
)
def test_a_union_whose_boards_do_not_fit_is_refused(other: list[str], message: str) -> None:
    """Its boards are plain sums over the same window, on the same clock."""
    text = '[[board]]\nid = "u"\nunion = ["x", "y"]\n[[board]]\nid = "x"\n[[board]]\nid = "z"\n'
    text += "\n".join(("[[board]]", *other)) if other else ""
    assert mistakes(text) == [f"board 'u': {message}"]


def test_a_union_is_not_blamed_for_its_boards() -> None:
    """A board with mistakes of its own is told once, and is there."""
    text = '[[board]]\nid = "u"\nunion = ["x", "y"]\n[[board]]\nid = "x"\n[[board]]\nid = "y"\ncap = 0'
    assert mistakes(text) == ["board 3 ('y'): `cap`: Expected `int` >= 1"]


def test_all_mistakes_are_told_at_once() -> None:
    """One line for each mistake, also where a board has several, so that a file is set right in one go."""
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
        "board 1 ('Posts'): id = 'Posts' does not match ^[a-z0-9][a-z0-9_-]{0,63}$",
        f"board 1 ('Posts'): {CAPPED}",
        "board 1 ('Posts'): the window (86400s) is not a multiple of its slot (25200s)",
        "board 2: `id`: missing",
        "board 4 ('a'): another board has this id",
        "board 6 ('v'): `votes` with `operator = best`: votes are added; use incr",
        "board 6 ('v'): `votes` closes before it opens",
        f"board 6 ('v'): `operator = best` {LEAVES}",
        f"board 6 ('v'): {VOTES_LEAVE}",
        "board 6 ('v'): score: the field 'A' does not match ^[a-z][a-z0-9_]{0,63}$",
        "board 'u': its union: there is no board `nowhere`; there are: Posts, a, v",
    ]


def test_no_mistake_hides_another() -> None:
    """Of types, of names, inside of tables and lists, of sense, and between boards: all of one file at once."""
    text = """
    [[board]]
    id = "week"
    titel = "Week"
    cap = "many"
    window = { calendar = "weak", timezone = "Mars", keep = -1, grace = "soon", slots = 1 }
    operator = "bets"
    [[board]]
    id = "day"
    window = { calendar = "day", timezone = "Mars", keep = -1, grace = "soon", week_start = "monday", slot = "1h" }
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
    title = 5
    union = ["week", "days", "game"]
    window = "forever"
    [[board]]
    id = "all"
    cap = 0
    """
    assert mistakes(text) == [
        "board 1 ('week'): `titel`: there is no choice `titel`; did you mean `title`?",
        "board 1 ('week'): `cap`: Expected `int | null`, got `str`",
        "board 1 ('week'): `window.calendar`: there is no value `weak`; did you mean `week`?",
        "board 1 ('week'): `window.slots`: there is no choice `slots`; did you mean `slot`?",
        "board 1 ('week'): `operator`: there is no value `bets`; did you mean `best`?",
        "board 1 ('week'): grace: 'soon' is not a duration; expected a number and ms, s, m, h or d, like 24h",
        "board 1 ('week'): keep = -1 must be from 0 to 1000 periods",
        "board 1 ('week'): unknown timezone 'Mars'; expected an IANA name such as Asia/Shanghai",
        "board 2 ('day'): `votes.per_key`: Expected `int` >= 1",
        "board 2 ('day'): `votes.per_actor`: Expected `int` >= 1",
        "board 2 ('day'): `votes.opens`: Invalid RFC3339 encoded datetime",
        f"board 2 ('day'): {SLOT_OF_DAYS}",
        "board 2 ('day'): `week_start` does not apply to a calendar of days, only to weeks",
        "board 2 ('day'): grace: 'soon' is not a duration; expected a number and ms, s, m, h or d, like 24h",
        "board 2 ('day'): keep = -1 must be from 0 to 1000 periods",
        "board 2 ('day'): unknown timezone 'Mars'; expected an IANA name such as Asia/Shanghai",
        "board 3 ('hours'): rolling: '1' is not a duration; expected a number and ms, s, m, h or d, like 24h",
        "board 3 ('hours'): slot: 'x' is not a duration; expected a number and ms, s, m, h or d, like 24h",
        f"board 3 ('hours'): `operator = best` {LEAVES}",
        "board 3 ('hours'): score: the field 'A' does not match ^[a-z][a-z0-9_]{0,63}$",
        "board 3 ('hours'): score: the field A 3..2 is empty: its minimum is above its maximum",
        "board 4 ('game'): `score[0].max`: Expected `int`, got `str`",
        "board 4 ('game'): `score[1].order`: there is no value `up`; there are: asc, desc",
        "board 4 ('game'): `score[1].field`: missing",
        "board 4 ('game'): `score[2]`: Expected `object`, got `int`",
        "board 5 ('all'): `title`: Expected `str`, got `int`",
        "board 6 ('all'): `cap`: Expected `int` >= 1",
        "board 6 ('all'): another board has this id",
        "board 'all': its union: there is no board `days`; did you mean `day`?",
        "board 'all': its union names 'game', whose scores are not plain sums",
    ]


@pytest.mark.parametrize("text", ["", "board = []", "[board]\nid = 'a'", "boards = 1"])
def test_a_file_without_a_board_shows_the_least_that_is_one(text: str) -> None:
    """The message is an example to copy."""
    assert mistakes(text) == ["it contains no [[board]]; the smallest file is:", "[[board]]", 'id = "posts"']


@pytest.mark.parametrize("entry", ["1", '"posts"', "[]", "true"])
def test_an_entry_that_is_no_table_is_refused(entry: str) -> None:
    """By its number."""
    (line,) = mistakes(f"board = [{entry}]")
    assert line.startswith("board 1: Expected `object`, got ")


@pytest.mark.parametrize("board_id", ["5", "[1]", '{ a = "b" }', "2026-01-01"])
def test_an_id_of_another_type_is_refused(board_id: str) -> None:
    """Also one that is no word at all, and while there are unions to look at."""
    text = f'[[board]]\nid = {board_id}\n[[board]]\nid = "u"\nunion = ["x", "y"]'
    assert "Expected `str`" in mistakes(text)[0]


def test_what_is_no_toml_is_refused_with_its_place() -> None:
    """The line and column of the fault are told."""
    assert mistakes("[[board]]\nid = posts")[0].startswith("not TOML: ")
    assert "line 2" in mistakes("[[board]]\nid = posts")[0]


def test_a_file_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    """A missing file, a folder, a file that is not UTF-8 and one with mistakes are all told by their path."""
    (tmp_path / "latin.toml").write_bytes(b'[[board]]\nid = "caf\xe9"')
    (tmp_path / "wrong.toml").write_text("[[board]]")
    for name in ("missing.toml", "", "latin.toml", "wrong.toml"):
        with pytest.raises(SetupError) as caught:
            load_boards(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    """Its boards come in its order."""
    path = tmp_path / "boards.toml"
    path.write_text('[[board]]\nid = "b"\n[[board]]\nid = "a"\ntitle = "é"\n', encoding="utf-8")
    assert [(board.id, board.title) for board in load_boards(path).by_id.values()] == [("b", "b"), ("a", "é")]


def test_a_whole_file_of_all_kinds_is_taken() -> None:
    """What a site has side by side."""
    lines: list[Any] = [
        ("day", ['window = { calendar = "day", timezone = "Asia/Shanghai" }']),
        ("week", ['window = { calendar = "week", timezone = "Asia/Shanghai" }']),
        ("hot", ['window = { sliding = "3h" }', 'ranks = "competition"']),
        ("vote", [FOREVER, VOTES, 'ties = "last"']),
        ("best", [FOREVER, 'operator = "best"', 'sort_order = "asc"', "cap = 1000"]),
    ]
    text = "\n".join(f'[[board]]\nid = "{name}"\n' + "\n".join(choices) for name, choices in lines)
    assert [board.id for board in parse_boards(text)] == [name for name, _ in lines]


@pytest.mark.parametrize(("text", "interval"), [("1ms", 1), ("250ms", 250), ("1.5s", 1500), ("1m", 60_000)])
def test_the_pace_of_a_board(text: str, interval: int) -> None:
    """In place of the setting; kept in milliseconds."""
    assert board_of(f'conflation_interval = "{text}"').conflation == interval
    assert board_of().conflation is None


@pytest.mark.parametrize("text", ["0s", "0.4ms", "60.001s", "61s", "1h"])
def test_a_pace_out_of_range_is_refused(text: str) -> None:
    """From a millisecond to a minute."""
    (mistake,) = mistakes(f'[[board]]\nid = "b"\nconflation_interval = "{text}"')
    assert mistake.endswith(f"conflation_interval: '{text}' is not between 1ms and 60s")


def test_a_pace_that_is_no_time_is_refused_with_all_else() -> None:
    """Every mistake of a board at once."""
    found = mistakes('[[board]]\nid = "B"\nconflation_interval = "fast"')
    assert len(found) == 2
    assert "conflation_interval: 'fast' is not a duration" in found[1]
