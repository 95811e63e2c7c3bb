"""Renders the templates: with their words in the language of the request, and the address of each static file."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from http import HTTPStatus
from itertools import islice
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import escape
from starlette.datastructures import QueryParams
from starlette.requests import Request, cookie_parser
from starlette.responses import Response

from live.auth.requester import Requester
from live.domain.board import Board
from live.domain.item import Item, host_of
from live.domain.reader import Reader
from live.domain.text import ScoreFormat
from live.http.reply import Reply
from live.web.middleware import page_policy, requester_of
from live.web.pages import words
from live.web.pages.language import Language, grouped, language_of, languages
from live.web.pages.parameters import PageParameters, Surface
from live.web.pages.preferences import ROWS, THEMES, preference
from live.web.pages.rows import PLAIN, about, like_button, picture, record_path
from live.web.parts import Live, assets, live_of, reader_of
from live.web.responses import NOT_STORED, REVALIDATED, as_response

MOST_SIDES: Final = 6  # boards beside each other on a page
LEAST_FOUND: Final = 20  # records from which on a page has a field to find one

_VARY: Final = (b"vary", b"Accept-Language, Cookie, Accept-Encoding")
_SAFE: Final = "/,:@" + PLAIN  # the characters that addresses of pages contain without encoding
_PAGE: Final = PageParameters()
_NO_ITEMS: Final[Mapping[str, Item]] = {}
_PIECES: Final = 2048  # pieces of a page that are made without a pause, which takes a few milliseconds
_KEPT: Final = ("lang", "theme")  # the parameters that the links of a page keep


class Visit(NamedTuple):
    """The facts about a request that pages use.

    `path` is below the root path, and `text` is the query as the client sent it. `theme` is `light`, `dark`, or None
    for the theme of the system. `rows` are `normal` or `compact`. `cookies` are those of the request.
    """

    live: Live
    requester: Requester
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
    headers, query, requester = request.headers, request.query_params, requester_of(request)
    cookies = cookie_parser(headers.get("cookie", ""))
    language = language_of(preference("lang", query, cookies), headers.get("accept-language", ""))
    theme = preference("theme", query, cookies)
    theme = theme if theme in THEMES[1:] else None
    rows = preference("rows", {}, cookies)
    rows = rows if rows in ROWS else ROWS[0]
    path, text = request.scope["path"], request.scope["query_string"]
    live, reader = live_of(request), reader_of(request)
    return Visit(live, requester, reader, path, query, text, language, theme, rows, cookies)


def site_of(visit: Visit) -> str:
    """Return the address of this server as the client sees it, with the root path, without a slash at the end."""
    return f"{visit.requester.scheme}://{visit.requester.host}{visit.live.settings.root_path}"


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
        auto_reload=False,  # a process serves the templates as they were when it first used them
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update({made.__name__: made for made in _IN_TEMPLATES})
    environment.globals.update(
        root=root,
        address=lambda path: path,
        static=lambda name: f"{root}/static/{static_version()}/{name}",
        languages=languages(),
        least_found=LEAST_FOUND,
    )
    environment.filters.update(grouped=grouped, moment=words.moment, sides=sides, encoded=encoded)
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


def needs_ticket(reader: Reader, board: Board) -> bool:
    """Tell whether a reader can vote on a board only with a ticket that it does not have."""
    return board.votes is not None and board.votes.tickets and board.id not in reader.likes


def is_before(board: Board) -> bool:
    """Tell whether voting on a board has not opened yet."""
    opens = None if board.votes is None else board.votes.opens_at
    return opens is not None and time.time() * 1000 < opens


def is_closed(board: Board) -> bool:
    """Tell whether the result of the voting on a board is final."""
    final_at = None if board.votes is None else board.votes.final_at
    return final_at is not None and final_at <= time.time() * 1000


def is_counting(board: Board) -> bool:
    """Tell whether voting on a board has ended, and the last votes may still come in."""
    closes = None if board.votes is None else board.votes.closes_at
    return closes is not None and closes <= time.time() * 1000 and not is_closed(board)


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


_IN_TEMPLATES: Final[tuple[Callable[..., object], ...]] = (
    about, frame_of, element_of, host_of, is_before, is_closed, is_counting, like_button, picture, record_path,
    takes_likes, words.axis_words, words.moment_words, words.move_words, words.name_words, words.pace_words,
    words.period_words, words.share_words, words.short, words.window_words, words.zone_words,
)  # fmt: skip


def texts(language: Language) -> dict[str, object]:
    """Give a template what writes texts: `language`, `translate` for HTML, `format_of` for scores, and `time`."""
    return {
        "language": language,
        "translate": language.markup,
        "format_of": partial(words.format_of, language),
        "time": partial(words.time_words, language),
    }


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
) -> Reply:
    """Return a page in the language and the theme that the visitor prefers. Other work goes on while it is made.

    A frame or an overlay is part of another page, so only its address decides how it looks. `likes` says whether the
    page has like buttons, and `items` has the titles and pictures of members.
    """
    live, query, language = visit.live, visit.query, visit.language
    theme = visit.theme if isinstance(surface, PageParameters) else surface.own_theme
    pieces = live.templates.get_template(template).generate(
        **texts(language),
        address=addresses(query),
        rows=visit.rows,
        sizes=ROWS,
        kept=_kept_of(query),
        **look(surface, theme, address_of(visit, *_KEPT, "token")),
        status=int(status),
        likes=likes,
        items=items,
        has_items=live.items.exist,
        pictured=any(item.image for item in items.values()),
        needs_ticket=partial(needs_ticket, visit.reader),
        **values,
    )
    html = ""
    while part := "".join(islice(pieces, _PIECES)):
        html += part
        await asyncio.sleep(0)
    extra = [(b"content-language", language.tag.encode()), _VARY]
    if surface.is_framed or live.settings.image_hosts:
        policy = page_policy(live.settings.image_hosts, is_framed=surface.is_framed)
        extra.append((b"content-security-policy", policy.encode()))
    if surface.is_framed:
        # Pages that are isolated from other origins (COEP) show only frames that are isolated too. Then pictures of
        # other hosts are loaded without cookies.
        isolated = b"credentialless" if live.settings.image_hosts else b"require-corp"
        extra += [(b"cross-origin-embedder-policy", isolated), (b"cross-origin-resource-policy", b"cross-origin")]
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        extra.append((b"retry-after", b"2"))
    return Reply(status, b"text/html; charset=utf-8", html.encode(), tuple(extra), REVALIDATED)


async def draw_alone(
    visit: Visit,
    template: str,
    status: int = HTTPStatus.OK,
    headers: Mapping[str, str] = NOT_STORED,
    **values: Any,  # noqa: ANN401 - what the template takes
) -> Response:
    """Draw a page for one request, in a turn of its client. `headers` are added to the response."""
    drawn = render(visit, template, status, **values)
    response = as_response(await visit.live.drawings.draw(visit.requester.network, drawn))
    response.headers.update(headers)
    return response


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
