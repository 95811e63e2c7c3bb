"""Text that people read: refused characters, how a terminal shows old text that has them, and nouns after a count."""

import json
import re
import sys
import unicodedata
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from live.boards.definitions import read_board
from live.domain.board_file import parse_boards, text_mistakes
from live.domain.event import IncomingEvent, event_fault
from live.domain.item import Item, item_faults
from live.domain.text import (
    PATTERN,
    begins_word,
    character_fault,
    counted,
    form_of,
    json_fault,
    nearest,
    text_fault,
    unknown,
    visible,
    visible_lines,
)
from live.errors import SetupError

REFUSED: Final = {
    "ESC": "\x1b", "NUL": "\0", "newline": "\n", "DEL": "\x7f", "CSI in C1": "\x9b", "bidi override": "\u202e",
    "isolate": "\u2066", "line separator": "\u2028", "tag": "\U000e0041",
}  # fmt: skip
ACCEPTED: Final = ["posts", "é", "क\u094d\u200cष", "👩\u200d💻", "a b", "<b>"]


def metadata_fault(value: str) -> str | None:
    """What is wrong with an event whose metadata contains a text, written with and without escapes."""
    faults = set()
    for ascii_only in (True, False):
        for document in ({"name": value}, {value: 1}, {"of": [{"a": value}]}):
            raw = json.dumps(document, ensure_ascii=ascii_only).encode()
            faults.add(event_fault(IncomingEvent(member="a", metadata=msgspec.Raw(raw))))
    assert len(faults) == 1, "one spelling of a text is refused, and another is not"
    fault = faults.pop()
    return None if fault is None else " ".join(fault)


def board_fault(**choices: Any) -> str | None:
    """What is wrong with a board that has these choices."""
    return "; ".join(text_mistakes(read_board("b", choices))) or None


CHECKS: Final[dict[str, Callable[[str], str | None]]] = {
    "member": lambda value: (event_fault(IncomingEvent(member=value)) or ("", None))[1],
    "title of a member": lambda value: next(item_faults(Item("a", value), []), None),
    "title of a board": lambda value: board_fault(title=value),
    "event type": lambda value: board_fault(types=[value]),
    "category": lambda value: board_fault(category=[value]),
    "metadata": metadata_fault,
}


def test_the_pattern_of_contracts_accepts_what_the_check_accepts() -> None:
    """Pattern and check agree about every character up to U+FFFF.

    The pattern does not cover later characters.
    """
    for number in range(0x10000):
        if not 0xD800 <= number < 0xE000:
            accepted = re.fullmatch(PATTERN, chr(number)) is not None
            assert accepted == (character_fault(chr(number)) is None), f"U+{number:04X}"


def test_characters_are_refused_by_their_category() -> None:
    """Refused are control and format characters, except two joiners. An unassigned character may become one of them."""
    for number in range(sys.maxunicode + 1):
        category = unicodedata.category(chr(number))
        refused = category in {"Cc", "Cf", "Cs", "Zl", "Zp"} and number not in {0x200C, 0x200D}
        assert refused <= (character_fault(chr(number)) is not None) <= (refused or category == "Cn"), f"U+{number:04X}"


@pytest.mark.parametrize("check", CHECKS)
def test_what_people_read_has_no_control_or_bidi_characters(check: str) -> None:
    """Members, titles, types, categories and metadata are checked. The message has only the code of the character."""
    for character in REFUSED.values():
        fault = CHECKS[check](f"a{character}b")
        assert fault is not None, repr(character)
        assert f"U+{ord(character):04X}" in fault
        assert character_fault(fault) is None
    for value in ACCEPTED:
        assert CHECKS[check](value) is None, value


def test_a_title_can_be_seen_and_is_in_nfc() -> None:
    """An invisible title is a mistake, and so is one that can be spelled in two ways."""
    for value in (" ", "\u3164", "e\u0301"):
        assert text_fault(value) is not None
        assert board_fault(title=value) is not None


def test_a_boards_file_with_such_a_title_has_a_mistake() -> None:
    """The message can be shown on a terminal."""
    with pytest.raises(SetupError, match=r"`title` contains the control or format character U\+001B") as caught:
        parse_boards('[[board]]\nid = "posts"\ntitle = "a\\u001b[31m"')
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("character", REFUSED.values(), ids=REFUSED)
def test_a_terminal_shows_escapes_of_json(character: str) -> None:
    """With JSON escapes, a JSON document keeps its meaning."""
    shown = visible(f"é{character}")
    assert shown.startswith("é\\u")
    assert character_fault(shown) is None
    assert json.loads(f'"{shown}"') == f"é{character}"
    assert visible_lines(f"a\r\n{character}") == f"a\n{visible_lines(character)}"


def test_json_is_read_as_people_read_it() -> None:
    """White space between strings is not part of the text, and an escaped backslash begins no escape."""
    assert json_fault('{\r\n\t"a": "\\\\u001b \\" \\/"}') is None
    assert json_fault('{"a": "\\ud83d\\udc4d"}') is None
    assert json_fault('{"a": "\\u001B"}') is not None
    assert json_fault('{"a": 1, "a": "\\t"}') is not None


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 boards"), (1, "1 board"), (2, "2 boards"), (1_234, "1,234 boards")]
)
def test_a_noun_agrees_with_its_count(count: int, shown: str) -> None:
    """Large counts have separators."""
    assert counted(count, "board") == shown


def test_an_irregular_plural_is_given() -> None:
    """A count of one still has the singular."""
    assert [counted(count, "entry", "entries") for count in (1, 2)] == ["1 entry", "2 entries"]


@pytest.mark.parametrize(
    ("known", "shown"),
    [
        ([], "there is no board `x`; there are none"),
        (["news"], "there is no board `x`; there are: news"),
        (["news", "a"], "there is no board `x`; there are: a, news"),
        ([f"news{number:02}" for number in range(32)], ", ".join(f"news{number:02}" for number in range(32))),
        ([f"news{number:02}" for number in range(33)], "there is no board `x`"),
    ],
)
def test_few_known_names_are_listed(known: list[str], shown: str) -> None:
    """More than 32 names would be a long message."""
    assert unknown("board", "x", known).endswith(shown)


def test_the_nearest_name_is_suggested() -> None:
    """A long name is cut, and names that are only a little similar are not suggested."""
    assert unknown("board", "psots", ["posts", "news"]) == "there is no board `psots`; did you mean `posts`?"
    both = "there is no board `psots`; did you mean `posts`? There are: news, posts"
    assert unknown("board", "psots", ["posts", "news"], lists=True) == both
    assert unknown("board", "a" * 65, []) == f"there is no board `{'a' * 64}\u2026`; there are none"
    assert unknown("board", "a" * 64, []) == f"there is no board `{'a' * 64}`; there are none"
    assert nearest("a" * 500 + "b", ["a" * 60]) == "a" * 60
    assert nearest("pots", ["posts", "pets"]) == "posts"
    assert nearest("zzz", ["posts"]) is None


FOUND: Final = (
    ("muller", "Thomas Müller"), ("MÜLLER", "thomas muller"), ("mu\u0308l", "Müller"), ("lodz", "Łódź"),
    ("istanbul", "İstanbul"), ("İST", "istanbul"), ("\u0131stanbul", "ISTANBUL"), ("strasse", "Hauptstraße Straße"),
    ("soren", "Søren"), ("aether", "Æther"), ("\u03bf\u03b4\u03bf\u03c2", "\u039f\u03b4\u03cc\u03c2"),
    ("елка", "Ёлка"), ("שלום", "שָׁלוֹם"),
    ("o'brien", "O\u2019Brien"), ("fin", "ﬁn"), ("2", "②"), ("b", "a-b"), ("b", "a_b"), ("#1", "We're #1"),
    ("烤鸭", "北京烤鸭"), ("ラーメン", "東京ラーメン"), ("서울", "새 서울"), ("\U0001f600", "x\U0001f600"),
)  # fmt: skip
NOT_FOUND: Final = (
    ("uller", "Müller"),
    ("dz", "Łódź"),
    ("울", "서울"),
    ("\u0301", "é"),
    ("mueller", "Müller"),
    ("2", "a12"),
)
FINDING: Final = tuple(text for pair in (*FOUND, *NOT_FOUND) for text in pair)


@pytest.mark.parametrize(("wanted", "text"), FOUND)
def test_a_word_is_found_by_its_beginning(wanted: str, text: str) -> None:
    """Accents and case do not matter. Where writing has no spaces, a word may begin anywhere."""
    assert begins_word(form_of(wanted), form_of(text))


@pytest.mark.parametrize(("wanted", "text"), NOT_FOUND)
def test_the_middle_of_a_word_is_not_found(wanted: str, text: str) -> None:
    """Neither is anything found by an accent alone."""
    assert not begins_word(form_of(wanted), form_of(text))
