"""Boards and the file that defines them: every choice has a default, every mistake is named, all at once."""

from pathlib import Path

import pytest

from live.board import DEFAULT_BOARD, Board, BoardChoice, Boards, load_boards, make_board, parse_boards
from live.errors import SetupError
from live.window import Window


def mistakes(text: str) -> list[str]:
    """The lines that a boards file is refused with."""
    with pytest.raises(SetupError) as caught:
        parse_boards(text)
    return str(caught.value).splitlines()


def test_an_id_alone_is_a_board() -> None:
    """Every choice but the id has a default."""
    assert parse_boards('[[board]]\nid = "posts"') == [
        Board(id="posts", title="posts", source=frozenset({"like"}), window=Window(86_400, 3600), clock="server")
    ]


def test_every_choice_is_taken_from_the_file() -> None:
    """What the file says is what the board is."""
    text = """
    [[board]]
    id = "songs_of-2026"
    title = "Songs · 歌"
    source = ["play", "share", "play"]
    window = { rolling = "7d", slot = "30m" }
    operator = "incr"
    sort_order = "desc"
    ties = "key"
    clock = "event"
    """
    assert parse_boards(text) == [
        Board(
            id="songs_of-2026",
            title="Songs · 歌",
            source=frozenset({"play", "share"}),
            window=Window(604_800, 1800),
            clock="event",
        )
    ]


def test_half_a_window_keeps_the_other_half() -> None:
    """A window that names only its length is cut into hours."""
    (board,) = parse_boards('[[board]]\nid = "a"\nwindow = { rolling = "48h" }')
    assert board.window == Window(172_800, 3600)


def test_without_a_file_there_is_the_board_posts() -> None:
    """A newcomer needs no file."""
    assert load_boards(None).by_id == {"posts": DEFAULT_BOARD}
    assert (DEFAULT_BOARD.title, DEFAULT_BOARD.window) == ("Most liked", Window(86_400, 3600))


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


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("windows = 1", "Object contains unknown field `windows`"),
        ('operator = "best"', "Invalid enum value 'best' - at `$.operator`"),
        ('sort_order = "asc"', "Invalid enum value 'asc' - at `$.sort_order`"),
        ('ties = "first"', "Invalid enum value 'first' - at `$.ties`"),
        ('clock = "sundial"', "Invalid enum value 'sundial' - at `$.clock`"),
        ("source = []", "Expected `array` of length >= 1 - at `$.source`"),
        ('source = "like"', "Expected `array`, got `str` - at `$.source`"),
        ('source = [""]', "Expected `str` of length >= 1 - at `$.source[0]`"),
        ("title = 5", "Expected `str`, got `int` - at `$.title`"),
        ('window = "24h"', "Expected `object`, got `str` - at `$.window`"),
        ('window = { rolling = "24h", slots = "1h" }', "Object contains unknown field `slots` - at `$.window`"),
        ('window = { rolling = "24h", slot = "7h" }', "the window (86400s) is not a multiple of its slot (25200s)"),
    ],
)
def test_a_mistake_is_named_with_its_board(line: str, message: str) -> None:
    """The message names the board by number and id, and what is wrong with it."""
    assert mistakes(f'[[board]]\nid = "ok"\n[[board]]\nid = "b"\n{line}') == [f"board 2 ('b'): {message}"]


def test_all_mistakes_are_told_at_once() -> None:
    """One line for each wrong board, so that a file is set right in one go."""
    text = """
    [[board]]
    id = "Posts"
    [[board]]
    title = "no id"
    [[board]]
    id = "a"
    [[board]]
    id = "a"
    [[boards]]
    id = "b"
    """
    assert mistakes(text) == [
        "boards: there is nothing of this name; boards are [[board]] tables",
        "board 1 ('Posts'): id = 'Posts' does not match ^[a-z0-9][a-z0-9_-]{0,63}$",
        "board 2: Object missing required field `id`",
        "board 4 ('a'): another board has this id",
    ]


@pytest.mark.parametrize("text", ["", "board = []", "[board]\nid = 'a'", "boards = 1"])
def test_a_file_without_a_board_shows_the_least_that_is_one(text: str) -> None:
    """The message is an example to copy."""
    assert mistakes(text) == ["no [[board]] in it; the least is:", "[[board]]", 'id = "posts"']


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


def test_a_type_feeds_every_board_whose_source_takes_it() -> None:
    """The boards of a type come in the order of the file."""
    one, two, three = (
        make_board(BoardChoice(id=name, source=source))
        for name, source in (("one", ("like",)), ("two", ("like", "play")), ("three", ("play",)))
    )
    boards = Boards([one, two, three])
    assert boards.by_type == {"like": (one, two), "play": (two, three)}
