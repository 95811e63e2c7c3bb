"""How scores came about: by slot of the window, from the store; histories and explanations, from the journal."""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from live.domain.board import Board
from live.domain.event import rfc3339
from live.domain.meaning import BOARD, EPOCH, FIELDS, MEMBER, OFFSET, SCORE, SCORE_THEN, says
from live.domain.views import HistoryList, HistoryStep, RecordHistory
from live.domain.window import EVER, MOST_FOLDED, parse_duration
from live.errors import ProblemError
from live.http.parameters import Parameters, Time
from live.journal.past.history import read_history
from live.journal.past.rankings import explain_record, read_reach
from live.store.board.read.slots import TOP_POINTS, SlotValues, read_slots
from live.web.api.sources import AsOfTime, BoardPast, When
from live.web.middleware import requester_of
from live.web.parts import live_of, reader_of
from live.web.responses import json_response, kept_json, negotiated, past_reply

_MAX_STEPS: Final = 400
_DAY: Final = 86_400_000  # milliseconds
_LEAST_STEP: Final = 1000  # milliseconds
_MAX_MEMBERS: Final = 100
_MAX_VALUES: Final = 10_000  # in one response; the store reads them in steps of about a millisecond


class ScorePart(msgspec.Struct, frozen=True):
    """The part of a score in a slot, from `start` to before `end`."""

    start: Annotated[str | None, says("Start of the slot, RFC 3339. Null if the window has no slots.")]
    end: Annotated[str | None, says("End of the slot, RFC 3339. Null if the window has no slots.")]
    score: Annotated[int, SCORE]
    fields: Annotated[dict[str, int] | UnsetType, FIELDS] = UNSET


class ScoreChange(msgspec.Struct, frozen=True):
    """Events of a member that were counted together, or a correction by an administrator.

    On boards that keep the best or last amount, the amount of a correction is the new score.
    """

    at: Annotated[str, says("When these events were counted, RFC 3339.")]
    offset: Annotated[int, OFFSET]
    amount: Annotated[int, says("Sum of the amounts of the member's events that were counted together.")]
    reason: Annotated[str | UnsetType, says("Why an administrator corrected the score. Omitted for events.")] = UNSET
    fields: Annotated[dict[str, int] | UnsetType, FIELDS] = UNSET


class Explanation(msgspec.Struct, frozen=True):
    """The parts of a score at a time, and the newest changes before that time, the newest change first."""

    board: Annotated[str, BOARD]
    member: Annotated[str, MEMBER] = msgspec.field(name="key")
    as_of: Annotated[str, says("The time at which the score is explained, RFC 3339.")]
    epoch: Annotated[str, EPOCH]
    offset: Annotated[int, OFFSET]
    score: Annotated[int | None, SCORE_THEN]
    parts: Annotated[Sequence[ScorePart], says("How much each slot adds to the score, the oldest slot first.")]
    changes: Annotated[Sequence[ScoreChange], says("The newest changes before that time, the newest change first.")]
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
    past = await BoardPast.of(live, ledger, requester_of(request).network)
    moment = await past.moment(When(as_of=query.as_of))
    board, parts = moment.board, await past.run(explain_record, moment, member)
    if member in moment.hidden or (parts.score is None and not parts.changes):
        raise ProblemError("record_not_found", "the member was not on the board then")
    body = Explanation(
        board=board.id,
        member=member,
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


class HistoryParameters(Parameters, frozen=True, kw_only=True, rename={"begin": "from"}):
    """The times of a history."""

    begin: Annotated[Time | None, says("The time of the first step. By default a day before `to`.")] = None
    to: Annotated[Time | None, says("The latest time that a step may have. By default now.")] = None
    step: Annotated[
        int,
        says(
            f"The time between two steps, such as `5m` or `1d`. At most {_MAX_STEPS} steps.",
            extra={"read": _step_of, "schema": {"type": "string", "default": "1h"}},
        ),
    ] = 3_600_000


class SeveralHistoryParameters(
    HistoryParameters, frozen=True, kw_only=True, rename={"members": "key", "begin": "from"}
):
    """The members whose history is read, and its times."""

    members: Annotated[Sequence[str], says("Repeat it for each member.", min_length=1, max_length=20)] = ()


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
    past = await BoardPast.of(live, ledger, requester_of(request).network)
    since = (await past.run(read_reach, past.board, past.epoch, ())).since
    body = HistoryList(past.board.id, (), None if since is None else rfc3339(since))
    return negotiated(request, kept_json(body, live.board_cache))


async def _history(request: Request, members: Sequence[str], query: HistoryParameters) -> Response:
    live, client = live_of(request), requester_of(request).network
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
    records = [
        RecordHistory(
            member,
            [HistoryStep(rfc3339(step.at), step.score, step.rank, fields_of(past.board, step.score)) for step in steps],
        )
        for member, steps in zip(members, found, strict=True)
    ]
    return negotiated(request, past_reply(HistoryList(past.board.id, records)))


def fields_of(board: Board, score: int | None) -> dict[str, int] | UnsetType:
    """Return the fields that make up a score or an amount, or UNSET if there are none."""
    return UNSET if board.packing is None or score is None else board.packing.unpack(score)


class SlotTime(msgspec.Struct, frozen=True):
    """One or several slots of the window, from `start` to before `end`."""

    start: Annotated[
        str | None, says("Start of the oldest slot of the point, RFC 3339. Null if the window has no slots.")
    ]
    end: Annotated[str | None, says("End of the newest slot of the point, RFC 3339. Null if the window has no slots.")]


class SlotScores(msgspec.Struct, frozen=True):
    """The score of a member in each point."""

    member: Annotated[str, MEMBER] = msgspec.field(name="key")
    scores: Annotated[
        Sequence[int | None], says("One score for each point. Null means no event, on boards that do not add amounts.")
    ]


class SlotList(msgspec.Struct, frozen=True):
    """The scores of members over the window. Each point adds up one or several slots."""

    board: Annotated[str, BOARD]
    epoch: Annotated[str, EPOCH]
    offset: Annotated[int, OFFSET]
    slots: Annotated[
        Sequence[SlotTime],
        says("The time of each point, the oldest point first. The last point is the slot that is still open."),
    ]
    records: Annotated[Sequence[SlotScores], says("Scores of the members, in the order of the request.")]


class SlotParameters(Parameters, frozen=True, kw_only=True):
    """The number of points."""

    limit: Annotated[int, says("Largest number of points.", ge=1, le=100)] = TOP_POINTS


class SeveralSlotParameters(SlotParameters, frozen=True, kw_only=True, rename={"members": "key"}):
    """The members whose slots are read, and the number of points."""

    members: Annotated[Sequence[str], says("Repeat it for each member.", min_length=1, max_length=_MAX_MEMBERS)] = ()


async def list_slots(request: Request, query: SeveralSlotParameters) -> Response:
    """Read scores by slot.

    Returns the scores of members over the window, with the oldest point first. If the window has more than `limit`
    slots, each point is the sum of several slots. Without `key`, the response has the members that were the first 100
    of the board when the newest point began.
    """
    live = live_of(request)
    cache = live.board_cache
    ledger = await live.use(request.path_params["board"], reader_of(request))
    board, members, limit = ledger.state.board, query.members, query.limit
    if not members:
        if "limit" in request.query_params:
            raise ProblemError("parameter_invalid", "`limit` needs `key`")
        top = await live.top_slots.of(ledger.reader)
        return negotiated(request, live.encoded.of(top, lambda: kept_json(_list_of(board, top), cache)))
    window = board.window
    slots = limit if window.tables or limit == 1 else min(window.live, MOST_FOLDED)
    most = min(_MAX_MEMBERS, _MAX_VALUES // slots)
    if len(members) > most:
        raise ProblemError("parameter_invalid", f"give `key` at most {most} times: {slots:,} slots are read for each")
    return json_response(_list_of(board, await read_slots(ledger.state, members, limit)), cache)


async def get_slots(request: Request, query: SlotParameters) -> Response:
    """Read the scores of one member by slot.

    Returns the score of the member over the window, with the oldest point first. If the window has more than `limit`
    slots, each point is the sum of several slots.
    """
    live = live_of(request)
    ledger = await live.use(request.path_params["board"], reader_of(request))
    found = await read_slots(ledger.state, [request.path_params["key"]], query.limit)
    if not found.values or not any(value is not None for value in found.values[0] or ()):
        raise ProblemError("record_not_found", "the member has no events in these slots of the window")
    return json_response(_list_of(ledger.state.board, found), live.board_cache)


def _list_of(board: Board, found: SlotValues) -> SlotList:
    """Leave out hidden members."""
    empty = 0 if board.operator == "incr" else None
    return SlotList(
        board=board.id,
        epoch=found.epoch,
        offset=found.offset,
        slots=[
            SlotTime(None, None) if slot == EVER else SlotTime(*(rfc3339(time, 1, "seconds") for time in slot))
            for slot in found.slots
        ],
        records=[
            SlotScores(member, [empty if value is None else value for value in values])
            for member, values in zip(found.members, found.values, strict=True)
            if values is not None
        ],
    )
