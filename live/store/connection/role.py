"""Which server a store is: only one that holds all store keys and takes writes can be used."""

from typing import Final

from redis.exceptions import NoPermissionError, ResponseError

from live.errors import StoreUnavailableError
from live.store.connection.pipelined import PipelinedConnection

_MODES: Final = {
    b"cluster": "the store is a node of a Cluster, and Live Board needs one server that holds all store keys: name a "
    "server with cluster-enabled no",
    b"sentinel": "this server is a Sentinel, which holds no data: name the primary that it watches",
}


class StoreRoleError(StoreUnavailableError):
    """The server is a replica, a node of a Cluster or a Sentinel. Another attempt does not help."""


async def require_primary(connection: PipelinedConnection) -> None:
    """Refuse a server that can't hold a store. Each new connection starts with this, before its data is compared.

    A replica would refuse every write, and what it does not have yet would look like a loss of data (I8).

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
        raise StoreRoleError(
            f"the store is a replica{await _primary(connection)}, which takes no writes: name its primary"
        )


async def _primary(connection: PipelinedConnection) -> str:
    """Return whose copy a replica is, if it says so."""
    try:
        _, host, port, *_ = await connection.call("ROLE")
    except (ResponseError, ValueError):  # ValueError: it has become a primary meanwhile
        return ""
    return f" of {host.decode(errors='replace')}:{port}"
