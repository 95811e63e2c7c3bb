"""The baseline of a board, against which movement is measured."""

from collections.abc import Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from live.domain.board import Board
from live.domain.event import rfc3339
from live.domain.window import Periods
from live.store.board.read.baseline import Baseline
from live.web.http.responses import json_response, kept_json, negotiated
from live.web.services import live_of


class BaselineView(msgspec.Struct, frozen=True):
    """The ranks of members at the start of the hour.

    `since` is the exact time, and null if there is no baseline yet. A member that is missing in `ranks` was not among
    the first 1,000. `period` is the name of the period that was ranked, on calendar boards.
    """

    board: str
    epoch: str
    period: str | None
    since: str | None
    ranks: Mapping[str, int]


async def get_baseline(request: Request) -> Response:
    """Return the baseline of a board."""
    live = live_of(request)
    ledger = await live.use(request.path_params["board"])
    baseline = await live.baselines.of(ledger.baseline)
    board = ledger.state.board
    if baseline is None:
        return json_response(BaselineView(board.id, ledger.state.epoch or "", None, None, {}))
    return negotiated(request, live.encoded.of(baseline, lambda: kept_json(_view_of(board, baseline))))


def _view_of(board: Board, baseline: Baseline) -> BaselineView:
    since = rfc3339(baseline.time)
    return BaselineView(board.id, baseline.epoch, period_name(board, baseline.slot), since, baseline.ranks)


def period_name(board: Board, slot: int | None) -> str | None:
    """The name of the period that starts at `slot`, on a board with a ranking for each period."""
    window = board.window
    return window.calendar.at(slot).name if isinstance(window, Periods) and slot is not None else None
