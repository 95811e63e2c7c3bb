"""`ingest-single`: CPU time per acknowledged durable POST of one event, compared with the baseline and peers."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from bench.board import OURS, Board, events_a_second, single_load
from bench.peers import Peer, start_peers
from bench.plans import Members, Posts
from bench.table import Report, Row, Scale, median_ratio, medians, of_round, total

_WORK: Final = "ingest-single: a durable POST of 1 event"
_PEERS: Final = {
    "nothing": ("do-nothing ASGI POST", "≤ 1.00 x"),
    "webdis": ("webdis, one script", "≤ 1.00 x"),
    "naive": ("two Redis calls", "≤ 0.125 x"),
}
_Round = dict[str, float]


def ingest_single(scale: Scale, report: Report) -> list[Row]:
    """Measure the CPU time of server and store per acknowledged event, with one event per body.

    The peers are measured alternately. An endpoint that does nothing and a handler with two calls to the store receive
    the same events. webdis receives one script per request. The store receives a bare HINCRBY+ZINCRBY per event over as
    many connections; then only the CPU time of the store counts.
    """
    with ExitStack() as stack:
        board = Board(stack)
        peers = start_peers(stack, board)
        report("filling")
        board.create_every_member(scale.members)
        rounds = [_round(board, peers, scale, number, report) for number in range(1, scale.rounds + 1)]
    return _rows(rounds)


def _round(board: Board, peers: dict[str, Peer], scale: Scale, number: int, report: Report) -> _Round:
    report = of_round(report, number)
    members = Members(count=scale.members, seed=number)
    load = single_load(scale)
    report("durable POST")
    figures = board.send(Posts(members=members), load)
    for name, peer in peers.items():
        report(name)
        figures |= {f"{name}_{process}": used for process, used in peer.measure(members, load).items()}
    return figures


def _rows(rounds: Sequence[_Round]) -> list[Row]:
    mid = medians(rounds)
    return [
        Row(
            work=_WORK,
            measured=events_a_second(mid),
            against=_cost(mid, "nothing"),
            ratio=_ratio(rounds, "nothing"),
            goal=_goal("nothing"),
            figures={"microseconds": mid, "rounds": rounds},
        ),
        *(_against(rounds, mid, name) for name in ("webdis", "naive")),
        Row(
            work="ingest-single: the store's part",
            measured=f"{mid['store']:.1f} µs of store per event",
            against=f"bare HINCRBY+ZINCRBY, one pair per write: {mid['bare_store']:.1f} µs",
            ratio=median_ratio(rounds, ("store",), ("bare_store",)),
        ),
    ]


def _against(rounds: Sequence[_Round], mid: _Round, name: str) -> Row:
    work = f"ingest-single: the same, against {name}"
    if not _processes(mid, name):
        return Row(work=work, measured=f"not measured: {name} is not installed", goal=_goal(name))
    ours = f"{total(mid, OURS):.0f} µs per event"
    return Row(work=work, measured=ours, against=_cost(mid, name), ratio=_ratio(rounds, name), goal=_goal(name))


def _ratio(rounds: Sequence[_Round], name: str) -> float:
    return median_ratio(rounds, OURS, _processes(rounds[0], name))


def _goal(name: str) -> str:
    return _PEERS[name][1]


def _cost(mid: _Round, name: str) -> str:
    processes = _processes(mid, name)
    parts = " + ".join(f"{process.removeprefix(f'{name}_')} {mid[process]:.0f}" for process in processes)
    return f"{_PEERS[name][0]}: {1e6 / total(mid, processes):,.0f}/CPU s ({parts} µs)"


def _processes(figures: _Round, name: str) -> list[str]:
    return [figure for figure in figures if figure.startswith(f"{name}_")]
