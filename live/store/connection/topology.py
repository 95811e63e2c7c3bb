"""The servers of a store: a single one, the primary that Sentinels name, or the primaries of a Cluster.

redis-py finds the servers. All calls to a server share one pipelined connection, or two if some wait for replicas. A
server may refuse a command without running it, because another server holds the store key or because it is not ready.
With Sentinels or a Cluster, such a command is sent again.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from redis.asyncio import Connection, ConnectionPool, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.cluster import ClusterNode, NodesManager
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.sentinel import (
    MasterNotFoundError,
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)
from redis.crc import key_slot
from redis.exceptions import ConnectionError as LostConnectionError
from redis.exceptions import MovedError, RedisClusterException, ResponseError

from live.errors import StoreUnavailableError
from live.settings import Settings
from live.store.connection.handshake import Kind, StoreRoleError, about, learn_reign, require_kind
from live.store.connection.pipelined import (
    ERRORS,
    Holds,
    Hook,
    OurConnection,
    PipelinedConnection,
    SharedConnection,
    Word,
    as_unavailable,
)
from live.store.connection.replicated import PrimaryConnection

Command = tuple[str, tuple[Word, ...]]  # a store key, and the words of a command on it
Place = tuple[str, int]  # a host and a port

_PAUSE: Final = 0.05  # seconds until a command that was refused is sent again
_DISCOVERY: Final = 1.0  # seconds within which a server or a Sentinel must name the primaries
_REDIRECTIONS: Final = ("MOVED", "ASK")
_NOT_READY: Final = ("TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "NOREPLICAS", "READONLY")


def ours(kind: type[AbstractConnection]) -> type[AbstractConnection]:
    """Return a class of redis-py's connections with the methods of `OurConnection`."""
    return _OURS[kind]


_OURS: Final[dict[type[AbstractConnection], type[AbstractConnection]]] = {
    kind: type(f"Our{kind.__name__}", (OurConnection, kind), {})
    for kind in (
        Connection,
        SSLConnection,
        UnixDomainSocketConnection,
        SentinelManagedConnection,
        SentinelManagedSSLConnection,
    )
}


class Dialer:
    """Makes connections to the servers of a store, with the options of its URL. `url` is without login and options."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self.url = url
        self.kind: type[AbstractConnection] = options.get("connection_class", Connection)
        self.options = {key: value for key, value in options.items() if key != "connection_class"}
        limits = ("socket_timeout", "socket_connect_timeout")
        # The options of connections that ask for the servers.
        self.asking = self.options | {limit: min(options[limit], _DISCOVERY) for limit in limits}

    def pool_of(self, host: str, port: int) -> ConnectionPool:
        """Return a pool of connections to a server."""
        return ConnectionPool(ours(self.kind), host=host, port=port, **self.options)

    async def fault_of(self, place: Place, kind: Kind) -> Exception | None:
        """Return why a server can't be used, such as that it is of another kind than the URL says."""
        connection = PipelinedConnection(_DISCOVERY)
        try:
            await connection.open(self.pool_of(*place))
            await require_kind(connection, kind, f"{self.url.partition('+')[0]}://{place[0]}:{place[1]}")
            if kind == "cluster":
                await connection.call("CLUSTER", "SLOTS")
        except (*ERRORS, StoreRoleError) as error:
            return error
        finally:
            connection.abort()
        return None


def refusal(reply: object) -> str:
    """Return why a server did not run a command that is to be sent again, such as `MOVED`; empty for other replies."""
    word = str(reply).partition(" ")[0] if isinstance(reply, ResponseError) else ""
    return word if word in _REDIRECTIONS or word in _NOT_READY else ""


class Servers:
    """The servers of a store: here a single one, which holds every store key. A refused command is not sent again."""

    promotes = False  # whether a replica, which may lack changes, can become a primary

    def __init__(self, pool: ConnectionPool, settings: Settings) -> None:
        self.on_connect: list[Hook] = []
        # Called with a reign that is new to this process, before any command under this reign is sent.
        self.on_reign: Callable[[str], None] = lambda _reign: None
        self.settings = settings
        self.shared = PrimaryConnection(pool, settings, self.on_connect)

    def primary(self, _key: str) -> PrimaryConnection | None:
        """Return the connection to the primary that holds a store key, if it is known."""
        return self.shared

    async def find(self, key: str) -> PrimaryConnection:
        """Find the primary that holds a store key.

        Raises:
            LostConnectionError: nobody says which server it is.
            ResponseError: no server holds the store key now.
        """
        del key
        return self.shared

    async def send(self, commands: Sequence[Command], *, replicated: bool = False) -> list[Any]:
        """Send commands, in one packet for each server, and wait for replicas if asked to.

        A refusal is one of the replies. If the connection to one of several servers fails, its error stands in place of
        the replies of this server. If all fail, the error is raised.
        """
        words = [words for _, words in commands]
        return await (self.shared.writes(words) if replicated else self.shared.calls(words))

    async def send_again(self, _command: Command, error: Exception, *, replicated: bool = False) -> Any:  # noqa: ANN401, ARG002 - any reply
        """Send again a command whose first attempt ended in an error, or raise the error."""
        raise error

    async def primaries(self) -> dict[str, PrimaryConnection]:
        """Return the connections to all servers that hold store keys, by their names."""
        return {"": self.shared}

    async def replicas(self) -> dict[str, SharedConnection]:
        """Return new connections to all replicas, by their names. The caller closes them."""
        return {}

    async def learn(self, key: str, error: Exception) -> None:
        """Note an error of a command that is not sent again: it may tell where the store key is now."""

    def reign_of(self, _key: str) -> str:
        """Return the reign of the server that holds a store key, as last read; empty if it is not known."""
        return ""

    async def learn_reigns(self) -> None:
        """Read the reigns of all servers again: a server may have been a replica for a moment."""

    async def close(self) -> None:
        """Close all connections."""
        await self.shared.close()


class _Discovered(Servers):
    """Servers that other servers name. Refused commands did not run: they are sent again until the deadline."""

    promotes = True

    def __init__(self, pool: ConnectionPool, settings: Settings) -> None:
        super().__init__(pool, settings)
        self._reigns = {""}  # all reigns that this process has met; empty if it may not read the reign
        self.on_connect.append(self._learn_reign)

    def reign_of(self, key: str) -> str:
        """Return the reign of the server that holds a store key, as last read; empty if it is not known."""
        connection = self.primary(key)
        return "" if connection is None else connection.reign

    async def learn_reigns(self) -> None:
        """Read the reigns of all servers again: a server may have been a replica for a moment."""
        connections = list((await self.primaries()).values())
        replies = await asyncio.gather(
            *(connection.prepare_again(self._learn_reign) for connection in connections), return_exceptions=True
        )
        for connection, reply in zip(connections, replies, strict=True):
            if refusal(reply) == "READONLY":
                connection.drop()
            elif isinstance(reply, BaseException) and not isinstance(reply, ERRORS):
                raise reply

    async def _learn_reign(self, connection: PipelinedConnection, holds: Holds) -> None:
        await learn_reign(connection, holds)
        if connection.reign not in self._reigns:
            self._reigns.add(connection.reign)
            self.on_reign(connection.reign)

    async def send(self, commands: Sequence[Command], *, replicated: bool = False) -> list[Any]:
        """Send commands, and send refused ones again."""
        replies: list[Any] = [None] * len(commands)
        await self._send(commands, range(len(commands)), replies, replicated=replicated)
        await self._send_refused(commands, replies, replicated=replicated)
        return replies

    async def send_again(self, command: Command, error: Exception, *, replicated: bool = False) -> Any:  # noqa: ANN401 - any reply
        """Send a refused command again, or raise its error."""
        replies: list[Any] = [error]
        if refusal(error):
            await self._send_refused([command], replies, replicated=replicated)
        elif not isinstance(error, ResponseError):
            self._lost()
        if isinstance(replies[0], Exception):
            raise replies[0]
        return replies[0]

    async def learn(self, key: str, error: Exception) -> None:
        """Find the servers again. If the same server may soon accept the command, pause."""
        if not isinstance(error, ResponseError):
            self._lost()
        elif refusal(error) and await self._redirect([(key, error)]):
            await asyncio.sleep(_PAUSE)

    async def _send_refused(self, commands: Sequence[Command], replies: list[Any], *, replicated: bool) -> None:
        """Send again until each command has a reply or the deadline has passed."""
        until = asyncio.get_running_loop().time() + self.settings.write_deadline
        while (again := [index for index, reply in enumerate(replies) if refusal(reply)]) and (
            asyncio.get_running_loop().time() < until
        ):
            if await self._redirect([(commands[index][0], replies[index]) for index in again]):
                await asyncio.sleep(_PAUSE)
            await self._send(commands, again, replies, replicated=replicated)

    async def _send(
        self, commands: Sequence[Command], indexes: Iterable[int], replies: list[Any], *, replicated: bool
    ) -> None:
        """Put the replies in place."""
        packets: dict[PrimaryConnection, list[int]] = {}
        for index in indexes:
            try:
                connection = await self._connection_for(commands[index][0], replies[index])
            except ERRORS as error:
                replies[index] = error if isinstance(error, ResponseError) else as_unavailable(error)
            else:
                packets.setdefault(connection, []).append(index)

        async def send_to(connection: PrimaryConnection, packet: list[int]) -> None:
            words: list[tuple[Word, ...]] = []
            for index in packet:
                if refusal(replies[index]) == "ASK":
                    words.append(("ASKING",))
                words.append(commands[index][1])
            try:
                found = iter(await (connection.writes(words) if replicated else connection.calls(words)))
            except (*ERRORS, StoreUnavailableError) as error:
                self._lost()
                for index in packet:
                    replies[index] = error if refusal(error) else as_unavailable(error)
                return
            for index in packet:
                if refusal(replies[index]) == "ASK":
                    next(found)
                replies[index] = next(found)

        await asyncio.gather(*(send_to(connection, packet) for connection, packet in packets.items()))

    async def _connection_for(self, key: str, _before: object) -> PrimaryConnection:
        """Choose the server of a store key: `_before`, the last reply to the command, may name it."""
        return await self.find(key)

    async def _redirect(self, refused: Sequence[tuple[str, ResponseError]]) -> bool:
        """Learn from the refusals of store keys where they are. Return whether to pause before the next attempt."""
        raise NotImplementedError

    def _lost(self) -> None:
        """Learn that a connection was lost."""


class Watched(_Discovered):
    """The primary that Sentinels name. redis-py asks them for each new connection."""

    def __init__(self, pool: "PrimaryPool", settings: Settings) -> None:
        super().__init__(pool, settings)
        self._primary_pool = pool
        self.on_connect.insert(0, self._require_primary)

    async def replicas(self) -> dict[str, SharedConnection]:
        """Return new connections to the replicas that the Sentinels name. The caller closes them."""
        pool = self._primary_pool
        found = await pool.sentinel_manager.discover_slaves(pool.service_name)
        timeout = self.settings.store_timeout
        return {f"{host}:{port}": SharedConnection(pool.dialer.pool_of(host, port), timeout) for host, port in found}

    async def close(self) -> None:
        """Close all connections, also those to the Sentinels."""
        await super().close()
        await self._primary_pool.sentinel_manager.aclose()

    async def _require_primary(self, connection: PipelinedConnection, _holds: Holds) -> None:
        """Ask another Sentinel next if the server is not the primary any more."""
        fields = await about(connection)
        if fields.get(b"role", b"master") != b"master":
            await self._primary_pool.distrust()
            raise ResponseError("READONLY the Sentinels name a server that is a replica")

    async def _redirect(self, refused: Sequence[tuple[str, ResponseError]]) -> bool:
        if any(refusal(error) == "READONLY" for _, error in refused):
            self.shared.drop()
        return True


class PrimaryPool(SentinelConnectionPool):
    """Connects to the primary that Sentinels name."""

    def __init__(self, name: str, places: Sequence[Place], dialer: Dialer, login: dict[str, Any]) -> None:
        """Prepare connections to the primary that the Sentinels at `places` watch as `name`.

        `login` is for the Sentinels, and `dialer` makes connections to the primary.
        """
        managed = SentinelManagedSSLConnection if dialer.kind is SSLConnection else SentinelManagedConnection
        personal = ("username", "password", "db")
        asking = {key: value for key, value in dialer.asking.items() if key not in personal} | login
        secure = {"ssl": True} if dialer.kind is SSLConnection else {}
        self._names = Sentinel(places, sentinel_kwargs=asking | secure)  # type: ignore[no-untyped-call]
        for sentinel in self._names.sentinels:  # redis-py asks the next one only after errors that it knows
            sentinel.connection_pool.connection_class = ours(dialer.kind)
        self.dialer = dialer
        # redis-py reorders its list of Sentinels after an answer, and two calls at a time would lose a Sentinel.
        self._asking = asyncio.Lock()
        super().__init__(name, self._names, connection_class=ours(managed), **dialer.options)  # type: ignore[no-untyped-call]

    async def distrust(self) -> None:
        """Move the Sentinel that has answered to the end of the list: it names a server that is not the primary."""
        async with self._asking:
            self._names.sentinels.append(self._names.sentinels.pop(0))

    async def get_master_address(self) -> Place:
        """Ask the Sentinels."""
        async with self._asking:
            try:
                place: Place = await super().get_master_address()  # type: ignore[no-untyped-call]
            except (MasterNotFoundError, ResponseError) as error:
                raise await self._reason(error) from error
        return place

    async def _reason(self, error: Exception) -> Exception:
        said = ""
        for sentinel in self._names.sentinels:
            try:
                watched = await sentinel.sentinel_masters()
            except ResponseError as refused:
                place = sentinel.connection_pool.connection_kwargs
                return await self.dialer.fault_of((place["host"], place["port"]), "sentinel") or refused
            except ERRORS as away:
                said = str(away)
                continue
            if self.service_name not in watched:
                urls = [f"{self.dialer.url}/{name}" for name in sorted(map(str, watched))]
                known = ", ".join(urls) or "none: they watch nothing"
                return StoreRoleError(f"the Sentinels watch no primary {self.service_name!r}: use {known}")
            said = "the primary is down"
        del error
        return LostConnectionError(f"No connection available: the Sentinels name no primary: {said}")


class Cluster(_Discovered):
    """The primaries of a Cluster. Each holds the store keys of some slots."""

    def __init__(self, places: Sequence[Place], dialer: Dialer, settings: Settings) -> None:
        """Prepare connections. `places` are some servers."""
        super().__init__(dialer.pool_of(*places[0]), settings)
        asking = dialer.asking | {"connection_class": dialer.kind}
        self._places = list(places)
        self._dialer = dialer
        self._nodes = NodesManager(
            [ClusterNode(host, port, **asking) for host, port in places],
            require_full_coverage=False,
            connection_kwargs=asking,
        )
        self._connections: dict[str, PrimaryConnection] = {}
        # Connections to servers that are no longer primaries; replies may still come.
        self._retired: list[PrimaryConnection] = []
        self._learning: asyncio.Task[None] | None = None
        self._closed = False

    def primary(self, key: str) -> PrimaryConnection | None:
        """Return the connection to the primary of the slot of a store key, if it is known."""
        nodes = self._nodes.slots_cache.get(key_slot(key.encode()))
        return self._connection_to(nodes[0]) if nodes else None

    async def find(self, key: str) -> PrimaryConnection:
        """Find the primary that holds a store key. If no slot of the Cluster is known yet, ask the servers first."""
        if not self._nodes.slots_cache:
            await self._learn()
        found = self.primary(key)
        if found is None:
            raise ResponseError("CLUSTERDOWN no server holds the slot of this store key")
        return found

    async def send(self, commands: Sequence[Command], *, replicated: bool = False) -> list[Any]:
        """Send commands, in one packet for each primary."""
        if not self._nodes.slots_cache:
            await self._learn()
        return await super().send(commands, replicated=replicated)

    async def primaries(self) -> dict[str, PrimaryConnection]:
        """Return the connections to all primaries."""
        if not self._nodes.slots_cache:
            await self._learn()
        return {node.name: self._connection_to(node) for node in self._nodes.get_nodes_by_server_type("primary")}

    async def replicas(self) -> dict[str, SharedConnection]:
        """Return new connections to all replicas. The caller closes them."""
        await self._learn()  # a server that has just become a replica may be missing in the list
        nodes = self._nodes.get_nodes_by_server_type("replica")
        timeout, pool_of = self.settings.store_timeout, self._dialer.pool_of
        return {node.name: SharedConnection(pool_of(node.host, int(node.port)), timeout) for node in nodes}

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True  # calls that fail now must not begin anything new
        await super().close()
        for connection in [*self._connections.values(), *self._retired]:
            await connection.close()
        if (learning := self._learning) is not None:
            await asyncio.wait([learning], timeout=_DISCOVERY)  # redis-py leaves connections open when it is cancelled
            learning.cancel()
            await asyncio.wait([learning])
        await self._nodes.aclose()
        await self._nodes.aclose("startup_nodes")

    def _connection_to(self, node: ClusterNode) -> PrimaryConnection:
        connection = self._connections.get(node.name)
        if connection is None:
            pool = self._dialer.pool_of(node.host, int(node.port))
            connection = PrimaryConnection(pool, self.settings, self.on_connect, lambda key: self.primary(key) is mine)
            mine = self._connections[node.name] = connection
        return connection

    async def _connection_for(self, key: str, before: object) -> PrimaryConnection:
        if refusal(before) == "ASK":
            moved = MovedError(str(before).partition(" ")[2])
            return self._connection_to(ClusterNode(moved.host, moved.port))
        return await super()._connection_for(key, before)

    async def _redirect(self, refused: Sequence[tuple[str, ResponseError]]) -> bool:
        pause = False
        for key, error in refused:
            kind = refusal(error)
            if kind == "MOVED":
                moved = MovedError(str(error).partition(" ")[2])
                if moved.host and moved.slot_id in self._nodes.slots_cache:
                    await self._nodes.move_slot(moved)
                else:  # the error does not name a server
                    pause = True
            if kind == "READONLY" and (connection := self.primary(key)) is not None:
                connection.drop()
            pause |= kind not in _REDIRECTIONS
        self._lost()  # ask the servers as well, in the background
        return pause

    def _lost(self) -> None:
        if self._learning is None and not self._closed:
            self._learning = asyncio.create_task(self._ask())
            self._learning.add_done_callback(self._end_learning)

    def _end_learning(self, task: asyncio.Task[None]) -> None:
        self._learning = None
        if not task.cancelled():
            # This marks the error as seen: callers that wait report it, and without callers the next attempt may
            # succeed.
            task.exception()

    async def _learn(self) -> None:
        """Ask once for all callers that wait."""
        self._lost()
        if self._learning is None:
            raise LostConnectionError("No connection available: the client is closed")
        await asyncio.shield(self._learning)

    async def _ask(self) -> None:
        try:
            await self._nodes.initialize()
        except (RedisClusterException, IndexError) as error:
            # Ask the configured servers too next time, because all servers may have other addresses now.
            for host, port in self._places:
                node = ClusterNode(host, port, **self._nodes.connection_kwargs)
                self._nodes.startup_nodes.setdefault(node.name, node)
            raise await self._reason(error) from error
        await self._retire()

    async def _retire(self) -> None:
        """Retire the connections to servers that are no primaries, and close those that the last call retired.

        A server that becomes a primary again begins another reign, so it needs a new connection.
        """
        primaries = {node.name for node in self._nodes.get_nodes_by_server_type("primary")}
        before = self._retired
        self._retired = [self._connections.pop(name) for name in self._connections.keys() - primaries]
        for connection in before:
            await connection.close()

    async def _reason(self, error: Exception) -> Exception:
        said: Exception = error
        for place in self._places:
            reason = await self._dialer.fault_of(place, "cluster")
            if isinstance(reason, StoreRoleError):
                return reason
            said = reason or said
        if isinstance(said, ResponseError):
            return said
        return LostConnectionError(f"No connection available: no server of the Cluster answers: {said}")
