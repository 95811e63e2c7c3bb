"""Windows, divided into slots. All arithmetic is on integer seconds, without a clock.

A slot is named by its start, in seconds since 1970 UTC. Slot `s` of length `L` is live at `t` while `s + L > t -
window`. If `window` is a multiple of `L`, this condition means `s >= newest - window`, where `newest` is the slot of
`t`. So a 24-hour board with hourly slots covers 24 to 25 hours. Calendar periods are slots too, with the lengths of the
calendar.
"""

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache, lru_cache
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias, get_args
from zoneinfo import ZoneInfo, available_timezones

import msgspec
from msgspec import Meta

from live.domain.calendar import DAY_START, FIRST, LAST, MIDNIGHT, Calendar, Unit, Weekday
from live.domain.meaning import says
from live.domain.text import nearest

MOST_PERIODS: Final = 1000
# At most so many slots of a window are read to show scores over time. If a window has more slots, the newest are read.
MOST_FOLDED: Final = 10_000

_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}  # in milliseconds
_KINDS: Final = 'window must be one of {rolling = …}, {sliding = …}, {calendar = …} and "forever"'
_LONG_AGO: Final = -(1 << 62)  # milliseconds; earlier than the time of any event
_DURATION: Final = re.compile(r"([0-9]{1,10}(?:\.[0-9]{1,3})?)(ms|s|m|h|d)")

# The type of a duration in the contracts. `parse_duration` checks it.
Duration = Annotated[str, Meta(extra_json_schema={"pattern": f"^{_DURATION.pattern}$"})]
DayStart = Annotated[str, Meta(extra_json_schema={"pattern": f"^{DAY_START.pattern}$"})]  # `Calendar` checks it


@lru_cache(maxsize=1024)  # boards have few different durations
def parse_duration(text: str) -> float:
    """Parse `100ms`, `1.5s`, `24h` or `7d` into seconds."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration; expected a number and ms, s, m, h or d, like 24h")
    return float(Fraction(match[1]) * _UNITS[match[2]] / 1000)  # exact: 1.1h is 3960s, but slightly more in floats


def format_duration(milliseconds: int) -> str:
    """Write a duration in the form that `parse_duration` reads.

    Use the largest unit in which the duration is a whole number, or else a unit with up to three decimals.
    """
    for least in (1000, 1):  # try whole numbers first, and then numbers with thousandths
        for unit, length in reversed(_UNITS.items()):
            thousandths, rest = divmod(milliseconds * 1000, length)
            whole, part = divmod(thousandths, 1000)
            text = f"{whole}.{part:03}{unit}" if part else f"{whole}{unit}"
            if rest == 0 and part % least == 0 and _DURATION.fullmatch(text):
                return text
    raise ValueError(f"{milliseconds} ms is no duration that can be written")


class Slot(NamedTuple):
    """A piece of a window that is counted as a unit: from `start` to before `end`, in seconds since 1970."""

    start: int
    end: int


EVER: Final = Slot(0, 2**53)


class Rolling(msgspec.Struct, frozen=True):
    """The last `length` seconds, in slots of `slot` seconds. Slots that leave the window are subtracted."""

    length: int
    slot: int

    tables: ClassVar[bool] = False  # whether each slot has its own ranking

    @property
    def live(self) -> int:
        """Maximum number of slots whose sum is one score."""
        return self.length // self.slot + 1

    def __post_init__(self) -> None:
        """Refuse lengths for which slot arithmetic would not be exact."""
        if self.slot < 1 or self.length < 1:
            raise ValueError("window and slot must be at least 1s")
        if self.length % self.slot:
            raise ValueError(f"the window ({self.length}s) is not a multiple of its slot ({self.slot}s)")

    def slot_at(self, seconds: int) -> Slot:
        """Return the slot of a moment. Moments before 1970 are negative."""
        start = seconds // self.slot * self.slot
        return Slot(start, start + self.slot)

    def oldest(self, newest: int) -> int:
        """Return the start of the oldest slot that is kept while `newest` is the start of the newest slot."""
        return newest - self.length


class _OneSlot(msgspec.Struct, frozen=True):
    """A window whose events are all in one slot."""

    tables: ClassVar[bool] = False
    live: ClassVar[int] = 1

    def slot_at(self, _seconds: int) -> Slot:
        return EVER

    def oldest(self, _newest: int) -> int:
        return EVER.start


class Sliding(_OneSlot, frozen=True):
    """The last `length` seconds. Each event leaves the window by itself, exact to the millisecond."""

    length: int

    def __post_init__(self) -> None:
        """Refuse an empty window."""
        if self.length < 1:
            raise ValueError("a window must be at least 1s")


class Forever(_OneSlot, frozen=True):
    """All time: no event leaves."""


class Periods(msgspec.Struct, frozen=True, kw_only=True):
    """Calendar periods.

    With `last`, there is one ranking over the newest `last` periods. Otherwise each period has its own ranking. After
    the end of a period, its ranking takes late events for `grace` more seconds, and is kept for `keep` more periods.
    """

    unit: Unit
    timezone: str = "UTC"
    week_start: Weekday = "monday"
    day_start: DayStart = MIDNIGHT
    last: int | None = None
    keep: int = 10
    grace: int = 0

    def __post_init__(self) -> None:
        """Refuse an unknown time zone, and a wrong `day_start`."""
        _calendar(self)

    @property
    def tables(self) -> bool:
        """Whether each period has its own ranking."""
        return self.last is None

    @property
    def live(self) -> int:
        """Maximum number of slots whose sum is one score."""
        return self.last or 1

    @property
    def calendar(self) -> Calendar:
        """The calendar that divides time into the periods."""
        return _calendar(self)

    def slot_at(self, seconds: int) -> Slot:
        """Return the period of a moment. For a moment outside of the supported years, return the nearest period."""
        period = _calendar(self).at(min(max(seconds, FIRST), LAST - 1))
        return Slot(period.start, period.end)

    def oldest(self, newest: int) -> int:
        """Return the start of the oldest period that is kept. `newest` is the start of the newest period."""
        return _oldest(self, newest)


Window: TypeAlias = Rolling | Periods | Sliding | Forever


def closes_at(window: Window, slot: Slot, time: int, newest: int) -> int | None:
    """Return when `slot` stops taking an event with the time `time` (invariant I4). From then on, the event is late.

    All times are in milliseconds by the board's clock, and `newest` is the start of the newest slot. For a slot that
    has left the window, return a time before any other. Return None if time alone does not close the slot.
    """
    if slot.start < window.oldest(newest):
        return _LONG_AGO
    if isinstance(window, Sliding):
        return time + window.length * 1000
    if isinstance(window, Periods) and window.tables and slot.start < newest:
        return (slot.end + window.grace) * 1000
    return None


def fold_size(window: Window, most: int) -> int:
    """Return how many slots make up one point, if at most `most` points cover the window.

    The open slot is a separate point. Slots with a ranking of their own are not added up, so each is a point.
    """
    ended = 0 if window.tables else min(window.live, MOST_FOLDED) - 1
    return max(1, -(-ended // max(1, most - 1)))


@lru_cache(maxsize=64)
def folded_slots(window: Window, newest: int, most: int) -> Sequence[Sequence[Slot]]:
    """Divide the slots of a window into consecutive groups, the oldest first. `most` is the maximum number of groups.

    The last group is the open slot, which begins at `newest`. The other groups have `fold_size` slots each; the oldest
    group may have fewer. If slots have a ranking of their own, each of the newest slots is a group. For a window
    without slots, the only group is all time.
    """
    size, oldest, slot = fold_size(window, most), window.oldest(newest), window.slot_at(newest)
    groups: list[tuple[Slot, ...]] = [(slot,)]
    while len(groups) < most and slot.start > oldest:
        group: list[Slot] = []
        while len(group) < size and slot.start > oldest:
            slot = window.slot_at(slot.start - 1)
            group.append(slot)
        groups.append(tuple(group[::-1]))
    return tuple(groups[::-1])


def calendar_of(window: Window, unit: Unit) -> Calendar:
    """Return the calendar of some unit in the time zone of a window. Windows without a calendar have the zone UTC."""
    zone = window if isinstance(window, Periods) else Periods(unit=unit)
    return _calendar(Periods(unit=unit, timezone=zone.timezone, week_start=zone.week_start, day_start=zone.day_start))


@cache
def _calendar(periods: Periods) -> Calendar:
    try:
        zone = ZoneInfo(periods.timezone)
    except (ValueError, OSError, KeyError):
        named = {
            name.rpartition("/")[2]: name for name in sorted(available_timezones())
        }  # zones by the last part of their names: `Berlin` is `Europe/Berlin`
        near = nearest(periods.timezone, named.values()) or named.get(periods.timezone)
        advice = f"did you mean {near!r}?" if near else "expected an IANA name such as Asia/Shanghai"
        raise ValueError(f"unknown timezone {periods.timezone!r}; {advice}") from None
    return Calendar(periods.unit, zone, periods.week_start, periods.day_start)


@lru_cache(maxsize=256)
def _oldest(periods: Periods, newest: int) -> int:
    """Return the start of the oldest kept period. Go back period by period, because periods differ in length."""
    calendar = _calendar(periods)
    period = calendar.at(newest)
    for _ in range(periods.keep if periods.last is None else periods.last - 1):
        if period.start <= FIRST:
            break
        period = calendar.before(period)
    return period.start


def _seconds(name: str, text: str) -> int:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if seconds != int(seconds):
        raise ValueError(f"{name} = {text!r} is not a whole number of seconds")
    return int(seconds)


_Last = Annotated[int, Meta(ge=2, le=MOST_PERIODS)]
_Keep = Annotated[int, Meta(ge=0, le=MOST_PERIODS)]


class WindowChoice(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True, kw_only=True):
    """The time range of a board: one of `rolling`, `sliding` and `calendar`, with its options."""

    rolling: Annotated[Duration | None, says("Length of a window that moves in slots.")] = None
    slot: Annotated[Duration | None, says("Length of a slot of a rolling window.")] = None
    sliding: Annotated[Duration | None, says("Length of a window that is exact to the event.")] = None
    calendar: Annotated[Unit | None, says("Length of the periods of a calendar board, such as `day`.")] = None
    timezone: Annotated[str | None, says("IANA name of the time zone, such as `Asia/Shanghai`.")] = None
    week_start: Annotated[Weekday | None, says("First day of a week.")] = None
    day_start: Annotated[DayStart | None, says("Time at which days begin, such as `09:00`.")] = None
    last: Annotated[_Last | None, says("One ranking over this many of the newest periods.")] = None
    keep: Annotated[_Keep | None, says("Number of past periods to keep.")] = None
    grace: Annotated[Duration | None, says("How long a period takes late events after its end.")] = None


# The kinds of windows, and the choices that each takes. A window's table has exactly one of the kinds.
WINDOW_KINDS: Final[Mapping[str, Sequence[str]]] = {
    "rolling": ("rolling", "slot"),
    "sliding": ("sliding",),
    "calendar": ("calendar", "timezone", "week_start", "day_start", "last", "keep", "grace"),
}


def window_advice(text: str) -> str:
    """Say how to write a window that somebody wrote as a text, such as `24h` or `day`."""
    if _DURATION.fullmatch(text):
        return f'"{text}" is a length; write {{rolling = "{text}"}}, or {{sliding = "{text}"}}, exact to the event'
    unit = nearest(text, get_args(Unit))
    if unit is not None:
        return f'a window of calendar periods is {{calendar = "{unit}"}}'
    return _KINDS


def make_window(choice: WindowChoice | Literal["forever"]) -> Window:
    """Build a window from its table."""
    if not isinstance(choice, WindowChoice):
        return Forever()
    given = {name: value for name in choice.__struct_fields__ if (value := getattr(choice, name)) is not None}
    kinds = [kind for kind in WINDOW_KINDS if kind in given]
    if len(kinds) != 1:
        raise ValueError(_KINDS)
    (kind,) = kinds
    takes = WINDOW_KINDS[kind]
    mistakes = [
        f"`{name}` does not apply to a window with `{kind}`, which takes {', '.join(takes)}"
        for name in given
        if name not in takes
    ]
    if "last" in given and ("keep" in given or "grace" in given) and kind == "calendar":
        mistakes.append(
            "`last` makes one ranking of several periods; `keep` and `grace` need a ranking for each period"
        )
    if "week_start" in given and given.get("calendar", "week") != "week":
        mistakes.append(f"`week_start` does not apply to a calendar of {given['calendar']}s, only to weeks")
    if "day_start" in given and given.get("calendar") == "hour":
        mistakes.append("`day_start` does not apply to a calendar of hours")
    values: dict[str, Any] = {"slot": "1h"} if kind == "rolling" else {}
    values |= {name: value for name, value in given.items() if name in takes}
    has_durations = True
    for name in ("rolling", "slot", "sliding", "grace"):
        try:
            if name in values:
                values[name] = _seconds(name, values[name])
        except ValueError as error:
            mistakes.append(str(error))
            del values[name]
            has_durations = False
    window: Window | None = None
    try:  # the error lists all mistakes at once
        if kind == "calendar":
            window = Periods(unit=values.pop("calendar"), **values)
        elif has_durations:
            window = Sliding(values["sliding"]) if kind == "sliding" else Rolling(values["rolling"], values["slot"])
    except ValueError as error:
        mistakes.append(str(error))
    if window is None or mistakes:
        raise ValueError("\n".join(mistakes))
    return window
