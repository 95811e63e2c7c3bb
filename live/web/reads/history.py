"""Routes for the history of records, and for the parts of a score, from the journal."""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from live.domain.board import Board
from live.domain.event import rfc3339
from live.domain.views import HistoryList, HistoryStep, RecordHistory
from live.domain.window import EVER, parse_duration
from live.errors import ProblemError
from live.journal.past.history import read_history
from live.journal.past.queries import Step
from live.journal.past.rankings import explain_record, read_reach
from live.network.parameters import time_of
from live.web.http.middleware import client_of
from live.web.http.responses import kept_json, negotiated
from live.web.reads.sources import BoardPast, past_reply, some_members, when_of
from live.web.services import live_of, reader_of

MAX_STEPS: Final = 400
MAX_MEMBERS: Final = 20

_DAY: Final = 86_400_000  # milliseconds
_LEAST_STEP: Final = 1000  # milliseconds


class ScorePart(msgspec.Struct, frozen=True):
    """The part of a score in a slot, from `start` to before `end`. Both are null if the window has no slots.

    `fields` make up the part.
    """

    start: str | None
    end: str | None
    score: int
    fields: dict[str, int] | UnsetType = UNSET


class ScoreChange(msgspec.Struct, frozen=True):
    """Events of a member that were counted together: when, at which offset of the board, and their amount.

    A correction by an administrator has a `reason`. On boards that keep the best or last amount, the amount of a
    correction is the new score. `fields` make up the amount.
    """

    at: str
    offset: int
    amount: int
    reason: str | UnsetType = UNSET
    fields: dict[str, int] | UnsetType = UNSET


class Explanation(msgspec.Struct, frozen=True):
    """The parts of a score at a time, and the newest changes before that time, the newest change first."""

    board: str
    key: str
    as_of: str
    epoch: str
    offset: int
    score: int | None
    parts: Sequence[ScorePart]
    changes: Sequence[ScoreChange]
    fields: dict[str, int] | UnsetType = UNSET


async def get_explanation(request: Request) -> Response:
    """Return the parts of a score at a time."""
    live, member = live_of(request), request.path_params["key"]
    ledger = await live.use(request.path_params["board"], reader_of(request))
    past = await BoardPast.of(live, ledger, client_of(request).network)
    moment = await past.moment(when_of(request.query_params))
    board, parts = moment.board, await past.run(explain_record, moment, member)
    if member in moment.hidden or (parts.score is None and not parts.changes):
        raise ProblemError("record_not_found", "the member was not on the board then")
    body = Explanation(
        board=board.id,
        key=member,
        as_of=rfc3339(moment.at),
        epoch=parts.epoch,
        offset=parts.offset,
        score=parts.score,
        parts=[
            ScorePart(None, None, score, fields_of(board, score))
            if slot == EVER
            else ScorePart(rfc3339(slot.start * 1000), rfc3339(slot.end * 1000), score, fields_of(board, score))
            for slot, score in ((board.window.slot_at(start), score) for start, score in parts.slots)
        ],
        changes=[
            ScoreChange(
                rfc3339(change.at // 1000),
                change.offset,
                change.amount,
                change.reason or UNSET,
                fields_of(board, change.amount),
            )
            for change in parts.changes
        ],
        fields=fields_of(board, parts.score),
    )
    return negotiated(request, past_reply(body))


async def get_history(request: Request) -> Response:
    """Return the scores and ranks of one member over time."""
    return await _history(request, [request.path_params["key"]])


async def list_history(request: Request) -> Response:
    """Return the scores and ranks of members over time; without `key`, only since when the journal has the board."""
    members = request.query_params.getlist("key")
    if members:
        return await _history(request, some_members(members, MAX_MEMBERS))
    if request.query_params:
        raise ProblemError("parameter_invalid", "`from`, `to` and `step` need `key`")
    live = live_of(request)
    ledger = await live.use(request.path_params["board"], reader_of(request))
    past = await BoardPast.of(live, ledger, client_of(request).network)
    since = (await past.run(read_reach, past.board, past.epoch, ())).since
    body = HistoryList(past.board.id, (), None if since is None else rfc3339(since))
    return negotiated(request, kept_json(body, live.board_cache))


async def _history(request: Request, members: Sequence[str]) -> Response:
    live, client = live_of(request), client_of(request).network
    ledger = await live.use(request.path_params["board"], reader_of(request))
    past = await BoardPast.of(live, ledger, client)
    end = time_of(request.query_params["to"], "to") if "to" in request.query_params else past.now
    begin = time_of(request.query_params["from"], "from") if "from" in request.query_params else end - _DAY
    try:
        step = round(parse_duration(request.query_params.get("step", "1h")) * 1000)
    except ValueError as error:
        raise ProblemError("parameter_invalid", f"`step`: {error}") from None
    if end > past.now:
        raise ProblemError("parameter_invalid", "`to` is in the future")
    if begin > end or step < _LEAST_STEP or (end - begin) // step >= MAX_STEPS:
        raise ProblemError(
            "parameter_invalid",
            f"`from` must be before `to`, `step` at least 1s, and the history at most {MAX_STEPS} steps",
        )
    times = list(range(begin, end + 1, step))
    await past.wait(times[-1])
    found = await past.run(read_history, past.board, past.epoch, past.hidden, members, times)
    return negotiated(request, past_reply(HistoryList(past.board.id, _records(past.board, members, found))))


def _records(board: Board, members: Sequence[str], found: Sequence[Sequence[Step]]) -> list[RecordHistory]:
    return [
        RecordHistory(
            member,
            [HistoryStep(rfc3339(step.at), step.score, step.rank, fields_of(board, step.score)) for step in steps],
        )
        for member, steps in zip(members, found, strict=True)
    ]


def fields_of(board: Board, score: int | None) -> dict[str, int] | UnsetType:
    """Return the fields that make up a score or an amount, or UNSET if there are none."""
    return UNSET if board.score is None or score is None else board.score.unpack(score)
