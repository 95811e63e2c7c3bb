"""Rename the system's store keys of earlier versions."""

from redis.exceptions import NoPermissionError, ResponseError

from live.errors import StoreUnavailableError
from live.store.board.keys import SystemKeys
from live.store.connection.pipelined import PipelinedConnection


async def move_names(connection: PipelinedConnection, prefix: str) -> None:
    """Give store keys with an old name their current name. Each new connection starts with this.

    Raises:
        StoreUnavailableError: both names exist, because a server of an older version runs beside this one.
        ResponseError: the store refuses.
    """
    moved = SystemKeys(prefix).moved
    there = await connection.calls([("EXISTS", old) for old, _ in moved])
    for (old, new), exists in zip(moved, there, strict=True):
        if isinstance(exists, NoPermissionError):
            continue  # a user of the store without this permission serves no boards
        if isinstance(exists, Exception):
            raise exists
        if exists and not await _renamed(connection, old, new):
            raise StoreUnavailableError(
                f"the store holds both {old!r}, the name that earlier versions use, and {new!r}: an older version of "
                f"the server has written after the upgrade. Stop it. Then drop the one that is out of date, with DEL"
            )


async def _renamed(connection: PipelinedConnection, old: str, new: str) -> bool:
    """Rename a store key. Return whether the old name is gone: another process may have renamed it."""
    try:
        return bool(await connection.call("RENAMENX", old, new))
    except ResponseError as error:
        if "no such key" not in str(error):
            raise
        return True
