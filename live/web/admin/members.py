"""The pages of members: one finds and hides members of a board; one corrects the scores and the title of a member."""

from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.responses import Response

from live.domain.board import Board
from live.domain.event import member_fault
from live.errors import ProblemError
from live.journal.past.queries import Change
from live.journal.past.rankings import explain_record
from live.store.board.ledger import Ledger
from live.web.admin.admin_page import AdminPage, ApiCall, Desk, board_path, item_path
from live.web.api.records import LONGEST_PREFIX, MemberSearch, find_records
from live.web.api.sources import BoardPast, When

_ON_PAGE: Final = 50
_MOST_HIDDEN: Final = 100
_LONGEST: Final = 1024  # characters of a name in an address
_MOST_NAMED: Final = 200  # boards that the page suggests


class MemberRow(msgspec.Struct, frozen=True):
    """A member on a board. A hidden member has no score and no rank here. A contestant without votes has no rank."""

    board: Board
    member: str
    score: int | None = None
    rank: int | None = None


async def _show_members(desk: Desk) -> Response:
    """Show members with a word that begins with a text; without a text, the first and the hidden members."""
    query = desk.visit.query
    boards = desk.board_ids()
    board = query.get("board", "").strip() or next(iter(boards), "")
    prefix = query.get("q", "")[:LONGEST_PREFIX].strip()
    ledger = await desk.ledger(board) if board else None
    rows, following = ([], None) if ledger is None else await _list(desk, ledger, prefix)
    return await desk.show(
        "members",
        ledger=ledger,
        boards=boards[:_MOST_NAMED],
        listed=rows,
        titles=await desk.live.items.of([row.member for row in rows]),
        search=prefix,
        following=following,
        longest=LONGEST_PREFIX,
        hiding=None if ledger is None else _hiding(board, "MEMBER", hidden=True),
    )


async def _list(desk: Desk, ledger: Ledger, prefix: str) -> tuple[list[MemberRow], str | None]:
    board = ledger.state.board
    if prefix:
        wanted = MemberSearch(prefix, _ON_PAGE, desk.visit.query.get("cursor"))
        found = await find_records(desk.live, ledger, desk.visit.requester.network, wanted)
        rows = [MemberRow(board, one.member, one.score, one.rank) for one in found.records]
        is_hidden = await ledger.moderation.is_hidden(prefix)
        return [*([MemberRow(board, prefix)] if is_hidden else []), *rows], found.next_cursor or None
    rows = [MemberRow(board, one.member, one.score, one.rank) for one in (await ledger.reader.read(_ON_PAGE)).records]
    _, hidden = await ledger.state.call("HSCAN", ledger.state.keys.hidden, 0, "COUNT", _MOST_HIDDEN)
    return rows + [MemberRow(board, member) for member in sorted(map(bytes.decode, hidden[::2]))[:_MOST_HIDDEN]], None


def _hiding(board: str, member: str, *, hidden: bool) -> ApiCall:
    return ApiCall("PATCH", board_path(board, member), {"hidden": hidden})


async def _hide(desk: Desk) -> Response:
    """Hide a member, or show it again, as the form says. The page then offers to undo this."""
    is_hiding, board, member = desk.form["act"] == "hide", desk.form.get("board", ""), desk.form.get("key")
    if not member:
        raise ProblemError("record_invalid", "the form names no member")
    await desk.ledger(board)
    await desk.send(_hiding(board, member, hidden=is_hiding))
    kept = {name: desk.visit.query[name] for name in ("board", "q", "key") if desk.visit.query.get(name)}
    return desk.done("hidden" if is_hiding else "shown", **{"board": board, **kept, "last": member})


async def _show_member(desk: Desk) -> Response:
    member = desk.visit.query.get("key", "")[:_LONGEST]
    fault = member_fault(member)
    if fault is not None:
        raise ProblemError("record_invalid", fault)

    async def find(ledger: Ledger) -> MemberRow | None:
        page = await ledger.reader.find(member, 0)
        own = None if page is None else next((one for one in page.records if one.member == member), None)
        if await ledger.moderation.is_hidden(member):
            return MemberRow(ledger.state.board, member)
        return None if own is None else MemberRow(ledger.state.board, member, own.score, own.rank)

    found = await desk.live.over_boards(find, desk.ledgers(), desk.visit.reader)
    records = sorted(filter(None, found), key=lambda record: record.board.id)
    board = desk.visit.query.get("board") or (records[0].board.id if records else "")
    changes, why = None, ""
    if board:
        changes, why = await desk.from_journal(_changes(desk, await desk.ledger(board), member))
    item = (await desk.live.items.of([member])).get(member)
    held = {"title": item.title, "url": item.url, "image": item.image} if item is not None else {"title": member}
    return await desk.show(
        "member",
        member=member,
        item=item,
        form=desk.form,
        records=records,
        board=board,
        changes=changes,
        why=why,
        hiding=_hiding(board or "BOARD", member, hidden=True),
        correction=ApiCall("PATCH", board_path(board or "BOARD", member), {"add": -5, "reason": "counted twice"}),
        titling=ApiCall("PUT", item_path(member), {name: value for name, value in held.items() if value is not None}),
    )


async def _changes(desk: Desk, ledger: Ledger, member: str) -> Sequence[Change]:
    """Read the newest changes."""
    past = await BoardPast.of(desk.live, ledger, desk.visit.requester.network)
    return (await past.run(explain_record, await past.moment(When()), member)).changes


async def _correct(desk: Desk) -> Response:
    form, member = desk.form, desk.visit.query.get("key", "")
    board = form.get("board", "")
    await desk.ledger(board)
    try:
        amount = int(form.get("amount", ""))
    except ValueError:
        raise ProblemError("record_invalid", "the amount must be a whole number") from None
    how = "score" if form.get("how") == "score" else "add"
    await desk.send(ApiCall("PATCH", board_path(board, member), {how: amount, "reason": form.get("reason", "")}))
    return desk.done("corrected", key=member, board=board)


async def _title(desk: Desk) -> Response:
    form, member = desk.form, desk.visit.query.get("key", "")
    path = item_path(member)
    if form["act"] == "untitle":
        await desk.send(ApiCall("DELETE", path))
        return desk.done("untitled", key=member)
    held = {name: form[name].strip() for name in ("title", "url", "image") if form.get(name, "").strip()}
    await desk.send(ApiCall("PUT", path, held))
    return desk.done("titled", key=member)


_HIDING: Final = {"hide": _hide, "show": _hide}
PAGES: Final = (
    AdminPage(path="members", name="members", show=_show_members, acts=_HIDING),
    AdminPage(
        path="member", show=_show_member, acts={**_HIDING, "correct": _correct, "title": _title, "untitle": _title}
    ),
)
