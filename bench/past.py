"""`past`: how long the journal takes to answer questions about the past of a board."""

import random
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from http.client import HTTPConnection
from statistics import median
from typing import Final
from urllib.parse import quote

import msgspec

from bench.board import BATCH, Board
from bench.processes import BenchError
from bench.table import Report, Row, Scale

_BOARD: Final = '[[board]]\nid = "posts"\nclock = "event"\n'
_DAYS: Final = 8
_TOP: Final = 1_000
_TIMEOUT: Final = 60.0


def past(scale: Scale, report: Report) -> list[Row]:
    """Ask for the past rankings of a board over 24 hours, and for the history of a record over a week by hours.

    The board uses the time of its events, which are spread over eight days. Each question is about another time, so no
    cache answers it. The figure is the wall time of one question at a time. A separate process of the server answers
    the questions.
    """
    with ExitStack() as stack:
        board = Board(stack, _BOARD)
        end = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        _fill(board, scale, end, report)
        board.await_drained()
        chance = random.Random(1)
        times = [end - timedelta(days=_DAYS - 1) * chance.random() for _ in range(scale.past_requests)]
        moments = [quote(time.isoformat()) for time in times]
        asked = "/v1/boards/posts?limit={}&start={}&as_of={}"
        deep = scale.members // 4
        week = quote((end - timedelta(days=7)).isoformat()), quote(end.isoformat())
        questions = {
            f"as of a time, the top {_TOP:,}": [asked.format(_TOP, 0, moment) for moment in moments],
            f"as of a time, {_TOP:,} from rank {deep:,} on": [asked.format(_TOP, deep, moment) for moment in moments],
            "history of a record over 7 days by hours": [
                f"/v1/boards/posts/records/post-{number:06d}/history?from={week[0]}&to={week[1]}&step=1h"
                for number in range(scale.past_requests)
            ],
        }
        now = _milliseconds(board, [f"/v1/boards/posts?limit={_TOP}&start={start}" for start in range(len(moments))])
        rows = []
        for name, paths in questions.items():
            report(name)
            rows.append(_row(name, _milliseconds(board, paths), now, scale))
        return rows


def _row(name: str, spent: Sequence[float], now: Sequence[float], scale: Scale) -> Row:
    return Row(
        work=f"past: {name}; {scale.past_events:,} events in {_DAYS} days",
        measured=f"p50 {median(spent):,.1f}, max {max(spent):,.1f} ms" if spent else "refused: takes more than 10 s",
        against=f"the top {_TOP:,} of now: p50 {median(now):,.1f} ms",
        figures={"milliseconds": list(spent), "now": list(now)},
    )


def _fill(board: Board, scale: Scale, end: datetime, report: Report) -> None:
    chance = random.Random(2)
    begin = end - timedelta(days=_DAYS)
    step = (end - begin) / scale.past_events
    with closing(HTTPConnection(board.server.address, timeout=_TIMEOUT)) as connection:
        for first in range(0, scale.past_events, BATCH):
            report(f"{first:,} events")
            events = [
                {
                    "key": f"post-{chance.randrange(scale.members):06d}",
                    "time": (begin + step * number).isoformat(timespec="milliseconds"),
                }
                for number in range(first, min(first + BATCH, scale.past_events))
            ]
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {board.key}"}
            while True:
                connection.request("POST", "/v1/events", msgspec.json.encode(events), headers)
                response = connection.getresponse()
                answer = response.read()
                if response.status != HTTPStatus.SERVICE_UNAVAILABLE:  # with 503, the rotation may be behind
                    break
                time.sleep(0.1)
            if response.status != HTTPStatus.OK or msgspec.json.decode(answer)["accepted"] != len(events):
                raise BenchError(f"a POST was answered {response.status}: {answer[:300]!r}")


def _milliseconds(board: Board, paths: Sequence[str]) -> list[float]:
    """Return the milliseconds that each question takes, or nothing if the server refuses a question as too large."""
    spent = []
    with closing(HTTPConnection(board.server.address, timeout=_TIMEOUT)) as connection:
        for path in paths:
            started = time.perf_counter()
            connection.request("GET", path)
            response = connection.getresponse()
            answer = response.read()
            spent.append((time.perf_counter() - started) * 1e3)
            if response.status == HTTPStatus.BAD_REQUEST and b'"past_too_large"' in answer:
                return []
            if response.status != HTTPStatus.OK:
                raise BenchError(f"GET {path} was answered {response.status}: {answer[:300]!r}")
    return spent
