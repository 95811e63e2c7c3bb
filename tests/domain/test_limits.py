"""The exact limits of durations, names in messages, and elements of a body."""

import pytest

from live.domain.board import LEAST_RETENTION, MOST_RETENTION, parse_retention
from live.domain.board_file import BoardChoice, make_board
from live.domain.text import _MOST_SHOWN, unknown
from live.domain.window import WindowChoice
from live.errors import ProblemError
from tests.harness.decoders import decode_json


def test_a_retention_has_a_least_and_a_most() -> None:
    """Both are allowed, and what is beyond is not."""
    days = MOST_RETENTION // 86_400
    for text, words in ((f"{LEAST_RETENTION - 1}s", "is less than 1h"), (f"{days + 1}d", f"is more than {days}d")):
        with pytest.raises(ValueError, match=words):
            parse_retention(text)
    assert [parse_retention(text) for text in ("1h", f"{days}d")] == [LEAST_RETENTION, MOST_RETENTION]


def test_only_boards_with_likes_remember_identities_for_their_window() -> None:
    """Others do so as long as the setting says."""
    window = WindowChoice(rolling="7d", slot="1h")
    assert make_board(BoardChoice(id="a", window=window)).remembers == 0
    assert make_board(BoardChoice(id="a", window=window, like_button=True)).remembers == 7 * 86_400 + 3600


def test_an_unknown_name_is_shown_up_to_a_length() -> None:
    """A longer one is cut."""
    longest = "x" * _MOST_SHOWN
    assert unknown("board", longest, ()) == f"there is no board `{longest}`; there are none"
    assert unknown("board", longest + "x", ()) == f"there is no board `{longest}…`; there are none"


@pytest.mark.parametrize("body", [b'[{"key":"a"} {"key":"b"}]', b'[{"key":"a"}{"key":"b"}]', b'[{"key":"a"}:1]'])
def test_the_elements_of_an_array_need_commas(body: bytes) -> None:
    """The message says where one is missing."""
    with pytest.raises(ProblemError, match="is missing at character"):
        decode_json(body, 10)
