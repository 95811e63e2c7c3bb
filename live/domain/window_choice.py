"""The choice of a window in a boards file or a request. No I/O."""

from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

import msgspec

from live.domain.calendar import Unit, Weekday
from live.domain.window import Forever, Periods, Rolling, Sliding, Window


class Choice(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A table of choices."""


class WindowChoice(Choice, frozen=True, kw_only=True):
    """The time range of a board: one of `rolling`, `sliding` and `calendar`, with its options."""

    rolling: str | None = None
    slot: str | None = None
    sliding: str | None = None
    calendar: Unit | None = None
    timezone: str | None = None
    week_start: Weekday | None = None
    last: int | None = None
    keep: int | None = None
    grace: str | None = None


def make_window(choice: WindowChoice | Literal["forever"]) -> Window:
    """Build a window from its table.

    Raises:
        ValueError: the table does not define a window; the message says why.
    """
    if choice == "forever":
        return Forever()
    assert isinstance(choice, WindowChoice), "anything but forever is a table"  # noqa: S101
    given = {name: value for name in choice.__struct_fields__ if (value := getattr(choice, name)) is not None}
    kinds = [kind for kind in _WINDOWS if kind in given]
    if len(kinds) != 1:
        raise ValueError('window must be one of {rolling = …}, {sliding = …}, {calendar = …} and "forever"')
    takes, make = _WINDOWS[kinds[0]]
    mistakes = [
        f"`{name}` does not apply to a window with `{kinds[0]}`, which takes {', '.join(takes)}"
        for name in given
        if name not in takes
    ]
    if kinds[0] == "calendar":
        mistakes += _calendar_mistakes(given)
    try:
        window = make({name: value for name, value in given.items() if name in takes})
    except ValueError as error:
        mistakes.append(str(error))
    if mistakes:
        raise ValueError("\n".join(mistakes))
    return window


def _calendar_mistakes(given: dict[str, Any]) -> Iterator[str]:
    if "last" in given and ("keep" in given or "grace" in given):
        yield "`last` makes one ranking of several periods; `keep` and `grace` need a ranking for each period"
    if "week_start" in given and given["calendar"] != "week":
        yield f"`week_start` does not apply to a calendar of {given['calendar']}s, only to weeks"


def _make_periods(given: dict[str, Any]) -> Periods:
    rest = {name: value for name, value in given.items() if name not in {"calendar", "grace"}}
    return Periods.parse(given.get("grace", "0s"), unit=given["calendar"], **rest)


_WINDOWS: Final[dict[str, tuple[tuple[str, ...], Callable[[dict[str, Any]], Window]]]] = {
    "rolling": (("rolling", "slot"), lambda given: Rolling.parse(given["rolling"], given.get("slot", "1h"))),
    "sliding": (("sliding",), lambda given: Sliding.parse(given["sliding"])),
    "calendar": (("calendar", "timezone", "week_start", "last", "keep", "grace"), _make_periods),
}
