"""Routes that read and find records: of a board, of one member on all boards, and of the members of a contest."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from live.domain.event import member_fault
from live.domain.meaning import says
from live.domain.ranking import Record, neighbourhood
from live.domain.text import begins_word, form_of
from live.domain.views import EntrantList, MemberRecords, RecordList, RecordView, score_facts
from live.errors import ProblemError
from live.http.parameters import Parameters
from live.http.reply import VARY_BY_READER
from live.store.board.ledger import Ledger
from live.store.board.read.contestants import START, ContestantsPlace, list_contestants, read_piece
from live.store.board.read.reader import PageResult, Selection
from live.web.api.boards import Start, encode_cursor, read_cursor
from live.web.api.sources import PeriodName, WhenParameters, kept_period, marks_of, read_page
from live.web.middleware import requester_of
from live.web.parts import Live, live_of, reader_of
from live.web.responses import json_response, negotiated, page_reply

LONGEST_PREFIX: Final = 256  # characters

_MOST_RECORDS: Final = 100
_PIECE: Final = 1500  # names looked at in one read, which takes the store and this process a millisecond or two
_MOST_PIECES: Final = 20
# Paths with these ends belong to other routes of a member.
OF_MEMBERS: Final = (b"/slots", b"/history", b"/explanation")


class SeveralRecordParameters(Parameters, frozen=True, kw_only=True, rename={"members": "key"}):
    """The members whose records are read, or a search for members."""

    period: PeriodName = "current"
    members: Annotated[Sequence[str], says("Repeat it for each member.", min_length=1, max_length=_MOST_RECORDS)] = ()
    prefix: (
        Annotated[
            str,
            says(
                "Find members with a word in their name or title that begins with this text, without accents and case.",
                min_length=1,
                max_length=LONGEST_PREFIX,
            ),
        ]
        | None
    ) = None
    limit: Annotated[int, says("Maximum number of members that a `prefix` finds.", ge=1, le=_MOST_RECORDS)] = 20
    cursor: Annotated[str | None, says("`next_cursor` of an earlier reply to the same `prefix`.")] = None


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
        wanted = MemberSearch(query.prefix, query.limit, query.cursor, period)
        found = await find_records(live, ledger, requester_of(request).network, wanted)
        return json_response(found, live.board_cache)
    if query.cursor is not None:
        raise ProblemError("parameter_invalid", "`cursor` goes with `prefix`")
    if not members:
        raise ProblemError("parameter_invalid", f"give `key` 1 to {_MOST_RECORDS} times")
    records = await _read_records(ledger, members, await kept_period(live, ledger, query.period))
    body = RecordList(ledger.state.board.id, records[0].period if records else None, records)
    return json_response(body, live.board_cache)


class SearchPlace(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The place at which a search goes on: after a number of ranked members, or among contestants without votes."""

    start: Start = 0
    contestants: ContestantsPlace | None = None


class MemberSearch(NamedTuple):
    """What to find: up to `most` members, in a `period` by its start (None: the current one), from a `cursor` on."""

    prefix: str
    most: int
    cursor: str | None = None
    period: int | None = None


async def find_records(live: Live, ledger: Ledger, client: str, wanted: MemberSearch) -> RecordList:
    """Find members with a word in their name or title that begins with a text, whatever its accents and case.

    The first ranks are first, and contestants without votes last. The first records of a new search include the member
    whose name is the text, whatever its rank. The store orders members by score alone. So this looks at the names of
    the board one by one, up to a bounded number; then the cursor of the reply leads on. Each piece waits for a turn of
    the client.
    """
    first = SearchPlace() if wanted.cursor is None else read_cursor(wanted.cursor, SearchPlace)
    place: SearchPlace | None = first
    hits: list[str] = []
    voteless: list[Record] = []
    for _ in range(_MOST_PIECES):
        room = wanted.most - len(hits) - len(voteless)
        if place is None or not room:
            break
        if place.contestants is None:
            more, place = await live.drawings.draw(client, _find_ranked(live, ledger, wanted, place.start, room))
            hits += more
        else:
            others, place = await live.drawings.draw(client, _find_voteless(live, ledger, wanted, place, room))
            voteless += others
    named = dict.fromkeys([*([wanted.prefix] if first == SearchPlace() else []), *hits])
    records = await _read_records(ledger, [member for member in named if member_fault(member) is None], wanted.period)
    records.sort(key=lambda record: record.rank or 0)
    if voteless:
        last = PageResult(ledger.state.board, await ledger.reader.read(1))
        records += [_view(last, own, gap=None) for own in voteless]
    following = None if place is None else encode_cursor(place)
    return RecordList(ledger.state.board.id, records[0].period if records else None, records, following)


async def _find_ranked(
    live: Live, ledger: Ledger, wanted: MemberSearch, start: int, room: int
) -> tuple[Sequence[str], SearchPlace | None]:
    """Return up to `room` members of a piece of the ranking, and the next place."""
    page = await ledger.reader.read(_PIECE, start=start, period=wanted.period)
    members = [record.member for record in page.records]
    matching = await _matching(live, members, wanted.prefix)
    if len(matching) > room:
        return matching[:room], SearchPlace(start + members.index(matching[room]))
    if members and start + len(members) < page.rank_count:
        return matching, SearchPlace(start + len(members))
    registers = ledger.state.board.votes is not None and wanted.period is None
    return matching, SearchPlace(start + len(members), ContestantsPlace()) if registers else None


async def _find_voteless(
    live: Live, ledger: Ledger, wanted: MemberSearch, place: SearchPlace, room: int
) -> tuple[Sequence[Record], SearchPlace | None]:
    """Return up to `room` contestants of a piece, and the next place."""
    piece = await list_contestants(ledger.reader, place.contestants, _PIECE)
    matching = await _matching(live, [record.member for record in piece.records], wanted.prefix)
    found = [record for record in piece.records if record.member in set(matching[:room])]
    if len(matching) > room:
        cursor = (place.contestants or ContestantsPlace()).cursor
        return found, SearchPlace(place.start, ContestantsPlace(cursor, matching[room - 1]))
    return found, None if piece.following is None else SearchPlace(place.start, piece.following)


async def _matching(live: Live, names: Sequence[str], prefix: str) -> list[str]:
    wanted = form_of(prefix)
    titles = await live.items.of(names)
    return [
        name
        for name in names
        if begins_word(wanted, form_of(name)) or (name in titles and begins_word(wanted, form_of(titles[name].title)))
    ]


async def _read_records(ledger: Ledger, members: Sequence[str], period: int | None) -> list[RecordView]:
    pages = await ledger.reader.find_all(members, 1, period=period) if members else []
    return [
        _ranked(PageResult(ledger.state.board, page), member, 0)
        for member, page in zip(members, pages, strict=True)
        if page is not None
    ]


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

    around: Annotated[int, says("Number of neighbours on each side.", ge=0, le=100)] = 0


async def get_record(request: Request, query: RecordParameters) -> Response:
    """Read one record with its neighbours.

    Returns the score and the rank of the member, and its gap to the next rank.
    """
    live, reader = live_of(request), reader_of(request)
    member, around = request.path_params["key"], query.around
    if member_fault(member) is not None:
        raise ProblemError("record_not_found", "no member can have this name")
    ledger = await live.use(request.path_params["board"], reader)
    what = Selection("around", max(around, 1), member, 0)  # the gap needs at least one neighbour, the record above
    found = await read_page(live, ledger, what, query.when, requester_of(request).network)
    kind: tuple[str, int] | str = ("record", around)
    if found.page.records:
        body = partial(_ranked, found, member, around)
    else:
        found, own, gap = await _contestant(ledger, member, found)
        kind, body = "contestant", partial(_view, found, own, gap=gap)
    known = request.headers.get("if-none-match", "")
    return negotiated(request, page_reply(known, found, kind, body, cache=live.board_cache))


async def _contestant(ledger: Ledger, member: str, found: PageResult) -> tuple[PageResult, Record, int | None]:
    """Find a member without a record, which may be a contestant without votes. Return a page, its record and its gap.

    The gap of a contestant is the score of the last record.
    """
    if found.is_past:
        then = "then" if found.revision is None else "in that period"
        raise ProblemError("record_not_found", f"the member was not on the board {then}")
    period, own = found.page.slot, await find_contestant(ledger, member)
    page = await ledger.reader.read(1, period=period)
    last = await ledger.reader.read(1, start=max(0, page.rank_count - 1), period=period)
    return found._replace(page=page), own, last.records[0].score if last.records else None


async def find_contestant(ledger: Ledger, member: str) -> Record:
    """Find a contestant without votes."""
    metadata = await ledger.reader.entrant(member)
    if metadata is None:
        raise ProblemError("record_not_found", "the member has no score on the board now, or is hidden")
    return Record(member=member, score=0, rank=0, metadata=msgspec.Raw(metadata))


def _ranked(found: PageResult, member: str, around: int) -> RecordView:
    """Show a record, from a page that also has the record above it, if there is one."""
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


class EntrantParameters(Parameters, frozen=True, kw_only=True):
    """A page of the registered members."""

    limit: Annotated[int, says("About how many members. A page can have more: up to 512.", ge=1, le=1000)] = 100
    cursor: Annotated[str | None, says("`next_cursor` of an earlier page.")] = None


class EntrantsPlace(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The place at which the next page begins. In another epoch, members can have another order."""

    epoch: str
    cursor: Annotated[str, Meta(pattern="^[0-9]{1,15}$")]


async def list_entrants(request: Request, query: EntrantParameters) -> Response:
    """List the registered members of a contest.

    The members are in no particular order. Hidden members are left out. Together, the pages list each member that is
    registered from the first request to the last. If others register meanwhile, members can be twice.
    """
    live = live_of(request)
    ledger = await live.use(request.path_params["board"], reader_of(request))
    place = None if query.cursor is None else read_cursor(query.cursor, EntrantsPlace)
    if ledger.state.board.votes is None:
        raise ProblemError("board_open_to_all", "only a board with `votes` registers members")
    piece = await read_piece(ledger.reader, place.cursor if place else START, query.limit, voted=True)
    if place is not None and place.epoch != piece.epoch:
        raise ProblemError("cursor_invalid", "the board is on another server or has new data: begin again")
    following = None if piece.following == START else encode_cursor(EntrantsPlace(piece.epoch, piece.following))
    body = EntrantList(ledger.state.board.id, piece.epoch, piece.entrants, following)
    return json_response(body, live.board_cache)
