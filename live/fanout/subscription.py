"""The subscription of a viewer, read from the query of the live routes."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from live.domain.event import key_fault
from live.domain.reader import NOBODY, Reader
from live.domain.window import parse_duration
from live.errors import ProblemError
from live.network.parameters import is_whole, require_known, time_of, whole_number
from live.settings import Settings

_DEFAULT_SIZE: Final = 50
_SLOWEST: Final = 60_000  # milliseconds; the longest interval that a viewer may ask for
MOST_AROUND: Final = 50
_EPOCH: Final = 64  # characters; a longer epoch is ignored
_OF_THE_PRESENT: Final = ("limit", "interval", "key", "around")
_NUMBER: Final = re.compile(r"\d{1,3}(\.\d{1,3})?", re.ASCII)
PARAMETERS: Final = ("limit", "interval", "epoch", "offset", "key", "around", "at", "speed", "delay", "token")
_LEAST_DELAY, _MOST_DELAY = 5, 3600  # seconds
_LEAST_SPEED, _MOST_SPEED = 0.1, 100.0


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A replay that a viewer asks for: from a time on (milliseconds since 1970), or with a delay in seconds."""

    at: int | None = None
    speed: float = 1.0
    delay: int = 0

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> "ReplayRequest | None":
        """Read a query. Return None if it asks for the present.

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
            delay = _seconds(query["delay"])
            if not _LEAST_DELAY <= delay <= _MOST_DELAY or delay != int(delay):
                raise ProblemError("parameter_invalid", "`delay` must be a whole number of seconds from 5s to 1h")
            return cls(delay=int(delay))
        if "delay" in query:
            raise ProblemError("parameter_invalid", "`at` can't be combined with `delay`")
        at, text = time_of(query["at"], "at"), query.get("speed", "1")
        speed = float(text) if _NUMBER.fullmatch(text) else 0.0
        if not _LEAST_SPEED <= speed <= _MOST_SPEED:
            raise ProblemError("parameter_invalid", "`speed` must be a number from 0.1 to 100")
        return cls(at=at, speed=speed)


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """The wish of a viewer: the top `size`, and at most one frame per `interval`.

    `interval` is in milliseconds. 0 means the interval of the board. `epoch` and `offset` are the position of a viewer
    that reconnects. With a `key`, the viewer also receives the rank of that member with `around` neighbours on each
    side. If the reader's token names a member, `around` alone asks for that member. With a `replay`, the viewer watches
    the top of the default size at another time.
    """

    size: int
    reader: Reader = NOBODY
    interval: int = 0
    epoch: str | None = None
    offset: int = -1
    key: str | None = None
    around: int = 0
    replay: ReplayRequest | None = None

    @classmethod
    def parse(cls, query: Mapping[str, str], settings: Settings, reader: Reader) -> "Subscription":
        """Read a query.

        Raises:
            ProblemError: `parameter_invalid`. The detail names the allowed values.
        """
        require_known(query, PARAMETERS)
        size = whole_number(query, "limit", default_size(settings), 1, settings.max_live_limit)
        interval = round(_seconds(query["interval"]) * 1000) if "interval" in query else 0
        if "interval" in query and not 0 < interval <= _SLOWEST:
            raise ProblemError("parameter_invalid", f"`interval` must be a duration from 1ms to {_SLOWEST // 1000}s")
        key = query.get("key", reader.member if "around" in query else None)
        if key is not None and (fault := key_fault(key)) is not None:
            raise ProblemError("parameter_invalid", f"`key` can't be on a board: {fault}")
        epoch, offset = query.get("epoch"), query.get("offset")
        known = epoch is not None and offset is not None and len(epoch) <= _EPOCH and is_whole(offset)
        return cls(
            size=size,
            reader=reader,
            interval=interval,
            epoch=epoch if known else None,
            offset=int(offset) if known and offset else -1,
            key=key,
            around=whole_number(query, "around", 0, 0, MOST_AROUND),
            replay=ReplayRequest.parse(query),
        )

    def since(self, word: str) -> "Subscription":
        """Return the same subscription from a position: `epoch:offset`, as in an ETag or in a server-sent event.

        A period after the offset is ignored, because the offset implies the period. Invalid text changes nothing.
        """
        epoch, _, rest = word.partition(":")
        offset = rest.partition(":")[0]
        if not 0 < len(epoch) <= _EPOCH or not is_whole(offset):
            return self
        return msgspec.structs.replace(self, epoch=epoch, offset=int(offset))


def default_size(settings: Settings) -> int:
    """Return how many records a viewer watches if it asks for no size."""
    return min(_DEFAULT_SIZE, settings.max_live_limit)


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError:
        return 0.0  # `parse` refuses a duration of 0
