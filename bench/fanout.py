"""`fan-out`: CPU time per frame delivered to a viewer, compared with the baseline and the peers."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from bench.board import OURS, Board
from bench.broadcasters import TICK, Peer, find_peers
from bench.swarm import ENOUGH, Delivery, Programs, built, need_files, not_built, pin, swarming
from bench.table import Report, Row, Scale, median_ratio, medians, of_round, total
from bench.watched import PATH, fill_top, liked, settle, watched_board

_GOALS: Final = {"floor": "≤ 1.25 x", "nchan": "≤ 0.80 x"}
_ALONE: Final = "≤ 1.10 x"
_Round = dict[str, float]


def fan_out(scale: Scale, report: Report) -> list[Row]:
    """Measure the CPU time per received frame, with one board, many viewers and ten frames per second.

    Each server runs alone on one core, and the viewers run on the other. Our board receives 20 POSTs per second with 3
    likes each. The figure includes all CPU time of the server process: receiving the likes, reading the top, encoding a
    frame and sending it to every viewer. The row "server and store" adds the store. Peers are measured alternately.
    They have no store and encode nothing. Each sends frames as long as ours in that round. Nchan receives ten POSTs per
    second and sends a frame for each; its figure includes these POSTs. The other peers send by their own timers. The
    kernel charges the work for a frame to its sender.
    """
    need_files(scale.viewers)
    with ExitStack() as stack:
        programs = stack.enter_context(built())
        if programs is None:
            return not_built("fan-out")
        peers = find_peers(programs)
        board = watched_board(stack)
        fill_top(board)
        rounds = [
            _round(board, programs, peers, scale, of_round(report, number)) for number in range(1, scale.rounds + 1)
        ]
    return _rows(rounds, peers, scale)


def _round(board: Board, programs: Programs, peers: dict[str, Peer], scale: Scale, report: Report) -> _Round:
    report("ours")
    delivery = measure_ours(board, programs, scale)
    figures = dict(zip(OURS, delivery.microseconds(), strict=True)) | _figures_of("ours", delivery)
    for name, peer in peers.items():
        if peer.start is not None:
            report(peer.title)
            figures |= _measure_peer(name, peer, programs, scale, round(delivery.payload))
    return figures


def measure_ours(board: Board, programs: Programs, scale: Scale) -> Delivery:
    """Watch the board while likes arrive."""
    with liked(board), swarming(programs, board.server, PATH) as swarm:
        swarm.connect(scale.viewers, first=True)
        settle()
        return swarm.measure(scale.fan_seconds, [board.server, board.store])


def _measure_peer(name: str, peer: Peer, programs: Programs, scale: Scale, size: int) -> _Round:
    assert peer.start is not None  # noqa: S101 - the caller skips the others
    with peer.start(size) as broadcaster:
        pin(broadcaster.server.pid, 0)
        with swarming(programs, broadcaster.server, broadcaster.path) as swarm:
            swarm.connect(scale.viewers, first=True)
            settle()
            delivery = swarm.measure(scale.fan_seconds, [broadcaster.server])
    return {name: delivery.microseconds()[0]} | _figures_of(name, delivery)


def _figures_of(name: str, delivery: Delivery) -> _Round:
    return {
        f"{name}_share": delivered_share(delivery), f"{name}_rate": delivery.rate, f"{name}_payload": delivery.payload,
        f"{name}_least": delivery.least, f"{name}_lost": delivery.lost,
        f"{name}_swarm_load": delivery.swarm_cpu / delivery.seconds,
    }  # fmt: skip


def delivered_share(delivery: Delivery, pause: float = TICK) -> float:
    """Return which share of the due frames arrived.

    One frame is due per `pause`. Frames to lost viewers count as missing.
    """
    return delivery.frames / ((delivery.viewers + delivery.lost) * delivery.seconds / pause)


def behind(share: float) -> str:
    """Return the note for a server that delivered less than was due, otherwise an empty text."""
    return "" if share >= ENOUGH else f"; FELL BEHIND: {share:.0%} of the frames"


def _rows(rounds: Sequence[_Round], peers: dict[str, Peer], scale: Scale) -> list[Row]:
    mid = medians(rounds)
    late = behind(mid["ours_share"])
    whole = f"server {mid['server']:.2f} + store {mid['store']:.2f} µs per frame{late}"
    return [
        Row(
            work=f"fan-out: {scale.viewers:,} viewers, {mid['ours_payload']:.0f}-byte frames, 10 per second",
            measured=f"server {mid['server']:.2f} µs per frame, {mid['ours_rate']:,.0f} frames/s{late}",
            against=_cost(mid, "floor", peers),
            ratio=median_ratio(rounds, ("server",), ("floor",)),
            goal=_ALONE,
            figures={"medians": mid, "rounds": rounds},
        ),
        *(_against(rounds, mid, name, peers, whole) for name in peers),
    ]


def _against(rounds: Sequence[_Round], mid: _Round, name: str, peers: dict[str, Peer], whole: str) -> Row:
    work = "fan-out: server and store" + ("" if name == "floor" else f", against {name}")
    goal = _GOALS.get(name, "")
    if name not in mid:
        return Row(work=work, measured=f"not measured: {peers[name].needs} is not installed", goal=goal)
    ours = whole if name == "floor" else f"{total(mid, OURS):.2f} µs per frame{behind(mid['ours_share'])}"
    return Row(
        work=work, measured=ours, against=_cost(mid, name, peers), ratio=median_ratio(rounds, OURS, (name,)), goal=goal
    )


def _cost(mid: _Round, name: str, peers: dict[str, Peer]) -> str:
    return f"{peers[name].title}: {mid[name]:.2f} µs{behind(mid[f'{name}_share'])}"
