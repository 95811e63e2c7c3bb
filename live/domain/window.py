"""Windows cut into slots: plain arithmetic on integer seconds, no clock.

A slot is named by its start, in seconds since 1970 UTC. Slot `s` of length `L` is live at `t` while
`s + L > t - window`; with `window` a multiple of `L` that is the same as `s >= newest - window`, where
`newest` is the slot that `t` falls into. So a 24-hour board with hourly slots covers 24 to 25 hours.
Calendar periods are slots too, of the lengths that the calendar gives them.
"""

import re
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo

import msgspec

from live.domain.calendar import FIRST, LAST, Calendar, Unit, Weekday

MOST_PERIODS: Final = 1000

_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}  # in milliseconds
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h|d)")


def parse_duration(text: str) -> float:
    """Read `100ms`, `1.5s`, `24h` or `7d` as seconds.

    Raises:
        ValueError: the text is of another form; the message says what a duration looks like.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write a number and ms, s, m, h or d, like 100ms or 24h")
    return float(Fraction(match[1]) * _UNITS[match[2]] / 1000)  # exact: 1.1h is 3960s, in floats it is a little more


class Slot(NamedTuple):
    """A piece of time that is counted as one: from `start` to before `end`, in seconds since 1970."""

    start: int
    end: int


EVER: Final = Slot(0, 2**53)


class Rolling(msgspec.Struct, frozen=True):
    """The last `length` seconds, counted in slots of `slot` seconds; slots that leave are subtracted."""

    length: int
    slot: int

    tables: ClassVar[bool] = False  # whether each slot has a ranking of its own

    @property
    def live(self) -> int:
        """How many slots one score can be the sum of."""
        return self.length // self.slot + 1

    def __post_init__(self) -> None:
        """Refuse lengths on which slot arithmetic would not be exact."""
        if self.slot < 1 or self.length < 1:
            raise ValueError("window and slot must be at least 1s")
        if self.length % self.slot:
            raise ValueError(f"the window ({self.length}s) is not a multiple of its slot ({self.slot}s)")

    def slot_at(self, seconds: int) -> Slot:
        """The slot that holds a moment; moments before 1970 are negative."""
        start = seconds // self.slot * self.slot
        return Slot(start, start + self.slot)

    def oldest(self, newest: int) -> int:
        """The start of the oldest slot that is kept while the one that begins at `newest` is the newest."""
        return newest - self.length

    @classmethod
    def parse(cls, rolling: str, slot: str) -> "Rolling":
        """Build a window from two durations in whole seconds, such as `24h` and `1h`."""
        return cls(*_all_seconds(rolling=rolling, slot=slot))


class Sliding(msgspec.Struct, frozen=True):
    """The last `length` seconds, exact to the event: each leaves by itself, to the millisecond."""

    length: int

    tables: ClassVar[bool] = False
    live: ClassVar[int] = 1

    def slot_at(self, _seconds: int) -> Slot:
        """All that counts is in one slot, which events leave one by one."""
        return EVER

    def oldest(self, _newest: int) -> int:
        """There is but one slot."""
        return EVER.start

    @classmethod
    def parse(cls, sliding: str) -> "Sliding":
        """Build a window from a duration in whole seconds, such as `3h`."""
        length = _seconds("sliding", sliding)
        if length < 1:
            raise ValueError("a window must be at least 1s")
        return cls(length)


class Forever(msgspec.Struct, frozen=True):
    """All time: nothing leaves."""

    tables: ClassVar[bool] = False
    live: ClassVar[int] = 1

    def slot_at(self, _seconds: int) -> Slot:
        """There is but one slot."""
        return EVER

    def oldest(self, _newest: int) -> int:
        """There is but one slot."""
        return EVER.start


class Periods(msgspec.Struct, frozen=True, kw_only=True):
    """Calendar periods.

    With `last`, one ranking over the newest `last` periods, which leave one by one; otherwise each period has its own,
    kept for `keep` periods more, and taking late events for `grace` seconds after its end.
    """

    unit: Unit
    timezone: str = "UTC"
    week_start: Weekday = "monday"
    last: int | None = None
    keep: int = 10
    grace: int = 0

    def __post_init__(self) -> None:
        """Refuse what no calendar has."""
        mistakes = []
        if self.last is not None and not 1 < self.last <= MOST_PERIODS:
            mistakes.append(f"last = {self.last} must be from 2 to {MOST_PERIODS} periods")
        if not 0 <= self.keep <= MOST_PERIODS:
            mistakes.append(f"keep = {self.keep} must be from 0 to {MOST_PERIODS} periods")
        try:
            _calendar(self)
        except ValueError as error:
            mistakes.append(str(error))
        if mistakes:
            raise ValueError("\n".join(mistakes))

    @property
    def tables(self) -> bool:
        """Whether each period has a ranking of its own."""
        return self.last is None

    @property
    def live(self) -> int:
        """How many slots one score can be the sum of."""
        return self.last or 1

    @property
    def calendar(self) -> Calendar:
        """What cuts time into the periods."""
        return _calendar(self)

    def slot_at(self, seconds: int) -> Slot:
        """The period that holds a moment; before and after the years of calendars, the nearest one."""
        period = _calendar(self).at(min(max(seconds, FIRST), LAST - 1))
        return Slot(period.start, period.end)

    def oldest(self, newest: int) -> int:
        """The start of the oldest period that is kept while the one that begins at `newest` is the newest."""
        return _oldest(self, newest)

    @classmethod
    def parse(cls, grace: str, **choices: Any) -> "Periods":  # noqa: ANN401 - checked by msgspec before
        """Build a window from choices as a boards file has them.

        Raises:
            ValueError: they make none; a line for each mistake.
        """
        mistakes, seconds = [], 0
        try:
            seconds = _seconds("grace", grace)
        except ValueError as error:
            mistakes.append(str(error))
        try:
            periods = cls(grace=seconds, **choices)
        except ValueError as error:
            mistakes.append(str(error))
        if mistakes:
            raise ValueError("\n".join(mistakes))
        return periods


Window: TypeAlias = Rolling | Periods | Sliding | Forever


@cache
def _calendar(periods: Periods) -> Calendar:
    try:
        zone = ZoneInfo(periods.timezone)
    except (ValueError, OSError, KeyError):
        example = "expected an IANA name such as Asia/Shanghai"
        raise ValueError(f"unknown timezone {periods.timezone!r}; {example}") from None
    return Calendar(periods.unit, zone, periods.week_start)


@lru_cache(maxsize=256)
def _oldest(periods: Periods, newest: int) -> int:
    """Goes back period by period, for they differ in length."""
    calendar = _calendar(periods)
    period = calendar.at(newest)
    for _ in range(periods.keep if periods.last is None else periods.last - 1):
        if period.start <= FIRST:
            break
        period = calendar.before(period)
    return period.start


def _all_seconds(**texts: str) -> list[int]:
    """Several durations in whole seconds; every mistake at once."""
    seconds, mistakes = [], []
    for name, text in texts.items():
        try:
            seconds.append(_seconds(name, text))
        except ValueError as error:
            mistakes.append(str(error))
    if mistakes:
        raise ValueError("\n".join(mistakes))
    return seconds


def _seconds(name: str, text: str) -> int:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if seconds != int(seconds):
        raise ValueError(f"{name} = {text!r} is not a whole number of seconds")
    return int(seconds)
