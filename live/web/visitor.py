"""The visitor of a request, as its cookies tell."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from live.auth.client import Client
from live.domain.board import Board
from live.domain.reader import Reader
from live.web.services import Live

_MOST: Final = 16  # cookies that are read; a browser has several only if its first requests overlapped


def cookie_prefix(live: Live, client: Client) -> str:
    """Make the prefix of the names of visitors' cookies on this server."""
    return client.cookie("visitor", live.settings.root_path) + "."


def cookies_of(live: Live, client: Client, cookies: Mapping[str, str]) -> list[str]:
    """Return the names of the cookies of visitors. A cookie with another name is not from this server."""
    own = re.compile(re.escape(cookie_prefix(live, client)) + "[0-9a-f]{8}")
    return [name for name in cookies if own.fullmatch(name)][:_MOST]


async def find_visitor(live: Live, client: Client, cookies: Mapping[str, str]) -> tuple[str | None, Sequence[str]]:
    """Find the visitor of a request, or None, and the names of the cookies that do not count.

    A browser that sends several requests before it has a cookie receives a cookie for each, under different names. The
    first cookie in a request counts. Browsers send the oldest cookie first (RFC 6265, section 5.4), so the oldest is
    in every request that has a cookie at all, and no later cookie takes its place.
    """
    names = cookies_of(live, client, cookies)
    for name in names:
        visitor = await live.visitors.read(cookies[name])
        if visitor is not None:
            return visitor, [other for other in names if other != name]
    return None, names


def may_have_voted(live: Live, client: Client, cookies: Mapping[str, str], board: Board, reader: Reader) -> bool:
    """Tell whether pages of a board may show votes of this visitor, so that no other visitor may see these pages."""
    if board.votes is None or not board.like_button:
        return False
    return board.id in reader.likes or (not board.votes.tickets and bool(cookies_of(live, client, cookies)))


async def voter_of(live: Live, client: Client, cookies: Mapping[str, str], board: Board, reader: Reader) -> str | None:
    """Return the actor of the votes of a visitor, or None: the visitor has not voted yet."""
    if board.id in reader.likes:
        return reader.voter
    return (await find_visitor(live, client, cookies))[0]
