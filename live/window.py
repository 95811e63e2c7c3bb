"""Rolling windows cut into slots: plain arithmetic on integer seconds, no clock.

A slot is named by its start, in seconds since 1970 UTC. Slot `s` of length `L` is live at `t` while
`s + L > t - window`; with `window` a multiple of `L` that is the same as `s >= current - window`, where
`current` is the slot that `t` falls into. So a 24-hour board with hourly slots covers 24 to 25 hours.
"""

import re
from fractions import Fraction
from typing import Final

import msgspec

_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}  # in milliseconds
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h|d)")


def parse_duration(text: str) -> float:
    """Read `100ms`, `1.5s`, `24h` or `7d` as seconds.

    Raises:
        ValueError: the text is of another form; the message says what a duration looks like.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration: write a number and ms, s, m, h or d, like 100ms or 24h")
    return float(Fraction(match[1]) * _UNITS[match[2]] / 1000)  # exact: 1.1h is 3960s, in floats it is a little more


class Window(msgspec.Struct, frozen=True):
    """A rolling window: the `length` that a board covers and the `slot` it is counted in, both in seconds."""

    length: int
    slot: int

    def __post_init__(self) -> None:
        """Refuse lengths on which slot arithmetic would not be exact."""
        if self.slot < 1 or self.length < 1:
            raise ValueError("window and slot are at least 1s")
        if self.length % self.slot:
            raise ValueError(f"the window ({self.length}s) is not a multiple of its slot ({self.slot}s)")

    def slot_of(self, seconds: int) -> int:
        """The start of the slot that holds a time; times before 1970 are negative."""
        return seconds // self.slot * self.slot

    def oldest_live(self, current: int) -> int:
        """The start of the oldest slot that counts while `current` is the newest; anything older leaves."""
        return current - self.length

    @classmethod
    def parse(cls, rolling: str, slot: str) -> "Window":
        """Build a window from two durations in whole seconds, such as `24h` and `1h`."""
        lengths = []
        for name, text in (("rolling", rolling), ("slot", slot)):
            seconds = parse_duration(text)
            if seconds != int(seconds):
                raise ValueError(f"{name} = {text!r} is not a whole number of seconds")
            lengths.append(int(seconds))
        return cls(*lengths)
