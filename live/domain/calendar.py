"""Calendar periods: the hour, day, week, month, quarter or year of a moment in a time zone.

Each period ends where the next one begins. Lengths follow the calendar: a day has 23 or 25 hours if the clocks change.
If the clocks are set back over midnight, the new day begins when its date is first shown. A date that a zone skipped is
not a period. An example is 30 December 2011 in Samoa.

With `day_start = "09:00"`, each day begins at 9:00 on its date: when clocks first show this time or a later time.
Weeks, months, quarters and years then also begin at 9:00, on their first day.

A week belongs to the year that contains its fourth day, as in ISO 8601, whatever its first day is. So the first days of
January can belong to the last week of the previous year.

An hour is the time during which a wall clock shows the same hour. It ends when the clocks change. If clocks show an
hour a second time, this is another period. Its name has the offset: `2026-11-01T01-0500` follows `2026-11-01T01`.
"""

import math
import re
from bisect import bisect, bisect_left, insort
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Final, Literal, NamedTuple, get_args
from zoneinfo import ZoneInfo, reset_tzpath

# Processes that share a store must agree on periods, so zones come from `tzdata` and not from the machine.
reset_tzpath(to=())

Unit = Literal["hour", "day", "week", "month", "quarter", "year"]
Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]

MIDNIGHT: Final = "00:00"
DAY_START: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")

WEEKDAYS: Final[tuple[Weekday, ...]] = get_args(Weekday)
EXAMPLES: Final[dict[Unit, str]] = {
    "hour": "2026-11-21T14",
    "day": "2026-11-21",
    "week": "2026-W47",
    "month": "2026-11",
    "quarter": "2026-Q4",
    "year": "2026",
}

# `datetime` can represent these years and their neighbouring periods in every zone.
FIRST: Final = int(datetime(2, 1, 1, tzinfo=UTC).timestamp())
LAST: Final = int(datetime(9998, 1, 1, tzinfo=UTC).timestamp())

_HOUR: Final = 3600
_MOST_KNOWN: Final = 64
_FORMS: Final[dict[Unit, re.Pattern[str]]] = {
    "hour": re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2})(?:[+-][0-9]{4})?"),
    "day": re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})"),
    "week": re.compile(r"([0-9]{4})-W([0-9]{2})"),
    "month": re.compile(r"([0-9]{4})-([0-9]{2})"),
    "quarter": re.compile(r"([0-9]{4})-Q([1-4])"),
    "year": re.compile(r"([0-9]{4})"),
}


class Period(NamedTuple):
    """One period of a calendar, from `start` to before `end`, in seconds since 1970. `name` is like `2026-W47`."""

    start: int
    end: int
    name: str


class Calendar:
    """Divides time into periods of one unit. `day_start` is the time at which days begin, such as `09:00`."""

    def __init__(self, unit: Unit, zone: ZoneInfo, week_start: Weekday = "monday", day_start: str = MIDNIGHT) -> None:
        """Take the choices of a calendar."""
        match = DAY_START.fullmatch(day_start)
        if match is None:
            raise ValueError(f"day_start = {day_start!r} is not a time from 00:00 to 23:59")
        self.unit = unit
        self.zone = zone
        self.week_start = week_start
        self.day_start = timedelta(hours=int(match[1]), minutes=int(match[2]))
        self._weekday = WEEKDAYS.index(week_start)
        self._known: list[Period] = []  # ascending

    def at(self, seconds: int) -> Period:
        """Return the period of a moment within the years 2 to 9997. For any other moment, raise OverflowError."""
        place = bisect(self._known, (seconds, math.inf))
        if place and seconds < self._known[place - 1].end:
            return self._known[place - 1]
        if not FIRST <= seconds < LAST:
            raise OverflowError("calendars go from the year 2 to the year 9997")
        period = self._hour_at(seconds) if self.unit == "hour" else self._days_at(seconds)
        if len(self._known) >= _MOST_KNOWN:  # this is rare, because most moments fall into few periods
            self._known.clear()
        insort(self._known, period)
        return period

    def before(self, period: Period) -> Period:
        """Return the previous period."""
        return self.at(period.start - 1)

    def parse(self, name: str) -> Period:
        """Find the period with a name such as `2026-W47`."""
        match = _FORMS[self.unit].fullmatch(name)
        if match is not None:
            with suppress(ValueError, OverflowError):  # for example 30 February or the year 0
                year, *rest = map(int, match.groups())
                if self.unit == "week":
                    moments = [self._opening(self._first_day(date(year, 1, 4)) + timedelta(weeks=rest[0] - 1))]
                elif self.unit == "quarter":
                    moments = [self._opening(date(year, 3 * rest[0] - 2, 1))]
                elif self.unit != "hour":
                    moments = [self._opening(date(year, *(*rest, 1, 1)[:2]))]
                else:
                    month, day, hour = rest
                    # A clock change cuts off the start or the end of an hour, never both.
                    edges = (datetime(year, month, day, hour, edge, edge, tzinfo=self.zone) for edge in (0, 59))
                    moments = [int(edge.replace(fold=fold).timestamp()) for edge in edges for fold in (0, 1)]
                for moment in moments:  # one of these moments is in the period, if the period exists
                    period = self.at(moment)
                    if period.name == name:
                        return period
        raise ValueError(f"{name!r} is not a valid {self.unit}; expected a form like {EXAMPLES[self.unit]}")

    def _days_at(self, seconds: int) -> Period:
        """Choose a period of whole days by the date.

        If the clocks were set back from a new day to the previous day, a moment after that belongs to the new day.
        """
        first = self._first_day((datetime.fromtimestamp(seconds, self.zone) - self.day_start).date())
        after = self._next(first)
        while self._opening(after) <= seconds:
            first, after = after, self._next(after)
        if self.unit == "week":
            fourth = first + timedelta(days=3)
            name = f"{fourth.year:04}-W{(fourth.timetuple().tm_yday - 1) // 7 + 1:02}"
        elif self.unit == "quarter":
            name = f"{first.year:04}-Q{(first.month + 2) // 3}"
        else:
            name = first.isoformat()[: len(EXAMPLES[self.unit])]
        return Period(self._opening(first), self._opening(after), name)

    def _opening(self, day: date) -> int:
        opening = datetime(day.year, day.month, day.day, tzinfo=self.zone) + self.day_start
        first, second = int(opening.timestamp()), int(opening.replace(fold=1).timestamp())
        if first <= second:
            return first
        # If clocks skip this time, `datetime` puts `first` after the change and `second` before the change.
        offset = self._offset(first)
        return second + bisect_left(range(second, first), x=True, key=lambda moment: self._offset(moment) == offset)

    def _first_day(self, day: date) -> date:
        if self.unit == "day":
            return day
        if self.unit == "week":
            return day - timedelta(days=(day.weekday() - self._weekday) % 7)
        months = {"month": 1, "quarter": 3, "year": 12}[self.unit]
        return day.replace(month=(day.month - 1) // months * months + 1, day=1)

    def _next(self, first: date) -> date:
        """Return the first day of the next period. `first` is the first day of this period."""
        longest = {"day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366}[self.unit]
        return self._first_day(first + timedelta(days=longest))

    def _hour_at(self, seconds: int) -> Period:
        """Return the hour that a wall clock shows at a moment. A clock change ends an hour and begins another hour."""
        offset = self._offset(seconds)
        start = seconds - (seconds + offset) % _HOUR
        end = start + _HOUR
        start += bisect_left(range(start, seconds), x=True, key=lambda moment: self._offset(moment) == offset)
        end = seconds + bisect_left(range(seconds, end), x=True, key=lambda moment: self._offset(moment) != offset)
        local = datetime.fromtimestamp(start, self.zone)
        name = _shown_hour(local)
        if local.fold or _shown_hour(datetime.fromtimestamp(start - 1, self.zone)) == name:  # clocks show it again
            name += local.strftime("%z")[: len("+hhmm")]
        return Period(start, end, name)

    def _offset(self, seconds: int) -> int:
        local = datetime.fromtimestamp(seconds, self.zone)
        return int(local.replace(tzinfo=UTC).timestamp()) - seconds


def _shown_hour(local: datetime) -> str:
    return local.isoformat()[: len("2026-11-21T14")]
