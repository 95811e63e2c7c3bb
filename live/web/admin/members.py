"""The page of the members of a board: finds them by name or title, and hides them."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from live.errors import ProblemError
from live.store.board.ledger import Ledger
from live.web.admin.admin_page import NO_FORM, AdminPage, Desk, Form
from live.web.admin.calls import ApiCall
from live.web.reads.records import find_records
from live.web.reads.search import LONGEST_PREFIX, MemberSearch, decode_place

_ON_PAGE: Final = 50
_MOST_HIDDEN: Final = 100
_MOST_NAMED: Final = 200  # boards that the page suggests


class MemberRow(msgspec.Struct, frozen=True):
    """A member in a table. A hidden member has no score and no rank here. A contestant without votes has no rank."""

    key: str
    score: int | None = None
    rank: int | None = None

    @property
    def is_hidden(self) -> bool:
        """Whether the member is hidden."""
        return self.score is None


async def show(desk: Desk, error: Exception | None = None, _form: Form = NO_FORM) -> Response:
    """Show members with a word that begins with a text; without a text, the first and the hidden members."""
    query = desk.visit.query
    boards = sorted(ledger.state.board.id for ledger in desk.ledgers())
    prefix, cursor = query.get("q", "")[:LONGEST_PREFIX].strip(), query.get("cursor")
    ledger = await chosen_board(desk, boards)
    rows, following = list[MemberRow](), None
    if ledger is not None and prefix:
        wanted = MemberSearch(prefix, _ON_PAGE, decode_place(cursor), None)
        found = await find_records(desk.live, ledger, desk.visit.client.network, wanted)
        rows, following = [MemberRow(one.member, one.score, one.rank) for one in found.records], found.next_cursor
        if await ledger.moderation.is_hidden(prefix):
            rows.insert(0, MemberRow(prefix))
    elif ledger is not None:
        page = await ledger.reader.read(_ON_PAGE)
        rows = [MemberRow(one.member, one.score, one.rank) for one in page.records]
        _, hidden = await ledger.state.call("HSCAN", ledger.state.keys.hidden, 0, "COUNT", _MOST_HIDDEN)
        rows += [MemberRow(member) for member in sorted(name.decode() for name in hidden[::2])[:_MOST_HIDDEN]]
    return await desk.show(
        "members",
        error,
        ledger=ledger,
        boards=boards[:_MOST_NAMED],
        listed=rows,
        titles=await desk.live.items.of([row.key for row in rows]),
        search=prefix,
        following=following or None,
        longest=LONGEST_PREFIX,
        hiding=None if ledger is None else hiding(ledger.state.board.id, "MEMBER", hidden=True),
    )


async def chosen_board(desk: Desk, boards: Sequence[str]) -> Ledger | None:
    """Find the board that the query names, or the first of the boards. Raises the errors of `Desk.ledger`."""
    board = desk.visit.query.get("board", "").strip() or next(iter(boards), "")
    return await desk.ledger(board) if board else None


def hiding(board: str, member: str, *, hidden: bool) -> ApiCall:
    """Make the request that hides a member, or shows it again."""
    return ApiCall("PATCH", record_path(board, member), {"hidden": hidden})


def record_path(board: str, member: str) -> str:
    """Make the path of a record in the API."""
    return f"/v1/boards/{board}/records/{quote(member, safe='')}"


async def hide(desk: Desk, form: Form) -> Response:
    """Hide a member, or show it again, as the form says. The page then offers to undo this."""
    is_hiding = form["act"] == "hide"
    board = form.get("board", "")
    if not form.get("key"):
        raise ProblemError("record_invalid", "the form names no member")
    await desk.ledger(board)
    await desk.send(hiding(board, form["key"], hidden=is_hiding))
    kept = {name: desk.visit.query[name] for name in ("board", "q", "key") if desk.visit.query.get(name)}
    return desk.done("hidden" if is_hiding else "shown", **{"board": board, **kept, "last": form["key"]})


ACTS: Final = {"hide": hide, "show": hide}
PAGE: Final = AdminPage(path="members", name="members", show=show, acts=ACTS)
