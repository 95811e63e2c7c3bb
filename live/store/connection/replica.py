"""A replica, from which processes only read: they are far from the primary, or may not write.

A replica may be behind its primary. While the primary keeps in touch, the data of the replica is recent enough to show.
After that, the replica counts as unavailable, and viewers see their boards as stale.
"""

import asyncio
from typing import Any, Final

from redis.asyncio import ConnectionPool
from redis.exceptions import ConnectionError as LostConnectionError
from redis.exceptions import ResponseError

from live.errors import StoreUnavailableError
from live.store.connection.handshake import info_fields, require_kind
from live.store.connection.pipelined import ERRORS, Holds, PipelinedConnection, SharedConnection
from live.store.connection.replicated import PrimaryConnection
from live.store.connection.topology import Servers

_CHECK_INTERVAL: Final = 0.5  # seconds between two checks
_PING_PERIOD: Final = 10  # seconds between two pings of an idle primary, unless the server tells its own value
_SLACK: Final = 2  # seconds more, because a ping may be late, and the server reports whole seconds


class Replica(Servers):
    """A single replica. When it is promoted, it is up to date from then on."""

    def __init__(self, pool: ConnectionPool, timeout: float, url: str) -> None:
        super().__init__(pool, timeout)
        self._url = url
        self._behind = ""  # the reason why the data may be out of date
        self.on_connect.append(self._check_on_connect)

    def primary(self, _key: str) -> PrimaryConnection | None:
        """Return the connection to the replica.

        Raises:
            LostConnectionError: the replica may be out of date.
        """
        self.require_current()
        return self.shared

    async def send(self, commands: Any, *, replicated: bool = False) -> list[Any]:  # noqa: ANN401 - as the class above
        """Send commands, or raise `LostConnectionError` if the replica may be out of date."""
        self.require_current()
        return await super().send(commands, replicated=replicated)

    def require_current(self) -> None:
        """Raise an error while the replica may be out of date."""
        if self._behind:
            raise LostConnectionError(self._behind)

    async def watch(self) -> None:
        """Find out whether the primary keeps in touch, until cancelled."""
        while True:
            await asyncio.sleep(_CHECK_INTERVAL)
            try:
                self._behind = await _fault(self.shared)
            except (*ERRORS, StoreUnavailableError):
                pass  # each call reports the error itself

    async def _check_on_connect(self, connection: PipelinedConnection, _holds: Holds) -> None:
        """Check a new connection before its first command.

        Raises:
            StoreRoleError: the server is a node of a Cluster or a Sentinel.
            StoreUnavailableError: the replica may be out of date.
        """
        await require_kind(connection, "one", self._url)
        self._behind = await _fault(connection)
        if self._behind:
            raise StoreUnavailableError(self._behind)


async def _fault(connection: SharedConnection | PipelinedConnection) -> str:
    """Say why a server may be out of date. The text is empty for a primary, and for a replica in contact with one."""
    state = info_fields(await connection.call("INFO", "replication"))
    if state.get("role") == "master":
        return ""
    if state.get("master_link_status") != "up":
        return "the replica is cut off from its primary"
    try:
        (_, period) = await connection.call("CONFIG", "GET", "repl-ping-replica-period")
    except (ResponseError, ValueError):
        period = _PING_PERIOD
    silent = int(state.get("master_last_io_seconds_ago", 0))
    return f"the replica has heard nothing from its primary for {silent} s" if silent > int(period) + _SLACK else ""
