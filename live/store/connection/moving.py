"""Names that earlier versions of the server gave to what belongs to the system, and the move to those of today."""

from redis.exceptions import NoPermissionError, ResponseError

from live.errors import StoreUnavailableError
from live.store.board.keys import SystemKeys
from live.store.connection.line import Line


async def move_names(line: Line, prefix: str) -> None:
    """Give what is stored under an old name its name of today, once; a new connection does so before anything else.

    Raises:
        StoreUnavailableError: both names hold something, because an older version of the server runs beside this one.
        ResponseError: the store refuses.
    """
    moved = SystemKeys(prefix).moved
    there = await line.calls([("EXISTS", old) for old, _ in moved])
    for (old, new), exists in zip(moved, there, strict=True):
        if isinstance(exists, NoPermissionError):
            continue  # a user of the store that may not look serves no boards
        if isinstance(exists, Exception):
            raise exists
        if exists and not await _renamed(line, old, new):
            raise StoreUnavailableError(
                f"the store holds both {old!r}, the name that earlier versions use, and {new!r}: an older version of "
                f"the server has written after the upgrade. Stop it. Then drop the one that is out of date, with DEL"
            )


async def _renamed(line: Line, old: str, new: str) -> bool:
    """Whether the old name is no more; another process may be first."""
    try:
        return bool(await line.call("RENAMENX", old, new))
    except ResponseError as error:
        if "no such key" not in str(error):
            raise
        return True
