"""Ways to share a board, and the command that posts its first event."""

import asyncio
import csv
import io
import re
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape

import httpx
import pytest
import segno

from live.domain.board_file import parse_boards
from tests.harness.producer import post
from tests.harness.producers import with_keys
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

pytestmark = pytest.mark.slow

BOARDS = """
[[board]]
id = "posts"
title = 'Most "liked" <b>'
types = ["like"]
[[board]]
id = "notes"
types = ["note"]
[[board]]
id = "climb"
types = ["climb"]
window = "forever"
operator = "best"
score = [{field = "levels", max = 99}, {field = "seconds", order = "asc", max = 5000}]
[[board]]
id = "week"
types = ["week"]
window = {calendar = "week", timezone = "Asia/Shanghai"}
clock = "event"
[[board]]
id = "vote"
window = "forever"
types = ["vote"]
votes = {per_actor = 4}
[[board]]
id = "cakes"
window = "forever"
types = ["cake"]
votes = {registered = true}
[[board]]
id = "all"
union = ["posts", "notes"]
"""


@asynccontextmanager
async def server(store: str) -> AsyncIterator[httpx.AsyncClient]:
    """A server with boards of several kinds, without records."""
    async with (
        run_server(fresh_settings(store, anonymous_admin=True, allowed_hosts=("*",)), parse_boards(BOARDS)) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        yield client


@pytest.mark.parametrize("board", ["posts", "climb", "week", "vote", "all"])
async def test_an_empty_board_shows_the_command_that_starts_it(valkey_url: str, board: str) -> None:
    """The command works as shown, and its event becomes the first record. With records, no command is visible."""
    async with server(valkey_url) as client:
        html = (await client.get(f"/boards/{board}")).text
        command = unescape(re.findall(r'<pre id="curl"[^>]*>(.*?)</pre>', html)[0])
        words = shlex.split(command)
        assert words[:2] == ["curl", f"{client.base_url}/v1/events"]
        curl = await asyncio.create_subprocess_exec(
            words[0], "--silent", "--fail", "--noproxy", "*", *words[1:], stdout=asyncio.subprocess.PIPE
        )
        output, _ = await curl.communicate()
        assert (curl.returncode, b'"rejected":[]' in output) == (0, True), output
        html = (await client.get(f"/boards/{board}")).text
        assert re.findall('<tr data-member="(.*?)"', html) == ["Ada"]
        assert '<div id="empty" class="note" hidden>' in html


async def test_a_board_that_no_event_can_start_shows_no_command(valkey_url: str) -> None:
    """The board is frozen or needs registered members, or it is shown in a frame or beside another board."""
    async with server(valkey_url) as client:
        await client.put("/v1/boards/cold", json={"types": ["cold"], "frozen": True})
        for path in ("/boards/cakes", "/boards/cold", "/embed/posts", "/boards/posts,notes"):
            response = await client.get(path)
            assert (response.status_code, "curl" in response.text) == (200, False)


async def test_the_command_has_an_api_key_if_one_is_needed(valkey_url: str) -> None:
    """The command has a placeholder that the user replaces by an API key."""
    async with with_keys(valkey_url) as (url, _, _), httpx.AsyncClient(base_url=url) as client:
        assert "Authorization: Bearer &lt;id&gt;.&lt;secret&gt;" in (await client.get("/boards/posts")).text


async def test_records_are_downloaded_as_csv(valkey_url: str) -> None:
    """The records are in order, with each field of a score. Nothing in the file is a formula."""
    keys = ["=HYPERLINK(1)", '"quoted", with comma', "-1", "@x", "+y", "名字", "a\\b"]
    async with server(valkey_url) as client:
        likes = [{"board": "posts", "key": member, "amount": 90 - place} for place, member in enumerate(keys)]
        await post(client, *likes, {"board": "climb", "key": "Ada", "fields": {"levels": 7, "seconds": 12}})
        response = await client.get("/boards/posts/records.csv")
        assert response.headers["content-type"] == "text/csv; charset=utf-8"
        assert response.headers["content-disposition"] == 'attachment; filename="posts.csv"'
        rows = list(csv.reader(io.StringIO(response.content.decode("utf-8-sig"))))
        assert rows[0] == ["rank", "member", "score"]
        members = ["'=HYPERLINK(1)", '"quoted", with comma', "'-1", "'@x", "'+y", "名字", "a\\b"]
        assert rows[1:] == [[str(place + 1), member, str(90 - place)] for place, member in enumerate(members)]
        climb = (await client.get("/boards/climb/records.csv")).content.decode("utf-8-sig")
        assert climb == "rank,member,levels,seconds\r\n1,Ada,7,12\r\n"
        assert (await client.get("/boards/posts/records.csv?limit=2")).text.count("\n") == 3
        for path, status in (("posts/records.csv?limit=0", 400), ("none/records.csv", 404), ("none/qr.svg", 404)):
            assert (await client.get(f"/boards/{path}")).status_code == status


@pytest.mark.slow
async def test_a_board_can_be_shared(valkey_url: str) -> None:
    """The page shows its own address, the HTML of a frame with a title that is escaped twice, and working links.

    For a local address, it says that the address works on this computer only.
    """
    async with server(valkey_url) as client:
        elsewhere = (await client.get("/boards/posts", headers={"Host": "live.example"})).text
        assert '<img src="/boards/posts/qr.svg"' in elsewhere
        assert "works on this computer only" not in elsewhere
        html = (await client.get("/boards/posts")).text
        assert f'id="link" readonly value="{client.base_url}/boards/posts"' in html
        snippet = unescape(re.findall(r'<textarea id="snippet"[^>]*>(.*?)</textarea>', html)[0])
        assert snippet == (
            f'<iframe src="{client.base_url}/embed/posts?theme=light" title="Most &#34;liked&#34; &lt;b&gt;" '
            'width="100%" height="640" loading="lazy"></iframe>'
        )
        element = unescape(re.findall(r'<textarea id="element"[^>]*>(.*?)</textarea>', html, re.DOTALL)[0])
        assert element == (
            f'<script type="module" src="{client.base_url}/client/element.js"></script>\n'
            f'<live-board src="{client.base_url}/boards/posts" limit="10">'
            f'<a href="{client.base_url}/boards/posts">Most &#34;liked&#34; &lt;b&gt;</a></live-board>'
        )
        assert "npm i" not in html, "nobody owns the name yet"
        panel = html.partition('class="share"')[2].partition("</details>")[0]
        links = [unescape(link) for link in re.findall(r'(?:href|src)="([^"]+)"', panel)]
        assert len(links) == 4, "the panel does not have exactly four links"
        assert "works on this computer only" in panel
        assert {(await client.get(link)).status_code for link in links} == {200}
        picture = await client.get("/boards/posts/qr.svg")
        assert picture.headers["content-type"] == "image/svg+xml"
        assert picture.text.startswith("<svg")
        assert not re.search(r"<script| on\w+=|style=", picture.text)


INNER = {"Host": "localhost:81", "X-Forwarded-For": "192.0.2.1"}
OUTER = {**INNER, "X-Forwarded-Proto": "https", "X-Forwarded-Host": "Board.test:8443"}


@asynccontextmanager
async def behind_a_proxy(store: str, trusted: str = "127.0.0.1") -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client that sends what a proxy would send, to a server that trusts one address."""
    settings = fresh_settings(store, trusted_proxies=(trusted,), allowed_hosts=("board.test",), root_path="/live")
    async with (
        run_server(settings, parse_boards(BOARDS)) as url,
        httpx.AsyncClient(base_url=f"{url}/live", headers=INNER) as client,
    ):
        yield client


async def shares(client: httpx.AsyncClient, site: str, headers: dict[str, str]) -> None:
    """Check that the link, the snippet, the first command, the printed page and the QR code have the address `site`."""
    html = unescape((await client.get("/boards/posts", headers=headers)).text)
    for text in (
        f'value="{site}/boards/posts"', f'<iframe src="{site}/embed/posts?theme=light"', f"curl {site}/v1/events",
        f"<code>{site}/boards/posts</code>",
    ):  # fmt: skip
        assert text in html
    picture = io.BytesIO()
    code = segno.make(f"{site}/boards/posts", error="m", micro=False)
    code.save(picture, kind="svg", xmldecl=False, dark="#000", light="#fff", border=4)
    assert (await client.get("/boards/posts/qr.svg", headers=headers)).content == picture.getvalue()


async def test_a_board_is_shared_under_its_public_address(valkey_url: str) -> None:
    """The proxy passes on the address as `X-Forwarded-Host`.

    Clients that request another name get links with that name.
    """
    async with behind_a_proxy(valkey_url) as client:
        for _ in range(2):
            await shares(client, "https://board.test:8443/live", OUTER)
            await shares(client, "http://localhost:81/live", INNER)
    async with behind_a_proxy(valkey_url, "192.0.2.1") as client:  # the server does not trust the proxy's address
        await shares(client, "http://localhost:81/live", OUTER)
