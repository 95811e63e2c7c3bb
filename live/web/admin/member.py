"""The page of one member: its records, its last events with their senders, and its title. Scores can be corrected."""

from typing import Final
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from live.domain.board import Board
from live.domain.event import key_fault
from live.errors import EpochLostError, ProblemError, StoreUnavailableError
from live.journal.past.queries import Change
from live.journal.past.rankings import explain_record
from live.store.board.ledger import Ledger
from live.web.admin.admin_page import NO_FORM, AdminPage, Desk, Form
from live.web.admin.calls import ApiCall
from live.web.admin.members import ACTS, hiding, record_path
from live.web.reads.sources import BoardPast, When

_LONGEST: Final = 1024  # characters of a name in an address


class MemberRecord(msgspec.Struct, frozen=True):
    """A member on one board. A hidden member has no rank and no score here."""

    board: Board
    score: int | None
    rank: int | None
    is_hidden: bool


async def show(desk: Desk, error: Exception | None = None, form: Form = NO_FORM) -> Response:
    """Show the member that the query names."""
    member = desk.visit.query.get("key", "")[:_LONGEST]
    fault = key_fault(member)
    if fault is not None:
        raise ProblemError("record_invalid", fault)

    async def find(ledger: Ledger) -> MemberRecord | None:
        page = await ledger.reader.find(member, 0)
        own = None if page is None else next((one for one in page.records if one.member == member), None)
        is_hidden = await ledger.moderation.is_hidden(member)
        if own is None and not is_hidden:
            return None
        board = ledger.state.board
        if own is None:
            return MemberRecord(board, None, None, is_hidden)
        return MemberRecord(board, own.score, own.rank, is_hidden)

    found = await desk.live.over_boards(find, desk.ledgers(), desk.visit.reader)
    records = sorted(filter(None, found), key=lambda record: record.board.id)
    board = desk.visit.query.get("board") or (records[0].board.id if records else "")
    changes, why = await _changes(desk, board, member)
    path = f"/v1/items/{quote(member, safe='')}"
    item = (await desk.live.items.of([member])).get(member)
    held = {"title": item.title, "url": item.url, "image": item.image} if item is not None else {"title": member}
    return await desk.show(
        "member",
        error,
        member=member,
        item=item,
        form=form,
        records=records,
        board=board,
        changes=changes,
        why=why,
        hiding=hiding(board or "BOARD", member, hidden=True),
        correction=ApiCall("PATCH", record_path(board or "BOARD", member), {"add": -5, "reason": "counted twice"}),
        titling=ApiCall("PUT", path, {name: value for name, value in held.items() if value is not None}),
    )


async def _changes(desk: Desk, board: str, member: str) -> tuple[list[Change], str]:
    """Return the newest changes of the member on a board, or the reason why they are not known."""
    if not board:
        return [], ""
    ledger = await desk.ledger(board)
    try:
        past = await BoardPast.of(desk.live, ledger, desk.visit.client.network)
        moment = await past.moment(When())
        return list((await past.run(explain_record, moment, member)).changes), ""
    except ProblemError as problem:
        return [], problem.detail
    except (StoreUnavailableError, EpochLostError):
        return [], "the journal does not answer"


async def correct(desk: Desk, form: Form) -> Response:
    """Add to the score of the member, or set it."""
    member, board = desk.visit.query.get("key", ""), form.get("board", "")
    await desk.ledger(board)
    try:
        amount = int(form.get("amount", ""))
    except ValueError:
        raise ProblemError("record_invalid", "the amount must be a whole number") from None
    how = "score" if form.get("how") == "score" else "add"
    await desk.send(ApiCall("PATCH", record_path(board, member), {how: amount, "reason": form.get("reason", "")}))
    return desk.done("corrected", key=member, board=board)


async def title(desk: Desk, form: Form) -> Response:
    """Set or delete the title, the link and the picture of the member."""
    member = desk.visit.query.get("key", "")
    path = f"/v1/items/{quote(member, safe='')}"
    if form["act"] == "untitle":
        await desk.send(ApiCall("DELETE", path))
        return desk.done("untitled", key=member)
    held = {name: form[name].strip() for name in ("title", "url", "image") if form.get(name, "").strip()}
    await desk.send(ApiCall("PUT", path, held))
    return desk.done("titled", key=member)


PAGE: Final = AdminPage(path="member", show=show, acts={**ACTS, "correct": correct, "title": title, "untitle": title})
