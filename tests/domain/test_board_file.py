"""Boards files: every choice has a default, and all valid values are accepted."""

import typing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from live.domain.board import DEFAULT_BOARD
from live.domain.board_file import load_boards, parse_boards
from live.domain.calendar import Unit, Weekday
from live.domain.choices import ClockKind, Operator, SortOrder, Ties, Votes
from live.domain.packing import Field, Packing
from live.domain.ranking import Ranks
from live.domain.window import Forever, Periods, Rolling, Sliding
from live.errors import SetupError
from tests.domain.board_files import (
    FOREVER,
    VOTES,
    board_of,
    mistakes,
)
from tests.harness.boards import built


def test_a_board_needs_only_an_id() -> None:
    """Every other choice has a default."""
    assert list(parse_boards('[[board]]\nid = "posts"')) == [
        built(id="posts", title="posts", source=frozenset({"like"}), visibility=None)
    ]


def test_every_choice_is_read() -> None:
    """The board has the values from the file."""
    text = """
    [[board]]
    id = "songs_of-2026"
    title = "Songs · 歌"
    types = ["play", "share", "play"]
    category = ["pop"]
    window = { rolling = "7d", slot = "30m" }
    operator = "incr"
    sort_order = "asc"
    ties = "key"
    ranks = "dense"
    clock = "event"
    visibility = "private"
    """
    assert list(parse_boards(text)) == [
        built(
            id="songs_of-2026",
            title="Songs · 歌",
            types=("play", "share", "play"),
            category=("pop",),
            window=Rolling(604_800, 1800),
            sort_order="asc",
            ties="key",
            ranks="dense",
            clock="event",
            visibility="private",
        )
    ]


def test_a_packed_score_is_read() -> None:
    """More levels are better, and then fewer seconds. The minimum and the order of a field have defaults."""
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
    assert list(parse_boards(text)) == [
        built(
            id="runs",
            title="runs",
            source=frozenset({"like"}),
            window=Forever(),
            operator="best",
            cap=100_000,
            score=Packing(
                (
                    Field(name="levels", high=99),
                    Field(name="seconds", sort_order="asc", low=-5, high=3600),
                )
            ),
            visibility=None,
        )
    ]


def test_the_rules_of_a_contest_are_read() -> None:
    """Times may have any offset. Five seconds after the end, the result is final."""
    votes = "per_key = 1, per_actor = 4, opens = 2026-11-21T08:00:00+08:00, closes = 2026-11-22T00:00:00.5Z"
    board = board_of('window = "forever"', f"votes = {{ {votes}, registered = true, changes = false }}")
    opens = datetime(2026, 11, 21, tzinfo=UTC)
    closes = opens + timedelta(days=1, milliseconds=500)
    assert board.votes == Votes(per_key=1, per_actor=4, opens=opens, closes=closes, registered=True, changes=False)
    assert (board.votes.opens_at, board.votes.closes_at) == (opens.timestamp() * 1000, closes.timestamp() * 1000)
    assert board.votes.final_at == closes.timestamp() * 1000 + 5000
    assert board_of('window = "forever"', "votes = {}").votes == Votes()


def test_a_union_is_read_with_its_weights() -> None:
    """The default weight is 1. A union has no source."""
    parts = '[[board]]\nid = "x"\n[[board]]\nid = "y"\n[[board]]\nid = "u"\nunion = ["x", "y"]\n'
    assert [(board.parts, board.source) for board in parse_boards(parts)][2] == ({"x": 1, "y": 1}, frozenset())
    assert parse_boards(parts + "weights = [5, -2]").by_id["u"].parts == {"x": 5, "y": -2}


def test_every_window_is_read() -> None:
    """Windows are rolling, sliding, by calendar in each unit, or all time.

    A rolling window has hourly slots by default.
    """
    for line, window in [
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
    ]:
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
def test_every_value_of_a_choice_is_read(name: str, value: str) -> None:
    """Each value is valid on a board without a window."""
    assert getattr(board_of('window = "forever"', f'{name} = "{value}"'), name) == value


def test_the_default_board_is_posts() -> None:
    """New users need no file. `LIVE_VISIBILITY` decides who may read the default board."""
    assert load_boards(None).by_id == {"posts": msgspec.structs.replace(DEFAULT_BOARD, visibility=None)}
    assert (DEFAULT_BOARD.title, DEFAULT_BOARD.window) == ("Most liked", Rolling(86_400, 3600))


@pytest.mark.parametrize("text", ["", "board = []", "[board]\nid = 'a'", "boards = 1"])
def test_a_file_without_a_board_is_refused_with_an_example(text: str) -> None:
    """You can copy the example."""
    assert mistakes(text) == ["it contains no [[board]]; the smallest file is:", "[[board]]", 'id = "posts"']


def test_invalid_toml_is_refused_with_its_line() -> None:
    """The message has the line and column of the mistake."""
    assert mistakes("[[board]]\nid = posts")[0].startswith("not TOML: ")
    assert "line 2" in mistakes("[[board]]\nid = posts")[0]


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    """The message has the path of a missing file, a folder, a file that is not UTF-8, or a file with mistakes."""
    (tmp_path / "latin.toml").write_bytes(b'[[board]]\nid = "caf\xe9"')
    (tmp_path / "wrong.toml").write_text("[[board]]")
    for name in ("missing.toml", "", "latin.toml", "wrong.toml"):
        with pytest.raises(SetupError) as caught:
            load_boards(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)


def test_boards_keep_the_order_of_the_file(tmp_path: Path) -> None:
    """The file is read as UTF-8."""
    path = tmp_path / "boards.toml"
    path.write_text('[[board]]\nid = "b"\n[[board]]\nid = "a"\ntitle = "é"\n', encoding="utf-8")
    assert [(board.id, board.title) for board in load_boards(path).by_id.values()] == [("b", "b"), ("a", "é")]


def test_a_file_with_all_kinds_of_boards_is_read() -> None:
    """A site may use all kinds of boards side by side."""
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
def test_a_board_has_its_own_conflation_interval(text: str, interval: int) -> None:
    """The interval replaces the server's setting, and is stored in milliseconds."""
    assert board_of(f'conflation_interval = "{text}"').conflation == interval
    assert board_of().conflation is None
