"""Numbers, times, members and metadata in words; `static/client/words.js` writes them the same way."""

import json
import math
import re
import unicodedata
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from live.domain.ranking import Record
from live.domain.window import Periods, Rolling, Sliding, Window

_UNITS: Final = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_LONGEST_NAME: Final = 80  # characters
_NAME_START: Final = 50
_NAME_END: Final = 29
_UNSEEN: Final = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})
_INVISIBLE: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_MOST_MEMBERS: Final = 8
_MOST_NAME: Final = 32
_MOST_VALUE: Final = 40
_LEAST_PLAIN: Final = 1e-6  # in between, ECMAScript writes numbers without an exponent
_MOST_PLAIN: Final = 1e21
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_MOST_INDEX: Final = 2**32 - 2

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


MINUS: Final = "\u2212"


def span(seconds: int) -> str:
    """A duration in words: `24 hours`, `90 seconds`."""
    for unit, name in _UNITS:
        if seconds % unit == 0 and (seconds // unit > 1 or unit in {1, 60, 3600}):
            count = seconds // unit
            return f"{count} {name}" if count == 1 else f"{count} {name}s"
    raise AssertionError("every whole number is a multiple of one second")


def window_words(window: Window, period: str | None = None) -> str:
    """The time range of a board in words: `over the last 24 hours`, `week 2026-W47 in UTC`."""
    match window:
        case Rolling(length) | Sliding(length):
            return f"over the last {span(length)}"
        case Periods(unit=unit, timezone=timezone, last=int(last)):
            return f"over the last {last} {unit}s" + ("" if timezone == "UTC" else f" in {timezone}")
        case Periods(unit=unit, timezone=timezone):
            return f"by {unit} in {timezone}" if period is None else f"{unit} {period} in {timezone}"
        case _:
            return "of all time"


def grouped(number: int | None) -> str:
    """A number with thousands separators, as in the page's script. None is a dash."""
    return "\u2013" if number is None else f"{number:,}"


def name_words(key: str) -> str:
    """A member as its row shows it: cut in the middle if it is long, and named if nothing of it can be seen."""
    if all(unicodedata.category(letter) in _UNSEEN or letter in _INVISIBLE for letter in key):
        return "\u27e8blank\u27e9"
    return key if len(key) <= _LONGEST_NAME else f"{key[:_NAME_START]}\u2026{key[-_NAME_END:]}"


def gap_words(record: Record, above: Record | None) -> str:
    """How far a record is from the one above it; nothing for the first."""
    if above is None:
        return ""
    gap = record.score - above.score
    if gap == 0:
        return "tied"
    return f"{'+' if gap > 0 else MINUS}{grouped(abs(gap))} to {grouped(above.rank)}"


def bar_width(score: int, first: int) -> int:
    """How long the bar of a record is, in percent of the first one's."""
    return max(0, math.floor(100 * float(score) / first)) if first > 0 else 0


def place_words(rank: int | None, gap: int | None) -> tuple[str, str]:
    """A rank in words, in two parts: `rank 1,234`, and `, 5 behind the next`. None means not ranked."""
    if rank is None:
        return "not ranked", ""
    if gap is None:
        return f"rank {grouped(rank)}", ""
    return f"rank {grouped(rank)}", f", {grouped(gap)} behind the next" if gap else ", tied with the next"


def moment(milliseconds: int) -> datetime:
    """A time, from milliseconds since 1970."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def moment_words(time: datetime) -> str:
    """A time in words: `21 November 2026, 14:00 UTC`."""
    return f"{time.day} {time:%B %Y, %H:%M:%S} UTC".replace(":00 UTC", " UTC")


def metadata_words(metadata: msgspec.Raw | UnsetType) -> list[str]:
    """The strings and numbers of a metadata object, each as `name: value`, with long ones cut off."""
    if metadata is UNSET:
        return []
    try:
        members = _members.decode(metadata)
    except (msgspec.DecodeError, RecursionError):
        return []
    told = [
        f"{_cut(name, _MOST_NAME)}: {_cut(value, _MOST_VALUE)}"
        for name, raw in sorted(members.items(), key=_place)
        if (value := _value_words(bytes(raw))) is not None
    ]
    return told if len(told) <= _MOST_MEMBERS else [*told[:_MOST_MEMBERS], "\u2026"]


def _place(member: tuple[str, msgspec.Raw]) -> int:
    """The sort order of ECMAScript: array indexes come first, ascending, and then the other names as they came."""
    name = member[0]
    return int(name) if _INDEX.fullmatch(name) and int(name) <= _MOST_INDEX else _MOST_INDEX + 1


def _value_words(raw: bytes) -> str | None:
    """A string or a number as ECMAScript writes it; None for any other value."""
    text = raw.strip()
    if text.startswith(b'"'):
        return str(json.loads(text))
    if not text.startswith((b"-", *(b"%d" % digit for digit in range(10)))):
        return None
    number = float(text)
    digits = repr(number)
    if _LEAST_PLAIN <= abs(number) < _MOST_PLAIN:
        return format(Decimal(digits), "f").removesuffix(".0")
    if number == 0:
        return "0"
    return re.sub(r"e([+-])0*", r"e\1", digits.replace("inf", "Infinity"))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"
