"""`replicas`: the costs of waiting for replicas, of notices on many nodes, and of sending lost batches again."""

import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from statistics import median
from typing import Any, Final, Literal

import redis
from redis.crc import key_slot

from bench.board import single_load
from bench.busy import busy_boards
from bench.lost_entries import lost_entries
from bench.nodes import SLOTS, Site, cluster_of, pair
from bench.plans import Members, Posts
from bench.processes import BenchError, Server, cpu_seconds
from bench.table import Report, Row, Scale, median_ratio, medians, of_round, total

_WAITS: Final = {"waits": 1, "none": 0}  # `LIVE_WAIT_REPLICAS` of each server
_PARTS: Final = ("server", "store")
_CHANNEL: Final = "live:{posts}"
_PACKET: Final = 50  # notices in one write
_NOTICES: Final = 20_000
_PRIMARIES: Final = 3
_Kind = Literal["SPUBLISH", "PUBLISH"]
_Round = dict[str, float]


def replicas(scale: Scale, report: Report) -> list[Row]:
    """Measure an event that waits for a replica, a notice on six nodes, lost batches, and a busy journal."""
    return [*_waiting(scale, report), _notices(scale, report), lost_entries(scale, report), busy_boards(scale, report)]


def _waiting(scale: Scale, report: Report) -> list[Row]:
    """Measure the CPU time of the server and of both nodes, with one event per body and without a journal.

    A second server, with a primary and a replica of its own, does not wait. Both servers are measured alternately. Then
    both get one event after another over one connection each, and the time until the answer is measured.
    """
    load = single_load(scale)
    rounds: list[_Round] = []
    with ExitStack() as stack:
        sites = {name: Site(stack, pair(stack), wait_replicas=wait) for name, wait in _WAITS.items()}
        for number in range(1, scale.rounds + 1):
            figures: _Round = {}
            for name, site in sites.items():
                of_round(report, number)(f"one per body, {name}")
                used = site.send(Posts(members=Members(count=scale.members, seed=number)), load)
                figures |= {f"{name}_{part}": used[part] for part in _PARTS}
            rounds.append(figures)
        report("one event after another")
        times = _answer_times(sites, max(100, scale.single_requests // 20))
    mid = medians(rounds)
    ours, against = ([f"{name}_{part}" for part in _PARTS] for name in _WAITS)
    waits, none = (median(times[name]) for name in _WAITS)
    return [
        Row(
            work="replicas: an event that waits for one replica, one event per body",
            measured=_cost(mid, "waits"),
            against=f"without waiting: {_cost(mid, 'none')}",
            ratio=median_ratio(rounds, ours, against),
            goal="≤ 1.10 x",
            figures={"microseconds": mid, "rounds": rounds},
        ),
        Row(
            work="replicas: time until the answer, one event after another",
            measured=f"p50 {waits:.1f} ms",
            against=f"without waiting: p50 {none:.1f} ms; {waits - none:+.1f} ms",
            goal="≤ +3 ms",
            figures={"milliseconds": times},
        ),
    ]


def _cost(mid: _Round, name: str) -> str:
    server, store = (mid[f"{name}_{part}"] for part in _PARTS)
    return f"{server + store:.1f} µs (server {server:.1f} + both nodes {store:.1f})"


def _answer_times(sites: Mapping[str, Site], count: int) -> dict[str, list[float]]:
    """Return the milliseconds from each request to its answer."""
    times: dict[str, list[float]] = {name: [] for name in sites}
    with ExitStack() as stack:
        connections = {
            name: stack.enter_context(closing(HTTPConnection(site.server.address, timeout=10)))
            for name, site in sites.items()
        }
        for _ in range(count):
            for name, connection in connections.items():
                started = time.perf_counter()
                connection.request("POST", "/v1/events", b'{"key":"a"}', {"Content-Type": "application/json"})
                answer = connection.getresponse().read()
                times[name].append((time.perf_counter() - started) * 1e3)
                if not answer.startswith(b'{"accepted":1,'):
                    raise BenchError(f"an event was answered {answer[:200]!r}")
    return times


def _notices(scale: Scale, report: Report) -> Row:
    """Measure the CPU time of all nodes for notices of one board with one subscriber.

    The time that idle nodes use is subtracted. For comparison, PUBLISH sends notices to all nodes of the Cluster.
    """
    rounds: list[_Round] = []
    with ExitStack() as stack:
        nodes = cluster_of(stack, _PRIMARIES, 1)
        owner = nodes[key_slot(_CHANNEL.encode()) * _PRIMARIES // SLOTS]
        for number in range(1, scale.rounds + 1):
            of_round(report, number)("notices")
            rounds.append({kind: _notice(kind, owner, nodes) for kind in ("SPUBLISH", "PUBLISH")})
    mid = medians(rounds)
    return Row(
        work=f"replicas: a notice on {_PRIMARIES} + {_PRIMARIES} nodes",
        measured=f"all nodes {mid['SPUBLISH']:.1f} µs",
        against=f"PUBLISH: {mid['PUBLISH']:.1f} µs",
        ratio=median_ratio(rounds, ["SPUBLISH"], ["PUBLISH"]),
        goal="≤ 4 µs",
        figures={"microseconds": mid, "rounds": rounds},
    )


def _notice(kind: _Kind, owner: Server, nodes: list[Server]) -> float:
    """Return the microseconds of CPU of all nodes per notice."""
    port = int(owner.address.rpartition(":")[2])
    packet = [(kind, _CHANNEL, "x" * 120)] * _PACKET

    def used(work: bool) -> tuple[float, float]:  # noqa: FBT001
        before, started = {node.pid: cpu_seconds(node.pid) for node in nodes}, time.perf_counter()
        if work:
            for _ in range(_NOTICES // _PACKET):
                sender.send_packed_command(sender.pack_commands(packet))
                for connection in (sender, subscriber):
                    for _ in packet:
                        connection.read_response()
        else:
            time.sleep(1)
        figures = {str(node.pid): cpu_seconds(node.pid) - before[node.pid] for node in nodes}
        return total(figures, figures), time.perf_counter() - started

    sender, subscriber = _plain(port), _plain(port)
    try:
        subscriber.send_command("SSUBSCRIBE" if kind == "SPUBLISH" else "SUBSCRIBE", _CHANNEL)
        subscriber.read_response()
        idle, seconds = used(work=False)
        busy, elapsed = used(work=True)
    finally:
        sender.disconnect()
        subscriber.disconnect()
    return (busy - idle / seconds * elapsed) / _NOTICES * 1e6


def _plain(port: int) -> Any:  # noqa: ANN401 - redis-py has no types for its connections
    return redis.Connection(port=port, protocol=2)  # type: ignore[no-untyped-call]
