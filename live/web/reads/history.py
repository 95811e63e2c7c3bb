"""The past of boards: `?as_of=`, `?explain=true`, and the history of records, from the journal."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from live.domain.board import Board
from live.domain.event import rfc3339
from live.domain.window import EVER, Periods, parse_duration
from live.errors import ProblemError
from live.journal.past.history import read_history
from live.journal.past.pool import Past
from live.journal.past.queries import AsOf, NoPastError
from live.journal.past.rankings import explain_record, find_in_period, find_record, read_period, read_ranking
from live.network.parameters import time_of, whole_number
from live.store.board.keys import SystemKeys
from live.store.board.ledger import Ledger
from live.web.http.middleware import client_of
from live.web.paging import DEFAULT_LIMIT
from live.web.past_pages import PastPage, cursor_at, page_of, past_response, start_in
from live.web.services import Live, live_of

_T = TypeVar("_T")

MAX_STEPS: Final = 400
MAX_MEMBERS: Final = 20
_DAY: Final = 86_400_000  # milliseconds
_LEAST_STEP: Final = 1000  # milliseconds


class HistoryStep(msgspec.Struct, frozen=True):
    """A record at a time. `score` and `rank` are null if it was not on the board."""

    at: str
    score: int | None
    rank: int | None


class RecordHistory(msgspec.Struct, frozen=True):
    """How a record moved."""

    key: str
    steps: Sequence[HistoryStep]


class HistoryList(msgspec.Struct, frozen=True):
    """How records moved: each at the same times, the first one first."""

    board: str
    records: Sequence[RecordHistory]


class ScorePart(msgspec.Struct, frozen=True):
    """What a slot holds of a score, from `start` to before `end`. Both are null if the window has no slots."""

    start: str | None
    end: str | None
    score: int


class ScoreChange(msgspec.Struct, frozen=True):
    """Events of a member that were counted together: when, at which offset of the board, and their amount."""

    at: str
    offset: int
    amount: int


class Explanation(msgspec.Struct, frozen=True):
    """What a score consisted of at a time, and the newest changes before it, the last one first."""

    board: str
    key: str
    as_of: str
    epoch: str
    offset: int
    score: int | None
    parts: Sequence[ScorePart]
    changes: Sequence[ScoreChange]


class _PastQuery(NamedTuple):
    """A query of the past of a board: what runs it, the network of the client, and the board at a time."""

    past: Past
    client: str
    moment: AsOf

    async def run(self, work: Callable[..., _T], *given: object) -> _T:
        """Do work that receives the moment, and what is given."""
        return await _await_result(self.past.run(self.client, work, self.moment, *given))


async def past_page(request: Request, live: Live) -> PastPage:
    """The page of a board at a time.

    Raises:
        ProblemError: a parameter is not valid, or the journal does not reach back so far.
    """
    query = request.query_params
    ledger = await live.use(request.path_params["board"])
    past_query = await _past_query(live, ledger, client_of(request).network, query)
    limit = whole_number(query, "limit", min(DEFAULT_LIMIT, live.settings.max_limit), 1, live.settings.max_limit)
    start = start_in(query)
    found = await past_query.run(read_ranking, start, limit)
    following = start + limit
    cursor = cursor_at(following) if following < found.count else None
    return page_of(past_query.moment, found, cursor)


async def past_top(live: Live, ledger: Ledger, client: str, query: Mapping[str, str], size: int) -> PastPage:
    """The first records of a board at a time, for the network of a client. Raises as `past_page`."""
    past_query = await _past_query(live, ledger, client, query)
    return page_of(past_query.moment, await past_query.run(read_ranking, 0, size), None)


async def past_record(request: Request, live: Live, member: str, around: int) -> PastPage:
    """The page around a record at a time, with at least the record above it. Raises as `past_page`."""
    ledger = await live.use(request.path_params["board"])
    past_query = await _past_query(live, ledger, client_of(request).network, request.query_params)
    found = await past_query.run(find_record, member, max(around, 1))
    if found is None:
        raise ProblemError("record_not_found", "the member was not on the board then")
    return page_of(past_query.moment, found, None)


async def archived_page(live: Live, ledger: Ledger, client: str, period: int, first: int, limit: int) -> PastPage:
    """Read records of a period that the board does not keep any more, for the network of a client.

    Raises:
        ProblemError: the journal does not have the period.
    """
    past_query = await _archived(live, ledger, client, period)
    found = await past_query.run(read_period, first, limit)
    if found is None:
        raise _no_period(ledger.state.board)
    following = first + limit
    return page_of(past_query.moment, found, cursor_at(following) if following < found.count else None)


async def archived_record(
    live: Live, ledger: Ledger, client: str, period: int, member: str, around: int
) -> PastPage | None:
    """Read a record of such a period with its neighbours; None if there was none. Raises as `archived_page`."""
    past_query = await _archived(live, ledger, client, period)
    found = await past_query.run(find_in_period, member, max(around, 1))
    return None if found is None else page_of(past_query.moment, found, None)


async def _archived(live: Live, ledger: Ledger, client: str, start: int) -> _PastQuery:
    if live.past is None:
        raise _no_period(ledger.state.board)
    facts = await _facts(live, ledger)
    moment = AsOf(ledger.state.board, facts.now, start, facts.hidden)
    try:
        await _require(live.past, facts, ledger, client, facts.now)
    except ProblemError as error:
        if error.code == "past_unavailable":
            raise _no_period(ledger.state.board) from None
        raise
    return _PastQuery(live.past, client, moment)


def _no_period(board: Board) -> ProblemError:
    kept = board.window.keep if isinstance(board.window, Periods) else 0
    return ProblemError(
        "period_not_found",
        f"the board keeps the current period and the {kept} before it, and the journal does not have this one",
    )


async def explain(request: Request, live: Live, member: str) -> Response:
    """Return what a score consisted of."""
    ledger = await live.use(request.path_params["board"])
    past_query = await _past_query(live, ledger, client_of(request).network, request.query_params)
    moment = past_query.moment
    board, parts = moment.board, await past_query.run(explain_record, member)
    if member in moment.hidden or (parts.score is None and not parts.changes):
        raise ProblemError("record_not_found", "the member was not on the board then")
    body = Explanation(
        board=board.id,
        key=member,
        as_of=rfc3339(moment.at),
        epoch=parts.epoch,
        offset=parts.offset,
        score=parts.score,
        parts=[ScorePart(*_slot_times(board, start), score) for start, score in parts.slots],
        changes=[ScoreChange(rfc3339(change.at // 1000), change.offset, change.amount) for change in parts.changes],
    )
    return past_response(request, body)


async def get_history(request: Request) -> Response:
    """Return how one record moved."""
    return await _history(request, [request.path_params["key"]])


async def list_history(request: Request) -> Response:
    """Return how some records moved."""
    members = request.query_params.getlist("key")
    if not 0 < len(members) <= MAX_MEMBERS:
        raise ProblemError("parameter_invalid", f"give `key` 1 to {MAX_MEMBERS} times")
    return await _history(request, members)


async def _history(request: Request, members: Sequence[str]) -> Response:
    live, client = live_of(request), client_of(request).network
    ledger = await live.use(request.path_params["board"])
    facts = await _facts(live, ledger)
    times = _times(request.query_params, facts.now)
    past = _past(live)
    await _require(past, facts, ledger, client, times[-1])
    found = await _await_result(past.run(client, read_history, ledger.state.board, facts.hidden, members, times))
    records = [
        RecordHistory(member, [HistoryStep(rfc3339(step.at), step.score, step.rank) for step in steps])
        for member, steps in zip(members, found, strict=True)
    ]
    return past_response(request, HistoryList(ledger.state.board.id, records))


async def _past_query(live: Live, ledger: Ledger, client: str, query: Mapping[str, str]) -> _PastQuery:
    board, past, facts = ledger.state.board, _past(live), await _facts(live, ledger)
    at = time_of(query["as_of"], "as_of") if "as_of" in query else facts.now
    if at > facts.now:
        raise ProblemError("parameter_invalid", "`as_of` is in the future")
    moment = AsOf(board, at, _period(board, query.get("period", "current"), at), facts.hidden)
    await _require(past, facts, ledger, client, at)
    return _PastQuery(past, client, moment)


def _past(live: Live) -> Past:
    if live.past is None:
        raise ProblemError("past_unavailable", "this server keeps no journal: see LIVE_JOURNAL")
    return live.past


async def _await_result(result: Awaitable[_T]) -> _T:
    try:
        return await result
    except NoPastError as error:
        since = "nothing" if error.since is None else f"everything since {rfc3339(error.since)}"
        raise ProblemError("past_unavailable", f"the journal has {since} of this board") from None


class _StoreFacts(NamedTuple):
    """What a read of the past needs from the store.

    `now` is the time of the store in milliseconds, rounded up: everything that was counted until now is before it.
    It is read before `link`, so that the journal up to `link` has everything before `now`.
    `link` is the last entry of the board's journal, None if it has none, and `sink` the database of the journals.
    """

    now: int
    hidden: frozenset[str]
    link: str | None
    sink: str


async def _facts(live: Live, ledger: Ledger) -> _StoreFacts:
    """Read the facts with one round trip."""
    state, sink = ledger.state, SystemKeys(live.settings.key_prefix).sink
    await state.open()
    meta, hidden = state.keys.meta, state.keys.hidden
    commands = [(meta, ("TIME",)), (meta, ("HKEYS", hidden)), (meta, ("HGET", meta, "journal")), (sink, ("GET", sink))]
    replies = await live.client.calls(commands)
    (seconds, micro), members, link, holder = replies
    return _StoreFacts(
        int(seconds) * 1000 + int(micro) // 1000 + 1,
        frozenset(member.decode() for member in members),
        None if link is None else link.decode(),
        (holder or b"").decode(),
    )


async def _require(past: Past, facts: _StoreFacts, ledger: Ledger, client: str, at: int) -> None:
    """Wait until the journal has everything before a time.

    Raises:
        ProblemError: the board has no journal, or it goes into another database.
        JournalBehindError: the journal does not catch up.
    """
    state = ledger.state
    if facts.link is None:
        raise ProblemError("past_unavailable", "this board has no journal")
    if not await past.is_of(client, facts.sink):
        raise ProblemError("past_unavailable", "another server keeps the journal of this store: ask that one")
    await past.wait(client, state.board, state.epoch or "", facts.link, at)


def _period(board: Board, name: str, at: int) -> int | None:
    """The start of a period, as it was called at a time; None for the one that was current."""
    if name == "current":
        return None
    window = board.window
    if not isinstance(window, Periods) or not window.tables:
        raise ProblemError("parameter_invalid", f"`period`: board {board.id} does not have a ranking for each period")
    try:
        if name == "previous":
            return window.calendar.before(window.calendar.at(at // 1000)).start
        return window.calendar.parse(name).start
    except (ValueError, OverflowError) as error:
        raise ProblemError("parameter_invalid", f"`period` must be current, previous or a name: {error}") from None


def _times(query: Mapping[str, str], now: int) -> list[int]:
    """The times of a history: from `from` to `to`, each `step` later."""
    end = time_of(query["to"], "to") if "to" in query else now
    begin = time_of(query["from"], "from") if "from" in query else end - _DAY
    try:
        step = round(parse_duration(query.get("step", "1h")) * 1000)
    except ValueError as error:
        raise ProblemError("parameter_invalid", f"`step`: {error}") from None
    if end > now:
        raise ProblemError("parameter_invalid", "`to` is in the future")
    if begin > end or step < _LEAST_STEP or (end - begin) // step >= MAX_STEPS:
        raise ProblemError(
            "parameter_invalid",
            f"`from` must be before `to`, `step` at least 1s, and the history at most {MAX_STEPS} steps",
        )
    return list(range(end, begin - 1, -step))[::-1]


def _slot_times(board: Board, start: int) -> tuple[str | None, str | None]:
    slot = board.window.slot_at(start)
    return (None, None) if slot == EVER else (rfc3339(slot.start * 1000), rfc3339(slot.end * 1000))
