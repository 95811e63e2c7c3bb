"""The file that defines boards: every choice has a default, and a file is read as a whole."""

import typing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from live.domain.board import DEFAULT_BOARD, Board, ClockKind, Operator, SortOrder, Ties, Votes
from live.domain.board_file import load_boards, parse_boards
from live.domain.calendar import Unit, Weekday
from live.domain.packing import Field, Packing
from live.domain.ranking import Ranks
from live.domain.window import Forever, Periods, Rolling, Sliding, Window
from live.errors import SetupError
from tests.domain.board_files import (
    FOREVER,
    VOTES,
    board_of,
    mistakes,
)


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


@pytest.mark.parametrize("text", ["", "board = []", "[board]\nid = 'a'", "boards = 1"])
def test_a_file_without_a_board_is_refused_with_an_example(text: str) -> None:
    """The message is an example to copy."""
    assert mistakes(text) == ["it contains no [[board]]; the smallest file is:", "[[board]]", 'id = "posts"']


def test_invalid_toml_is_refused_with_its_line() -> None:
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
