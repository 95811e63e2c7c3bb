"""What a process checks over each new connection: the role of the server, and the format of the stored data.

The format is a number in the store, by which a server knows whether it can read the data.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog
from redis.exceptions import NoPermissionError, ResponseError

from live.errors import StoreUnavailableError
from live.store.board.keys import SystemKeys
from live.store.connection.high_water import HighWater
from live.store.connection.pipelined import PipelinedConnection, reason_of

log = structlog.get_logger()

FORMAT: Final = 1

_MODES: Final = {
    b"cluster": "the store is a node of a Cluster, and Live Board needs one server that holds all store keys: name a "
    "server with cluster-enabled no",
    b"sentinel": "this server is a Sentinel, which holds no data: name the primary that it watches",
}


class StoreRoleError(StoreUnavailableError):
    """The server is a replica, a node of a Cluster or a Sentinel. Another attempt does not help."""


class StoreFormatError(StoreUnavailableError):
    """The store holds data in a format that this version cannot read."""


async def require_primary(connection: PipelinedConnection) -> None:
    """Refuse a server that can't hold a store, before its data is compared.

    A replica would refuse every write. Data that it has not received yet would look like lost data (I8).

    Raises:
        StoreRoleError: the server is a replica, a node of a Cluster or a Sentinel.
        ResponseError: the server refuses, for example because it is loading its data.
    """
    try:
        fields = await connection.call("HELLO")
    except NoPermissionError:
        return  # a user of the store without this permission
    except ResponseError as error:
        if "unknown command" in str(error):
            return  # a server that is older, and so no Cluster of today
        raise
    about = dict(zip(fields[::2], fields[1::2], strict=True))
    if refusal := _MODES.get(about.get(b"mode", b"")):
        raise StoreRoleError(refusal)
    if about.get(b"role", b"master") != b"master":
        try:
            _, host, port, *_ = await connection.call("ROLE")
            primary = f" of {host.decode(errors='replace')}:{port}"
        except (ResponseError, ValueError):  # it does not say whose copy it is, or has become a primary meanwhile
            primary = ""
        raise StoreRoleError(f"the store is a replica{primary}, which takes no writes: name its primary")


async def move_names(connection: PipelinedConnection, prefix: str) -> None:
    """Rename the system's store keys that still have the names of earlier versions.

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
        if not exists:
            continue
        try:
            has_moved = await connection.call("RENAMENX", old, new)
        except ResponseError as error:
            if "no such key" not in str(error):
                raise
            has_moved = True  # by another process
        if not has_moved:
            raise StoreUnavailableError(
                f"the store holds both {old!r}, the name that earlier versions use, and {new!r}: an older version of "
                f"the server has written after the upgrade. Stop it. Then drop the one that is out of date, with DEL"
            )


# The migration from each older format to the next one. A store without a number has format 0, or is empty.
MIGRATIONS: Final[Mapping[int, Callable[[PipelinedConnection, str], Awaitable[None]]]] = {0: move_names}


async def check_format(connection: PipelinedConnection, prefix: str, high_water: HighWater) -> None:
    """Migrate an older store, and refuse one that this version cannot read.

    If the store has another identity than the data directory says, change nothing: it is not our store.

    Raises:
        StoreFormatError: the format is newer, older without a migration, or not a number.
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
    try:
        number = int(held or 0)
    except ValueError:
        raise StoreFormatError(
            f"the store key {key!r} holds {held!r}, not the number of a format: another program uses this key prefix. "
            "Set another LIVE_KEY_PREFIX"
        ) from None
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
        try:
            await connection.call(*(("SETNX", key, FORMAT) if held is None else ("SET", key, FORMAT)))
        except ResponseError as error:  # the store is full: it can still be read
            log.warning("the format number can't be written to the store", reason=reason_of(error))
