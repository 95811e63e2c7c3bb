"""The subscription of a viewer, read from the query of the live routes."""

from collections.abc import Mapping
from typing import Final

import msgspec

from live.domain.event import key_fault
from live.domain.reader import NOBODY, Reader
from live.domain.window import parse_duration
from live.errors import ProblemError
from live.network.parameters import is_whole, require_known, whole_number
from live.settings import Settings

_DEFAULT_SIZE: Final = 50
_SLOWEST: Final = 60_000  # milliseconds; the longest interval that a viewer may ask for
MOST_AROUND: Final = 50
_EPOCH: Final = 64  # characters; a longer epoch is ignored
_OF_THE_PRESENT: Final = ("limit", "interval", "key", "around")
PARAMETERS: Final = ("limit", "interval", "epoch", "offset", "key", "around", "delay", "token")
_LEAST_DELAY, _MOST_DELAY = 5, 300  # seconds


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """The wish of a viewer: the top `size`, and at most one frame per `interval`.

    `interval` is in milliseconds. 0 means the interval of the board. `epoch` and `offset` are the position of a viewer
    that reconnects. With a `key`, the viewer also receives the rank of that member with `around` neighbours on each
    side. If the reader's token names a member, `around` alone asks for that member. With a `delay` (in seconds), the
    viewer receives what a viewer of the top of the default size received earlier.
    """

    size: int
    reader: Reader = NOBODY
    interval: int = 0
    epoch: str | None = None
    offset: int = -1
    key: str | None = None
    around: int = 0
    delay: int = 0

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
            delay=_delay(query),
        )

    def since(self, word: str) -> "Subscription":
        """Return the same subscription from a position: `epoch:offset`, as in an ETag or in a server-sent event.

        An ETag also has the definition and perhaps a period. They are ignored, because the offset implies them. Invalid
        text changes nothing.
        """
        epoch, _, rest = word.partition(":")
        offset = rest.partition(":")[0]
        if not 0 < len(epoch) <= _EPOCH or not is_whole(offset):
            return self
        return msgspec.structs.replace(self, epoch=epoch, offset=int(offset))


def default_size(settings: Settings) -> int:
    """Return how many records a viewer watches if it asks for no size."""
    return min(_DEFAULT_SIZE, settings.max_live_limit)


def _delay(query: Mapping[str, str]) -> int:
    if "delay" not in query:
        return 0
    for name in _OF_THE_PRESENT:
        if name in query:
            raise ProblemError("parameter_invalid", f"`delay` shows what everybody sees: leave out `{name}`")
    delay = _seconds(query["delay"])
    if not _LEAST_DELAY <= delay <= _MOST_DELAY or delay != int(delay):
        raise ProblemError("parameter_invalid", "`delay` must be a whole number of seconds from 5s to 5m")
    return int(delay)


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError:
        return 0.0  # `parse` refuses a duration of 0
