"""A subscription: what a viewer asks for in the query of the live routes."""

from collections.abc import Mapping
from typing import Final

import msgspec

from live.domain.event import key_fault
from live.domain.window import parse_duration
from live.errors import ProblemError
from live.network.parameters import is_whole, require_known, whole_number
from live.settings import Settings

_DEFAULT_SIZE: Final = 50
_SLOWEST: Final = 60_000  # milliseconds
_MOST_AROUND: Final = 50
_EPOCH: Final = 64  # characters
PARAMETERS: Final = ("limit", "interval", "epoch", "offset", "key", "around")


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """What a viewer asks for: the top `size`, and at most one frame per `interval`.

    `interval` is in milliseconds; 0 means the interval of the board. `epoch` and `offset` are the position of a viewer
    that reconnects. With a `key`, the viewer also receives the rank of that member with `around` neighbours on each
    side.
    """

    size: int
    interval: int = 0
    epoch: str | None = None
    offset: int = -1
    key: str | None = None
    around: int = 0

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
            size=whole_number(query, "limit", min(_DEFAULT_SIZE, most), 1, most),
            interval=_interval(query.get("interval")),
            epoch=epoch if known else None,
            offset=int(offset or -1) if known else -1,
            key=_key(query.get("key")),
            around=whole_number(query, "around", 0, 0, _MOST_AROUND),
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


def _key(text: str | None) -> str | None:
    fault = None if text is None else key_fault(text)
    if fault is not None:
        raise ProblemError("parameter_invalid", f"`key` can't be on a board: {fault}")
    return text


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
