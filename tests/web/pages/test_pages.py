"""Pages and static files as a client without JavaScript receives them."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from typing import Any

import httpx
import pytest

from live.domain.board_file import make_board
from live.domain.choices import Choices, ClockKind
from live.domain.window import Forever, Periods, Rolling, Sliding, Window, WindowChoice
from live.web.pages.language import languages
from live.web.pages.words import span, window_words
from live.web.parts import assets
from live.web.static import ENTRIES
from tests.harness.boards import built, rolling_board
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

ENGLISH = languages()["en"]
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


@asynccontextmanager
async def server(store: str, *events: dict[str, Any]) -> AsyncIterator[httpx.AsyncClient]:
    """A server with the board `posts` and some events on it."""
    board = make_board(Choices(id="posts", title="Most <liked>", window_choice=WindowChoice(rolling="90s", slot="30s")))
    async with (
        run_server(fresh_settings(store), [board, rolling_board(board="other")]) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        if events:
            await post(client, *({"board": "posts", **event} for event in events))
        yield client


async def test_a_board_is_rendered_with_its_records(valkey_url: str) -> None:
    """The page has ranks, names and scores in order, and the totals."""
    async with server(valkey_url, {"key": "a", "amount": 1234}, {"key": "b", "amount": 2}) as client:
        html = (await client.get("/boards/posts")).text

        rows = re.findall(
            r'<tr data-member="(.*?)"[^>]*><td class="rank">(.*?)</td>.*?<td class="score"[^>]*>(.*?)</td>', html
        )
        assert rows == [("a", "1", "1,234"), ("b", "2", "2")]
        assert '<b id="total-score">1,236</b>' in html
        assert "over the last 90 seconds" in html


async def test_everything_is_escaped(valkey_url: str) -> None:
    """A title from the boards file and members from producers are always text."""
    member = "</script><img src=x onerror='alert(\"1\")'>{{99*1001}}&amp;"
    async with server(valkey_url, {"key": member}) as client:
        for path in ("/", "/boards/posts", "/embed/posts"):
            html = (await client.get(path)).text
            assert "<img src=x" not in html
            assert "Most <liked>" not in html
            assert "99099" not in re.sub(r"/static/\w+", "", html)
            assert unescape(re.findall(r"<bdi>(?:<a [^>]*>)?(.*?)(?:</a>)?</bdi>", html)[0]) == member


async def test_the_list_shows_each_boards_leaders(valkey_url: str) -> None:
    """Every board has a link and its first three records."""
    async with server(valkey_url, *({"key": f"k{number}", "amount": number} for number in range(1, 6))) as client:
        html = (await client.get("/")).text

        assert re.findall(r'href="/boards/(\w+)"', html) == ["posts", "other"]
        assert re.findall(r"<bdi>(.+?)</bdi>", html) == ["k5", "k4", "k3"]


@pytest.mark.parametrize(
    "path", ["/", "/boards/posts", "/boards/none", "/v1/boards", "/v1/none", "/healthz", "/metrics"]
)
async def test_every_answer_carries_the_security_headers(valkey_url: str, path: str) -> None:
    """The policy is equally strict on all these paths, including refusals."""
    async with server(valkey_url) as client:
        headers = (await client.get(path)).headers

        assert headers["content-security-policy"] == POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert "server" not in headers


async def test_an_embedded_board_may_be_framed(valkey_url: str) -> None:
    """The page has only the board, and the rest of its policy is as strict as elsewhere."""
    async with server(valkey_url, {"key": "a"}) as client:
        response = await client.get("/embed/posts")

        policy = POLICY.replace("ancestors 'none'", "ancestors *").replace("action 'self'", "action 'none'")
        assert response.headers["content-security-policy"] == policy
        assert 'class="site"' not in response.text
        assert 'data-member="a"' in response.text


async def test_static_files_are_cached_as_immutable(valkey_url: str) -> None:
    """A page names its files by version. The server does not serve other versions."""
    async with server(valkey_url) as client:
        files = re.findall(r'(?:href|src)="(/static/[^"]+)"', (await client.get("/boards/posts")).text)
        assert {file.rsplit("/", 1)[1] for file in files} == {
            "icon.svg", "board+page.css", "board.js", "late.css",
        }  # fmt: skip
        for file in files:
            response = await client.get(file)
            assert response.status_code == 200
            assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
            assert response.headers["content-security-policy"] == POLICY
        old = re.sub(r"/static/\w+/", "/static/000000000000/", files[0])
        assert (await client.get(old)).status_code == 404


@pytest.mark.slow
async def test_nothing_comes_from_another_host(valkey_url: str) -> None:
    """Neither pages nor static files refer to another host, except for names of www.w3.org."""
    async with server(valkey_url) as client:
        page = (await client.get("/boards/posts")).text.replace(str(client.base_url), "")
        folder = re.findall(r'src="(/static/[^"]+)en/board\.js"', page)[0]
        texts = [page, (await client.get("/")).text]
        names = [
            "board.css",
            *(path.relative_to(assets("static")).as_posix() for path in assets("static").rglob("*.js")),
        ]
        files = [await client.get(folder + name) for name in (*names, *ENTRIES)]
        assert {file.status_code for file in files} == {200}
        texts += [file.text for file in files]
        assert not [text for text in texts if re.search(r"https?://(?!www\.w3\.org)", text)]


async def test_a_404_page_links_a_similar_page_or_public_board(valkey_url: str) -> None:
    """The page never names a private board to somebody who may not read that board."""
    hidden = make_board(Choices(id="staffroom", visibility="private"))
    settings = fresh_settings(valkey_url, root_path="/live")
    boards = [rolling_board(), hidden]
    async with run_server(settings, boards) as url, httpx.AsyncClient(base_url=url) as client:
        cases = (
            ("/board", "/live/"), ("/boards/post", "/live/boards/posts"), ("/post", "/live/boards/posts"),
            ("/doc", "/live/docs"), ("/board/a%3Fb", "/live/boards/a%3Fb"),
            ("/boards/staffrom", None), ("/staffrom", None), ("/nothing", None),
        )  # fmt: skip
        for path, near in cases:
            response = await client.get(f"/live{path}")
            assert response.status_code == 404
            assert re.findall(r'Did you mean: <a href="(.*?)">', response.text) == ([near] if near else []), path
            assert "staffroom" not in response.text


async def test_an_unknown_page_is_a_404_page(valkey_url: str) -> None:
    """People get a page with a link to the start, and programs get a problem document."""
    async with server(valkey_url) as client:
        for path in ("/boards/none", "/nothing", "/static/x"):
            response = await client.get(path)
            assert response.status_code == 404
            assert response.headers["content-type"] == "text/html; charset=utf-8"
            assert '<a href="/">' in response.text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1, "1 second"), (90, "90 seconds"), (60, "1 minute"), (3600, "1 hour"), (86400, "24 hours"), (604800, "7 days")],
)
def test_durations_are_shown_in_words(seconds: int, words: str) -> None:
    """The unit is the largest unit that divides the duration; a day is shown as 24 hours."""
    assert span(ENGLISH, seconds) == words


@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "clock", "period", "words"),
    [
        (Rolling(86_400, 3600), "server", None, "over the last 24 hours"),
        (Rolling(86_400, 3600), "event", None, "over 24 hours up to the newest event"),
        (Sliding(10_800), "server", None, "over the last 3 hours"),
        (Periods(unit="day", last=7), "server", None, "over the last 7 days"),
        (
            Periods(unit="week", timezone="Asia/Shanghai", day_start="09:00"),
            "server",
            "2026-W47",
            "week 47 of 2026 in Asia/Shanghai, from 09:00",
        ),
        (Forever(), "server", None, "of all time"),
    ],
)
async def test_a_window_is_shown_in_words(
    valkey_url: str, window: Window, clock: ClockKind, period: str | None, words: str
) -> None:
    """The pages of each kind of board show the window, with the current period."""
    board = built(id="b", title="b", window=window, operator="best" if words == "of all time" else "incr", clock=clock)
    assert window_words(ENGLISH, board, period) == words
    async with (
        run_server(fresh_settings(valkey_url), [board]) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        html = (await client.get("/boards/b")).text
        assert re.sub("week 47 of 2026 ", "", words) in " ".join(html.split()), "the page does not show the window"
        assert (await client.get("/")).status_code == 200
        assert (await client.get("/embed/b")).status_code == 200
