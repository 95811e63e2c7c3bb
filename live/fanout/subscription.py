"""A subscription: what a viewer asks for in the query of the live routes."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from live.domain.event import key_fault
from live.domain.window import parse_duration
from live.errors import ProblemError
from live.network.parameters import is_whole, require_known, time_of, whole_number
from live.settings import Settings

_DEFAULT_SIZE: Final = 50
_SLOWEST: Final = 60_000  # milliseconds
_MOST_AROUND: Final = 50
_EPOCH: Final = 64  # characters
_OF_THE_PRESENT: Final = ("limit", "interval", "key", "around")
_NUMBER: Final = re.compile(r"\d{1,3}(\.\d{1,3})?", re.ASCII)
PARAMETERS: Final = ("limit", "interval", "epoch", "offset", "key", "around", "at", "speed", "delay")
_LEAST_DELAY, _MOST_DELAY = 5, 3600  # seconds
_LEAST_SPEED, _MOST_SPEED = 0.1, 100.0


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a viewer wants to see again: from a time on (milliseconds since 1970), or always some seconds later."""

    at: int | None = None
    speed: float = 1.0
    delay: int = 0

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> "ReplayRequest | None":
        """Read a query; None if it asks for the present.

        Raises:
            ProblemError: `parameter_invalid`.
        """
        if "speed" in query and "at" not in query:
            raise ProblemError("parameter_invalid", "`speed` needs `at`")
        if "at" not in query and "delay" not in query:
            return None
        for name in _OF_THE_PRESENT:
            if name in query:
                raise ProblemError("parameter_invalid", f"a replay shows what everybody sees: leave out `{name}`")
        if "at" not in query:
            return cls(delay=_delay(query["delay"]))
        if "delay" in query:
            raise ProblemError("parameter_invalid", "`at` can't be combined with `delay`")
        return cls(at=time_of(query["at"], "at"), speed=_speed(query.get("speed", "1")))


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """What a viewer asks for: the top `size`, and at most one frame per `interval`.

    `interval` is in milliseconds; 0 means the interval of the board. `epoch` and `offset` are the position of a viewer
    that reconnects. With a `key`, the viewer also receives the rank of that member with `around` neighbours on each
    side. With a `replay`, it watches the top of the default size at another time.
    """

    size: int
    interval: int = 0
    epoch: str | None = None
    offset: int = -1
    key: str | None = None
    around: int = 0
    replay: ReplayRequest | None = None

    @classmethod
    def parse(cls, query: Mapping[str, str], settings: Settings) -> "Subscription":
        """Read a query.

        Raises:
            ProblemError: `parameter_invalid`. The detail names the allowed values.
        """
        require_known(query, PARAMETERS)
        most = settings.max_live_limit
        epoch, offset = query.get("epoch"), query.get("offset")
        known = epoch is not None and offset is not None and len(epoch) <= _EPOCH and is_whole(offset)
        return cls(
            size=whole_number(query, "limit", default_size(settings), 1, most),
            interval=_interval(query.get("interval")),
            epoch=epoch if known else None,
            offset=int(offset or -1) if known else -1,
            key=_key(query.get("key")),
            around=whole_number(query, "around", 0, 0, _MOST_AROUND),
            replay=ReplayRequest.parse(query),
        )

    def since(self, word: str) -> "Subscription":
        """The same subscription from a position, `epoch:offset`, as in the `id` of an event or in an ETag.

        A period after the offset is ignored, because the offset implies it. Invalid text changes nothing.
        """
        epoch, _, rest = word.partition(":")
        offset = rest.partition(":")[0]
        if not 0 < len(epoch) <= _EPOCH or not is_whole(offset):
            return self
        return msgspec.structs.replace(self, epoch=epoch, offset=int(offset))

    def pace(self, interval: int) -> int:
        """The interval of the frames on a board with this interval: the same, or 2, 4, 8 … times as long.

        Because of the few steps, viewers with similar intervals share their frames.
        """
        while interval < self.interval:
            interval *= 2
        return interval


def default_size(settings: Settings) -> int:
    """How many records a viewer watches that does not say so."""
    return min(_DEFAULT_SIZE, settings.max_live_limit)


def _key(text: str | None) -> str | None:
    fault = None if text is None else key_fault(text)
    if fault is not None:
        raise ProblemError("parameter_invalid", f"`key` can't be on a board: {fault}")
    return text


def _delay(text: str) -> int:
    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = -1
    if not _LEAST_DELAY <= seconds <= _MOST_DELAY or seconds != int(seconds):
        raise ProblemError("parameter_invalid", "`delay` must be a whole number of seconds from 5s to 1h")
    return int(seconds)


def _speed(text: str) -> float:
    speed = float(text) if _NUMBER.fullmatch(text) else 0.0
    if not _LEAST_SPEED <= speed <= _MOST_SPEED:
        raise ProblemError("parameter_invalid", "`speed` must be a number from 0.1 to 100")
    return speed


def _interval(text: str | None) -> int:
    if text is None:
        return 0
    try:
        milliseconds = round(parse_duration(text) * 1000)
    except ValueError:
        milliseconds = -1
    if not 0 < milliseconds <= _SLOWEST:
        raise ProblemError("parameter_invalid", f"`interval` must be a duration from 1ms to {_SLOWEST // 1000}s")
    return milliseconds
