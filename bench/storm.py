"""`reconnect-storm`: every viewer loses its connection at once, and all reconnect at once."""

from contextlib import ExitStack
from typing import Final

import redis

from bench.board import OURS, Board
from bench.processes import BenchError, Server, cpu_seconds
from bench.swarm import Programs, Swarm, built, need_files, not_built, swarming
from bench.table import Report, Row, Scale, medians, of_round
from bench.watched import PATH, fill_top, liked, settle, watched_board

_GOAL: Final = 10  # seconds
_SCRIPTS: Final = ("cmdstat_eval", "cmdstat_fcall")  # prefixes of the commands that run a script


def reconnect_storm(scale: Scale, report: Report) -> list[Row]:
    """Reset every connection, open as many at once, and time until the last viewer has its first frame.

    Meanwhile the board receives 20 POSTs per second. The scripts that count their likes are included in the result. All
    handshakes run at once; a refused viewer tries again.
    """
    need_files(2 * scale.viewers)  # the server may not have noticed the closed connections yet
    with ExitStack() as stack:
        programs = stack.enter_context(built())
        if programs is None:
            return not_built("reconnect-storm")
        board = watched_board(stack)
        fill_top(board)
        rounds = _storms(board, programs, scale, report)
    mid = medians(rounds)
    return [
        Row(
            work=f"reconnect-storm: {scale.viewers:,} viewers cut off at once",
            measured=f"all have a frame after {mid['seconds']:.2f} s (handshakes: {mid['open_seconds']:.2f} s)",
            against=f"the goal: {_GOAL} s",
            ratio=mid["seconds"] / _GOAL,
            goal=f"≤ {_GOAL} s",
            figures={"medians": mid, "rounds": rounds},
        ),
        Row(
            work="reconnect-storm: cost",
            measured=f"{mid['scripts']:,.0f} scripts in the store, {mid['posts']:,.0f} of them likes; "
            f"{mid['refused']:,.0f} refusals",
            against=f"{sum(mid[name] for name in OURS) / scale.viewers * 1e6:.0f} µs of server and store per viewer",
        ),
    ]


def _storms(board: Board, programs: Programs, scale: Scale, report: Report) -> list[dict[str, float]]:
    rounds = []
    with swarming(programs, board.server, PATH) as swarm:
        report("connecting")
        swarm.connect(scale.viewers, first=True)
        for number in range(1, scale.rounds + 1):
            of_round(report, number)("storm")
            rounds.append(_storm(board, swarm, scale))
    return rounds


def _storm(board: Board, swarm: Swarm, scale: Scale) -> dict[str, float]:
    with liked(board) as sender:
        settle()
        scripts, sent = _scripts(board.store), sender.sent
        cpu = {name: cpu_seconds(server.pid) for name, server in board.processes.items()}
        swarm.cut()
        opened = swarm.connect(0, at_once=scale.viewers, first=True)
        used = {name: cpu_seconds(server.pid) - cpu[name] for name, server in board.processes.items()}
        figures = {"scripts": _scripts(board.store) - scripts, "posts": sender.sent - sent}
    if opened.viewers != scale.viewers:
        raise BenchError(f"{opened.viewers:,} of {scale.viewers:,} viewers reconnected")
    return figures | used | {
        "seconds": opened.seconds, "open_seconds": opened.open_seconds, "refused": opened.refused,
    }  # fmt: skip


def _scripts(store: Server) -> int:
    with redis.Redis(unix_socket_path=store.address) as client:
        counts = client.info("commandstats")
    return sum(int(count["calls"]) for name, count in counts.items() if name.startswith(_SCRIPTS))
