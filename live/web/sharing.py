"""Ways to share a board: its address as a QR code, and its records as a table."""

import csv
import io
from collections.abc import Mapping
from typing import Final

import segno
from markupsafe import escape
from starlette.requests import Request
from starlette.responses import Response

from live.domain.board import Board
from live.domain.item import Item
from live.domain.ranking import Page
from live.network.parameters import whole_number
from live.web.items import items_of
from live.web.periods import period_of
from live.web.state import live_of

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")  # what spreadsheets take for the start of a formula
_MARK: Final = "\ufeff"  # tells spreadsheets that the text is UTF-8
_REVALIDATED: Final = {"Cache-Control": "no-cache"}


def site_of(request: Request) -> str:
    """The address of this server as the client sees it, with the root path and without a slash at the end."""
    root = live_of(request).settings.root_path
    return f"{request.url.scheme}://{request.url.netloc}{root}"


def frame_of(site: str, board: Board) -> str:
    """The HTML that shows a board in a frame of another page."""
    return (
        f'<iframe src="{site}/embed/{board.id}" title="{escape(board.title)}" width="100%" height="640" loading="lazy">'
        "</iframe>"
    )


async def qr_code(request: Request) -> Response:
    """The address of a board's page as a QR code."""
    board = live_of(request).board(request.path_params["board"])
    code = segno.make(f"{site_of(request)}/boards/{board.id}", error="m", micro=False)
    picture = io.BytesIO()
    code.save(picture, kind="svg", xmldecl=False, dark="#000", light="#fff", border=4)
    return Response(picture.getvalue(), headers=_REVALIDATED, media_type="image/svg+xml")


async def records_csv(request: Request) -> Response:
    """The first records of a board as CSV (RFC 4180), for spreadsheets."""
    live = live_of(request)
    ledger = await live.use(request.path_params["board"])
    most = live.settings.max_limit
    size = whole_number(request.query_params, "limit", most, 1, most)
    page = await ledger.reader.read(size, period=await period_of(request.query_params, ledger, live.reads))
    board = ledger.state.board
    name = "-".join(part for part in (board.id, page.period) if part)
    headers = {**_REVALIDATED, "Content-Disposition": f'attachment; filename="{name}.csv"'}
    items = await items_of(live, (record.key for record in page.records))
    return Response(_table(board, page, items), headers=headers, media_type="text/csv")


def _table(board: Board, page: Page, items: Mapping[str, Item]) -> str:
    """The records, with a column of titles if one of them has a title."""
    text = io.StringIO()
    table = csv.writer(text)
    fields = [field.name for field in board.score.fields] if board.score else []
    table.writerow(["rank", "member", *(fields or ["score"]), *(["title"] if items else [])])
    for record in page.records:
        values = [record.fields[name] for name in fields] if record.fields else [record.score]
        titles = [_inert(items[record.key].title) if record.key in items else ""] if items else []
        table.writerow([record.rank, _inert(record.key), *values, *titles])
    return _MARK + text.getvalue()


def _inert(text: str) -> str:
    """A text that no spreadsheet runs as a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text
