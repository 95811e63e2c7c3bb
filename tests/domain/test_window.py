"""Windows and slots: durations are parsed exactly, and each time belongs to the right slot of its window."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.domain.calendar import FIRST, LAST
from live.domain.window import (
    EVER,
    Forever,
    Periods,
    Rolling,
    Sliding,
    Slot,
    Window,
    WindowChoice,
    closes_at,
    format_duration,
    make_window,
    parse_duration,
)

HOUR = 3600
UNITS = {"ms": Fraction(1, 1000), "s": Fraction(1), "m": Fraction(60), "h": Fraction(3600), "d": Fraction(86_400)}


def made(**choices: Any) -> Window:
    """The window of some choices."""
    return make_window(WindowChoice(**choices))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("100ms", 0.1), ("0ms", 0), ("1.5s", 1.5), ("90s", 90), ("15m", 900), ("24h", 86_400), ("7d", 604_800),
     ("1.1h", 3960), ("0.001s", 0.001), ("999999999d", 86_399_999_913_600)],
)  # fmt: skip
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    """The unit is ms, s, m, h or d, and the number may have up to three decimals."""
    assert parse_duration(text) == seconds


@given(st.integers(0, 10**12 - 1), st.sampled_from(sorted(UNITS)))
def test_a_duration_is_parsed_exactly(thousandths: int, unit: str) -> None:
    """The result is the nearest float, without errors of float arithmetic."""
    whole, rest = divmod(thousandths, 1000)
    assert parse_duration(f"{whole}.{rest:03}{unit}") == float(Fraction(thousandths, 1000) * UNITS[unit])


@given(st.integers(0, 10**12 - 1), st.sampled_from(sorted(UNITS)))
def test_a_duration_can_be_written_again(thousandths: int, unit: str) -> None:
    """A duration of whole milliseconds has a text form, which is parsed as the same duration."""
    milliseconds = Fraction(thousandths, 1000) * UNITS[unit] * 1000
    if milliseconds.denominator == 1:
        assert round(parse_duration(format_duration(int(milliseconds))) * 1000) == milliseconds


def test_invalid_durations_are_refused() -> None:
    """The message shows the text and the expected form."""
    for text in [
        "",
        "1",
        "h",
        "1 h",
        " 1h",
        "1h ",
        "1h\n",
        "-1h",
        "+1h",
        "1,5h",
        "1.h",
        ".5h",
        "1.2345s",
        "1e3s",
        "1h30m",
        "1H",
        "1w",
        "\u0661h",
        "99999999999s",
        "infs",
        "nans",
    ]:
        with pytest.raises(ValueError, match="is not a duration; expected a number and ms, s, m, h or d") as caught:
            parse_duration(text)
        assert repr(text) in str(caught.value)


def test_a_rolling_window_has_two_durations() -> None:
    """Both durations are whole seconds, in any unit."""
    assert made(rolling="24h", slot="1h") == Rolling(86_400, 3600)
    assert made(rolling="1.5m", slot="30s") == Rolling(90, 30)
    assert made(rolling="1s", slot="1000ms") == Rolling(1, 1)


@pytest.mark.parametrize(
    ("rolling", "slot", "message"),
    [
        ("24h", "7h", r"the window \(86400s\) is not a multiple of its slot \(25200s\)"),
        ("1h", "2h", r"the window \(3600s\) is not a multiple of its slot \(7200s\)"),
        ("1h", "0s", "window and slot must be at least 1s"),
        ("0s", "1s", "window and slot must be at least 1s"),
        ("1500ms", "1s", "rolling = '1500ms' is not a whole number of seconds"),
        ("24h", "0.5s", "slot = '0.5s' is not a whole number of seconds"),
        ("a day", "1h", "'a day' is not a duration"),
    ],
)
def test_a_window_must_be_a_multiple_of_its_slot(rolling: str, slot: str, message: str) -> None:
    """Window and slot must be whole seconds. The message names the invalid value."""
    with pytest.raises(ValueError, match=message):
        made(rolling=rolling, slot=slot)


@pytest.mark.parametrize(
    ("seconds", "start"), [(0, 0), (3599, 0), (3600, 3600), (-1, -3600), (-3600, -3600), (-3601, -7200)]
)
def test_a_slot_is_identified_by_its_start(seconds: int, start: int) -> None:
    """Slots before 1970 have a start too."""
    assert Rolling(86_400, 3600).slot_at(seconds) == Slot(start, start + 3600)


@given(st.integers(1, 10_000), st.integers(1, 50), st.integers(-(10**11), 10**11))
def test_slots_tile_time(length: int, slots: int, seconds: int) -> None:
    """Every time belongs to exactly one slot."""
    window = Rolling(length * slots, length)
    start, end = window.slot_at(seconds)
    assert start <= seconds < end == start + length
    assert start % length == 0


@given(st.integers(1, 10_000), st.integers(1, 50), st.integers(-(10**11), 10**11), st.integers(-60, 5))
def test_a_slot_counts_while_any_part_of_it_is_inside_the_window(
    length: int, slots: int, now: int, distance: int
) -> None:
    """I2: slot `s` of length `L` is live at `t` while `s + L > t - window`."""
    window = Rolling(length * slots, length)
    current = window.slot_at(now).start
    slot = current + distance * length
    assert (slot >= window.oldest(current)) == (slot + length > now - window.length)


def test_a_sliding_window_has_one_duration() -> None:
    """The duration must be whole seconds, and at least one."""
    assert made(sliding="3h") == Sliding(10_800)
    with pytest.raises(ValueError, match="a window must be at least 1s"):
        made(sliding="0s")
    with pytest.raises(ValueError, match=r"sliding = '1\.5s' is not a whole number of seconds"):
        made(sliding="1.5s")


@pytest.mark.parametrize("window", [Sliding(3600), Forever()])
@pytest.mark.parametrize("seconds", [0, -(10**11), 10**11])
def test_a_window_without_slots_has_a_single_one(window: Window, seconds: int) -> None:
    """The single slot contains every time, and never expires."""
    assert window.slot_at(seconds) == EVER
    assert window.oldest(EVER.start) == EVER.start


def test_only_periods_have_separate_rankings() -> None:
    """Slots that are added up share a single ranking."""
    windows: list[Window] = [Rolling(60, 60), Sliding(60), Forever(), Periods(unit="day", last=7), Periods(unit="day")]
    assert [window.tables for window in windows] == [False, False, False, False, True]


DAY = 86_400
NEW_YEAR = 1_767_225_600  # 1 January 2026 00:00 UTC


def test_periods_follow_the_calendar() -> None:
    """Periods follow their time zone and their first day of the week."""
    assert Periods(unit="day").slot_at(NEW_YEAR + 5) == Slot(NEW_YEAR, NEW_YEAR + DAY)
    assert Periods(unit="month").slot_at(NEW_YEAR) == Slot(NEW_YEAR, NEW_YEAR + 31 * DAY)
    shanghai = Periods(unit="day", timezone="Asia/Shanghai")
    assert shanghai.slot_at(NEW_YEAR + 16 * 3600 - 1).start == NEW_YEAR - 8 * 3600
    assert shanghai.slot_at(NEW_YEAR + 16 * 3600).start == NEW_YEAR + 16 * 3600
    monday, sunday = NEW_YEAR - 3 * DAY, NEW_YEAR - 4 * DAY
    assert Periods(unit="week").slot_at(NEW_YEAR).start == monday
    assert Periods(unit="week", week_start="sunday").slot_at(NEW_YEAR).start == sunday


@pytest.mark.parametrize("unit", ["hour", "day", "week", "month", "quarter", "year"])
def test_the_oldest_period_is_counted_in_periods(unit: str) -> None:
    """The lengths of periods do not matter. `keep` does not count the current period, and `last` does."""
    kept = Periods(unit=unit, keep=5)  # type: ignore[arg-type]
    summed = Periods(unit=unit, last=6)  # type: ignore[arg-type]
    newest = kept.slot_at(NEW_YEAR).start
    expected = newest
    for _ in range(5):
        expected = kept.slot_at(expected - 1).start
    assert kept.oldest(newest) == summed.oldest(newest) == expected
    assert Periods(unit=unit, keep=0).oldest(newest) == newest  # type: ignore[arg-type]


@given(st.integers(-(10**13), 10**13))
def test_every_time_has_a_period(seconds: int) -> None:
    """Times that are too early or too late for calendars have a period too."""
    window = Periods(unit="year", keep=1000)
    slot = window.slot_at(seconds)
    assert slot.start <= min(max(seconds, FIRST), LAST - 1) < slot.end
    assert window.oldest(slot.start) <= slot.start


def test_an_unknown_timezone_is_refused() -> None:
    """The message names it."""
    with pytest.raises(ValueError, match="unknown timezone 'Mars/Olympus'; expected an IANA name such as Asia"):
        Periods(unit="day", timezone="Mars/Olympus")


def test_the_grace_of_periods_is_a_duration() -> None:
    """The grace must be whole seconds."""
    assert made(calendar="week", keep=2, grace="1.5h") == Periods(unit="week", keep=2, grace=5400)
    with pytest.raises(ValueError, match="grace = '1ms' is not a whole number of seconds"):
        made(calendar="day", grace="1ms")


def test_a_slot_closes_when_no_live_second_is_left() -> None:
    """A slot closes when it leaves the window, and a period closes after its grace.

    A sliding window closes for each event when the event expires.
    """
    hourly, day = Rolling(24 * HOUR, HOUR), Periods(unit="day", keep=2, grace=60)
    newest = 30 * HOUR
    assert closes_at(hourly, hourly.slot_at(6 * HOUR), 6 * HOUR * 1000, newest) is None
    assert (closes_at(hourly, hourly.slot_at(6 * HOUR - 1), 0, newest) or 0) < -newest * 1000
    assert closes_at(Sliding(HOUR), EVER, 5000, EVER.start) == HOUR * 1000 + 5000
    today, yesterday = day.slot_at(50 * HOUR), day.slot_at(30 * HOUR)
    assert closes_at(day, today, 0, today.start) is None
    assert closes_at(day, yesterday, 0, today.start) == (yesterday.end + 60) * 1000
    assert (closes_at(day, day.slot_at(-100 * HOUR), 0, today.start) or 0) < -newest * 1000
    assert closes_at(Forever(), EVER, 0, EVER.start) is None
