"""Windows and slots: durations are read exactly, and a slot counts while any part of it is inside the window."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.window import Window, parse_duration

UNITS = {"ms": Fraction(1, 1000), "s": Fraction(1), "m": Fraction(60), "h": Fraction(3600), "d": Fraction(86_400)}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("100ms", 0.1), ("0ms", 0), ("1.5s", 1.5), ("90s", 90), ("15m", 900), ("24h", 86_400), ("7d", 604_800),
     ("1.1h", 3960), ("0.001s", 0.001), ("999999999d", 86_399_999_913_600)],
)  # fmt: skip
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    """Every unit is read, with up to three places behind the point."""
    assert parse_duration(text) == seconds


@given(st.integers(0, 10**12 - 1), st.sampled_from(sorted(UNITS)))
def test_a_duration_is_exact(thousandths: int, unit: str) -> None:
    """What is read is the float next to what is written, not the outcome of float arithmetic."""
    whole, rest = divmod(thousandths, 1000)
    assert parse_duration(f"{whole}.{rest:03}{unit}") == float(Fraction(thousandths, 1000) * UNITS[unit])


@pytest.mark.parametrize(
    "text",
    ["", "1", "h", "1 h", " 1h", "1h ", "1h\n", "-1h", "+1h", "1,5h", "1.h", ".5h", "1.2345s", "1e3s", "1h30m", "1H",
     "1w", "\u0661h", "9999999999s", "infs", "nans"],
)  # fmt: skip
def test_anything_else_is_no_duration(text: str) -> None:
    """The message names what was written, and shows how to write it."""
    with pytest.raises(ValueError, match="is not a duration: write a number and ms, s, m, h or d") as caught:
        parse_duration(text)
    assert repr(text) in str(caught.value)


def test_a_window_is_written_as_two_durations() -> None:
    """Both are whole seconds, in any unit."""
    assert Window.parse("24h", "1h") == Window(86_400, 3600)
    assert Window.parse("1.5m", "30s") == Window(90, 30)
    assert Window.parse("1s", "1000ms") == Window(1, 1)


@pytest.mark.parametrize(
    ("rolling", "slot", "message"),
    [
        ("24h", "7h", r"the window \(86400s\) is not a multiple of its slot \(25200s\)"),
        ("1h", "2h", r"the window \(3600s\) is not a multiple of its slot \(7200s\)"),
        ("1h", "0s", "window and slot are at least 1s"),
        ("0s", "1s", "window and slot are at least 1s"),
        ("1500ms", "1s", "rolling = '1500ms' is not a whole number of seconds"),
        ("24h", "0.5s", "slot = '0.5s' is not a whole number of seconds"),
        ("a day", "1h", "'a day' is not a duration"),
    ],
)
def test_a_window_that_can_not_be_cut_into_slots_is_refused(rolling: str, slot: str, message: str) -> None:
    """Only lengths on which the arithmetic is exact are taken, and the message says which is wrong."""
    with pytest.raises(ValueError, match=message):
        Window.parse(rolling, slot)


@pytest.mark.parametrize(
    ("seconds", "start"), [(0, 0), (3599, 0), (3600, 3600), (-1, -3600), (-3600, -3600), (-3601, -7200)]
)
def test_a_slot_is_named_by_its_start(seconds: int, start: int) -> None:
    """Times before 1970 have slots like any other."""
    assert Window(86_400, 3600).slot_of(seconds) == start


@given(st.integers(1, 10_000), st.integers(1, 50), st.integers(-(10**11), 10**11))
def test_slots_tile_time(length: int, slots: int, seconds: int) -> None:
    """Every time falls into the one slot that begins at or before it and ends after it."""
    window = Window(length * slots, length)
    start = window.slot_of(seconds)
    assert start <= seconds < start + length
    assert start % length == 0


@given(st.integers(1, 10_000), st.integers(1, 50), st.integers(-(10**11), 10**11), st.integers(-60, 5))
def test_a_slot_counts_while_any_part_of_it_is_inside_the_window(
    length: int, slots: int, now: int, distance: int
) -> None:
    """I2 as it is written: slot `s` of length `L` is live at `t` while `s + L > t - window`."""
    window = Window(length * slots, length)
    current = window.slot_of(now)
    slot = current + distance * length
    assert (slot >= window.oldest_live(current)) == (slot + length > now - window.length)
