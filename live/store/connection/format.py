"""The format of the stored data: a number in the store, by which a server knows whether it can read the data."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog
from redis.exceptions import NoPermissionError, ResponseError

from live.errors import StoreUnavailableError
from live.store.board.keys import SystemKeys
from live.store.connection.high_water import HighWater
from live.store.connection.moving import move_names
from live.store.connection.pipelined import PipelinedConnection, reason_of

log = structlog.get_logger()

FORMAT: Final = 1

# The migration from each older format to the next one. A store without a number has format 0, or is empty.
MIGRATIONS: Final[Mapping[int, Callable[[PipelinedConnection, str], Awaitable[None]]]] = {0: move_names}


class StoreFormatError(StoreUnavailableError):
    """The store holds data in a format that this version cannot read."""


async def check_format(connection: PipelinedConnection, prefix: str, high_water: HighWater) -> None:
    """Migrate an older store, and refuse one that this version cannot read. Each new connection starts with this.

    Change nothing in a store with another identity than the one in the data directory: it is not ours.

    Raises:
        StoreFormatError: the format is newer, or older without a migration.
        StoreUnavailableError: an older version of the server runs beside this one.
        ResponseError: the store refuses.
    """
    names = SystemKeys(prefix)
    key = names.format
    try:
        held: bytes | None = await connection.call("GET", key)
        identity: bytes = await connection.call("GET", names.store) or b""
    except NoPermissionError:
        return  # a user of the store without this permission serves no boards
    number = _number(held, key)
    if number > FORMAT:
        raise StoreFormatError(
            f"the store has format {number}, and this version of Live Board reads format {FORMAT}: a newer version has "
            "written to it. Start that version, or set another LIVE_KEY_PREFIX"
        )
    for step in range(number, FORMAT):
        if step not in MIGRATIONS:
            raise StoreFormatError(
                f"the store has format {number}, and this version of Live Board reads format {FORMAT}: it can't "
                f"migrate format {step}. Start a version that can, then this one; or set another LIVE_KEY_PREFIX"
            )
    known = high_water.facts.store
    if known and identity.decode() != known:
        return  # `LossWatch` reports the loss
    for step in range(number, FORMAT):
        await MIGRATIONS[step](connection, prefix)
    if number == FORMAT:
        await move_names(connection, prefix)  # finds out whether an older version runs beside this one
    elif identity:  # an empty store gets its number with its identity
        await _write(connection, key, held)


def _number(held: bytes | None, key: str) -> int:
    """Return the number that the store holds.

    Raises:
        StoreFormatError: it is not a number.
    """
    try:
        return int(held or 0)
    except ValueError:
        raise StoreFormatError(
            f"the store key {key!r} holds {held!r}, not the number of a format: another program uses this key prefix. "
            "Set another LIVE_KEY_PREFIX"
        ) from None


async def _write(connection: PipelinedConnection, key: str, held: bytes | None) -> None:
    """Write the format number. A store that refuses it, when full or a replica, can still be read."""
    try:
        await connection.call(*(("SETNX", key, FORMAT) if held is None else ("SET", key, FORMAT)))
    except ResponseError as error:
        log.warning("the format number can't be written to the store", reason=reason_of(error))
