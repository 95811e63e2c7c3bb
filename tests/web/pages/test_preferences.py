"""The theme and the language of a visitor: chosen by a form, remembered in cookies, and drawn by the server."""

import re
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.harness.boards import rolling_board
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

pytestmark = pytest.mark.slow

PAGES = ("/", "/boards/posts", "/boards/posts?display=wall", "/boards/posts/records/a", "/docs", "/nowhere")
FRAMED = ("/overlay/posts", "/embed/posts")


@pytest.fixture
async def client(valkey_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A visitor of a server below a root path, with one board."""
    settings = fresh_settings(valkey_url, root_path="/live")
    async with run_server(settings, [rolling_board()]) as url, httpx.AsyncClient(base_url=url + "/live") as client:
        await post(client, {"key": "a"})
        yield client


def theme_of(html: str) -> str | None:
    """The theme that the server drew."""
    found = re.search(r'<html [^>]*data-theme="(\w+)"', html)
    return found and found[1]


async def test_a_chosen_theme_and_language_hold_on_every_page(client: httpx.AsyncClient) -> None:
    """The server draws the page with the chosen theme and language, so a page never shows another theme first.

    Frames and overlays have their own theme and language.
    """
    for path in PAGES:
        assert theme_of((await client.get(path)).text) is None
    for theme, lang in (("dark", "zh-Hans"), ("light", "en")):
        for field in ({"theme": theme}, {"lang": lang}):
            answer = await client.post("/preferences", data={**field, "back": "/live/"})
            assert (answer.status_code, answer.headers["location"]) == (303, "/live/")
            assert answer.headers["cache-control"] == "no-store"
        for path in PAGES:
            response = await client.get(path)
            assert theme_of(response.text) == theme, path
            assert f'content="{theme}"' in response.text
            assert f'value="{theme}" aria-pressed="true"' in response.text or "wall" in path
            assert f'<html lang="{lang}"' in response.text or path == "/docs"
            assert "Cookie" in response.headers["vary"]
        assert [theme_of((await client.get(path)).text) for path in FRAMED] == ["dark", "light"]
        other = "light" if theme == "dark" else "dark"
        assert theme_of((await client.get(f"/boards/posts?theme={other}")).text) == other, (
            "the cookie has precedence over the address"
        )
    await client.post("/preferences", data={"theme": "auto", "back": "/live/"})
    assert theme_of((await client.get("/")).text) is None


async def test_the_form_returns_to_its_page(client: httpx.AsyncClient) -> None:
    """The address loses its theme and language, which would have precedence over the choice in the form."""
    for path, back in (
        ("/boards/posts?theme=dark&key=a%26b&lang=zh", "/live/boards/posts?key=a%26b"),
        ("/boards/posts/records/a", "/live/boards/posts/records/a"), ("/?q=%C3%A9", "/live/?q=%C3%A9"),
        ("/%E4%B8%80//x", "/live/%E4%B8%80//x"),
    ):  # fmt: skip
        response = await client.get(path)
        assert "form-action 'self'" in response.headers["content-security-policy"]
        assert re.findall('name="back" value="([^"]*)"', response.text) == [back]
        answer = await client.post("/preferences", data={"theme": "dark", "back": back})
        assert (answer.status_code, answer.headers["location"]) == (303, back)
    for path in FRAMED:
        assert "form-action 'none'" in (await client.get(path)).headers["content-security-policy"]


@pytest.mark.parametrize(
    "back", ["//other.example", "/\\other.example", "https://other.example", "", "/a\r\nb", "/\t/b"]
)
async def test_no_form_leads_to_another_site(client: httpx.AsyncClient, back: str) -> None:
    """The page to return to is a path of this server."""
    answer = await client.post("/preferences", data={"theme": "dark", "back": back})
    assert (answer.status_code, "location" in answer.headers, "set-cookie" in answer.headers) == (400, False, False)


async def test_another_site_chooses_nothing(client: httpx.AsyncClient) -> None:
    """A form of another site, with an unknown value or with too many bytes is refused and sets no cookie."""
    form = {"theme": "dark", "back": "/live/"}
    foreign = await client.post("/preferences", data=form, headers={"Sec-Fetch-Site": "cross-site"})
    wrong = await client.post("/preferences", data={**form, "theme": "red"})
    long = await client.post("/preferences", data={**form, "back": "/" + "a" * 9000})
    assert [answer.status_code for answer in (foreign, wrong, long)] == [403, 400, 413]
    assert not client.cookies


async def test_an_error_of_a_frame_looks_like_the_frame(client: httpx.AsyncClient) -> None:
    """The error stays transparent, and another page may show it in a frame. Over a video, it loads again by itself."""
    for path, marks in (
        ("/overlay/none?theme=light", 'data-theme="light" data-surface="overlay"'),
        ("/overlay/posts?limit=0", 'data-theme="dark" data-surface="overlay"'),
        ("/embed/none?bg=transparent", 'data-theme="light" data-surface="embed"'),
    ):
        response = await client.get(path)
        assert response.status_code in {400, 404}
        assert marks in response.text
        assert "data-transparent" in response.text
        assert "frame-ancestors *" in response.headers["content-security-policy"]
        assert ('http-equiv="refresh"' in response.text) is path.startswith("/overlay")
        assert ("<a " in response.text) is False


async def test_no_page_has_the_size_of_rows_of_another_visitor(client: httpx.AsyncClient) -> None:
    """Visitors share pages only if they chose the same size of rows."""
    for path in ("/", "/boards/posts", "/boards/posts?key=a"):
        for rows in ("compact", "normal", "compact"):
            html = (await client.get(path, headers={"Cookie": f"live-rows={rows}"})).text
            assert ('data-rows="compact"' in html) == (rows == "compact"), path
