"""Text that people read: refused characters, what terminals show, finding names, phrases of messages, scores."""

import json
import re
import unicodedata
from collections.abc import Callable, Collection
from difflib import get_close_matches
from functools import lru_cache
from typing import Final, Literal

import msgspec

_REFUSED: Final = (
    r"\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b\u200e\u200f\u2028-\u202e"
    r"\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb"
)
"""The characters up to U+FFFF that a terminal obeys, or that change the text around them.

These are the categories Cc, Cf, Zl and Zp, without the joiners that emoji and some writing systems need.
"""
PATTERN: Final = f"^[^{_REFUSED}]*$"
"""A regular expression for contracts, valid in all dialects: it matches texts without refused characters.

Dialects have different escapes for characters beyond U+FFFF, so the expression accepts these characters. No JSON
contains surrogates.
"""
_FOUND: Final = re.compile(
    rf"[{_REFUSED}\ud800-\udfff\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0001\U000e0020-\U000e007f]"
)
# The flags of England, Scotland and other parts of a country: a black flag, tag letters, and the tag that ends them.
_FLAG: Final = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f")
_UNSEEN: Final = frozenset({"Cc", "Cf", "Mn", "Zl", "Zp", "Zs"})
_INVISIBLE: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")
_CONTROL: Final = re.compile(r"\\[bfnrt]")
_ESCAPE: Final = re.compile(r"\\u[0-9A-Fa-f]{4}")
_SPACE: Final = "\t\r\n"
ID_FORM: Final = "write 1 to 64 of a-z, 0-9, - and _, and begin with a letter or a digit"
_MOST_SHOWN: Final = 64  # characters of an unknown name that a message shows
_LIKENESS: Final = 0.7  # least similarity, from 0 to 1; with less, `LIVE_` alone would make two names similar
_MOST_LISTED: Final = 32  # known names that a message lists

# Letters that are not a base letter with an accent, but that people type as other letters.
_LETTERS: Final = {
    "ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "ħ": "h", "\u0131": "i", "ł": "l",
    "ŋ": "n", "ŧ": "t", "\u03c2": "\u03c3", "\u02bb": "'", "\u02bc": "'", "\u2018": "'", "\u2019": "'",
}  # fmt: skip
_LETTER: Final = re.compile(f"[{''.join(_LETTERS)}]")
# Accents of Latin, Greek and Cyrillic letters, and the points of Hebrew and Arabic letters.
_ACCENT: Final = re.compile(
    "[\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1-\u05c2\u05c4-\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
)
# Writing without spaces between words: Thai and its neighbours, Chinese characters and kana. A word may begin anywhere.
_DENSE: Final = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")

MINUS: Final = "\u2212"
_NO_BREAK: Final = "\u00a0"
_MINUTES: Final = 60

NumberFormat = Literal["number", "duration"]


def text_fault(text: str) -> str | None:
    """Say why people can't read a text as it is, or return None.

    The reasons are control or format characters, a text without a visible character, white space at its beginning or
    end, and a text that is not in NFC.
    """
    if fault := character_fault(text):
        return fault
    if all(unicodedata.category(letter) in _UNSEEN or letter in _INVISIBLE for letter in text):
        return "has no visible character"
    if fault := space_fault(text):
        return fault
    return None if unicodedata.is_normalized("NFC", text) else "is not in Unicode normalization form NFC"


def space_fault(text: str) -> str | None:
    """Say where a text has white space that nobody sees, or return None."""
    if text == text.strip():
        return None
    where = "beginning" if text[0].isspace() else "end"
    return f"has white space at its {where}; remove the space at its {where}"


def character_fault(text: str) -> str | None:
    """Say which control or format character a text contains, or return None."""
    if text.isprintable():  # a printable text has no such character, and this check is much faster
        return None
    found = _FOUND.search(_FLAG.sub("", text))
    return None if found is None else f"contains the control or format character U+{ord(found[0]):04X}"


def json_fault(document: str) -> str | None:
    """Say which control or format character a string of a valid JSON document contains, or return None."""
    if document.isprintable() and "\\" not in document:
        return None
    # JSON allows control characters between strings only. Without escaped backslashes, a backslash begins an escape.
    rest = document.replace(r"\\", "")
    found = _CONTROL.search(rest)
    escaped = json.loads(f'"{found[0] if found else "".join(_ESCAPE.findall(rest))}"')
    for space in _SPACE:
        document = document.replace(space, "")
    return character_fault(document) or character_fault(escaped)


def visible_lines(text: str) -> str:
    """Write control and format characters as escapes of JSON, for a terminal, but keep the line ends of a text."""
    return "\n".join(visible(line.removesuffix("\r")) for line in text.split("\n"))


def visible(text: str) -> str:
    """Write control and format characters as escapes of JSON, for a terminal. JSON text keeps its meaning."""
    return _FOUND.sub(lambda found: _escaped(found[0]), text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Write a count with its noun: `1 board`, `2,000 boards`. Give `plural` if it is not the noun with an s."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def unknown(what: str, name: str, known: Collection[str], *, lists: bool = False) -> str:
    """Say that a name is unknown, and suggest the nearest known name.

    If no known name is near, list the known names if they are few. With `lists`, list them after a suggestion too.
    `what` is the kind of name, such as `parameter`.
    """
    shown = name if len(name) <= _MOST_SHOWN else f"{name[:_MOST_SHOWN]}…"
    clause = f"there is no {what} `{shown}`"
    near = nearest(name, known)
    if near is not None:
        return f"{clause}; did you mean `{near}`?" + (f" There are: {', '.join(sorted(known))}" if lists else "")
    if 0 < len(known) <= _MOST_LISTED:
        return f"{clause}; there are: {', '.join(sorted(known))}"
    return clause if known else f"{clause}; there are none"


def nearest(name: str, known: Collection[str]) -> str | None:
    """Return the known name that is most similar to a name. Return None if none is similar."""
    return next(iter(get_close_matches(name[:_MOST_SHOWN], known, n=1, cutoff=_LIKENESS)), None)


def form_of(text: str) -> str:
    """Return a text without accents and case, for `begins_word`. `static/find.js` does the same for shown rows."""
    return text.lower() if text.isascii() else _form_of(text)


@lru_cache(maxsize=8192)  # while somebody types a name, requests look at the same names
def _form_of(text: str) -> str:
    plain = _ACCENT.sub("", unicodedata.normalize("NFKD", text).lower())
    return plain if plain.isascii() else _LETTER.sub(lambda letter: _LETTERS[letter[0]], plain)


def begins_word(wanted: str, text: str) -> bool:
    """Tell whether a word of a text begins with what is wanted. Both are forms from `form_of`."""
    if not wanted:
        return False
    place = text.find(wanted)
    while place > 0:
        before, first = text[place - 1], text[place]
        if not (_is_part(before) and _is_part(first)) or _DENSE.match(before) or _DENSE.match(first):
            return True
        place = text.find(wanted, place + 1)
    return place == 0


def _is_part(letter: str) -> bool:
    return unicodedata.category(letter)[0] in "LMN"


class ScoreFormat(msgspec.Struct, frozen=True):
    """How people read the whole numbers of a board: `1,234.50 €` or `1:23.456`.

    The scripts of pages write numbers in the same way. `scale` is the number of decimals. With the format `duration`,
    a number is in seconds, or with a scale of 3 in milliseconds.
    """

    unit: str = ""
    scale: int = 0
    format: NumberFormat = "number"

    def write(self, number: int, shorten: Callable[[int], str] | None = None) -> str:
        """Write a number in full, or without decimals and with `shorten`, which writes whole numbers in few digits."""
        whole, part = divmod(abs(number), 10**self.scale)
        minutes, seconds = divmod(whole, 60)
        if self.format == "number":
            text = f"{whole:,}" if shorten is None else shorten(whole)
        elif minutes < _MINUTES:
            text = f"{minutes}:{seconds:02}"
        else:
            text = f"{minutes // 60:,}:{minutes % 60:02}:{seconds:02}"
        decimals = f".{part:0{self.scale}}" if self.scale and shorten is None else ""
        return f"{MINUS if number < 0 else ''}{text}{decimals}{self.unit and _NO_BREAK + self.unit}"
