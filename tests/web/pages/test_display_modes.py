"""The addresses of the surfaces of a board, as a client without JavaScript receives them."""

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.harness.boards import rolling_board
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

pytestmark = pytest.mark.slow


@pytest.fixture
async def client(valkey_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server with a board that has twenty records."""
    async with (
        run_server(fresh_settings(valkey_url), [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        await post(client, *({"key": f"k{number}", "amount": 30 - number} for number in range(20)))
        yield client


@pytest.mark.parametrize(
    ("path", "rows"),
    [
        ("/boards/posts", 20), ("/boards/posts?display=wall", 10), ("/boards/posts?display=wall&limit=3", 3),
        ("/overlay/posts", 8), ("/overlay/posts?limit=2", 2), ("/embed/posts", 10), ("/embed/posts?limit=4", 4),
    ],
)  # fmt: skip
async def test_each_surface_has_its_number_of_rows(client: httpx.AsyncClient, path: str, rows: int) -> None:
    """The address may ask for another number. Only the board's own page has a menu and controls."""
    html = (await client.get(path)).text
    assert html.count("<tr data-member=") == rows
    is_page = path == "/boards/posts"
    assert ('class="menu"' in html, 'id="tools"' in html) == (is_page,) * 2


@pytest.mark.parametrize(
    "query",
    [
        "/overlay/posts?limit=0", "/overlay/posts?limit=x", "/overlay/posts?limit=100000", "/overlay/posts?scale=0",
        "/overlay/posts?scale=9", "/overlay/posts?scale=1e1", "/overlay/posts?scale=%22", "/embed/posts?bg=red",
        "/embed/posts?limit=0", "/boards/posts?display=phone",
        "/boards/posts?rotate=4s&display=wall", "/boards/posts?rotate=x&display=wall",
        "/boards/posts?without=rows&display=wall",
    ],
)  # fmt: skip
async def test_mistakes_in_a_url_are_explained(client: httpx.AsyncClient, query: str) -> None:
    """A problem page names the parameter."""
    response = await client.get(query)
    assert response.status_code == 400
    assert f"`{query.partition('?')[2].partition('=')[0]}` must be" in response.text


async def test_a_wall_leaves_out_what_the_address_says(client: httpx.AsyncClient) -> None:
    """A wall has a QR code unless the address says otherwise. An overlay has none."""
    for path, has_code in (("boards/posts?display=wall", True), ("boards/posts?display=wall&without=qr", False)):
        assert ("qr.svg" in (await client.get(f"/{path}")).text) is has_code
    assert "qr.svg" not in (await client.get("/overlay/posts")).text


async def test_a_wall_that_rotates_has_the_rows_of_all_its_pages(client: httpx.AsyncClient) -> None:
    """The page shows ten records of each board, or as many as the address says."""
    for query, rows in (("rotate=20s", 10), ("rotate=1m&limit=20", 20)):
        html = (await client.get(f"/boards/posts?display=wall&{query}")).text
        assert html.count("<tr data-member=") == rows
        assert ('data-rotate="20"' in html, 'data-rotate="60"' in html) == (rows == 10, rows == 20)


@pytest.mark.slow
async def test_only_embed_and_overlay_may_be_framed(client: httpx.AsyncClient) -> None:
    """The wall display can't be framed."""
    for path, may in (("/embed/posts", True), ("/overlay/posts", True), ("/boards/posts?display=wall", False)):
        policy = (await client.get(path)).headers["content-security-policy"]
        assert ("frame-ancestors *" in policy) is may
        assert " style=" not in (await client.get(path)).text
