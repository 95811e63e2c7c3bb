"""Packs several fields into one exact integer score, for example levels first, then revives, then time.

The fields are the digits of a number with a mixed base, the most important one first. Scores compare like the fields
one after another, each in its own direction.

Where a board keeps the best or the last score, each digit has as many values as the range of its field, so no value is
wasted (`Packing`). Where a board adds scores up, digits are balanced: they go from `-reach` to `reach`. So the score of
a sum is the sum of the scores (`SumPacking`).
"""

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import accumulate
from math import prod
from operator import mul
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from live.domain.meaning import says

MAX_VALUES: Final = 2**53  # sorted sets store doubles, which represent every whole number up to this one

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
NAME_FORM: Final = "write 1 to 64 of a-z, 0-9 and _, and begin with a letter, like `time_ms`"


class Field(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename={"name": "field", "sort_order": "order", "low": "min", "high": "max"},
):
    """One field of a score that is made of several fields: a whole number from `min` to `max`, inclusive."""

    name: Annotated[str, says("Name of the field.")]
    sort_order: Annotated[
        Literal["desc", "asc"], says("Whether high values (`desc`) or low values (`asc`) are better.")
    ] = "desc"
    low: Annotated[int, says("Smallest value.")] = 0
    high: Annotated[int, says("Largest value.")]

    def mistakes(self) -> Iterator[str]:
        """Find an invalid name and an empty range."""
        if not _NAME.fullmatch(self.name):
            yield f"the field {self.name!r} is not a name: {NAME_FORM}"
        if self.low > self.high:
            yield f"the field {self} is empty: its minimum is above its maximum"

    def __str__(self) -> str:
        return f"{self.name} {self.low}..{self.high}"

    @property
    def radix(self) -> int:
        """Number of values of the field."""
        return self.high - self.low + 1

    def digit(self, value: int) -> int:
        """Return the index of a value among the values of the field. The worst value has the index 0."""
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
        self._check()

    def _check(self) -> None:
        if not self.fields:
            raise ValueError("no fields")
        names = [field.name for field in self.fields]
        mistakes = [f"field {name} is repeated" for name in dict.fromkeys(names) if names.count(name) > 1]
        if self.count > MAX_VALUES:
            fields = " × ".join(map(str, self.fields))  # noqa: RUF001 - a multiplication sign is meant
            product = " × ".join(map(str, self.radixes))  # noqa: RUF001 - a multiplication sign
            product = str(self.count) if len(self.fields) == 1 else f"{product} = {self.count}"
            mistakes.append(
                f"{fields} takes {product} values, more than the 2^53 = {MAX_VALUES} that a score can hold exactly"
            )
        if mistakes:
            raise ValueError("\n".join(mistakes))

    @property
    def radixes(self) -> tuple[int, ...]:
        """Number of values of each digit."""
        return tuple(field.radix for field in self.fields)

    @property
    def count(self) -> int:
        """Number of scores."""
        return prod(self.radixes)

    def holds(self, score: int) -> bool:
        """Tell whether values have this score: scores range from 0 to `count - 1`."""
        return 0 <= score < self.count

    def pack(self, values: Mapping[str, int]) -> int:
        """Compute the score from one value for each field."""
        score = 0
        for field in self.fields:
            if field.name not in values:
                raise ValueError(f"{field.name} is missing; expected a whole number from {field.low} to {field.high}")
            score = score * field.radix + field.digit(values[field.name])
        if len(values) > len(self.fields):
            self._refuse_unknown(values)
        return score

    def _refuse_unknown(self, values: Mapping[str, int]) -> None:
        names = {field.name for field in self.fields}
        unknown = next(name for name in values if name not in names)
        raise ValueError(f"unknown field {unknown!r}; the fields are {', '.join(map(str, self.fields))}")

    def unpack(self, score: int) -> dict[str, int]:
        """Return the values of a score."""
        if not self.holds(score):
            raise ValueError(f"{score} is not a score of these fields: scores go from 0 to {self.count - 1}")
        digits = []
        for field in reversed(self.fields):
            score, digit = divmod(score, field.radix)
            digits.append(digit)
        return {field.name: field.value(digit) for field, digit in zip(self.fields, reversed(digits), strict=True)}


class Digit(NamedTuple):
    """A digit of a sum: its weight, its largest value, and the bounds of a total."""

    weight: int
    reach: int
    least: int
    most: int


class SumPacking(Packing, frozen=True, dict=True):
    """How totals of fields become one score: the sum of each total times the weight of its field.

    So adding one score adds all fields at once. A digit has room for more than one total within its bounds: for the sum
    of `parts` totals, and for a total that an amount has taken out of its bounds. So every sum can be unpacked.

    A board bounds the totals of each slot. `parts` is the maximum number of slots that hold a part of one score.
    """

    parts: int = 1

    def _check(self) -> None:
        mistakes = [
            f"the field {field} has no 0, with which every total begins"
            for field in self.fields
            if not field.low <= 0 <= field.high
        ]
        if mistakes:
            raise ValueError("\n".join(mistakes))
        super()._check()

    @property
    def radixes(self) -> tuple[int, ...]:
        """Number of values of each digit."""
        return tuple(2 * self._reach(field) + 1 for field in self.fields)

    def _reach(self, field: Field) -> int:
        widest = max(-field.low, field.high)
        return max(widest + field.radix - 1, self.parts * widest)

    @cached_property
    def digits(self) -> tuple[Digit, ...]:
        """The digits, one for each field. Where lower values are better, the digit has the opposite sign."""
        weights = reversed(list(accumulate(reversed(self.radixes[1:]), mul, initial=1)))
        return tuple(
            Digit(
                weight,
                self._reach(field),
                *((field.low, field.high) if field.sort_order == "desc" else (-field.high, -field.low)),
            )
            for field, weight in zip(self.fields, weights, strict=True)
        )

    @cached_property
    def _amounts(self) -> tuple[tuple[str, int, int], ...]:
        """For each field its name, what one unit adds to a score, and by how much an amount may change its total."""
        pairs = zip(self.fields, self.digits, strict=True)
        return tuple(
            (field.name, digit.weight if field.sort_order == "desc" else -digit.weight, field.radix - 1)
            for field, digit in pairs
        )

    @cached_property
    def _most(self) -> int:
        return self.count // 2

    def holds(self, score: int) -> bool:
        """Tell whether totals have this score."""
        return -self._most <= score <= self._most

    def pack(self, values: Mapping[str, int]) -> int:
        """Compute the amount that adds values to the totals. A field that is left out adds 0."""
        amount, left = 0, len(values)
        for name, weight, most in self._amounts:
            if name in values:
                value = values[name]
                if type(value) is not int or not -most <= value <= most:  # a bool is an int, but not a number here
                    raise ValueError(f"{name} is not a whole number from {-most} to {most}")
                amount += value * weight
                left -= 1
        if left:
            self._refuse_unknown(values)
        if not values:
            raise ValueError(f"there is no field; the fields are {', '.join(map(str, self.fields))}")
        return amount

    def unpack(self, score: int) -> dict[str, int]:
        """Return the totals of a score."""
        if not self.holds(score):
            raise ValueError(f"{score} is not a score of these fields: scores go from {-self._most} to {self._most}")
        return {
            field.name: digit if field.sort_order == "desc" else -digit
            for field, digit in zip(self.fields, self.split(score), strict=True)
        }

    def split(self, score: int) -> list[int]:
        """Return the digits of a score or an amount."""
        values = []
        for digit in self.digits:
            value = (score + digit.weight // 2) // digit.weight
            values.append(value)
            score -= value * digit.weight
        return values

    def below(self, amount: int) -> int:
        """Return an amount with its negative digits only, and without their sign."""
        pairs = zip(self.digits, self.split(amount), strict=True)
        return sum(-value * digit.weight for digit, value in pairs if value < 0)

    def can_add(self, first: int, second: int) -> bool:
        """Tell whether any totals within their bounds can change by the sum of two amounts, and stay within them."""
        values = zip(self.digits, self.split(first), self.split(second), strict=True)
        return all(abs(one + other) <= digit.most - digit.least for digit, one, other in values)

    def within(self, total: int, amount: int, below: int | None = None) -> bool:
        """Tell whether totals stay within their bounds when an amount is added to them.

        In a sliding window, `below` are the negative amounts so far, as from the method `below`. There, the absolute
        amounts of each field must also fit into its digit, because they leave the window one by one.
        """
        lower = [0] * len(self.fields) if below is None else self.split(below)
        for digit, held, more, under in zip(self.digits, self.split(total), self.split(amount), lower, strict=True):
            if not digit.least <= held + more <= digit.most:
                return False
            if below is not None and held + more + 2 * (under + max(0, -more)) > digit.reach:
                return False
        return True
