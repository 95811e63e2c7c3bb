"""How people read scores: units, decimals and durations."""

from collections.abc import Callable
from typing import Final, Literal

import msgspec

MINUS: Final = "\u2212"
_NO_BREAK: Final = "\u00a0"
_MINUTES: Final = 60

NumberFormat = Literal["number", "duration"]


class ScoreFormat(msgspec.Struct, frozen=True):
    """How people read the whole numbers of a board: `1,234.50 €` or `1:23.456`.

    The scripts of pages write numbers in the same way. `scale` is the number of decimals. With the format `duration`,
    a number is in seconds, or with a scale of 3 in milliseconds.
    """

    unit: str = ""
    scale: int = 0
    format: NumberFormat = "number"

    def write(self, number: int) -> str:
        """Write a number in full."""
        whole, part = divmod(abs(number), 10**self.scale)
        return self._joined(number, whole, f".{part:0{self.scale}}" if self.scale else "")

    def write_short(self, number: int, shorten: Callable[[int], str]) -> str:
        """Write a number without its decimals. `shorten` writes a large whole number with few digits."""
        return self._joined(number, abs(number) // 10**self.scale, "", shorten)

    def _joined(self, number: int, whole: int, decimals: str, write: Callable[[int], str] = "{:,}".format) -> str:
        minutes, seconds = divmod(whole, 60)
        if self.format == "number":
            text = write(whole)
        elif minutes < _MINUTES:
            text = f"{minutes}:{seconds:02}"
        else:
            text = f"{minutes // 60:,}:{minutes % 60:02}:{seconds:02}"
        return f"{MINUS if number < 0 else ''}{text}{decimals}{self.unit and _NO_BREAK + self.unit}"
