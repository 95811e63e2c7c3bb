"""Ways to share a board: its address as a QR code, and its records as a table."""

import asyncio
import io
from http import HTTPStatus
from typing import Annotated, Final

import segno
from starlette.requests import Request
from starlette.responses import Response

from live.domain.csv_table import csv_writer
from live.domain.meaning import says
from live.http.parameters import Parameters
from live.http.reply import Reply
from live.store.board.read.contestants import list_contestants
from live.store.board.read.reader import Selection
from live.web.api.items import items_of
from live.web.api.sources import MOST_RECORDS, PeriodName, When, read_page
from live.web.middleware import requester_of
from live.web.pages.rendering import site_of, visit_of
from live.web.parts import live_of, reader_of
from live.web.responses import REVALIDATED, as_response

_MARK: Final = "\ufeff"  # the mark by which spreadsheets recognise UTF-8


async def get_qr_code(request: Request) -> Response:
    """Show the address of a board as a QR code.

    The code leads to `/boards/{board}`.
    """
    visit = visit_of(request)
    board = (await visit.live.ledger(request.path_params["board"], visit.reader)).state.board
    address = f"{site_of(visit)}/boards/{board.id}"

    def picture() -> bytes:
        drawn = io.BytesIO()
        code = segno.make(address, error="m", micro=False)
        code.save(drawn, kind="svg", xmldecl=False, dark="#000", light="#fff", border=4)
        return drawn.getvalue()

    async def draw() -> Reply:
        extra = ((b"cross-origin-resource-policy", b"cross-origin"),)  # isolated pages (COEP) may show it
        return Reply(HTTPStatus.OK, b"image/svg+xml", await asyncio.to_thread(picture), extra, REVALIDATED)

    return as_response(await visit.live.drawings.of(visit.requester.network, ("code", b"", address), draw))


class CsvParameters(Parameters, frozen=True, kw_only=True):
    """The records of a table."""

    period: PeriodName = "current"
    limit: Annotated[int, says("The number of records.", ge=1, le=MOST_RECORDS)] | None = None


async def download_records(request: Request, query: CsvParameters) -> Response:
    """Download the first records of a board as CSV.

    The table is in UTF-8. A text that a spreadsheet would run as a formula begins with an apostrophe.
    """
    live, client = live_of(request), requester_of(request).network
    ledger = await live.use(request.path_params["board"], reader_of(request))
    size, when = query.limit or MOST_RECORDS, When(query.period)
    # Read the page before the wait for a turn to draw, because reading an archived period can take seconds.
    found = await read_page(live, ledger, Selection("rank", 0, "", size), when, client)
    board, page = found.board, found.page
    records = list(page.records)
    if board.votes is not None and board.votes.registered and when.is_now and len(records) < size:
        records += (await list_contestants(ledger.reader, None, size - len(records))).records

    async def draw() -> Reply:
        name = "-".join(part for part in (board.id, page.period) if part)
        items = await items_of(live, (record.member for record in records))
        text = io.StringIO()
        fields = [field.name for field in board.packing.fields] if board.packing else []
        # The table has a column of titles if one of the records has a title.
        written = [] if board.score_format is None else ["written"]
        write = csv_writer(text, ["rank", "member", *(fields or ["score"]), *written, *(["title"] if items else [])])
        for record in records:
            values = [record.fields[name] for name in fields] if record.fields else [record.score]
            texts = [] if board.score_format is None else [board.score_format.write(record.score)]
            titles = [items[record.member].title if record.member in items else None] if items else []
            write([[record.rank or None, record.member, *values, *texts, *titles]])
        extra = ((b"content-disposition", f'attachment; filename="{name}.csv"'.encode()),)
        body = (_MARK + text.getvalue()).encode()
        return Reply(HTTPStatus.OK, b"text/csv; charset=utf-8", body, extra, REVALIDATED)

    if found.is_past:  # the table is not kept, so that a hidden member disappears from the past at once
        return as_response(await live.drawings.draw(client, draw()))
    key = ("records", request.scope["query_string"], (board.id, live.hub.revision))
    return as_response(await live.drawings.of(client, key, draw))
