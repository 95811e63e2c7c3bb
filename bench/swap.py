"""`swap`: what producers notice while the contents of a large board are replaced."""

import random
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from http import HTTPStatus
from http.client import HTTPConnection
from typing import Final

import msgspec

from bench.board import BATCH, Board
from bench.plans import Load, Members, Plan, Posts
from bench.posting import Posting, posting_to
from bench.processes import BenchError, add_api_key, data_of, drive, measure_command
from bench.table import Report, Row, Scale, quantile

_BOARD: Final = '[[board]]\nid = "posts"\n'
_RATE: Final = 100  # bodies per second
_EVENTS: Final = 20  # events per body
_BODIES: Final = 1_000
_TIMEOUT: Final = 600.0
_IDLE: Final = 5.0  # seconds of POSTs before and after


def swap(scale: Scale, report: Report) -> list[Row]:
    """Take events of a producer back, and then change the window, while another producer sends 2,000 events a second.

    The board has ties by time. The journal of both producers is in SQL before.
    """
    with ExitStack() as stack:
        board = Board(stack, _BOARD, summed=False)
        other = add_api_key(board.store, "other")  # the server knows it when the members are counted
        report(f"counting {scale.many_members:,} members")
        board.fill(Members(count=scale.many_members, order="each"), scale.many_members)
        _fill_by(other, board, scale.many_members // 50)
        board.await_drained()
        acts: dict[str, Callable[[Board], float]] = {
            f"take {scale.many_members // 50:,} events of a producer back": _void,
            "count 48 hours instead of 24": _change_window,
        }
        return [_row(name, act, board, scale, report) for name, act in acts.items()]


def _row(name: str, act: Callable[[Board], float], board: Board, scale: Scale, report: Report) -> Row:
    chance = random.Random(name)
    bodies = [
        msgspec.json.encode([{"key": f"post-{chance.randrange(scale.many_members):06d}"} for _ in range(_EVENTS)])
        for _ in range(_BODIES)
    ]
    posting = Posting(path="/v1/events", bodies=bodies, rate=_RATE, key=board.key, expect=b'"rejected":[],')
    with posting_to(board.server, posting) as sender:
        time.sleep(_IDLE)
        before = len(sender.spent)
        report(name)
        begun = time.perf_counter()
        megabytes = act(board)
        seconds = time.perf_counter() - begun
        time.sleep(_IDLE)
    idle, busy = sender.spent[:before], sender.spent[before:]
    if seconds * _RATE * 0.5 > len(busy):
        raise BenchError(f"the producer sent {len(busy):,} bodies in {seconds:.0f} s: this machine is too slow for it")
    return Row(
        work=f"{name}; {scale.many_members:,} members, {_RATE * _EVENTS:,} events/s",
        measured=f"longest POST {max(busy) * 1e3:.0f} ms, p99 {quantile(busy, 0.99) * 1e3:.1f} ms, none refused",
        against=f"before: p99 {quantile(idle, 0.99) * 1e3:.1f} ms; in all {seconds:.0f} s"
        + (f", peak memory {megabytes:,.0f} MB" if megabytes else ""),
        goal="≤ 150 ms",
        figures={"seconds": seconds, "longest": max(busy), "megabytes": megabytes, "posts": len(busy)},
    )


def _fill_by(key: str, board: Board, events: int) -> None:
    content = Posts(members=Members(count=events, order="each"), events=BATCH)
    drive(
        Plan(
            address=board.server.address,
            content=content,
            load=Load(requests=max(1, events // BATCH), connections=1),
            key=key,
            expect=f'{{"accepted":{BATCH},',
        ),
        {},
    )


def _void(board: Board) -> float:
    """Take the events of the second producer back. Return the peak memory of the command in megabytes."""
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    _, used = measure_command(
        "void", "--producer", "other", "--since", midnight.isoformat(), "--board", "posts", "--yes", "--json",
        "--store", f"unix://{board.store.address}", "--data-dir", str(data_of(board.store)),
    )  # fmt: skip
    return used.ru_maxrss / 1024


def _change_window(board: Board) -> float:
    """Give the board another window. The memory of the process that does it is not measured: return 0."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {board.key}"}
    with closing(HTTPConnection(board.server.address, timeout=_TIMEOUT)) as connection:
        connection.request("PATCH", "/v1/boards/posts", b'{"window":{"rolling":"48h"}}', headers)
        response = connection.getresponse()
        answer = response.read()
    if response.status != HTTPStatus.OK:
        raise BenchError(f"PATCH was answered {response.status}: {answer[:300]!r}")
    return 0.0
