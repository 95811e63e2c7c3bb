"""Renders the templates: with their words in the language of the request, and the address of each static file."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from functools import cache
from http import HTTPStatus
from itertools import islice
from typing import Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from live.domain.board import Board
from live.domain.item import Item, host_of
from live.web.http.middleware import page_policy
from live.web.pages import words
from live.web.pages.language import Language, grouped, language_of, languages
from live.web.pages.sharing import frame_of
from live.web.pages.surfaces import Surface
from live.web.services import assets, live_of

MOST_SIDES: Final = 6  # boards beside each other on a page

_VARY: Final = "Accept-Language, Accept-Encoding"
_PLAIN: Final = "!'()*"  # what ECMAScript's `encodeURIComponent` does not encode either
_PAGE: Final = Surface()
_NO_ITEMS: Final[Mapping[str, Item]] = {}
_PIECES: Final = 2048  # parts of a page that are made at a time, which takes a few milliseconds
_KEPT: Final = ("lang", "theme")  # what the links of a page keep of its query


@cache
def static_version() -> str:
    """Hash all static files. The hash is part of their URLs, so browsers can cache them without a time limit."""
    digest = hashlib.sha256()
    folder = assets("static")
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def make_templates(root: str) -> Environment:
    """Load the templates, with autoescaping. `root` is the root path of all links."""
    environment = Environment(
        loader=FileSystemLoader(assets("templates")),
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
        bar_width=words.bar_width,
        clock_words=words.clock_words,
        move_words=words.move_words,
        score_fit=words.score_fit,
        short=words.short,
        trend_words=words.trend_words,
        gap_words=words.gap_words,
        name_words=words.name_words,
        moment_words=words.moment_words,
        period_words=words.period_words,
        window_words=words.window_words,
        takes_likes=takes_likes,
        is_closed=lambda board: board.votes.closes <= time.time() * 1000,
        host_of=host_of,
    )
    environment.filters.update(grouped=grouped, moment=words.moment, metadata=words.metadata_words, sides=sides)
    return environment


def sides(board: Board) -> str | None:
    """Make the path of the page that shows a union beside its parts; None without parts, or with too many."""
    return ",".join((board.id, *board.union)) if 0 < len(board.union) < MOST_SIDES else None


def takes_likes(board: Board) -> bool:
    """Tell whether visitors can like members of a board now."""
    return board.takes_likes(time.time() * 1000)


def record_path(board: str, member: str) -> str | None:
    """Make the path of the page of a record. None for members that a browser would take for a part of the path."""
    return None if member in {".", ".."} else f"/boards/{board}/records/{quote(member, safe=_PLAIN)}"


def language_for(request: Request) -> Language:
    """Choose the language of the page that a request receives."""
    return language_of(request.query_params.get("lang"), request.headers.get("accept-language", ""))


def texts(language: Language) -> dict[str, object]:
    """Give a template what it needs to show texts: `language`, and `translate` for HTML."""
    return {"language": language, "translate": language.markup}


async def render(
    request: Request,
    template: str,
    status: int = HTTPStatus.OK,
    *,
    surface: Surface = _PAGE,
    likes: bool = False,
    has_forms: bool = False,
    items: Mapping[str, Item] = _NO_ITEMS,
    **values: object,
) -> HTMLResponse:
    """Return a page in the language and the theme that the request asks for. Other work goes on while it is made.

    `likes` says whether it has like buttons, `has_forms` whether it has other forms, and `items` has what it shows of
    members.
    """
    live, language = live_of(request), language_for(request)
    theme = request.query_params.get("theme")
    pieces = live.templates.get_template(template).generate(
        **texts(language),
        address=addresses(request),
        kept=_kept_of(request),
        in_language=lambda tag: "?" + urlencode({**request.query_params, "lang": tag}),
        theme=theme if theme in {"light", "dark"} else None,  # None is that of the system
        status=int(status),
        surface=surface,
        likes=likes,
        items=items,
        has_items=live.items.exist,
        **values,
    )
    html = ""
    while part := "".join(islice(pieces, _PIECES)):
        html += part
        await asyncio.sleep(0)
    headers = {"Cache-Control": "no-cache", "Content-Language": language.tag, "Vary": _VARY}
    if likes or has_forms or surface.is_framed or live.settings.image_hosts:
        headers["Content-Security-Policy"] = page_policy(
            live.settings.image_hosts, has_forms=likes or has_forms, is_framed=surface.is_framed
        )
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = "2"
    return HTMLResponse(html, status, headers)


def addresses(request: Request) -> Callable[..., str]:
    """Return a function that makes addresses of pages: with the language and the theme, if the request names them."""
    kept = _kept_of(request)

    def address(path: str, **query: str) -> str:
        encoded = urlencode({**query, **{name: value for name, value in kept.items() if name not in query}})
        return f"{path}?{encoded}" if encoded else path

    return address


def _kept_of(request: Request) -> dict[str, str]:
    return {name: request.query_params[name] for name in _KEPT if name in request.query_params}
