"""Real stores of several servers: a primary and replicas with Sentinels, and a Cluster."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import hiredis
import redis
from redis.sentinel import Sentinel

from live.domain.urls import servers_of
from tests.harness.certificate import Certificate
from tests.harness.network import free_port
from tests.harness.store import StoreProcess
from tests.harness.waiting import DEADLINE, eventually

NAME: Final = "board"  # the name by which the Sentinels know the primary
SLOTS: Final = 16384
_LONG: Final = 4  # a run with more faults than this is a long run


class Server(StoreProcess):
    """A server with a port for other servers. Tests talk to it over its socket."""

    def __init__(self, binary: str, folder: Path, *options: str, certificate: Certificate | None = None) -> None:
        self.port = free_port()
        self.place = f"127.0.0.1:{self.port}"
        folder.mkdir(parents=True)
        sync = ("--repl-diskless-sync-delay", "0")
        super().__init__(binary, folder, *listening(self.port, certificate), "--bind", "127.0.0.1", *sync, *options)

    def ask(self, *words: str | int) -> Any:
        """Send one command and return its reply. ConnectionError: the server closed the connection without one."""
        reader = hiredis.Reader()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(DEADLINE)
            connection.connect(str(self.path))
            connection.sendall(hiredis.pack_command(words))  # type: ignore[arg-type] # the stub is wrong
            while (reply := reader.gets()) is False:
                piece = connection.recv(65_536)
                if not piece:
                    raise ConnectionError("the server closed the connection without a reply")
                reader.feed(piece)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def fields(self, *words: str | int) -> dict[str, str]:
        """Send one command, whose reply has lines such as `name:value`, and return the values by name."""
        lines = [line.partition(":") for line in self.ask(*words).decode().splitlines()]
        return {name: value for name, colon, value in lines if colon}

    @property
    def runs(self) -> bool:
        """Whether the server has been started and has not ended."""
        return self.process is not None and self.process.poll() is None


class SentinelServer(Server):
    """A Sentinel that watches one primary."""

    def __init__(
        self, binary: str, folder: Path, primary: Server, patience: int, certificate: Certificate | None = None
    ) -> None:
        super().__init__(binary, folder)
        path = folder / "sentinel.conf"
        ports = " ".join(listening(self.port, certificate)).replace(" --", "\n").removeprefix("--")
        path.write_text(
            f"{ports}\nunixsocket {self.path}\ndir {folder}\nbind 127.0.0.1\n"
            f"sentinel monitor {NAME} 127.0.0.1 {primary.port} 2\n"
            f"sentinel down-after-milliseconds {NAME} {patience}\n"
            f"sentinel failover-timeout {NAME} {3 * patience}\n",
            encoding="ascii",
        )
        self._command = [binary, str(path), "--sentinel"]

    def start(self) -> None:
        """Start the Sentinel.

        After a stall of two seconds, a Sentinel takes no part in failovers for 30 seconds (TILT). That is as long as
        tests give a failover, and busy machines stall. So here it is one second. A Sentinel asks for replicas every ten
        seconds; here it asks every second, so that tests need not wait.
        """
        super().start()
        self.ask("SENTINEL", "DEBUG", "TILT-PERIOD", 1000, "INFO-PERIOD", 1000)

    def watched(self) -> dict[bytes, bytes]:
        """Return what the Sentinel knows of the primary."""
        reply = self.ask("SENTINEL", "MASTER", NAME)
        return dict(zip(reply[::2], reply[1::2], strict=True))


class Shard:
    """A primary and its replicas. A test can cut the replicas off before it kills the primary."""

    shard: list[Server]

    @property
    def primary(self) -> Server:
        """The server that is the primary now."""
        return next(server for server in self.shard if server.runs and server.ask("ROLE")[0] == b"master")

    def cut_off(self) -> None:
        """Wait until the replicas have everything, and then cut them off."""
        first = self.primary
        replicas = [server for server in self.shard if server is not first]
        wait(lambda: all(server.ask("ROLE")[4] == first.ask("ROLE")[1] for server in replicas))
        self.sever()

    def sever(self) -> None:
        """Cut the replicas off at once, in the middle of what they receive."""
        first = self.primary
        replicas = [server for server in self.shard if server is not first]
        for server in replicas:
            server.ask("CONFIG", "SET", "masteruser", "nobody", "masterauth", "wrong")
        first.ask("CLIENT", "KILL", "TYPE", "replica")
        wait(lambda: all(server.ask("ROLE")[3] != b"connected" for server in replicas))

    def fail_over(self) -> None:
        """Kill the primary, and wait until a replica is promoted."""
        first = self.primary
        first.kill()
        for server in self.shard:
            if server is not first:
                server.ask("CONFIG", "SET", "masteruser", "", "masterauth", "")
        wait(lambda: any(server.runs and _is_primary(server) for server in self.shard))


class SentinelSet(Shard):
    """A primary with two replicas, and three Sentinels, which promote a replica after `patience` milliseconds.

    With a certificate, all of them use TLS only.
    """

    def __init__(
        self, binary: str, folder: Path, *options: str, patience: int = 1000, certificate: Certificate | None = None
    ) -> None:
        first = Server(binary, folder / "0", *options, certificate=certificate)
        copied = ("--replicaof", f"127.0.0.1 {first.port}", *options)
        replicas = [Server(binary, folder / str(number), *copied, certificate=certificate) for number in (1, 2)]
        self.servers = self.shard = [first, *replicas]
        self.sentinels = [
            SentinelServer(binary, folder / f"s{number}", first, patience, certificate) for number in range(3)
        ]
        scheme, trust = secured("redis+sentinel", certificate)
        self.url = f"{scheme}://{','.join(sentinel.place for sentinel in self.sentinels)}/{NAME}{trust}"

    def start(self) -> None:
        """Start all servers, and wait until each Sentinel knows the replicas and the other Sentinels."""
        for server in self.servers:
            server.start()
        wait(lambda: self.servers[0].ask("INFO", "replication").count(b"state=online") == 2)
        for sentinel in self.sentinels:
            sentinel.start()
        self.settle()

    def settle(self) -> None:
        """Wait until the Sentinels agree on the primary and know each other, and both replicas are in touch with it.

        On a busy machine, a second Sentinel may fail over again, right after the first.
        """
        wait(self._settled)

    def kill(self) -> None:
        """End all servers."""
        for server in [*self.sentinels, *self.servers]:
            server.kill()

    def _settled(self) -> bool:
        known = (b"port", b"flags", b"num-slaves", b"num-other-sentinels")
        views = [[sentinel.watched()[name] for name in known] for sentinel in self.sentinels]
        found = [
            server for server in self.servers if views == [[b"%d" % server.port, b"master", b"2", b"2"]] * len(views)
        ]
        return [_is_primary(server, online=2) for server in found] == [True]


def _is_primary(server: Server, online: int = 0) -> bool:
    try:
        copies: int = server.ask("INFO", "replication").count(b"state=online")
        return copies >= online and bool(server.ask("ROLE")[0] == b"master")
    except ConnectionError:  # a Sentinel has promoted the server, and has ended all its connections
        return False


class ClusterSet(Shard):
    """A Cluster of three primaries with replicas, which are promoted after `patience` milliseconds.

    With a certificate, all of them use TLS only. `crowded` puts all boards on the first primary: the other two have one
    slot each, so that they may vote on a failover.
    """

    def __init__(
        self,
        binary: str,
        folder: Path,
        *options: str,
        replicas: int = 1,
        patience: int = 2000,
        certificate: Certificate | None = None,
        crowded: bool = False,
    ) -> None:
        self._buses = [free_port() for _ in range(3 * (1 + replicas))]
        enabled = ("--cluster-enabled", "yes", "--cluster-node-timeout", str(patience), "--cluster-port")
        self.servers = [
            Server(binary, folder / str(number), *enabled, str(bus), *options, certificate=certificate)
            for number, bus in enumerate(self._buses)
        ]
        self.shard = self.servers[::3]
        bounds = (0, SLOTS - 2, SLOTS - 1, SLOTS) if crowded else [number * SLOTS // 3 for number in range(4)]
        self._slots = list(pairwise(bounds))
        scheme, trust = secured("redis+cluster", certificate)
        self.url = f"{scheme}://{','.join(server.place for server in self.servers[:3])}{trust}"

    def start(self) -> None:
        """Start all servers, form the Cluster, and wait until every server knows that it works."""
        first, *others = self.servers
        for number, server in enumerate(self.servers):
            server.start()
            server.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for server in others:
            server.ask("CLUSTER", "MEET", "127.0.0.1", first.port, self._buses[0])
        for server, (first_slot, after) in zip(self.servers[:3], self._slots, strict=True):
            server.ask("CLUSTER", "ADDSLOTSRANGE", first_slot, after - 1)
        wait(lambda: all(len(nodes(server)) == len(self.servers) for server in self.servers))
        for number, server in enumerate(self.servers[3:]):
            server.ask("CLUSTER", "REPLICATE", self.servers[number % 3].ask("CLUSTER", "MYID").decode())
        self.settle()

    def settle(self) -> None:
        """Wait until every server knows that the Cluster works and has all its replicas."""
        wait(lambda: all(self._settled(server) for server in self.servers if server.runs))

    def kill(self) -> None:
        """End all servers."""
        for server in self.servers:
            server.kill()

    @property
    def primaries(self) -> list[Server]:
        """The servers that are primaries now."""
        return [server for server in self.servers if server.runs and server.ask("ROLE")[0] == b"master"]

    def _settled(self, server: Server) -> bool:
        copies = sum("slave" in node.split()[2] and node.split()[7] == "connected" for node in nodes(server))
        role = server.ask("ROLE")
        linked = role[0] == b"master" or role[3] == b"connected"
        return linked and copies == len(self.servers) - 3 and server.fields("CLUSTER", "INFO")["cluster_state"] == "ok"


def listening(port: int, certificate: Certificate | None) -> tuple[str, ...]:
    """Return the options of a server that listens on a port. With a certificate, clients and replicas must use TLS."""
    if certificate is None:
        return "--port", str(port)
    files = ("--tls-cert-file", "--tls-key-file", "--tls-ca-cert-file")
    named = [word for pair in zip(files, map(str, (*certificate, certificate.path)), strict=True) for word in pair]
    only = ("--port", "0", "--tls-port", str(port), "--tls-auth-clients", "no", "--tls-replication", "yes")
    return *only, "--tls-cluster", "yes", *named


def secured(scheme: str, certificate: Certificate | None) -> tuple[str, str]:
    """Return the scheme and the query of a store's URL. With a certificate, they ask for TLS."""
    return (scheme, "") if certificate is None else (f"rediss{scheme[5:]}", f"?ssl_ca_certs={certificate.path}")


def replicas_of(times: int, *, least: int) -> int:
    """Return how many replicas each primary of a Cluster has: 2 in a long run, else `least`.

    A Cluster with two replicas for each primary has nine servers, which start slowly.
    """
    return 2 if times > _LONG else least


def store_of(engine: str, binary: str, folder: Path) -> StoreProcess | SentinelSet | ClusterSet:
    """Make a Sentinel set, a Cluster or a single server.

    The servers of a set or Cluster wait long before a failover, because a busy machine stalls for seconds.
    """
    if engine == "sentinel":
        return SentinelSet(binary, folder, patience=15_000)
    if engine == "cluster":
        return ClusterSet(binary, folder, patience=15_000)
    return StoreProcess(binary, folder)


def plain_client(url: str) -> redis.Redis:
    """Return a client of redis-py itself, without our code.

    With Sentinels, it is a client of the present primary. For a Cluster, it is a client of the first server.
    """
    if url.startswith("redis+sentinel"):
        sentinels = Sentinel(servers_of(url, 0), socket_timeout=DEADLINE)  # type: ignore[no-untyped-call]
        host, port = sentinels.discover_master(NAME)  # type: ignore[no-untyped-call]
        for sentinel in sentinels.sentinels:  # nobody else closes them
            sentinel.close()
        return redis.Redis(host=host, port=port)
    if url.startswith("redis+cluster"):
        host, port = servers_of(url, 0)[0]
        return redis.Redis(host=host, port=port)
    return redis.Redis.from_url(url)


def nodes(server: Server) -> list[str]:
    """Return what a server of a Cluster knows of each node."""
    text: str = server.ask("CLUSTER", "NODES").decode()
    return text.splitlines()


def wait(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "the servers are not ready"
        time.sleep(0.05)


async def move_at_once(source: Server, target: Server, slot: int) -> None:
    """Move a slot as Valkey 9 does: the server copies it as a whole."""
    name = target.ask("CLUSTER", "MYID").decode()
    await asyncio.to_thread(source.ask, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", name)

    async def moved() -> bool:
        return f"[{slot}" not in str(nodes(target)) and slot in slots_of(target)

    await eventually(moved)


async def move_by_keys(source: Server, target: Server, slot: int) -> None:
    """Move a slot key by key, as every version can."""
    names = {server: server.ask("CLUSTER", "MYID").decode() for server in (source, target)}
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", names[source])
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", names[target])
    while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1):
        await asyncio.to_thread(source.ask, "MIGRATE", "127.0.0.1", target.port, keys[0].decode(), 0, 5000)
        await asyncio.sleep(0.02)  # meanwhile, events arrive for a slot that is half on each server
    for server in (target, source):
        server.ask("CLUSTER", "SETSLOT", slot, "NODE", names[target])


def slots_of(server: Server) -> set[int]:
    """Return the slots that a server says it holds."""
    (own,) = [node.split()[8:] for node in nodes(server) if "myself" in node.split()[2]]
    ranges = [part.split("-") for part in own if not part.startswith("[")]
    return {slot for first, *last in ranges for slot in range(int(first), int(last[0] if last else first) + 1)}


@asynccontextmanager
async def running(servers: SentinelSet | ClusterSet) -> AsyncIterator[None]:
    """Run all servers while in the context."""
    await asyncio.to_thread(servers.start)
    try:
        yield
    finally:
        servers.kill()
