"""`defining`: the cost of creating a board, on a server with few and with many other boards."""

from contextlib import ExitStack, closing
from http import HTTPStatus
from http.client import HTTPConnection
from typing import Final

from bench.board import OURS, PLAIN, Board
from bench.processes import BenchError, cpu_seconds
from bench.table import Report, Row, Scale, median_ratio, medians, of_round, total

_BOARD: Final = '[[board]]\nid = "b-{0}"\ntypes = ["b-{0}"]\n'
_FEW: Final = 10
_BODY: Final = b'{"ties": "key", "types": ["new"]}'
_Round = dict[str, float]


def defining(scale: Scale, report: Report) -> list[Row]:
    """Measure the CPU time of server and store for each board that `PUT /v1/boards/{board}` creates.

    One server has 10,000 boards in its file, and the other has 10. The servers alternate. Boards are deleted between
    the rounds, so that each round begins with the same number.
    """
    sizes = {"few": _FEW, "many": scale.unwatched_boards}
    with ExitStack() as stack:
        boards = {}
        for size, count in sizes.items():
            report(f"starting with {count:,} boards")
            boards[size] = Board(stack, PLAIN + "".join(_BOARD.format(number) for number in range(count)))
        rounds = [_round(boards, scale, of_round(report, number)) for number in range(1, scale.rounds + 1)]
    mid = medians(rounds)
    many, few = ([f"{size}_{process}" for process in OURS] for size in ("many", "few"))
    server, store = (mid[name] for name in many)
    return [
        Row(
            work=f"defining: create a board beside {scale.unwatched_boards:,} boards",
            measured=f"{total(mid, many):.2f} ms of CPU (server {server:.2f} + store {store:.2f})",
            against=f"beside {_FEW} boards: {total(mid, few):.2f} ms",
            ratio=median_ratio(rounds, many, few),
            goal="≤ 1.10 x",
            figures={"medians": mid, "rounds": rounds},
        )
    ]


def _round(boards: dict[str, Board], scale: Scale, report: Report) -> _Round:
    figures: _Round = {}
    for size, board in boards.items():
        report(f"{size} boards")
        before = {name: cpu_seconds(server.pid) for name, server in board.processes.items()}
        _send(board, "PUT", HTTPStatus.CREATED, scale.definitions)
        used = {name: cpu_seconds(server.pid) - before[name] for name, server in board.processes.items()}
        figures |= {f"{size}_{name}": seconds / scale.definitions * 1e3 for name, seconds in used.items()}
        _send(board, "DELETE", HTTPStatus.NO_CONTENT, scale.definitions)
    return figures


def _send(board: Board, method: str, status: HTTPStatus, count: int) -> None:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {board.key}"}
    with closing(HTTPConnection(board.server.address, timeout=10)) as connection:
        for number in range(count):
            connection.request(method, f"/v1/boards/n-{number}", _BODY if method == "PUT" else None, headers)
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != status:
                raise BenchError(f"{method} of a board was answered {answer.status}: {body[:200]!r}")
