"""What a replay is told."""

from pathlib import Path

import msgspec


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to replay where: `speed` is a factor on the events' own time, None for as fast as it goes.

    `key` is the producer's, if it has one. With `ids`, each event without an id of its own is given one.
    """

    path: Path
    url: str
    board: str | None = None
    speed: float | None = None
    restart: bool = False
    key: str | None = None
    ids: bool = True
