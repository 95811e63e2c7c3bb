"""Calendars: periods are contiguous, contain their times whatever the clocks do, and have unique names."""

import re
import zoneinfo
from bisect import bisect_left
from datetime import UTC, date, datetime, timedelta
from typing import get_args
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.domain.calendar import _MOST_KNOWN, EXAMPLES, FIRST, LAST, WEEKDAYS, Calendar, Period, Unit, Weekday

HOUR = 3600
DAY = 24 * HOUR

ZONES = sorted(available_timezones() - {"localtime"})
# Zones with unusual changes: skipped and repeated midnights, half hours, minutes, whole days.
ODD_ZONES = [
    "Africa/Cairo", "Africa/Casablanca", "Africa/Monrovia", "America/Havana", "America/New_York",
    "America/Sao_Paulo", "America/St_Johns", "America/Toronto", "Asia/Beirut", "Asia/Kathmandu", "Asia/Pyongyang",
    "Australia/Lord_Howe", "Europe/Amsterdam", "Europe/Athens", "Europe/Dublin", "Pacific/Apia", "Pacific/Kiritimati",
    "Pacific/Kwajalein",
]  # fmt: skip


def moment(text: str, zone: str = "UTC", fold: int = 0) -> int:
    """The time at which the clocks of a zone show `text`. If they show it twice, `fold` selects one of the two."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp())


EARLIEST, LATEST = moment("1900-01-01"), moment("2100-12-31")

# A zone, the time at which days begin, a day, its first moment in UTC, and how many hours it has.
DAYS = [
    ("Europe/Berlin", "09:00", "2024-03-30", "2024-03-30T08:00", 23),
    ("Europe/Berlin", "09:00", "2024-10-26", "2024-10-26T07:00", 25),
    ("Europe/Berlin", "02:30", "2024-03-31", "2024-03-31T01:00", 23.5),  # 2:30 is skipped
    ("Europe/Berlin", "02:30", "2024-10-27", "2024-10-27T00:30", 25),  # 2:30 comes twice
    # The zone skipped this date, so its period begins with the next date.
    ("Pacific/Apia", "09:00", "2011-12-30", "2011-12-30T10:00", 9),
]

zones = st.sampled_from(ODD_ZONES) | st.sampled_from(ZONES)
day_starts = st.sampled_from(["00:00", "00:30", "02:30", "09:00", "23:59"])
UNITS = get_args(Unit)
calendars = st.builds(Calendar, st.sampled_from(UNITS), zones.map(ZoneInfo), st.sampled_from(WEEKDAYS), day_starts)


def again(calendar: Calendar) -> Calendar:
    """Return an equal calendar that has cached nothing."""
    minutes = calendar.day_start.seconds // 60
    return Calendar(calendar.unit, calendar.zone, calendar.week_start, f"{minutes // 60:02}:{minutes % 60:02}")


def local(seconds: int, zone: ZoneInfo) -> datetime:
    """The local time in a zone."""
    return datetime.fromtimestamp(seconds, zone)


def change_after(seconds: int, zone: ZoneInfo) -> int:
    """The next change of the clocks within 200 days, or `seconds` if there is none."""

    def offset(place: int) -> timedelta | None:
        return local(place, zone).utcoffset()

    for end in range(seconds, seconds + 200 * DAY, 20 * DAY):
        if offset(end) != offset(seconds):
            return (
                end
                - 20 * DAY
                + bisect_left(range(end - 20 * DAY, end), x=True, key=lambda place: offset(place) == offset(end))
            )
    return seconds


@st.composite
def moments(draw: st.DrawFn, zone: ZoneInfo) -> int:
    """Any time of two centuries, half of them close to a change of the clocks."""
    seconds = draw(st.integers(EARLIEST, LATEST))
    if draw(st.booleans()):
        return seconds
    near = st.sampled_from([-DAY, -HOUR, -1, 0, 1, HOUR, DAY]) | st.integers(-2 * HOUR, 2 * HOUR)
    return change_after(seconds, zone) + draw(near)


@given(calendars, st.data())
def test_periods_are_contiguous(calendar: Calendar, data: st.DataObject) -> None:
    """No time lies between two periods or in both, and the result does not depend on earlier calls."""
    seconds = data.draw(moments(calendar.zone))
    period = calendar.at(seconds)
    assert period.start <= seconds < period.end
    assert calendar.at(period.end).start == period.end
    assert calendar.at(period.start - 1).end == period.start
    assert calendar.before(period) == calendar.at(period.start - 1)
    for place in (period.start, period.end - 1, (period.start + period.end) // 2):
        assert again(calendar).at(place) == period


@given(calendars, st.data())
def test_a_period_is_found_by_its_name(calendar: Calendar, data: st.DataObject) -> None:
    """The names of a period and of its two neighbours are different, and each finds its own period."""
    period = calendar.at(data.draw(moments(calendar.zone)))
    for neighbour in (calendar.before(period), period, calendar.at(period.end)):
        assert again(calendar).parse(neighbour.name) == neighbour
    assert len({calendar.before(period).name, period.name, calendar.at(period.end).name}) == 3


def name_of(unit: Unit, day: date) -> str:
    """The name of a period of whole days, computed with `datetime`; weeks begin on Mondays."""
    if unit == "week":
        year, week, _ = day.isocalendar()
        return f"{year:04}-W{week:02}"
    if unit == "quarter":
        return f"{day.year:04}-Q{1 + (day.month - 1) // 3}"
    return day.isoformat()[: {"day": 10, "month": 7, "year": 4}[unit]]


def assert_dates_around(middle: int, unit: Unit, zone: ZoneInfo, day_start: str = "00:00") -> None:
    """Check around a time that each period is that of the latest date whose start the clocks have already shown."""
    hours, minutes = map(int, day_start.split(":"))
    latest = date.min
    for seconds in sorted({*range(middle - 2 * DAY, middle + 2 * DAY, HOUR // 4), middle - 1, middle}):
        latest = max(latest, (local(seconds, zone) - timedelta(hours=hours, minutes=minutes)).date())
        assert Calendar(unit, zone, day_start=day_start).at(seconds).name == name_of(unit, latest)


@pytest.mark.slow
@given(st.sampled_from(UNITS[1:]), zones, day_starts, st.data())
def test_periods_match_dates(unit: Unit, name: str, day_start: str, data: st.DataObject) -> None:
    """Periods match dates at changes of the clocks too, and if days begin at another hour."""
    zone = ZoneInfo(name)
    assert_dates_around(change_after(data.draw(moments(zone)), zone), unit, zone, day_start)


@pytest.mark.parametrize(("zone", "day_start", "day", "start", "hours"), DAYS)
def test_days_begin_at_their_hour(zone: str, day_start: str, day: str, start: str, hours: float) -> None:
    """A day begins when the clocks first show its hour or, if they skip that hour, at the first time after it."""
    period = Calendar("day", ZoneInfo(zone), day_start=day_start).parse(day)
    assert period == Period(moment(start), moment(start) + int(hours * HOUR), day)


@pytest.mark.parametrize("unit", UNITS[1:])
@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("America/Toronto", "1919-03-31T04:30"),  # clocks went from 23:30 to 0:30
        ("America/St_Johns", "2006-10-29T02:31"),  # clocks went from 0:01 back to 23:01
        ("Pacific/Apia", "2011-12-30T10:00"),  # clocks went forward by a day
        ("Pacific/Kiritimati", "1994-12-31T10:00"),  # clocks went forward by a day, past the end of a year
        ("Pacific/Kwajalein", "1969-09-30T13:00"),  # clocks went back by 23 hours, at the end of a month
    ],
)
def test_changes_over_midnight_do_not_return_to_an_earlier_date(unit: Unit, zone: str, change: str) -> None:
    """A date that has begun continues, even if the clocks show the previous date again."""
    middle = moment(change)
    assert local(middle - 1, ZoneInfo(zone)).utcoffset() != local(middle, ZoneInfo(zone)).utcoffset()
    assert_dates_around(middle, unit, ZoneInfo(zone))


@given(st.sampled_from(UNITS[1:]), st.sampled_from(ZONES), st.data())
def test_noon_is_in_the_period_of_its_date(unit: Unit, name: str, data: st.DataObject) -> None:
    """The name of the period at noon is that of the local date, whatever the zone did to its clocks."""
    zone = ZoneInfo(name)
    day = data.draw(st.dates(date(1900, 1, 1), date(2100, 12, 31)))
    noon = int(datetime(day.year, day.month, day.day, 12, tzinfo=zone).timestamp())
    assert Calendar(unit, zone).at(noon).name == name_of(unit, local(noon, zone).date())


@pytest.mark.slow
@given(zones, st.data())
def test_hours_match_the_clock(name: str, data: st.DataObject) -> None:
    """Each hour begins at a full hour and ends at the next one, except at a change of the clocks."""
    zone = ZoneInfo(name)
    middle = change_after(data.draw(moments(zone)), zone)
    calendar = Calendar("hour", zone)
    names: dict[str, Period] = {}
    for seconds in sorted({*range(middle - DAY // 2, middle + DAY // 2, HOUR // 4), middle - 1, middle}):
        period = calendar.at(seconds)
        assert re.fullmatch(local(seconds, zone).strftime("%Y-%m-%dT%H") + r"([+-][0-9]{4})?", period.name)
        assert names.setdefault(period.name, period) == period
        assert local(period.start, zone).utcoffset() == local(period.end - 1, zone).utcoffset()
        for edge in (period.start, period.end):
            changed = local(edge - 1, zone).utcoffset() != local(edge, zone).utcoffset()
            assert changed or local(edge, zone).strftime("%M%S") == "0000"


@given(st.sampled_from(WEEKDAYS), st.dates(date(3, 1, 1), date(9990, 12, 31)))
def test_weeks_begin_on_any_day(start: Weekday, day: date) -> None:
    """A week has seven days. It belongs to the year of its fourth day, and has a number in that year."""
    calendar = Calendar("week", ZoneInfo("UTC"), start)
    week = calendar.at(int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()))
    first = local(week.start, ZoneInfo("UTC")).date()
    assert week.end - week.start == 7 * DAY
    assert 0 <= (day - first).days < 7
    assert first.strftime("%A").lower() == start
    fourth = first + timedelta(days=3)
    earlier = sum((fourth - timedelta(weeks=n)).year == fourth.year for n in range(1, 54))
    assert week.name == f"{fourth.year:04}-W{earlier + 1:02}"
    assert calendar.parse(week.name) == week


@pytest.mark.parametrize(
    ("week_start", "day", "name"),
    [
        ("monday", "2027-01-03", "2026-W53"), ("monday", "2027-01-04", "2027-W01"),
        ("monday", "2024-12-30", "2025-W01"), ("monday", "2026-11-21", "2026-W47"),
        ("sunday", "2025-12-31", "2025-W53"), ("sunday", "2026-01-03", "2025-W53"),
        ("sunday", "2026-01-04", "2026-W01"), ("saturday", "2026-01-02", "2025-W52"),
        ("saturday", "2026-01-03", "2026-W01"), ("thursday", "2026-01-01", "2026-W01"),
    ],
)  # fmt: skip
def test_the_first_days_of_a_year_may_belong_to_the_last_week(week_start: Weekday, day: str, name: str) -> None:
    """The last days may belong to the first week of the next year."""
    assert Calendar("week", ZoneInfo("UTC"), week_start).at(moment(day)).name == name


# All cases are in the past, because other time zone data may predict other changes of the clocks in the future.
@pytest.mark.parametrize(
    ("zone", "day", "start", "hours"),
    [
        ("UTC", "2026-11-21", "2026-11-21T00:00", 24),
        ("America/New_York", "2024-03-10", "2024-03-10T05:00", 23),
        ("America/New_York", "2024-11-03", "2024-11-03T04:00", 25),
        ("Australia/Lord_Howe", "2024-04-07", "2024-04-06T13:00", 24.5),
        ("Australia/Lord_Howe", "2024-10-06", "2024-10-05T13:30", 23.5),
        ("America/Sao_Paulo", "2018-11-04", "2018-11-04T03:00", 23),  # begins at 1:00
        ("America/Sao_Paulo", "2018-02-17", "2018-02-17T02:00", 25),  # ends with a second 23:00
        ("America/Sao_Paulo", "2018-02-18", "2018-02-18T03:00", 24),
        ("America/Havana", "2024-03-10", "2024-03-10T05:00", 23),  # begins at 1:00
        ("America/Havana", "2024-11-03", "2024-11-03T04:00", 25),  # has 0:00 twice
        ("Asia/Beirut", "2024-03-31", "2024-03-30T22:00", 23),  # begins at 1:00
        ("Asia/Beirut", "2024-10-26", "2024-10-25T21:00", 25),  # ends with a second 23:00
        ("Africa/Cairo", "2024-04-26", "2024-04-25T22:00", 23),  # begins at 1:00
        ("Africa/Cairo", "2024-10-31", "2024-10-30T21:00", 25),  # ends with a second 23:00
        ("America/Toronto", "1919-03-30", "1919-03-30T05:00", 23.5),  # ends at 23:30
        ("America/Toronto", "1919-03-31", "1919-03-31T04:30", 23.5),  # begins at 0:30
        ("America/St_Johns", "2006-10-28", "2006-10-28T02:30", 24),  # ends with the first 0:00
        ("America/St_Johns", "2006-10-29", "2006-10-29T02:30", 25),  # at 0:01, a second 23:01 follows
        ("Pacific/Apia", "2011-12-29", "2011-12-29T10:00", 24),
        ("Pacific/Apia", "2011-12-31", "2011-12-30T10:00", 24),
        # The clocks showed this date twice, except for one hour.
        ("Pacific/Kwajalein", "1969-09-30", "1969-09-29T13:00", 47),
    ],
)
def test_days_have_the_hours_of_their_clocks(zone: str, day: str, start: str, hours: float) -> None:
    """A day begins at its first midnight or, if midnight is skipped, at the first time after it."""
    period = Calendar("day", ZoneInfo(zone)).parse(day)
    assert period == Period(moment(start), moment(start) + int(hours * HOUR), day)


@pytest.mark.parametrize(("zone", "day"), [("Pacific/Apia", "2011-12-30"), ("Pacific/Kwajalein", "1993-08-21")])
def test_a_skipped_day_is_not_a_period(zone: str, day: str) -> None:
    """The days around the skipped day are contiguous, its week has six days, and its hours are not found."""
    calendar = Calendar("day", ZoneInfo(zone))
    gone = date.fromisoformat(day)
    with pytest.raises(ValueError, match="is not a valid day"):
        calendar.parse(day)
    with pytest.raises(ValueError, match="is not a valid hour"):
        Calendar("hour", ZoneInfo(zone)).parse(f"{day}T12")
    after = calendar.parse(str(gone + timedelta(days=1)))
    assert calendar.before(after) == calendar.parse(str(gone - timedelta(days=1)))
    week = Calendar("week", ZoneInfo(zone)).at(after.start)
    assert week.end - week.start == 6 * DAY


@pytest.mark.parametrize(
    ("zone", "begin", "names"),
    [
        ("America/New_York", "2024-11-03T04:00",
         ["2024-11-03T00 60", "2024-11-03T01 60", "2024-11-03T01-0500 60", "2024-11-03T02 60"]),
        ("America/New_York", "2024-03-10T06:00", ["2024-03-10T01 60", "2024-03-10T03 60"]),
        ("Australia/Lord_Howe", "2024-04-06T14:00",
         ["2024-04-07T01 60", "2024-04-07T01+1030 30", "2024-04-07T02 60"]),
        ("Australia/Lord_Howe", "2024-10-05T14:30", ["2024-10-06T01 60", "2024-10-06T02 30", "2024-10-06T03 60"]),
        ("America/Havana", "2024-11-03T04:00", ["2024-11-03T00 60", "2024-11-03T00-0500 60", "2024-11-03T01 60"]),
        ("Europe/Athens", "1916-07-27T22:25:08",  # clocks went from 0:01:00 to 0:26:08
         ["1916-07-28T00 1", "1916-07-28T00+0200 33", "1916-07-28T01 60"]),
        ("America/St_Johns", "2006-10-29T01:30",
         ["2006-10-28T23 60", "2006-10-29T00 1", "2006-10-28T23-0330 59", "2006-10-29T00-0330 60", "2006-10-29T01 60"]),
        ("America/St_Johns", "2006-04-02T03:30", ["2006-04-02T00 1", "2006-04-02T01 59", "2006-04-02T02 60"]),
        ("Africa/Monrovia", "1919-02-28T23:43:08",  # at midnight, clocks went back by 82 s, to an offset of -0:44:30
         ["1919-02-28T23 60", "1919-02-28T23-0044 1", "1919-03-01T00 60"]),
        ("Asia/Kathmandu", "2026-11-21T00:15", ["2026-11-21T06 60", "2026-11-21T07 60"]),
    ],
)  # fmt: skip
def test_a_repeated_hour_is_its_own_period(zone: str, begin: str, names: list[str]) -> None:
    """The second hour has its offset in the name. A change can shorten an hour. A skipped hour does not exist."""
    calendar = Calendar("hour", ZoneInfo(zone))
    found = [calendar.at(moment(begin))]
    assert found[0].start == moment(begin)
    while len(found) < len(names):
        found.append(calendar.at(found[-1].end))
    assert [f"{period.name} {(period.end - period.start) // 60}" for period in found] == names
    assert [calendar.parse(period.name) for period in found] == found


@pytest.mark.parametrize(
    ("unit", "name", "start", "end"),
    [
        ("hour", "2026-11-21T14", "2026-11-21T14:00", "2026-11-21T15:00"),
        ("day", "2024-02-29", "2024-02-29", "2024-03-01"),
        ("week", "2026-W47", "2026-11-16", "2026-11-23"),
        ("month", "2026-12", "2026-12-01", "2027-01-01"),
        ("quarter", "2026-Q4", "2026-10-01", "2027-01-01"),
        ("year", "2026", "2026-01-01", "2027-01-01"),
        ("year", "0003", "0003-01-01", "0004-01-01"),
        ("hour", "0003-01-01T00", "0003-01-01T00:00", "0003-01-01T01:00"),
    ],
)
def test_a_name_belongs_to_one_period(unit: Unit, name: str, start: str, end: str) -> None:
    """A name stands for a time in the zone of the calendar, such as from midnight to midnight in Shanghai."""
    zone = "Asia/Shanghai"
    assert Calendar(unit, ZoneInfo(zone)).parse(name) == (moment(start, zone), moment(end, zone), name)


@pytest.mark.parametrize(
    ("unit", "name"),
    [
        ("hour", "2026-11-21T24"), ("hour", "2026-11-21T1"), ("hour", "2026-11-21T14-0500"),
        ("hour", "2024-11-03T01-04"), ("hour", "2024-11-03T01-0400"), ("hour", "2024-03-10T02"),
        ("hour", "2024-03-10T02-0500"),
        ("hour", "2026-11-21 14"), ("hour", "9999-12-31T23"), ("hour", "0001-01-01T00"),
        ("day", "2026-02-29"), ("day", "2026-2-9"), ("day", "2026-13-01"), ("day", "2026-00-10"),
        ("day", "2026-11-21\n"),
        ("day", "0000-01-01"), ("day", "0001-01-01"), ("day", "9999-12-31"), ("day", "\u0662\u0660\u0662\u0666-11-21"),
        ("day", "20261121"), ("day", "2026-11-21T14"), ("day", "+2026-11-21"), ("day", "12026-11-21"),
        ("week", "2026-W00"), ("week", "2026-W54"), ("week", "2025-W53"), ("week", "9999-W99"), ("week", "0000-W01"),
        ("week", "2026-w47"), ("week", "2026-W4\u0667"), ("week", "0001-W01"),
        ("month", "2026-13"), ("month", "2026-00"), ("month", "2026-1"), ("quarter", "2026-Q0"), ("quarter", "2026-Q5"),
        ("quarter", "2026-Q\u0664"), ("year", "0000"), ("year", "0001"), ("year", "9998"), ("year", "9999"),
        ("year", ""), ("year", "\uff12\uff10\uff12\uff16"), ("year", " 2026"), ("year", "2026\x00"),
    ],
)  # fmt: skip
def test_invalid_names_are_refused(unit: Unit, name: str) -> None:
    """The message shows the name and the expected form."""
    with pytest.raises(ValueError, match=f"is not a valid {unit}; expected a form like") as caught:
        Calendar(unit, ZoneInfo("America/New_York")).parse(name)
    assert str(caught.value) == f"{name!r} is not a valid {unit}; expected a form like {EXAMPLES[unit]}"


@given(
    calendars,
    st.text()
    | st.sampled_from(list(EXAMPLES.values()))
    | st.from_regex(r"\d{4}(-\d\d|-W\d\d|-Q\d|-\d\d-\d\d(T\d\d([+-]\d{4})?)?)?\s?"),
)
def test_any_text_is_a_name_or_a_value_error(calendar: Calendar, text: str) -> None:
    """A parsed text is exactly the ASCII name of its period."""
    try:
        name, message = calendar.parse(text).name, ""
    except ValueError as error:
        name, message = text, str(error)
    assert name == text
    assert f"is not a valid {calendar.unit}" in message if message else text.isascii()


@given(calendars)
def test_examples_are_valid(calendar: Calendar) -> None:
    """The example in the error message is accepted in every zone."""
    assert calendar.parse(EXAMPLES[calendar.unit]).name == EXAMPLES[calendar.unit]


@given(calendars)
def test_calendars_end(calendar: Calendar) -> None:
    """The first and the last time that a calendar supports have a period. Times before and after are refused."""
    for seconds in (FIRST, LAST - 1):
        period = calendar.at(seconds)
        assert period.start <= seconds < period.end
    period = calendar.at(FIRST)
    for seconds in (period.start - 1, -(10**15), calendar.at(LAST - 1).end, 10**15):
        with pytest.raises(OverflowError, match="from the year 2 to the year 9997"):
            calendar.at(seconds)


@given(st.sampled_from(UNITS), zones, st.lists(st.integers(0, 400), max_size=100))
def test_results_do_not_depend_on_earlier_calls(unit: Unit, name: str, places: list[int]) -> None:
    """A calendar that has learned and dropped many periods gives the same results as a new calendar."""
    calendar = Calendar(unit, ZoneInfo(name))
    for place in places:
        seconds = moment("2026-10-20") + place * HOUR * (1 if unit == "hour" else 60)
        assert calendar.at(seconds) == Calendar(unit, ZoneInfo(name)).at(seconds)


def test_known_periods_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A calendar finds recent periods in its cache, whatever the order of requests. The cache is bounded."""
    known = Calendar("day", ZoneInfo("Europe/Berlin"))
    begin = known.parse("2026-11-21").start
    periods = [known.at(begin + n * DAY) for n in range(20)]
    with monkeypatch.context() as patch:
        patch.setattr(Calendar, "_days_at", None)
        for seconds in range(begin, begin + DAY, 977):
            assert [known.at(seconds + n * DAY) for n in range(19, -1, -1)] == periods[::-1]
    for n in range(1000):
        known.at(begin + n * DAY)
        assert len(known._known) <= _MOST_KNOWN


def test_time_zones_come_from_the_package() -> None:
    """Machines with different time zone data agree on periods."""
    assert zoneinfo.TZPATH == ()
