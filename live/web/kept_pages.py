"""The HTML of a single board: requests that ask alike share it while the board does not change."""

import time
from typing import Final, NamedTuple

from starlette.requests import Request

from live.domain.ranking import Page
from live.ingest.replies import Reply
from live.web.http.middleware import client_of
from live.web.pages.rendering import language_for
from live.web.pages.sharing import site_of
from live.web.pages.surfaces import Surface
from live.web.services import live_of

_HTML: Final = "html"
_MOST: Final = 8  # replies made from one page, in languages and themes
_LONGEST_QUERY: Final = 256  # bytes; links of the pages are shorter
_SERVES: Final = 1.0  # seconds: the trends on a page change with the time, without a change of the board


class CacheKey(NamedTuple):
    """What the HTML depends on besides the board and its viewers."""

    surface: Surface
    language: str
    query: bytes
    site: str
    needs_key: bool


class _Kept(NamedTuple):
    """A reply that shows a number of viewers. It serves until a time, in seconds of the monotonic clock."""

    reply: Reply
    viewers: int | None
    until: float


def cache_key_of(request: Request, surface: Surface) -> CacheKey:
    """What a request for a single board asks for."""
    needs_key = live_of(request).authenticator.needs_key(client_of(request))
    return CacheKey(surface, language_for(request).tag, request.scope["query_string"], site_of(request), needs_key)


def kept_reply(page: Page, cache_key: CacheKey, viewers: int | None) -> Reply | None:
    """The reply that was made from a page up to a second ago, with the same number of viewers, if there is one."""
    kept = _kept(page).get(cache_key)
    return kept.reply if kept is not None and kept.viewers == viewers and time.monotonic() < kept.until else None


def keep(page: Page, cache_key: CacheKey, viewers: int | None, reply: Reply) -> Reply:
    """Keep a reply that was made from a page, unless nobody else asks like that, and return it."""
    if len(cache_key.query) > _LONGEST_QUERY:
        return reply
    kept = _kept(page)
    if len(kept) >= _MOST:
        del kept[next(iter(kept))]
    kept[cache_key] = _Kept(reply, viewers, time.monotonic() + _SERVES)
    page.made.keep(_HTML, kept, sum(one.reply.most_memory for one in kept.values()))
    return reply


def _kept(page: Page) -> dict[CacheKey, _Kept]:
    replies: dict[CacheKey, _Kept] = page.made.get(_HTML) or {}
    return replies
