"""The votes of a visitor: on pages that only this visitor receives, and for the script."""

import re
from collections.abc import AsyncIterator
from html import unescape
from unittest.mock import patch

import httpx
import pytest

from live.domain.board_file import parse_boards
from live.web.pages import likes
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.tokens import SECRET, make_token
from tests.web.pages.test_likes import SCRIPT, Visitor

BOARDS = parse_boards("""
[[board]]
id = "cup"
window = "forever"
votes = { per_key = 1, per_actor = 3 }
like_button = true
[[board]]
id = "one"
window = "forever"
votes = { per_key = 1, per_actor = 1 }
like_button = true
[[board]]
id = "final"
window = "forever"
votes = { per_key = 1, changes = false }
like_button = true
[[board]]
id = "closed"
window = "forever"
votes = { per_key = 1, closes = 2026-01-01T00:00:00Z }
like_button = true
[[board]]
id = "posts"
like_button = true
[[board]]
id = "paper"
window = "forever"
votes = { per_key = 1, per_actor = 1, tickets = true }
like_button = true
""")
_BUTTON = re.compile(r'<button form="likes[^"]*" name="(\w+)" value="(\w+)" [^>]*>([^<]*)</button>')
_LEFT = re.compile(r'class="left pinned" data-now[^>]*>(.*?)</p>')


@pytest.fixture
async def url(valkey_url: str) -> AsyncIterator[str]:
    """A server with contests. Three members are on each board."""
    settings = fresh_settings(valkey_url, token_secret=SECRET)
    async with run_server(settings, BOARDS) as url, httpx.AsyncClient(base_url=url) as producer:
        for board in ("cup", "one", "final", "posts"):
            await post(producer, *({"key": member, "board": board, "actor": f"fan of {member}"} for member in "abc"))
        yield url


async def page(visitor: Visitor, path: str) -> httpx.Response:
    """A page as a browser with the visitor's cookie receives it."""
    async with httpx.AsyncClient(base_url=visitor.url, cookies=visitor.cookies) as http:
        return await http.get(path)


def buttons(html: str) -> dict[str, str]:
    """The text of the button of each member, with a star if the button takes a vote back."""
    return {member: unescape(text) + ("*" if name == "undo" else "") for name, member, text in _BUTTON.findall(html)}


def left(html: str) -> str:
    """What the page says about votes that are left."""
    found = _LEFT.search(html)
    return re.sub("<[^>]*>", "", found[1]) if found else ""


async def test_a_page_shows_the_votes_of_its_visitor(url: str) -> None:
    """No cache may keep such a page. Everybody else sees how many votes a visitor has."""
    visitor, other = Visitor(url), Visitor(url)
    fresh = await page(other, "/boards/cup")
    assert (left(fresh.text), set(buttons(fresh.text).values())) == ("You have 3 of 3 votes left.", {"Vote"})
    assert fresh.headers["cache-control"] == "no-cache"
    await visitor.like("a", "cup")
    for path, shown in (
        ("/boards/cup", {"a": "Undo*", "b": "Vote", "c": "Vote"}),
        ("/boards/cup/records/a", {"a": "Undo*"}),
    ):
        own = await page(visitor, path)
        assert own.headers["cache-control"] == "private, no-store"
        assert {"Cookie", "Authorization"} <= set(re.split(", ?", own.headers["vary"]))
        assert (left(own.text), buttons(own.text)) == ("You have 2 of 3 votes left.", shown)
    again = await page(other, "/boards/cup")
    assert (left(again.text), set(buttons(again.text).values())) == ("You have 3 of 3 votes left.", {"Vote"})
    plain = await page(visitor, "/boards/posts")
    assert plain.headers["cache-control"] == "no-cache", "a page without votes is for this visitor only"
    assert set(buttons(plain.text).values()) == {"♡"}


async def test_a_single_vote_can_be_changed(url: str) -> None:
    """The other buttons of the page change it, also if its member is not on the page."""
    visitor = Visitor(url)
    await visitor.like("c", "one")
    own = (await page(visitor, "/boards/one")).text
    assert buttons(own) == {"c": "Undo*", "a": "Change to this", "b": "Change to this"}
    with patch.object(likes, "_MOST_SEARCHED", 3):
        second = (await page(visitor, "/boards/one?start=1&limit=1")).text
    assert set(buttons(second).values()) == {"Change to this"}
    assert '<input type="hidden" name="replaces" value="c">' in second
    assert left(second) == "You have used your vote."


async def test_final_votes_have_no_undo(url: str) -> None:
    """The page only says which votes are the visitor's. Without a limit in all, it does not say how many are left."""
    visitor = Visitor(url)
    await visitor.like("b", "final")
    own = (await page(visitor, "/boards/final")).text
    assert (left(own), buttons(own)) == ("", {"b": "Voted", "a": "Vote", "c": "Vote"})


async def test_the_script_asks_for_the_votes_of_the_visitor(url: str) -> None:
    """The answer is for this visitor only."""
    visitor = Visitor(url)
    query = "/boards/cup/votes?key=a&key=b&key=nobody"
    assert (await page(visitor, query)).json() == {"board": "cup", "period": None, "left": 3, "votes": []}
    for member in "ab":
        await visitor.like(member, "cup")
    await visitor.send("/boards/cup/likes", data={"undo": "a"}, headers=SCRIPT)
    answer = await page(visitor, query)
    assert answer.json() == {"board": "cup", "period": None, "left": 2, "votes": ["b"]}
    assert answer.headers["cache-control"] == "no-store"
    for path, status in (
        ("/boards/closed/votes", 409),
        ("/boards/posts/votes", 409),
        ("/boards/none/votes", 404),
        ("/boards/cup/votes?" + "&".join(["key=a"] * 101), 400),
    ):
        assert (await page(visitor, path)).status_code == status


async def test_a_voter_with_a_token_sees_its_votes(url: str) -> None:
    """The token counts, and not the cookie. Without a token, the page of a contest with tickets has no buttons."""
    visitor = Visitor(url)
    await visitor.like("b", "one")
    headers = {"Authorization": f"Bearer {make_token(likes=('one', 'paper'), sub='ann')}"}
    async with httpx.AsyncClient(base_url=url, cookies=visitor.cookies, headers=headers) as http:
        for board, shown in (("one", {"a": "Vote", "b": "Vote", "c": "Vote"}), ("paper", {})):
            own = await http.get(f"/boards/{board}")
            assert (left(own.text), buttons(own.text)) == ("You have 1 of 1 vote left.", shown)
            assert own.headers["cache-control"] == "private, no-store"
        sent = await http.post("/boards/one/likes", data={"key": "a"}, headers={**SCRIPT, "Origin": url})
        assert sent.json()["counted"] is True, sent.text
        changed = await http.get("/boards/one")
        assert buttons(changed.text) == {"a": "Undo*", "b": "Change to this", "c": "Change to this"}
    stranger = await page(visitor, "/boards/paper")
    assert (left(stranger.text), stranger.headers["cache-control"]) == ("", "no-cache")
