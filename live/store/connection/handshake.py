"""The checks over each new connection: the role of the server, and the format of the stored data.

The format is a number in the store, by which a server knows whether it can read the data. Each check raises
`ResponseError` if the server refuses, for example because it is loading its data.
"""

from typing import Any, Final, Literal

import structlog
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from live.errors import StoreUnavailableError
from live.store.board.keys import SystemKeys
from live.store.connection.high_water import HighWater
from live.store.connection.pipelined import Holds, PipelinedConnection

log = structlog.get_logger()

FORMAT: Final = 6

_REIGN: Final = 16  # digits of a replication id, enough to tell ids apart

Kind = Literal["one", "sentinel", "cluster"]  # the kinds of servers that the URL of a store can name


class StoreRoleError(StoreUnavailableError):
    """The server is not what the URL says, or is a replica. Another attempt does not help."""


class StoreFormatError(StoreUnavailableError):
    """The store holds data in a format that this version cannot read."""


def is_login(error: BaseException | None) -> bool:
    """Tell whether the store wants a login, or refuses the one it got. Then another attempt does not help."""
    while error is not None:
        if isinstance(error, AuthenticationError) or str(error).startswith("NOAUTH "):  # the answer of Redis to HELLO
            return True
        error = error.__cause__ or error.__context__
    return False


async def about(connection: PipelinedConnection) -> dict[bytes, Any]:
    """Return the facts that a server reports, such as its `role` and its `mode`; empty if it reports none."""
    try:
        fields = await connection.call("HELLO")
    except NoPermissionError:
        return {}  # this user of the store lacks the permission
    except ResponseError as error:
        if "unknown command" in str(error):
            return {}  # an older server does not know the command, and so belongs to no supported Cluster
        raise
    return dict(zip(fields[::2], fields[1::2], strict=True))


async def require_primary(connection: PipelinedConnection, _holds: Holds, url: str) -> None:
    """Refuse a server that is not a single primary, before its data is compared with the high-water marks.

    A replica would refuse every write. Data that it has not received yet would look like lost data (I8). `url` is
    without user information.
    """
    fields = await require_kind(connection, "one", url)
    if fields.get(b"role", b"master") != b"master":
        try:
            _, host, port, *_ = await connection.call("ROLE")
            primary = f"{host.decode(errors='replace')}:{port}"
        except (ResponseError, ValueError):  # the server does not name its primary, or has become a primary meanwhile
            primary = ""
        scheme = "rediss" if url.startswith("rediss") else "redis"
        known = (f" of {primary}", f"use {scheme}://{primary}") if primary else ("", "use the URL of its primary")
        raise StoreRoleError(f"the store is a replica{known[0]}, which takes no writes: {known[1]}")


async def require_kind(connection: PipelinedConnection, kind: Kind, url: str) -> dict[bytes, Any]:
    """Refuse a server of another kind than the URL of the store says. Return the facts that it reports."""
    fields = await about(connection)
    scheme, _, place = url.partition("://")
    place = place.partition("/")[0] or "HOST:PORT"  # the URL of a unix socket has no address
    scheme = "redis" if scheme == "unix" else scheme
    match fields.get(b"mode"):
        case b"cluster" if kind != "cluster":
            raise StoreRoleError(f"the store is a node of a Cluster: use {scheme}+cluster://{place}")
        case b"sentinel" if kind != "sentinel":
            try:
                watched = await connection.call("SENTINEL", "MASTERS")
            except ResponseError:
                watched = []
            names = [dict(zip(one[::2], one[1::2], strict=True)).get(b"name", b"") for one in watched]
            known = " or ".join(f"{scheme}+sentinel://{place}/{name.decode()}" for name in sorted(names))
            raise StoreRoleError(
                f"this server is a Sentinel, which holds no data: use {known or f'{scheme}+sentinel://{place}/NAME'}"
            )
        case b"standalone" if kind != "one":
            expected = "node of a Cluster" if kind == "cluster" else "Sentinel"
            raise StoreRoleError(f"{place} is no {expected}: use {scheme}://{place}")
    return fields


async def learn_reign(connection: PipelinedConnection, _holds: Holds) -> None:
    """Learn the reign of a server from its replication id, which is new after each promotion.

    If this user of the store may not read the id, the reign stays empty. Then boards go on after a failover without a
    check.
    """
    try:
        text: bytes = await connection.call("INFO", "replication")
    except NoPermissionError:
        return
    fields = info_fields(text)
    if fields.get("role") == "slave":  # a replica has the id of its primary until it is promoted
        raise ResponseError("READONLY the server is a replica")
    connection.reign = fields.get("master_replid", "")[:_REIGN]


def info_fields(text: bytes) -> dict[str, str]:
    """Parse a reply to INFO."""
    lines = [line.partition(":") for line in text.decode(errors="replace").splitlines()]
    return {name: value for name, colon, value in lines if colon}


async def check_format(connection: PipelinedConnection, holds: Holds, names: SystemKeys, high_water: HighWater) -> None:
    """Refuse a store that this version cannot read.

    If the store has another identity than the data directory says, check nothing: it is not our store. If another
    server holds the format number, check nothing.
    """
    key = names.format
    if not holds(key):
        return
    try:
        held: bytes | None = await connection.call("GET", key)
        identity: bytes = await connection.call("GET", names.store) or b""
    except NoPermissionError:
        return  # a process whose user of the store lacks this permission serves no boards
    if not held and not identity:
        return  # an empty store gets its format number together with its identity
    if held and not held.isdigit():
        raise StoreFormatError(
            f"the store key {key!r} holds {held!r}, not the number of a format: another program uses this key prefix. "
            "Set another LIVE_KEY_PREFIX"
        )
    known = high_water.facts.store
    if int(held or 0) != FORMAT and not (known and identity.decode() != known):
        raise StoreFormatError(
            f"the store has format {int(held or 0)}, and this version of Live Board reads format {FORMAT}: start the "
            "version that wrote it, or set another LIVE_KEY_PREFIX to begin again"
        )
