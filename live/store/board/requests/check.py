"""The request of the script that compares a board with its journal; see `write.py`."""

import msgspec

from live.store.connection.scripts import Text


class PieceRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Read a piece of what a board holds under one store key.

    Attributes:
        epoch: the epoch that the caller knows.
        cursor: what the last piece returned, or `0`.
        count: about how many names to return.
        names: the names to return, in place of a cursor.
        sorted: the store key is a sorted set.
        by_event: the board's clock is that of the newest event.
        window: the length of a sliding window in milliseconds, to return the events that have left it.
        most_due: how many of these events to return at most.
    """

    epoch: str
    cursor: str
    count: int
    names: list[Text] | None = None
    sorted: bool = False
    by_event: bool = False
    window: int | None = None
    most_due: int
