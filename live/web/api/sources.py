"""Where pages come from: the store has the present, the journal has the past, and the archive has earlier periods."""

from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple, TypeVar

from live.domain.board import Board
from live.domain.calendar import EXAMPLES, FIRST, LAST
from live.domain.event import rfc3339
from live.domain.meaning import says
from live.domain.ranking import Page
from live.domain.window import Periods
from live.errors import ProblemError
from live.http.parameters import Parameters, Time
from live.journal.past.pool import Past
from live.journal.past.queries import AsOf, NoPastError, RankingSlice
from live.journal.past.rankings import find_in_period, find_record, read_period, read_ranking
from live.journal.state.events import UntoldError
from live.store.board.ledger import Ledger
from live.store.board.read.reader import PageResult, Selection, period_name, records_of
from live.web.parts import Live

_T = TypeVar("_T")

_NOR_JOURNAL: Final = ", and the journal does not have this period"


class When(NamedTuple):
    """The time for which a board is read: now, or `as_of` (milliseconds since 1970).

    `period` is the name of a period at that time, or its start if it comes from a cursor.
    """

    period: str | int = "current"
    as_of: int | None = None

    @property
    def is_now(self) -> bool:
        """Whether this is the present: the current period, or a board without periods."""
        return self.period == "current" and self.as_of is None


NOW: Final = When()
MOST_RECORDS: Final = 1000  # of one answer: some 100 KB, which a process writes in about a millisecond

PeriodName = Annotated[str, says("The period, on calendar boards.", examples=["previous", *EXAMPLES.values()])]
AsOfTime = Annotated[
    Time | None,
    says(
        "Read the board as it was at this time, with everything that was counted before. "
        "This needs a journal. `LIVE_JOURNAL_EVENTS` says how far back you can read."
    ),
]


class WhenParameters(Parameters, frozen=True, kw_only=True):
    """The time for which a board is read."""

    period: PeriodName = "current"
    as_of: AsOfTime = None

    @property
    def when(self) -> When:
        """The time for which a board is read."""
        return When(self.period, self.as_of)


async def read_page(
    live: Live, ledger: Ledger, what: Selection, when: When, client: str, *, is_counted: bool = False
) -> PageResult:
    """Read a page. A page around a member that is not on the board has no records.

    With `is_counted`, a page from the store also has the number of viewers.
    """
    if when.as_of is not None:
        return await (await BoardPast.of(live, ledger, client)).page(when, what)
    if when.is_now:
        return await live.reads.read(ledger.reader, what, counted=is_counted)
    period, is_kept = await _period_of(live, ledger, when.period)
    if is_kept:
        return await live.reads.read(ledger.reader, what._replace(period=period), counted=is_counted)
    if isinstance(when.period, int):  # an int comes from a cursor, which leads only to pages of the store
        raise _not_kept(ledger.state.board)
    if live.past is None:
        raise _not_kept(ledger.state.board, by=_NOR_JOURNAL)
    return await (await BoardPast.of(live, ledger, client)).archived(period, what)


async def kept_period(live: Live, ledger: Ledger, name: str) -> int | None:
    """Return the start of a period that the board keeps. Return None for the current period."""
    if name == "current":
        return None
    period, is_kept = await _period_of(live, ledger, name)
    if not is_kept:
        raise _not_kept(ledger.state.board)
    return period


async def _period_of(live: Live, ledger: Ledger, period: str | int) -> tuple[int, bool]:
    """Return the start of a period, and whether the board keeps it. If not, the archive may have it."""
    board = ledger.state.board
    window = _calendar_of(board, period)
    newest = await live.reads.newest(ledger.reader)
    if newest is None:
        raise ProblemError("period_not_found", "the board has no events yet")
    start = _start_of(window, period, newest)
    if start > newest:
        raise _not_kept(board)
    return start, start >= window.oldest(newest)


def _calendar_of(board: Board, period: str | int) -> Periods:
    window = board.window
    if isinstance(window, Periods) and window.tables:
        if isinstance(period, str) or (FIRST <= period < LAST and window.slot_at(period).start == period):
            return window
    elif isinstance(period, str):
        raise ProblemError("parameter_invalid", f"`period`: board {board.id} does not have a ranking for each period")
    raise ProblemError("cursor_invalid", f"the period in the cursor is not a period of board {board.id}")


def _start_of(window: Periods, period: str | int, newest: int) -> int:
    """Return the start of a period; `previous` is the one before that of `newest` (seconds since 1970)."""
    if isinstance(period, int):
        return period
    calendar = window.calendar
    try:
        return (calendar.before(calendar.at(newest)) if period == "previous" else calendar.parse(period)).start
    except (ValueError, OverflowError) as error:
        raise ProblemError("parameter_invalid", f"`period` must be current, previous or a name: {error}") from None


def _not_kept(board: Board, *, by: str = "") -> ProblemError:
    kept = board.window.keep if isinstance(board.window, Periods) else 0
    return ProblemError("period_not_found", f"the board keeps the current period and the {kept} before it{by}")


class BoardPast(NamedTuple):
    """The journal of a board, and the facts from the store that a read of it needs."""

    past: Past
    client: str
    board: Board
    epoch: str
    # The time by the store's clock, which never goes back for a board, in milliseconds. It is rounded up, so everything
    # that was counted until now is before it.
    now: int
    hidden: frozenset[str]  # the members that are hidden now
    # The last entry of the journal, None if it has none. `link` is read after `now`, so that the journal up to this
    # entry has everything before `now`.
    link: str | None
    sink: str

    @classmethod
    async def of(cls, live: Live, ledger: Ledger, client: str) -> "BoardPast":
        """Read the facts from the store, with one round trip."""
        if live.past is None:
            raise ProblemError("past_unavailable", "this server keeps no journal: see LIVE_JOURNAL")
        state, sink = ledger.state, live.client.system.sink
        await state.open()
        meta = state.keys.meta
        (seconds, micro), hidden, (epoch, link, clock), holder = await live.client.calls([
            (meta, ("TIME",)), (meta, ("HKEYS", state.keys.hidden)),
            (meta, ("HMGET", meta, "epoch", "journal", "clock")), (sink, ("GET", sink)),
        ])  # fmt: skip
        state.require_epoch(epoch)
        return cls(
            past=live.past,
            client=client,
            board=state.board,
            epoch=state.epoch or "",
            now=max(int(seconds) * 1_000_000 + int(micro), int(clock or 0)) // 1000 + 1,
            hidden=frozenset(member.decode() for member in hidden),
            link=None if link is None else link.decode(),
            sink=(holder or b"").decode(),
        )

    async def run(self, work: Callable[..., _T], *given: object) -> _T:
        """Do work that reads the journal."""
        try:
            return await self.past.run(self.client, work, *given)
        except NoPastError as error:
            since = "nothing" if error.since is None else f"everything since {rfc3339(error.since)}"
            raise ProblemError("past_unavailable", f"the journal has {since} of this board") from None
        except UntoldError as error:
            raise ProblemError("past_unavailable", str(error)) from None

    async def wait(self, at: int) -> None:
        """Wait until the journal has everything before a time. `JournalBehindError`: it does not catch up."""
        if self.link is None:
            raise ProblemError("past_unavailable", "this board has no journal")
        # `sink` is empty until the first server of a store records its database. Until then, no database has entries:
        # so wait.
        if self.sink and not await self.past.is_of(self.client, self.sink):
            raise ProblemError("past_unavailable", "another server keeps the journal of this store: ask that server")
        await self.past.wait(self.client, self.board, self.epoch, self.link, at)

    async def moment(self, when: When) -> AsOf:
        """Wait until the journal has everything before a time, by default now. Return that time and what to read."""
        at = self.now if when.as_of is None else when.as_of
        if at > self.now:
            raise ProblemError("parameter_invalid", "`as_of` is in the future")
        period = None
        if when.period != "current":
            period = _start_of(_calendar_of(self.board, when.period), when.period, at // 1000)
        await self.wait(at)
        return AsOf(self.board, self.epoch, at, period, self.hidden)

    async def page(self, when: When, what: Selection) -> PageResult:
        """Read a page as it was at a time. Raises the errors of `moment` and `run`."""
        moment = await self.moment(when)
        work = find_record if what.mode == "around" else read_ranking
        return _result(moment, await self.run(work, moment, *_given(what)))

    async def archived(self, period: int, what: Selection) -> PageResult:
        """Read a page of a period that the board does not keep any more."""
        moment = AsOf(self.board, self.epoch, self.now, period, self.hidden)
        try:
            await self.wait(self.now)
        except ProblemError as error:
            raise _not_kept(self.board, by=_NOR_JOURNAL) if error.code == "past_unavailable" else error from None
        work = find_in_period if what.mode == "around" else read_period
        found = await self.run(work, moment, *_given(what))
        if found is None:
            raise _not_kept(self.board, by=_NOR_JOURNAL)
        return _result(moment, found)


def marks_of(found: PageResult) -> dict[str, Any]:
    """Return the fields that only replies about the past have."""
    if found.revision is not None:
        return {"final": True, "revision": found.revision}
    return {} if found.as_of is None else {"as_of": rfc3339(found.as_of)}


def _given(what: Selection) -> tuple[object, ...]:
    """Return the arguments of a function that reads the past.

    A page of the past can't begin at a score. If `what` asks for that, the page begins with the first record.
    """
    if what.mode == "around":
        return what.name, what.number
    return what.number if what.mode == "rank" else 0, what.limit


def _result(moment: AsOf, found: RankingSlice) -> PageResult:
    board, ranking = moment.board, found.ranking
    metadata = [ranking.metadata.get(member) for member in ranking.members]
    page = Page(
        epoch=ranking.epoch,
        offset=ranking.offset,
        rank_count=found.count,
        total_score=ranking.total if board.packing is None else None,
        start=found.start,
        records=tuple(records_of(board, ranking.members, ranking.scores, ranking.ranks, metadata, found.start)),
        slot=ranking.period,
        period=period_name(board, ranking.period),
    )
    if ranking.revision is not None:
        return PageResult(board, page, revision=ranking.revision)
    return PageResult(board, page, as_of=moment.at)
