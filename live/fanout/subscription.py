"""The subscription of a viewer, read from the query of the live routes."""

from typing import Annotated, Final

import msgspec

from live.domain.event import member_fault
from live.domain.meaning import says
from live.domain.reader import NOBODY, Reader
from live.domain.window import parse_duration
from live.errors import ProblemError
from live.http.parameters import Parameters, fields_of, is_whole

DEFAULT_SIZE: Final = 50
MOST_WATCHED: Final = 100  # records; each change of one of them is in a frame, and nobody looks at more
_SLOWEST: Final = 60_000  # milliseconds; the longest interval that a viewer may ask for
MOST_AROUND: Final = 50
_EPOCH: Final = 64  # characters; a longer epoch is ignored
_OF_THE_PRESENT: Final = ("limit", "interval", "key", "around")
_LEAST_DELAY, _MOST_DELAY = 5, 300  # seconds


def _interval_of(text: str) -> int:
    interval = round(parse_duration(text) * 1000)
    if not 0 < interval <= _SLOWEST:
        raise ValueError(text)
    return interval


def _delay_of(text: str) -> int:
    delay = parse_duration(text)
    if not _LEAST_DELAY <= delay <= _MOST_DELAY or delay != int(delay):
        raise ValueError(text)
    return int(delay)


def _member_of(text: str) -> str:
    if (fault := member_fault(text)) is not None:
        raise ProblemError("parameter_invalid", f"`key` can't be on a board: {fault}")
    return text


class WatchParameters(Parameters, frozen=True, kw_only=True):
    """The parameters of a viewer, on the live route and on the stream. A position that is not valid is ignored."""

    limit: (
        Annotated[
            int, says("Number of records to watch.", ge=1, le=MOST_WATCHED, extra={"schema": {"default": DEFAULT_SIZE}})
        ]
        | None
    ) = None
    interval: Annotated[
        int | None,
        says(
            "Minimum time between two updates, up to 60s.",
            extra={
                "read": _interval_of,
                "valid": f"a duration from 1ms to {_SLOWEST // 1000}s",
                "schema": {"type": "string", "examples": ["1s"]},
            },
        ),
    ] = None
    epoch: Annotated[
        str | None, says("`epoch` of the last message, to resume.", extra_json_schema={"maxLength": _EPOCH})
    ] = None
    offset: Annotated[
        str | None,
        says("`offset` of the last message, to resume.", extra={"schema": {"type": "integer", "minimum": 0}}),
    ] = None
    member: Annotated[
        str | None, says("A member whose rank is sent in `around` messages.", extra={"read": _member_of})
    ] = msgspec.field(name="key", default=None)
    around: (
        Annotated[
            int,
            says(
                "Number of neighbours of the member on each side.",
                ge=0,
                le=MOST_AROUND,
                extra={"schema": {"default": 0}},
            ),
        ]
        | None
    ) = None
    delay: Annotated[
        int | None,
        says(
            "Receive each message this much later: a whole number of seconds, from 5s to 5m.",
            extra={
                "read": _delay_of,
                "valid": "a whole number of seconds from 5s to 5m",
                "schema": {"type": "string", "examples": ["45s"]},
            },
        ),
    ] = None
    token: Annotated[str | None, says("A viewer token, for browsers, which can't send header fields here.")] = None


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """The wish of a viewer: the top `size`, and at most one frame per `interval`. Limits count it by its `address`.

    `interval` is in milliseconds. 0 means the interval of the board. `epoch` and `offset` are the position of a viewer
    that reconnects. With a `member`, the viewer also receives the rank of that member with `around` neighbours on each
    side. If the reader's token names a member, `around` alone asks for that member. With a `delay` (in seconds), the
    viewer receives what a viewer of the top of the default size received earlier.
    """

    size: int
    reader: Reader = msgspec.field(default_factory=lambda: NOBODY)
    address: str = ""
    interval: int = 0
    epoch: str | None = None
    offset: int = -1
    member: str | None = None
    around: int = 0
    delay: int = 0

    @classmethod
    def of(cls, wanted: WatchParameters, reader: Reader, address: str = "") -> "Subscription":
        """Make the subscription that a viewer asks for."""
        if wanted.delay is not None:
            for name, field in fields_of(WatchParameters).items():
                if name in _OF_THE_PRESENT and getattr(wanted, field.attribute) is not None:
                    raise ProblemError("parameter_invalid", f"`delay` shows what everybody sees: leave out `{name}`")
        epoch, offset = wanted.epoch, wanted.offset
        known = epoch is not None and offset is not None and len(epoch) <= _EPOCH and is_whole(offset)
        return cls(
            size=wanted.limit or DEFAULT_SIZE,
            reader=reader,
            address=address,
            interval=wanted.interval or 0,
            epoch=epoch if known else None,
            offset=int(offset) if known and offset else -1,
            member=reader.member if wanted.member is None and wanted.around is not None else wanted.member,
            around=wanted.around or 0,
            delay=wanted.delay or 0,
        )

    def since(self, word: str) -> "Subscription":
        """Return the same subscription from a position: `epoch:offset`, as in an ETag or in a server-sent event.

        The definition and the period in an ETag are ignored, because the offset implies them. Invalid text changes
        nothing.
        """
        epoch, _, rest = word.partition(":")
        offset = rest.partition(":")[0]
        if not 0 < len(epoch) <= _EPOCH or not is_whole(offset):
            return self
        return msgspec.structs.replace(self, epoch=epoch, offset=int(offset))
