"""Ways to share a board: its address as a QR code, and its records as a table."""

import asyncio
import io
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import segno
from markupsafe import escape
from starlette.requests import Request
from starlette.responses import Response

from live.domain.board import Board
from live.domain.csv_table import csv_writer
from live.domain.item import Item
from live.domain.ranking import Page
from live.ingest.replies import Reply
from live.network.parameters import whole_number
from live.web.http.middleware import client_of
from live.web.http.responses import REVALIDATED, as_response
from live.web.periods import archived_period, period_of
from live.web.reads.history import archived_page
from live.web.reads.items import items_of
from live.web.services import live_of

_MARK: Final = "\ufeff"  # tells spreadsheets that the text is UTF-8


def site_of(request: Request) -> str:
    """Return the address of this server as the client sees it, with the root path, without a slash at the end."""
    client = client_of(request)
    return f"{client.scheme}://{client.host}{live_of(request).settings.root_path}"


def frame_of(site: str, board: Board) -> str:
    """Write the HTML that shows a board in a frame of another page."""
    return (
        f'<iframe src="{site}/embed/{board.id}" title="{escape(board.title)}" width="100%" height="640" loading="lazy">'
        "</iframe>"
    )


async def qr_code(request: Request) -> Response:
    """Return the address of a board's page as a QR code."""
    board = await live_of(request).board(request.path_params["board"])
    address = f"{site_of(request)}/boards/{board.id}"

    async def draw() -> Reply:
        return Reply(HTTPStatus.OK, b"image/svg+xml", await asyncio.to_thread(_code, address), cache=REVALIDATED)

    return as_response(await live_of(request).drawings.of(request, ("code", b"", address), draw))


def _code(address: str) -> bytes:
    picture = io.BytesIO()
    code = segno.make(address, error="m", micro=False)
    code.save(picture, kind="svg", xmldecl=False, dark="#000", light="#fff", border=4)
    return picture.getvalue()


async def records_csv(request: Request) -> Response:
    """Return the first records of a board as CSV (RFC 4180), for spreadsheets."""
    live = live_of(request)
    ledger = await live.use(request.path_params["board"])
    most, board = live.settings.max_limit, ledger.state.board
    size = whole_number(request.query_params, "limit", most, 1, most)

    async def table_of(page: Page) -> Reply:
        name = "-".join(part for part in (board.id, page.period) if part)
        items = await items_of(live, (record.key for record in page.records))
        extra = ((b"content-disposition", f'attachment; filename="{name}.csv"'.encode()),)
        body = _table(board, page, items).encode()
        return Reply(HTTPStatus.OK, b"text/csv; charset=utf-8", body, extra, REVALIDATED)

    async def draw() -> Reply:
        period = await period_of(request.query_params, ledger, live.reads)
        return await table_of(await ledger.reader.read(size, period=period))

    archived = await archived_period(request.query_params, ledger, live.reads)
    if archived is not None:
        past = await archived_page(live, ledger, client_of(request).network, archived, 0, size)
        async with live.drawings.turn(request):  # after the reading, which can take seconds
            return as_response(await table_of(past.page))
    key = ("records", request.scope["query_string"], (board.id, live.hub.revision))
    return as_response(await live.drawings.of(request, key, draw))


def _table(board: Board, page: Page, items: Mapping[str, Item]) -> str:
    """The records, with a column of titles if one of them has a title."""
    text = io.StringIO()
    fields = [field.name for field in board.score.fields] if board.score else []
    write = csv_writer(text, ["rank", "member", *(fields or ["score"]), *(["title"] if items else [])])
    for record in page.records:
        values = [record.fields[name] for name in fields] if record.fields else [record.score]
        titles = [items[record.key].title if record.key in items else None] if items else []
        write([[record.rank, record.key, *values, *titles]])
    return _MARK + text.getvalue()
