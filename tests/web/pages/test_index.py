"""The list of boards: its pages, its search, and what it reads from the store."""

import re
from collections import Counter
from collections.abc import AsyncIterator
from html import unescape
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import pytest_asyncio
from markupsafe import escape

from live.domain.board import Board
from live.domain.board_file import make_board
from live.domain.choices import Choices
from live.store.connection.scripts import Script
from tests.harness.boards import rolling_board
from tests.harness.mutation import replaced
from tests.harness.producer import post
from tests.harness.server import server

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMES: Final = [f"b{number}" for number in range(250)]
FORM: Final = 'role="search"'


def boards() -> list[Board]:
    """Make more boards than two pages have. Some of them have titles."""
    titles = {"b7": "Größte <b>Städte</b>", "b240": "Most LIKED"}
    return [make_board(Choices(id=name, title=titles.get(name, f"Board {name}"))) for name in NAMES]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def client(valkey_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server with many boards, the last of which has a record."""
    async with server(valkey_url, *boards()) as client:
        await post(client, {"board": "b249", "key": "Ada"})
        yield client


async def get(client: httpx.AsyncClient, **query: Any) -> str:
    """Return the HTML of the list, and check that its status is 200."""
    answer = await client.get("/", params=query)
    assert answer.status_code == 200, answer.text
    return answer.text


def cards(html: str) -> list[str]:
    """The ids of the boards on a page."""
    return re.findall(r'class="card" data-board="([^"]+)"', html)


def links(html: str) -> dict[str, dict[str, list[str]]]:
    """Return the parameters of the links to other pages."""
    (nav,) = re.findall(r'<nav class="periods" aria-label="[^"]+">(.*?)</nav>', html, re.DOTALL) or [""]
    found = re.findall(r'<a rel="(\w+)" href="([^"]*)">', nav)
    assert all(urlsplit(unescape(href)).path == "/" for _, href in found)
    return {rel: parse_qs(urlsplit(unescape(href)).query) for rel, href in found}


async def test_the_list_has_pages(client: httpx.AsyncClient) -> None:
    """Each board is on one page, in order, with its records. Links lead from each page to its neighbours."""
    first, second, third = [await get(client, **({"page": page} if page > 1 else {})) for page in (1, 2, 3)]
    assert [cards(page) for page in (first, second, third)] == [NAMES[:100], NAMES[100:200], NAMES[200:]]
    assert links(first) == {"next": {"page": ["2"]}}
    assert links(second) == {"prev": {"page": ["1"]}, "next": {"page": ["3"]}}
    assert links(third) == {"prev": {"page": ["2"]}}
    assert "Page 2 of 3" in second
    assert "<bdi>Ada</bdi>" in third
    assert cards(await get(client, page=1)) == NAMES[:100]


async def test_a_page_beyond_the_end_is_empty(client: httpx.AsyncClient) -> None:
    """The page links back to the last page that has boards."""
    for page in (4, 10**6):
        html = await get(client, page=page)
        assert (cards(html), links(html)) == ([], {"prev": {"page": ["3"]}})
        assert "There are no boards here." in html


async def test_titles_and_ids_are_searched(client: httpx.AsyncClient) -> None:
    """Upper and lower case are the same. Pages of results keep the search, the language and the theme."""
    for text in ("liked", " LIKED ", "B240"):
        html = await get(client, q=text)
        assert (cards(html), links(html)) == (["b240"], {}), text
        assert f'value="{text.strip()}"' in html
    assert cards(await get(client, q="STÄDTE")) == cards(await get(client, q="grösste")) == ["b7"]
    look = {"lang": "zh-Hans", "theme": "dark"}
    html = await get(client, q="b1", **look)
    assert cards(html) == [name for name in NAMES if "b1" in name][:100]
    html = await get(client, q="b1", page=2, **look)
    assert cards(html) == [name for name in NAMES if "b1" in name][100:]
    assert links(html)["prev"] == {"page": ["1"], "q": ["b1"], "lang": ["zh-Hans"], "theme": ["dark"]}
    hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]+)">', html)
    assert dict(hidden) == {**look, "back": "/?q=b1&amp;page=2"}
    assert 'href="/?lang=zh-Hans&amp;theme=dark"' in html, "the link back loses the language or the theme"
    assert cards(await get(client, q=" ")) == NAMES[:100]


async def test_a_search_may_find_nothing(client: httpx.AsyncClient) -> None:
    """The page says that no board was found. The searched words are always shown as text."""
    text = "\"><script>alert('1')</script>{{7*7}}&amp;"
    for page in (1, 2):
        html = await get(client, q=text, page=page)
        assert cards(html) == []
        assert "There are no boards here." in html
        assert "<script>alert" not in html
        assert re.findall(r'name="q" value="([^"]*)"', html) == [str(escape(text))]
        assert links(html) == ({} if page == 1 else {"prev": {"page": ["1"], "q": [text]}})


@pytest.mark.parametrize(
    "query",
    [
        {"page": 0}, {"page": -1}, {"page": "x"}, {"page": ""}, {"page": 10**6 + 1}, {"q": "x" * 65}, {"pages": 2},
        {"query": "x"},
    ],
)  # fmt: skip
async def test_other_values_are_refused(client: httpx.AsyncClient, query: dict[str, Any]) -> None:
    """An unknown parameter or a wrong value is answered with 400 and a page that says so."""
    answer = await client.get("/", params=query)
    assert answer.status_code == 400
    assert "The address of this page has a mistake" in answer.text
    assert cards(await get(client, q="ß" * 64)) == []


async def test_the_form_can_be_sent_to_this_server_only(client: httpx.AsyncClient) -> None:
    """The form's field has a label."""
    answer = await client.get("/")
    assert "form-action 'self';" in answer.headers["content-security-policy"]
    assert FORM in answer.text
    assert re.findall(r'<label for="(\w+)">', answer.text) == re.findall(
        r'<input id="(\w+)" type="search"', answer.text
    )


async def test_only_boards_of_the_page_are_read(client: httpx.AsyncClient) -> None:
    """A page of the list reads from the store only the boards that it shows."""
    calls: Counter[str] = Counter()
    run = Script.__call__

    async def count(self: Script[Any], *given: Any) -> Any:
        calls[self.name] += 1
        return await run(self, *given)

    found = []
    with replaced(Script, "__call__", count):
        for query in ({}, {"page": 3}, {"page": 4}, {"q": "b24"}, {"q": "?"}):
            before = calls["read"]
            await get(client, lang="en", **query)
            found.append(calls["read"] - before)
    assert found == [100, 50, 0, 11, 0]


async def test_a_page_has_no_tag(client: httpx.AsyncClient) -> None:
    """Boards change without a new version of the list, so no `If-None-Match` may lead to 304."""
    answer = await client.get("/", params={"page": 2}, headers={"If-None-Match": "*"})
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-cache")
    assert "etag" not in answer.headers


@pytest.mark.asyncio
async def test_a_short_list_has_no_form(valkey_url: str) -> None:
    """All boards are in sight, so the list has no form for a search. A search in the address still works."""
    async with server(valkey_url, rolling_board(), rolling_board(board="other")) as client:
        html = await get(client)
        assert (cards(html), FORM in html, links(html)) == (["posts", "other"], False, {})
        html = await get(client, q="OTH")
        assert (cards(html), FORM in html, links(html)) == (["other"], True, {})
