"""Packs several fields into one exact integer score, for example levels first, then revives, then time.

The fields are the digits of a number with a mixed base, the most important one first. Each digit has as many values as
the range of its field, so no value is wasted. Scores compare like the fields one after another, each in its own
direction.
"""

import re
from collections.abc import Mapping
from math import prod
from typing import Final, Literal

import msgspec

MAX_VALUES: Final = 2**53  # sorted sets store doubles, which represent every whole number up to this one

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
NAME_FORM: Final = "write 1 to 64 of a-z, 0-9 and _, and begin with a letter, like `time_ms`"


class Field(msgspec.Struct, frozen=True):
    """A whole number from `low` to `high`, inclusive.

    `desc` ranks higher values first, and `asc` ranks lower values first.
    """

    name: str
    sort_order: Literal["desc", "asc"]
    low: int
    high: int

    def __post_init__(self) -> None:
        """Refuse an invalid name or an empty range."""
        mistakes = []
        if not _NAME.fullmatch(self.name):
            mistakes.append(f"the field {self.name!r} is not a name: {NAME_FORM}")
        if self.low > self.high:
            mistakes.append(f"the field {self} is empty: its minimum is above its maximum")
        if mistakes:
            raise ValueError("\n".join(mistakes))

    def __str__(self) -> str:
        return f"{self.name} {self.low}..{self.high}"

    @property
    def radix(self) -> int:
        """Number of values of the field."""
        return self.high - self.low + 1

    def digit(self, value: int) -> int:
        """Return the index of a value among the values of the field. The worst value has the index 0.

        Raises:
            ValueError: the value is not in the range.
        """
        if type(value) is not int or not self.low <= value <= self.high:  # a bool is an int, but not a number here
            raise ValueError(f"{self.name} is not a whole number from {self.low} to {self.high}")
        return value - self.low if self.sort_order == "desc" else self.high - value

    def value(self, digit: int) -> int:
        """Return the value of a digit."""
        return self.low + digit if self.sort_order == "desc" else self.high - digit


class Packing(msgspec.Struct, frozen=True):
    """How fields become one score. Higher scores are better; the most important field comes first."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        """Refuse fields that do not fit into one score."""
        if not self.fields:
            raise ValueError("no fields")
        names = [field.name for field in self.fields]
        mistakes = [f"field {name} is repeated" for name in dict.fromkeys(names) if names.count(name) > 1]
        if self.count > MAX_VALUES:
            fields = " × ".join(map(str, self.fields))  # noqa: RUF001 - a multiplication sign is meant
            product = " × ".join(str(field.radix) for field in self.fields)  # noqa: RUF001 - a multiplication sign
            product = str(self.count) if len(self.fields) == 1 else f"{product} = {self.count}"
            mistakes.append(
                f"{fields} takes {product} values, more than the 2^53 = {MAX_VALUES} that a score can hold exactly"
            )
        if mistakes:
            raise ValueError("\n".join(mistakes))

    @property
    def count(self) -> int:
        """Number of scores. They range from 0 to `count - 1`."""
        return prod(field.radix for field in self.fields)

    def pack(self, values: Mapping[str, int]) -> int:
        """Compute the score from one value for each field.

        Raises:
            ValueError: a field is missing, unknown or out of range. The message names the field and its range. For an
                unknown field, it lists all fields with their ranges.
        """
        score = 0
        for field in self.fields:
            if field.name not in values:
                raise ValueError(f"{field.name} is missing; expected a whole number from {field.low} to {field.high}")
            score = score * field.radix + field.digit(values[field.name])
        if len(values) > len(self.fields):
            names = {field.name for field in self.fields}
            unknown = next(name for name in values if name not in names)
            raise ValueError(f"unknown field {unknown!r}; the fields are {', '.join(map(str, self.fields))}")
        return score

    def unpack(self, score: int) -> dict[str, int]:
        """Return the values of a score.

        Raises:
            ValueError: no values have this score.
        """
        if not 0 <= score < self.count:
            raise ValueError(f"{score} is not a score of these fields: scores go from 0 to {self.count - 1}")
        digits = []
        for field in reversed(self.fields):
            score, digit = divmod(score, field.radix)
            digits.append(digit)
        return {field.name: field.value(digit) for field, digit in zip(self.fields, reversed(digits), strict=True)}
