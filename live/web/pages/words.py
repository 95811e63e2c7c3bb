"""Times, members and metadata in words of a language; `static/client/words.js` writes them the same way."""

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Final, NamedTuple

import msgspec
from markupsafe import Markup
from msgspec import UNSET, UnsetType

from live.domain.board import Board
from live.domain.calendar import MIDNIGHT, Unit
from live.domain.ranking import Record
from live.domain.text import MINUS, ScoreFormat
from live.domain.window import MOST_FOLDED, Periods, Rolling, Sliding, Window
from live.web.pages.language import Language, grouped

_UNITS: Final = ((86400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"))
_PERIOD: Final = re.compile(r"([0-9]+)(?:-[WQ]?([0-9]+))?(?:-([0-9]+))?(?:T([0-9]+)([+-][0-9]+)?)?")
_LONGEST_NAME: Final = 80  # characters
_NAME_START: Final = 50
_NAME_END: Final = 29
_UNSEEN: Final = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})
_INVISIBLE: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_MOST_MEMBERS: Final = 8
_MOST_NAME: Final = 32
_MOST_VALUE: Final = 40
_LEAST_POINTS: Final = 2
_MONTH_LETTERS: Final = 3
_LEAST_PLAIN: Final = 1e-6  # ECMAScript writes numbers from `_LEAST_PLAIN` up to `_MOST_PLAIN` without an exponent
_MOST_PLAIN: Final = 1e21
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_MOST_INDEX: Final = 2**32 - 2

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Line(NamedTuple):
    """The points of a sparkline, and its lowest, highest and newest value."""

    points: str
    low: int
    high: int
    now: int


def span(language: Language, seconds: int) -> str:
    """Write a duration in words: `24 hours`, `90 seconds`."""
    for unit, name in _UNITS:
        if seconds % unit == 0 and (seconds // unit > 1 or unit in {1, 60, 3600}):
            return language.translate(name, n=seconds // unit)
    raise AssertionError("every whole number is a multiple of one second")


def window_words(language: Language, board: Board, period: str | None = None) -> str:
    """Write the time range of a board in words: `over the last 24 hours`, `week 47 of 2026 in UTC`.

    With an event clock, the window ends with the newest event, which may be years old.
    """
    over = "over_the_last" if board.clock == "server" else "over_the_newest"
    match window := board.window:
        case Rolling(length) | Sliding(length):
            return language.translate(over, span=span(language, length))
        case Periods(last=int()):
            length_words, zone = trend_words(language, window), zone_words(language, window)
            if zone == "UTC":
                return language.translate(over, span=length_words)
            return language.translate(f"{over}_in", span=length_words, zone=zone)
        case Periods(unit=unit):
            zone = zone_words(language, window)
            if period is None:
                return language.translate(f"by_{unit}", zone=zone)
            return language.translate("in_zone", period=period_words(language, unit, period), zone=zone)
        case _:
            return language.translate("of_all_time")


def zone_words(language: Language, window: Periods) -> str:
    """Write the time zone of periods, and when their days begin if that is not midnight."""
    zone = window.timezone.replace("_", " ")
    if window.day_start == MIDNIGHT:
        return zone
    return language.translate("zone_from", zone=zone, time=window.day_start)


def trend_words(language: Language, window: Window) -> str:
    """Write the length of a window whose rows have sparklines, `24 hours`; empty for other windows.

    Such a window has one ranking over several slots, and at most `MOST_FOLDED` of them.
    """
    match window:
        case Rolling(length) if window.live <= MOST_FOLDED:
            return span(language, length)
        case Periods(unit=unit, last=int(last)):
            return language.translate(f"{unit}s", n=last)
        case _:
            return ""


def period_words(language: Language, unit: Unit, name: str) -> str:
    """Write a period of a calendar in words: `2026-W47` is `week 47 of 2026`."""
    match = _PERIOD.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is not the name of a period")
    year, part, day, hour, offset = (group or "" for group in match.groups())
    number = int(part or 1)
    return language.translate(
        unit,
        year=str(int(year)),
        week=str(number),
        quarter=str(number),
        month=_month(language, number) if unit in {"hour", "day", "month"} else "",
        day=str(int(day or 1)),
        time=f"{hour}:00" + (f" {offset[:3]}:{offset[3:]}" if offset else ""),
    )


def name_words(language: Language, member: str) -> str:
    """Write a member as its row shows it: cut in the middle if it is long, or as a word if it is invisible."""
    if all(unicodedata.category(letter) in _UNSEEN or letter in _INVISIBLE for letter in member):
        return language.translate("blank")
    return member if len(member) <= _LONGEST_NAME else f"{member[:_NAME_START]}\u2026{member[-_NAME_END:]}"


def gap_words(
    language: Language,
    record: Record,
    above: Record | None,
    below: Record | None = None,
    score_format: ScoreFormat | None = None,
) -> str:
    """Say how far a record is from the record above it, or the first record from the record below."""
    other = above or (below if record.rank == 1 else None)
    if other is None:
        return ""
    gap = record.score - other.score
    if gap == 0:
        return language.translate("tied")
    return f"{'+' if gap > 0 else MINUS}{grouped(abs(gap), score_format)}"


def pace_words(language: Language, pace: int | None, score_format: ScoreFormat | None = None) -> str:
    """Write by how much a score changes in an hour: `+412/h`. Return an empty text if `pace` is None."""
    if pace is None:
        return ""
    return language.translate("pace", pace=f"{'+' if pace > 0 else ''}{grouped(pace, score_format)}")


def share_words(votes: int, total: int) -> str:
    """Write which part of all votes a contestant has: `41.2%`."""
    tenths = scaled(votes, total, 1000) if total > 0 else 0
    return f"{tenths // 10}.{tenths % 10}%"


def short(language: Language, number: int, score_format: ScoreFormat | None = None) -> str:
    """Write the first three digits of a large number and its unit, `9.00 Qd`, beside a line of a chart.

    The other digits are cut off. A score is in the format of its board, without decimals.
    """
    if score_format is not None:
        return score_format.write(number, partial(short, language))
    digits = str(abs(number))
    units = [unit.split("=") for unit in language.translate("units").split(",")]
    zeros, name = next(((int(z), name) for z, name in reversed(units) if int(z) < len(digits)), (0, ""))
    whole = digits[: len(digits) - zeros]
    part = digits[len(whole) : 3]
    return f"{MINUS if number < 0 else ''}{whole}{f'.{part}' if part and name else ''}{name}"


def move_words(language: Language, rank: int, before: int | None) -> tuple[str, str]:
    """Write the movement since `before` (None: a new member), as a sign and as words for screen readers."""
    if before is None:
        return language.translate("new").upper(), language.translate("new")
    if before == rank:
        return "", ""
    if before > rank:
        return f"\u25b2{grouped(before - rank)}", language.translate("up", n=before - rank)
    return f"\u25bc{grouped(rank - before)}", language.translate("down", n=rank - before)


def line_words(language: Language, length: str, line: Line, score_format: ScoreFormat | None = None) -> str:
    """Describe a sparkline for screen readers. `length` is the length of the window in words."""
    low, high, now = (grouped(value, score_format) for value in (line.low, line.high, line.now))
    return language.translate("trend", span=length, low=low, high=high, now=now)


def trend_scale(values: Iterable[int | None]) -> tuple[int, int]:
    """Return the lowest and the highest number among the values and zero, as the scale of all sparklines of a board."""
    known = [0, *(value for value in values if value is not None)]
    return min(known), max(known)


def trend_points(values: Sequence[int | None], scale: tuple[int, int] | None = None) -> str:
    """Draw the points of a sparkline, 100 wide and 20 high, from the values of the slots that have ended.

    None is a slot without a value. Return an empty text if fewer than two values are known, or if all values of the
    scale are zero.
    """
    known = [value for value in values if value is not None]
    low, high = scale or trend_scale(values)
    height = high - low
    if len(known) < _LEAST_POINTS or height == 0:
        return ""
    return " ".join(
        f"{scaled(place, len(values) - 1, 100)},{19 - scaled(value - low, height, 18)}"
        for place, value in enumerate(values)
        if value is not None
    )


def differs_clearly(values: Sequence[int]) -> bool:
    """Tell whether the newest values differ clearly from the usual ones: their mean is a half higher or lower."""
    newest = values[-max(1, len(values) // 24) :]
    usual = sum(values) / len(values)
    return len(values) > 1 and abs(sum(newest) / len(newest) - usual) * 2 >= abs(usual) and usual != 0


def scaled(part: int, whole: int, size: int) -> int:
    """Return the same part of `size` as `part` is of `whole`, rounded."""
    return math.floor(size * float(part) / whole + 0.5)


def bar_width(score: int, first: int) -> float:
    """Return the width of a record's bar, in percent of the first record's bar, in steps of about a pixel."""
    return max(0, math.floor(400 * float(score) / first)) / 4 if first > 0 else 0


def moment(milliseconds: int) -> datetime:
    """Convert milliseconds since 1970 to a time."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def moment_words(language: Language, time: datetime) -> str:
    """Write a time in words: `14:00 UTC`, or `21 November 2026, 14:00 UTC` if that is not today."""
    clock = f"{time:%H:%M:%S}" if time.second else f"{time:%H:%M}"
    if time.date() != datetime.now(UTC).date():
        month = _month(language, time.month)
        clock = language.translate("moment", year=str(time.year), month=month, day=str(time.day), time=clock)
    return f"{clock} UTC"


def format_of(language: Language, board: Board, *, has_unit: bool = True) -> ScoreFormat | None:
    """Return how the pages of a board write its scores: without the unit if the heading above the scores names it."""
    kept, heading = board.score_format, language.translate("votes_heading" if board.votes else "score_heading")
    if kept is None or (has_unit and kept.unit.casefold() != heading.casefold()):
        return kept
    bare = msgspec.structs.replace(kept, unit="")
    return None if bare == ScoreFormat() else bare


def time_words(language: Language, milliseconds: int) -> Markup:
    """Write a time as an element, whose text the page's script writes in the zone of the viewer."""
    at = moment(milliseconds)
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(), moment_words(language, at))


def axis_words(language: Language, time: int, form: str, *, is_first: bool) -> str:
    """Write a time in seconds since 1970 below a chart: `14:00`, or `Sat 00:00` if it is the first one of a day."""
    at = moment(time * 1000)
    month, day = _month(language, at.month)[:_MONTH_LETTERS], str(at.day)
    if form == "clock":
        clock, is_first = f"{at:%H:%M}", is_first or f"{at:%H:%M}" == MIDNIGHT
        name = language.translate("day_names").split()[at.weekday()]
        return f"{name} {clock}" if is_first else clock
    return language.translate(f"axis_{form}", year=str(at.year), month=month, day=day)


def metadata_words(metadata: msgspec.Raw | UnsetType) -> list[str]:
    """List the strings and numbers of a metadata object, each as `name: value`. Cut long names and values."""
    if metadata is UNSET:
        return []
    try:
        members = _members.decode(metadata)
    except (msgspec.DecodeError, RecursionError):
        return []
    shown = [
        f"{_cut(name, _MOST_NAME)}: {_cut(value, _MOST_VALUE)}"
        for name, raw in sorted(members.items(), key=_place)
        if (value := _value_words(bytes(raw))) is not None
    ]
    return shown if len(shown) <= _MOST_MEMBERS else [*shown[:_MOST_MEMBERS], "\u2026"]


def _month(language: Language, number: int) -> str:
    return language.translate("month_names").split()[number - 1]


def _place(member: tuple[str, msgspec.Raw]) -> int:
    """Return a key to sort by as ECMAScript does: array indexes first, then other names as they came."""
    name = member[0]
    return int(name) if _INDEX.fullmatch(name) and int(name) <= _MOST_INDEX else _MOST_INDEX + 1


def _value_words(raw: bytes) -> str | None:
    """Write a string or a number as ECMAScript does; None for any other value."""
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
