"""`cluster`: what an event costs through a Cluster of three primaries, compared with one server."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from bench.board import BATCH, batch_load, single_load
from bench.nodes import Site, cluster_of, one_node
from bench.plans import Load, Members, Posts
from bench.table import Report, Row, Scale, median_ratio, medians, of_round, total

_PRIMARIES: Final = 3
_BODIES: Final = {1: "≤ 1.20 x", BATCH: "≤ 1.05 x"}
_Round = dict[str, float]


def cluster(scale: Scale, report: Report) -> list[Row]:
    """Measure the CPU time per event of the server and of all primaries, without a journal.

    For comparison, another Live Board server has one Valkey server as its store, with the same settings and also over
    TCP. Both are measured alternately.
    """
    with ExitStack() as stack:
        sites = {
            "one": Site(stack, one_node(stack)),
            "cluster": Site(stack, cluster_of(stack, _PRIMARIES), wait_replicas=0),  # this Cluster has no replicas
        }
        loads = {1: single_load(scale), BATCH: batch_load(scale.batch_bodies)}
        for site in sites.values():
            site.send(
                Posts(members=Members(count=scale.members, order="each"), events=BATCH),
                batch_load(scale.members // BATCH),
            )
        return [_row(sites, events, loads[events], scale, report) for events in loads]


def _row(sites: dict[str, Site], events: int, load: Load, scale: Scale, report: Report) -> Row:
    rounds: list[_Round] = []
    for number in range(1, scale.rounds + 1):
        figures: _Round = {}
        for name, site in sites.items():
            of_round(report, number)(f"{events} per body, {name}")
            used = site.send(Posts(members=Members(count=scale.members, seed=number), events=events), load)
            figures |= {f"{name}_{process}": each for process, each in used.items()}
        rounds.append(figures)
    mid = medians(rounds)
    ours, against = ([f"{name}_{process}" for process in ("server", "store")] for name in ("cluster", "one"))
    return Row(
        work=f"cluster: an event through {_PRIMARIES} primaries, {events:,} per body",
        measured=_cost(mid, ours),
        against=f"one server: {_cost(mid, against)}",
        ratio=median_ratio(rounds, ours, against),
        goal=_BODIES[events],
        figures={"microseconds": mid, "rounds": rounds},
    )


def _cost(mid: _Round, names: Sequence[str]) -> str:
    server, store = (mid[name] for name in names)
    return f"{total(mid, names):.1f} µs (server {server:.1f} + store {store:.1f})"
