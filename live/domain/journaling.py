"""What the journal keeps of a board, and for how long."""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from live.domain.window import parse_duration

JournalLevel = Literal["events", "off"]

LEAST_RETENTION: Final = 3600  # seconds
MOST_RETENTION: Final = 36_500 * 86_400  # seconds


class Journaling(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal keeps of a board: every event for a time and the periods that are final, or nothing.

    `events` and `periods` are the seconds for which it keeps them; None means the setting of the server.
    """

    level: JournalLevel = "events"
    events: int | None = None
    periods: int | None = None


def parse_retention(text: str) -> int:
    """Parse a duration such as `7d` or `400d` into seconds.

    Raises:
        ValueError: the text is not a duration, or it is too short or too long.
    """
    seconds = parse_duration(text)
    if seconds < LEAST_RETENTION:
        raise ValueError(f"{text!r} is less than 1h")
    if seconds > MOST_RETENTION:
        raise ValueError(f"{text!r} is more than {MOST_RETENTION // 86_400}d")
    return int(seconds)


def journaling_mistakes(level: JournalLevel, events: str | None, periods: str | None) -> Iterator[str]:
    """Choices that are invalid, or make no sense together."""
    for name, text in (("journal_events", events), ("journal_periods", periods)):
        if text is None:
            continue
        if level == "off":
            yield f"`{name}` with `journal = {level}`: the journal keeps none of them; leave it out"
        try:
            parse_retention(text)
        except ValueError as error:
            yield f"{name}: {error}"


def make_journaling(level: JournalLevel, events: str | None, periods: str | None) -> Journaling:
    """Build it from choices without mistakes."""
    return Journaling(
        level=level,
        events=None if events is None else parse_retention(events),
        periods=None if periods is None else parse_retention(periods),
    )
