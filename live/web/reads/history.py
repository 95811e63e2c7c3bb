"""Routes for the history of records, and for the parts of a score, from the journal."""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from live.domain.board import Board
from live.domain.event import rfc3339
from live.domain.text import BOARD, EPOCH, FIELDS, KEY, OFFSET, SCORE, SCORE_THEN
from live.domain.views import HistoryList, HistoryStep, RecordHistory
from live.domain.window import EVER, parse_duration
from live.errors import ProblemError
from live.journal.past.history import read_history
from live.journal.past.queries import Step
from live.journal.past.rankings import explain_record, read_reach
from live.network.parameters import Parameters, Time
from live.web.http.middleware import client_of
from live.web.http.responses import kept_json, negotiated
from live.web.reads.sources import AsOfTime, BoardPast, When, past_reply
from live.web.services import live_of, reader_of

_MAX_STEPS: Final = 400
_DAY: Final = 86_400_000  # milliseconds
_LEAST_STEP: Final = 1000  # milliseconds


class ScorePart(msgspec.Struct, frozen=True):
    """The part of a score in a slot, from `start` to before `end`. Both are null if the window has no slots.

    `fields` make up the part.
    """

    start: Annotated[str | None, Meta(description="Start of the slot, RFC 3339. Null if the window has no slots.")]
    end: Annotated[str | None, Meta(description="End of the slot, RFC 3339. Null if the window has no slots.")]
    score: Annotated[int, SCORE]
    fields: Annotated[dict[str, int] | UnsetType, FIELDS] = UNSET


class ScoreChange(msgspec.Struct, frozen=True):
    """Events of a member that were counted together: when, at which offset of the board, and their amount.

    A correction by an administrator has a `reason`. On boards that keep the best or last amount, the amount of a
    correction is the new score. `fields` make up the amount.
    """

    at: Annotated[str, Meta(description="When these events were counted, RFC 3339.")]
    offset: Annotated[int, OFFSET]
    amount: Annotated[int, Meta(description="Sum of the amounts of the member's events that were counted together.")]
    reason: Annotated[
        str | UnsetType, Meta(description="Why an administrator corrected the score. Omitted for events.")
    ] = UNSET
    fields: Annotated[dict[str, int] | UnsetType, FIELDS] = UNSET


class Explanation(msgspec.Struct, frozen=True):
    """The parts of a score at a time, and the newest changes before that time, the newest change first."""

    board: Annotated[str, BOARD]
    key: Annotated[str, KEY]
    as_of: Annotated[str, Meta(description="The time at which the score is explained, RFC 3339.")]
    epoch: Annotated[str, EPOCH]
    offset: Annotated[int, OFFSET]
    score: Annotated[int | None, SCORE_THEN]
    parts: Annotated[
        Sequence[ScorePart], Meta(description="How much each slot adds to the score, the oldest slot first.")
    ]
    changes: Annotated[
        Sequence[ScoreChange], Meta(description="The newest changes before that time, the newest change first.")
    ]
    fields: Annotated[dict[str, int] | UnsetType, FIELDS] = UNSET


class ExplanationParameters(Parameters, frozen=True, kw_only=True):
    """The time at which a score is explained."""

    as_of: AsOfTime = None


async def get_explanation(request: Request, query: ExplanationParameters) -> Response:
    """Read what a score consists of.

    Returns how much each slot adds to the score, and the newest changes of the score. This needs a journal.
    """
    live, member = live_of(request), request.path_params["key"]
    ledger = await live.use(request.path_params["board"], reader_of(request))
    past = await BoardPast.of(live, ledger, client_of(request).network)
    moment = await past.moment(When(as_of=query.as_of))
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


def _step_of(text: str) -> int:
    return round(parse_duration(text) * 1000)


class HistoryParameters(Parameters, frozen=True, kw_only=True):
    """The times of a history."""

    begin: Annotated[Time | None, Meta(description="The time of the first step. By default a day before `to`.")] = (
        msgspec.field(name="from", default=None)
    )
    to: Annotated[Time | None, Meta(description="The latest time that a step may have. By default now.")] = None
    step: Annotated[
        int,
        Meta(
            description=f"The time between two steps, such as `5m` or `1d`. At most {_MAX_STEPS} steps.",
            extra={"read": _step_of, "schema": {"type": "string", "default": "1h"}},
        ),
    ] = 3_600_000


class SeveralHistoryParameters(HistoryParameters, frozen=True, kw_only=True):
    """The members whose history is read, and its times."""

    members: Annotated[list[str], Meta(min_length=1, max_length=20, description="Repeat it for each member.")] = (
        msgspec.field(name="key", default_factory=list)
    )


async def get_history(request: Request, query: HistoryParameters) -> Response:
    """Read how the score and rank of a record changed.

    Returns the score and rank at each time, or null without a record at that time. This needs a journal.
    """
    return await _history(request, [request.path_params["key"]], query)


async def list_history(request: Request, query: SeveralHistoryParameters) -> Response:
    """Read how the scores and ranks of some records changed.

    Returns the same as `getHistory`, for several members. Without `key`, the response has no records: it says only
    since when the journal has the board.
    """
    if query.members:
        return await _history(request, query.members, query)
    if request.query_params:
        raise ProblemError("parameter_invalid", "`from`, `to` and `step` need `key`")
    live = live_of(request)
    ledger = await live.use(request.path_params["board"], reader_of(request))
    past = await BoardPast.of(live, ledger, client_of(request).network)
    since = (await past.run(read_reach, past.board, past.epoch, ())).since
    body = HistoryList(past.board.id, (), None if since is None else rfc3339(since))
    return negotiated(request, kept_json(body, live.board_cache))


async def _history(request: Request, members: Sequence[str], query: HistoryParameters) -> Response:
    live, client = live_of(request), client_of(request).network
    ledger = await live.use(request.path_params["board"], reader_of(request))
    past = await BoardPast.of(live, ledger, client)
    end = past.now if query.to is None else query.to
    begin, step = end - _DAY if query.begin is None else query.begin, query.step
    if end > past.now:
        raise ProblemError("parameter_invalid", "`to` is in the future")
    if begin > end or step < _LEAST_STEP or (end - begin) // step >= _MAX_STEPS:
        raise ProblemError(
            "parameter_invalid",
            f"`from` must be before `to`, `step` at least 1s, and the history at most {_MAX_STEPS} steps",
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
