"""The pages for people, as operations of `/openapi.json`."""

from typing import Final

from live.web.contract.operations import (
    AS_OF,
    ASKING,
    BOARD,
    COUNT,
    LIKING,
    OF_BOARD,
    OF_KEY,
    PAST,
    PERIOD,
    RECORD,
    RECORDS,
    TEXT,
    body_of,
    document,
    done,
    operation,
    parameter,
    text,
)
from live.web.contract.schemas import Json
from live.web.pages.board import LONGEST_SEARCH, MOST_PAGES
from live.web.writes.likes import Liked

_BOARDS: Final = RECORDS | PAST


def page_operations() -> Json:
    """The pages for people."""
    several = parameter("board", "path", {"type": "string"}, "Ids of up to six boards, comma-separated.")
    key = parameter("key", "query", {"type": "string"}, "A member whose rank is shown.")
    limit = parameter("limit", "query", COUNT, "The number of records.")
    shown = (several, PERIOD, AS_OF, key, limit)
    wall = _choice("display", "A display on a wall: ten records, readable across a room.", "wall")
    page = text("text/html", "A page.")
    index = operation(
        "showIndex", "pages", "Show the list of boards.", "A hundred boards, each with its first records, live.",
        page, ASKING,
        parameter("page", "query", {"type": "integer", "minimum": 1, "maximum": MOST_PAGES, "default": 1},
                  "The page of the list. A page beyond the last one is empty."),
        parameter("q", "query", {"type": "string", "maxLength": LONGEST_SEARCH},
                  "List only boards with this text in their id or title, in upper or lower case."),
        *_LOOK, is_page=True,
    )  # fmt: skip
    board = operation(
        "showBoard", "pages", "Show a board, or several side by side.", "The page updates live.",
        page, _BOARDS, *shown, wall, *_LOOK, is_page=True,
    )  # fmt: skip
    embedded = operation(
        "embedBoard", "pages", "Show a board in a frame of another page.",
        "The same page without header, footer and controls. It sends its height to the page around it, as a message "
        '`{"type": "live-board:height", "height": 480}`.',
        page, _BOARDS, *shown, *_LOOK,
        _choice("bg", "The background of the page around the frame shows through.", "transparent"), is_page=True,
    )  # fmt: skip
    overlay = operation(
        "overlayBoard", "pages", "Show only the rows, on a transparent background, for video software.",
        "Without controls. It says when it is not live.", page, _BOARDS, *shown, *_LOOK,
        parameter("rows", "query", {"type": "integer", "minimum": 1, "default": 8}, "The number of records."),
        parameter("scale", "query", {"type": "number", "minimum": 0.5, "maximum": 5}, "Multiplies all sizes."),
        is_page=True,
    )  # fmt: skip
    return {
        "/": {"get": index}, "/boards/{board}": {"get": board}, "/embed/{board}": {"get": embedded},
        "/overlay/{board}": {"get": overlay}, "/boards/{board}/records/{key}": {"get": _show_record(page)},
        "/boards/{board}/likes": {"post": _like_member()}, **_downloads(),
    }  # fmt: skip


def _downloads() -> Json:
    picture = text("image/svg+xml", "The QR code.")
    code = operation(
        "getQrCode", "pages", "Show the address of a board as a QR code.", "The address of `/boards/{board}`.",
        picture, BOARD, OF_BOARD, is_page=True,
    )  # fmt: skip
    table = operation(
        "downloadRecords", "pages", "Download the first records of a board as CSV.",
        "In UTF-8, for spreadsheets. A member that a spreadsheet would run as a formula begins with an apostrophe.",
        text("text/csv", "The records."), RECORDS | PAST, OF_BOARD, PERIOD,
        parameter("limit", "query", COUNT, "The number of records."), is_page=True,
    )  # fmt: skip
    return {"/boards/{board}/qr.svg": {"get": code}, "/boards/{board}/records.csv": {"get": table}}


def _like_member() -> Json:
    """The like button, which only pages of this server can use."""
    like = operation(
        "likeMember", "pages", "Like a member as a visitor.",
        "For the like buttons of the pages: it needs the `Origin` of this server, and a cookie that the first request "
        "receives with 307. Programs post events instead. With `Accept: application/json` it returns JSON.",
        {**document(Liked), **done(303, "The like counts. See the board.", {"Location": TEXT}),
         **done(307, "Repeat the request with the cookie.", {"Location": TEXT, "Set-Cookie": TEXT})},
        LIKING, OF_BOARD, is_page=True,
    )  # fmt: skip
    fields = {
        "key": {"type": "string", "description": "The member."},
        "page": {"type": "string", "enum": ["record"], "description": "Return to the page of the record."},
    }
    form = {"type": "object", "properties": fields, "required": ["key"]}
    like["requestBody"] = body_of(form, "application/x-www-form-urlencoded")
    return like


def _show_record(page: Json) -> Json:
    return operation(
        "showRecord", "pages", "Show one record.",
        "Its score in each slot of the window, its rank and its neighbours. The page updates live.",
        page, RECORD - {"period_not_found"}, OF_BOARD, OF_KEY, *_LOOK, is_page=True,
    )  # fmt: skip


def _choice(name: str, meaning: str, *values: str) -> Json:
    """A query parameter with few values."""
    return parameter(name, "query", {"type": "string", "enum": list(values)}, meaning)


_LOOK: Final = (
    _choice("lang", "The language. By default that of `Accept-Language`.", "en", "zh-Hans"),
    _choice("theme", "The theme. By default that of the system.", "light", "dark"),
)
