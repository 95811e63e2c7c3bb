"""Renders the templates: with their words in the language of the request, and the address of each static file."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from http import HTTPStatus
from itertools import islice
from typing import Final, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import escape
from starlette.datastructures import QueryParams
from starlette.requests import Request, cookie_parser
from starlette.responses import HTMLResponse

from live.auth.client import Client
from live.domain.board import Board
from live.domain.item import Item, host_of, initial_of
from live.domain.reader import Reader
from live.domain.score_format import ScoreFormat
from live.domain.views import definition_tag
from live.web.http.middleware import client_of, page_policy
from live.web.pages import words
from live.web.pages.display_modes import Surface
from live.web.pages.language import Language, grouped, language_of, languages
from live.web.pages.preferences import ROWS, THEMES, preference
from live.web.services import Live, assets, live_of, reader_of

MOST_SIDES: Final = 6  # boards beside each other on a page
LEAST_FOUND: Final = 20  # records from which on a page has a field to find one

_VARY: Final = "Accept-Language, Cookie, Accept-Encoding"
_PLAIN: Final = "!'()*"  # the characters that ECMAScript's `encodeURIComponent` does not encode either
_SAFE: Final = "/,:@" + _PLAIN  # the characters that addresses of pages contain without encoding
_PAGE: Final = Surface()
_NO_ITEMS: Final[Mapping[str, Item]] = {}
_PIECES: Final = 2048  # pieces of a page that are made without a pause, which takes a few milliseconds
_KEPT: Final = ("lang", "theme")  # the parameters that the links of a page keep


class Visit(NamedTuple):
    """The facts about a request that pages use.

    `path` is below the root path, and `text` is the query as the client sent it. `theme` is `light`, `dark`, or None
    for the theme of the system. `rows` are `normal` or `compact`. `cookies` are those of the request.
    """

    live: Live
    client: Client
    reader: Reader
    path: str
    query: QueryParams
    text: bytes
    language: Language
    theme: str | None
    rows: str
    cookies: Mapping[str, str]


def visit_of(request: Request) -> Visit:
    """Return the facts about a request that pages use."""
    headers, query, client = request.headers, request.query_params, client_of(request)
    cookies = cookie_parser(headers.get("cookie", ""))
    language = language_of(preference("lang", query, cookies), headers.get("accept-language", ""))
    theme = preference("theme", query, cookies)
    theme = theme if theme in THEMES[1:] else None
    rows = preference("rows", {}, cookies)
    rows = rows if rows in ROWS else ROWS[0]
    path, text = request.scope["path"], request.scope["query_string"]
    live, reader = live_of(request), reader_of(request)
    return Visit(live, client, reader, path, query, text, language, theme, rows, cookies)


def site_of(visit: Visit) -> str:
    """Return the address of this server as the client sees it, with the root path, without a slash at the end."""
    return f"{visit.client.scheme}://{visit.client.host}{visit.live.settings.root_path}"


@cache
def static_version() -> str:
    """Hash all static files. The hash is part of their URLs, so browsers can cache them without a time limit."""
    digest = hashlib.sha256()
    folder = assets("static")
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


@cache  # compiling all templates takes 400 ms, and processes of the tests start hundreds of servers
def make_templates(root: str) -> Environment:
    """Load the templates, with autoescaping. `root` is the root path of all links."""
    environment = Environment(
        loader=FileSystemLoader([assets("templates"), assets("static")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        root=root,
        address=lambda path: path,
        record_path=record_path,
        static=lambda name: f"{root}/static/{static_version()}/{name}",
        languages=languages(),
        frame_of=frame_of,
        element_of=element_of,
        axis_words=words.axis_words,
        bar_width=words.bar_width,
        line_words=words.line_words,
        move_words=words.move_words,
        short=words.short,
        trend_words=words.trend_words,
        gap_words=words.gap_words,
        pace_words=words.pace_words,
        share_words=words.share_words,
        name_words=words.name_words,
        moment_words=words.moment_words,
        period_words=words.period_words,
        window_words=words.window_words,
        zone_words=words.zone_words,
        takes_likes=takes_likes,
        is_before=is_before,
        is_closed=is_closed,
        is_counting=is_counting,
        initial_of=initial_of,
        least_found=LEAST_FOUND,
        definition_tag=definition_tag,
        host_of=host_of,
    )
    environment.filters.update(
        grouped=grouped, moment=words.moment, metadata=words.metadata_words, sides=sides, encoded=encoded
    )
    return environment


def encoded(score_format: ScoreFormat) -> str:
    """Write a format for the script of a page."""
    return msgspec.json.encode(score_format).decode()


def sides(board: Board) -> str | None:
    """List the ids of a union and its parts, as in the path of the page that shows them side by side.

    Return None if the board has no parts, or too many for a page.
    """
    return ",".join((board.id, *board.union)) if 0 < len(board.union) < MOST_SIDES else None


def takes_likes(board: Board) -> bool:
    """Tell whether visitors can like members of a board now."""
    return board.takes_likes(time.time() * 1000)


def _needs_ticket(reader: Reader, board: Board) -> bool:
    """Tell whether a reader can vote on a board only with a ticket that it does not have."""
    return board.votes is not None and board.votes.tickets and board.id not in reader.likes


def is_before(board: Board) -> bool:
    """Tell whether voting on a board has not opened yet."""
    opens = None if board.votes is None else board.votes.opens
    return opens is not None and time.time() * 1000 < opens


def is_closed(board: Board) -> bool:
    """Tell whether the result of the voting on a board is final."""
    final_at = None if board.votes is None else board.votes.final_at
    return final_at is not None and final_at <= time.time() * 1000


def is_counting(board: Board) -> bool:
    """Tell whether voting on a board has ended, and the last votes may still come in."""
    closes = None if board.votes is None else board.votes.closes
    return closes is not None and closes <= time.time() * 1000 and not is_closed(board)


def record_path(board: str, member: str) -> str | None:
    """Make the path of the page of a record. Return None for `.` and `..`, which browsers remove from paths."""
    return None if member in {".", ".."} else f"/boards/{board}/records/{quote(member, safe=_PLAIN)}"


def frame_of(site: str, board: Board) -> str:
    """Write the HTML that shows a board in a frame of another page."""
    return (
        f'<iframe src="{site}/embed/{board.id}?theme=light" title="{escape(board.title)}" width="100%" height="640" '
        'loading="lazy"></iframe>'
    )


def element_of(site: str, board: Board) -> str:
    """Write the HTML that shows a board as a part of another page."""
    page = f"{site}/boards/{board.id}"
    return (
        f'<script type="module" src="{site}/client/element.js"></script>\n'
        f'<live-board src="{page}" limit="10"><a href="{page}">{escape(board.title)}</a></live-board>'
    )


def format_of(language: Language, board: Board, *, has_unit: bool = True) -> ScoreFormat | None:
    """Return how the pages of a board write its scores: without the unit if the heading above the scores names it."""
    kept, heading = board.score_format, language.translate("votes_heading" if board.votes else "score_heading")
    if kept is None or (has_unit and kept.unit.casefold() != heading.casefold()):
        return kept
    bare = msgspec.structs.replace(kept, unit="")
    return None if bare == ScoreFormat() else bare


def texts(language: Language) -> dict[str, object]:
    """Give a template the functions for texts: `language`, `translate` for HTML, and `format_of` for scores."""
    return {"language": language, "translate": language.markup, "format_of": partial(format_of, language)}


def look(surface: Surface, theme: str | None, back: str) -> dict[str, object]:
    """Give a template its surface and theme, and the address to which the choice of another theme returns."""
    return {"surface": surface, "theme": theme, "themes": THEMES, "back": back}


async def render(
    visit: Visit,
    template: str,
    status: int = HTTPStatus.OK,
    *,
    surface: Surface = _PAGE,
    likes: bool = False,
    items: Mapping[str, Item] = _NO_ITEMS,
    **values: object,
) -> HTMLResponse:
    """Return a page in the language and the theme that the visitor prefers. Other work goes on while it is made.

    A frame or an overlay is part of another page, so only its address decides how it looks. `likes` says whether the
    page has like buttons, and `items` has the titles and pictures of members.
    """
    live, query, language = visit.live, visit.query, visit.language
    pieces = live.templates.get_template(template).generate(
        **texts(language),
        address=addresses(query),
        rows=visit.rows,
        sizes=ROWS,
        kept=_kept_of(query),
        **look(surface, surface.theme if surface.is_framed else visit.theme, address_of(visit, *_KEPT, "token")),
        status=int(status),
        likes=likes,
        items=items,
        has_items=live.items.exist,
        pictured=any(item.image for item in items.values()),
        needs_ticket=partial(_needs_ticket, visit.reader),
        **values,
    )
    html = ""
    while part := "".join(islice(pieces, _PIECES)):
        html += part
        await asyncio.sleep(0)
    headers = {"Cache-Control": "no-cache", "Content-Language": language.tag, "Vary": _VARY}
    if surface.is_framed or live.settings.image_hosts:
        headers["Content-Security-Policy"] = page_policy(live.settings.image_hosts, is_framed=surface.is_framed)
    if surface.is_framed:
        # Pages that are isolated from other origins (COEP) show only frames that are isolated too. Then pictures of
        # other hosts are loaded without cookies.
        headers["Cross-Origin-Embedder-Policy"] = "credentialless" if live.settings.image_hosts else "require-corp"
        headers["Cross-Origin-Resource-Policy"] = "cross-origin"
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = "2"
    return HTMLResponse(html, status, headers)


def addresses(query: Mapping[str, str]) -> Callable[..., str]:
    """Return a function that makes addresses of pages, with the language and the theme if the query names them."""
    kept = _kept_of(query)

    def address(path: str, **own: str) -> str:
        encoded = urlencode({**own, **{name: value for name, value in kept.items() if name not in own}})
        return f"{path}?{encoded}" if encoded else path

    return address


def address_of(visit: Visit, *without: str) -> str:
    """Return the address of a page without some of its parameters."""
    query = urlencode([(name, value) for name, value in visit.query.multi_items() if name not in without])
    # Without a root path, an address that begins with `//` would name another host.
    own = "/" if visit.path.startswith("//") else visit.path
    path = f"{visit.live.settings.root_path}{quote(own, safe=_SAFE)}"
    return f"{path}?{query}" if query else path


def _kept_of(query: Mapping[str, str]) -> dict[str, str]:
    return {name: query[name] for name in _KEPT if name in query}
