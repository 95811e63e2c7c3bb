"""Query parameters."""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from live.domain.text import unknown
from live.errors import ProblemError

_MOST: Final = 128  # parameters of a request; the longest list of members has 100 members
_MOST_DIGITS: Final = 16


def require_few(target: bytes) -> None:
    """Refuse a target with many parameters before they are parsed. Parsing them would take long.

    Raises:
        ProblemError: `parameter_invalid`.
    """
    if target.partition(b"?")[2].count(b"&") >= _MOST:
        raise ProblemError("parameter_invalid", f"a request may have at most {_MOST} parameters")


def require_known(given: Iterable[str], known: Collection[str]) -> None:
    """Refuse unknown parameters, so that a typing mistake is not ignored.

    Raises:
        ProblemError: `parameter_invalid`, with the nearest known name.
    """
    for name in given:
        if name not in known:
            raise ProblemError("parameter_invalid", unknown("parameter", name, known))


def whole_number(query: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    """Read a parameter that is a whole number in a range.

    Raises:
        ProblemError: `parameter_invalid`, with the range.
    """
    text = query.get(name)
    if text is None:
        return default
    if not (is_whole(text) and least <= int(text) <= most):
        raise ProblemError("parameter_invalid", f"`{name}` must be a whole number from {least} to {most}")
    return int(text)


def flag(query: Mapping[str, str], name: str) -> bool:
    """Read a parameter that is `true` or `false`, by default `false`.

    Raises:
        ProblemError: `parameter_invalid`.
    """
    text = query.get(name, "false")
    if text not in {"true", "false"}:
        raise ProblemError("parameter_invalid", f"`{name}` must be true or false")
    return text == "true"


def time_of(text: str, name: str) -> int:
    """Read a time such as `2026-11-22T12:00:00Z`, in milliseconds since 1970.

    Raises:
        ProblemError: `parameter_invalid`.
    """
    try:
        time = datetime.fromisoformat(text)
        moment = None if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):  # OverflowError: UTC can't express the time
        moment = None
    if moment is None:
        raise ProblemError("parameter_invalid", f"`{name}` must be a time with its zone, such as 2026-11-22T12:00:00Z")
    return round(moment.timestamp() * 1000)


def is_whole(text: str) -> bool:
    """Tell whether a text is a whole number without a sign, short enough for `int`."""
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
