"""Routes that read the records of a board, and the records of one member on all boards."""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from live.domain.event import key_fault
from live.domain.ranking import Record, neighbourhood
from live.domain.views import MemberRecords, RecordList, RecordView, score_facts
from live.errors import ProblemError
from live.ingest.replies import VARY_BY_READER, Reply
from live.network.parameters import Parameters
from live.store.board.ledger import Ledger
from live.store.board.read.reader import Selection
from live.store.board.read.single_flight import PageResult
from live.web.http.responses import json_response, negotiated, page_reply
from live.web.reads.boards import encode_cursor
from live.web.reads.search import LONGEST_PREFIX, MemberSearch, decode_place, find_members
from live.web.reads.sources import (
    PageQuery,
    PeriodName,
    Requester,
    WhenParameters,
    kept_period,
    marks_of,
    past_reply,
    requester_of,
)
from live.web.services import Live, live_of, reader_of

_MOST_RECORDS: Final = 100
# Paths with these ends belong to other routes of a member.
OF_MEMBERS: Final = (b"/slots", b"/history", b"/explanation")


class SeveralRecordParameters(Parameters, frozen=True, kw_only=True):
    """The members whose records are read, or a search for members."""

    period: PeriodName = "current"
    members: Annotated[
        list[str], Meta(min_length=1, max_length=_MOST_RECORDS, description="Repeat it for each member.")
    ] = msgspec.field(name="key", default_factory=list)
    prefix: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=LONGEST_PREFIX,
                description="Find members with a word in their name or title that begins with this text, "
                "without accents and case.",
            ),
        ]
        | None
    ) = None
    limit: Annotated[
        int, Meta(ge=1, le=_MOST_RECORDS, description="Maximum number of members that a `prefix` finds.")
    ] = 20
    cursor: Annotated[str | None, Meta(description="`next_cursor` of an earlier reply to the same `prefix`.")] = None


async def list_records(request: Request, query: SeveralRecordParameters) -> Response:
    """Read the records of several members, or find members.

    Give either `key` or `prefix`. Members that are not on the board are omitted.
    """
    live, members = live_of(request), query.members
    ledger = await live.use(request.path_params["board"], reader_of(request))
    if query.prefix is not None:
        if members:
            raise ProblemError("parameter_invalid", "give either `key` or `prefix`")
        period = await kept_period(live, ledger, query.period)
        wanted = MemberSearch(query.prefix, query.limit, decode_place(query.cursor), period)
        return json_response(await find_records(live, ledger, requester_of(request).client, wanted), live.board_cache)
    if query.cursor is not None:
        raise ProblemError("parameter_invalid", "`cursor` goes with `prefix`")
    if not members:
        raise ProblemError("parameter_invalid", f"give `key` 1 to {_MOST_RECORDS} times")
    board, period = ledger.state.board, await kept_period(live, ledger, query.period)
    pages = await ledger.reader.find_all(members, 1, period=period)
    found = zip(members, pages, strict=True)
    records = [_ranked(PageResult(board, page), member, 0) for member, page in found if page is not None]
    body = RecordList(board.id, records[0].period if records else None, records)
    return json_response(body, live.board_cache)


async def find_records(live: Live, ledger: Ledger, client: str, wanted: MemberSearch) -> RecordList:
    """Return the records of members with a word that begins with a text, and contestants without votes at the end.

    Raises:
        ProblemError: too many requests wait.
    """
    board, reader = ledger.state.board, ledger.reader
    found = await find_members(live, ledger, client, wanted)
    members = [member for member in found.ranked if key_fault(member) is None]
    pages = await reader.find_all(members, 1, period=wanted.period) if members else []
    records = [
        _ranked(PageResult(board, page), member, 0)
        for member, page in zip(members, pages, strict=True)
        if page is not None
    ]
    records.sort(key=lambda record: record.rank or 0)
    if found.voteless:
        last = PageResult(board, await reader.read(1))
        records += [_view(last, own, gap=None) for own in found.voteless]
    following = None if found.following is None else encode_cursor(found.following)
    return RecordList(board.id, records[0].period if records else None, records, following)


async def get_standing(request: Request) -> Response:
    """Read the records of one member on all boards.

    Boards without the member are omitted.
    """
    live, member = live_of(request), request.path_params["key"]

    async def find(ledger: Ledger) -> RecordView | None:
        page = await ledger.reader.find(member, 1)
        return None if page is None else _ranked(PageResult(ledger.state.board, page), member, 0)

    reader = reader_of(request)
    found = await live.over_boards(find, live.ledgers(reader), reader)
    return json_response(MemberRecords(member, list(filter(None, found))), live.board_cache, (VARY_BY_READER,))


class RecordParameters(WhenParameters, frozen=True, kw_only=True):
    """One record with its neighbours."""

    around: Annotated[int, Meta(ge=0, le=100, description="Number of neighbours on each side.")] = 0


async def get_record(request: Request, query: RecordParameters) -> Response:
    """Read one record with its neighbours.

    Returns the score and the rank of the member, and its gap to the next rank.
    """
    board, member = request.path_params["board"], request.path_params["key"]
    known = request.headers.get("if-none-match", "")
    wanted = RecordQuery.of(requester_of(request), board, member, query)
    return negotiated(request, await wanted.answer(known))


class RecordQuery(PageQuery, frozen=True, kw_only=True):
    """One record with its neighbours: `around` on each side."""

    around: int

    @classmethod
    def of(cls, requester: Requester, board: str, member: str, query: RecordParameters) -> "RecordQuery":
        """Make the query of a request.

        Raises:
            ProblemError: no member can have this name.
        """
        around = query.around
        if key_fault(member) is not None:
            raise ProblemError("record_not_found", "no member can have this name")
        what = Selection("around", max(around, 1), member, 0)  # the gap needs at least one neighbour, the record above
        return cls(
            live=requester.live,
            client=requester.client,
            reader=requester.reader,
            board=board,
            what=what,
            when=query.when,
            cache=requester.live.board_cache,
            around=around,
        )

    def render(self, known: str, found: PageResult) -> Reply | None:
        """Make the JSON reply. Return None if the page has no record of the member."""
        if not found.page.records:
            return None
        if found.is_past:
            return past_reply(_ranked(found, str(self.what.name), self.around))
        member, around = str(self.what.name), self.around
        return page_reply(known, found, ("record", around), lambda: _ranked(found, member, around), cache=self.cache)

    async def complete(self, known: str, ledger: Ledger, found: PageResult) -> Reply:
        """Make the reply for a member without a record: it may be a contestant without votes.

        The gap of a contestant is then the score of the last record. Raises the same errors as `answer`.
        """
        if found.is_past:
            then = "then" if found.revision is None else "in that period"
            raise ProblemError("record_not_found", f"the member was not on the board {then}")
        member, period = str(self.what.name), found.page.slot
        metadata = await ledger.reader.entrant(member)
        if metadata is None:
            raise ProblemError("record_not_found", "the member has no score on the board now, or is hidden")
        page = await ledger.reader.read(1, period=period)
        last = await ledger.reader.read(1, start=max(0, page.rank_count - 1), period=period)
        own = Record(member=member, score=0, rank=0, metadata=msgspec.Raw(metadata))
        shown = found._replace(page=page)
        view = _view(shown, own, gap=last.records[0].score if last.records else None)
        return page_reply(known, shown, "contestant", lambda: view, cache=self.cache)


def _ranked(found: PageResult, member: str, around: int) -> RecordView:
    """Show the record of a member, from a page that also has the record above it, if there is one."""
    page = found.page
    own, gap, records = neighbourhood(page.records, member, around)
    ahead = page.start + page.records.index(own)
    percentile = 100.0 if page.rank_count == 1 else 100 * (page.rank_count - ahead - 1) / (page.rank_count - 1)
    return _view(found, own, gap=gap, rank=own.rank, percentile=round(percentile, 2), records=records)


def _view(
    found: PageResult,
    own: Record,
    *,
    gap: int | None,
    rank: int | None = None,
    percentile: float | None = None,
    records: Sequence[Record] = (),
) -> RecordView:
    page = found.page
    return RecordView(
        board=found.board.id,
        epoch=page.epoch,
        offset=page.offset,
        period=page.period,
        rank_count=page.rank_count,
        member=own.member,
        score=own.score,
        rank=rank,
        percentile=percentile,
        gap=gap,
        records=records,
        fields=own.fields,
        metadata=own.metadata,
        **score_facts(found.board),
        **marks_of(found),
    )
