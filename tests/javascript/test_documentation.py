"""Each example of docs/javascript.md and of the README of the package runs as pasted, in Node.js or on a page."""

import asyncio
import json
import os
import re
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import pytest
from playwright.async_api import Page

from live.domain.board_file import parse_boards
from tests.client.support import scores
from tests.harness.boards import rolling_board
from tests.harness.browser import PATIENCE, browser, in_browser
from tests.harness.ingest import make_key
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.tokens import SECRET, make_token
from tests.harness.waiting import DEADLINE
from tests.test_browser_client import site
from tests.test_examples import ESBUILD, NODE, install

pytestmark = pytest.mark.slow

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "static" / "client"
EXPORTS: Final = json.loads((PACKAGE / "package.json").read_text())["exports"]
# The examples, in the order in which the two documents have them. A new example needs a name here, and a run below.
ELEMENT, STYLE, TOP, REACT, SEND, VOTE, WORDS, ELEMENT_BY_NAME, WATCH, REACT_OF_PACKAGE, SEND_OF_PACKAGE = (
    example
    for page in (ROOT / "docs" / "javascript.md", PACKAGE / "README.md")
    for example in re.findall(
        r"^```(?:html|jsx?|css)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
)
RENDERED: Final = """
import { createRoot } from "react-dom/client";
createRoot(document.body.appendChild(document.createElement("main"))).render(<Top />);
"""


def here(example: str, url: str) -> str:
    """Replace the address in an example by that of the server of this test."""
    return re.sub(r"https?://(?:127\.0\.0\.1:8000|host\.example)", url, example)


async def run(example: str, folder: Path, key: str, *, ends: bool = True) -> str:
    """Run an example in Node.js; returns the first line that it prints. With `ends`, the example must end by itself."""
    (folder / "example.mjs").write_text(example, encoding="utf-8")
    node = await asyncio.create_subprocess_exec(
        str(NODE), "example.mjs",
        cwd=folder, env={**os.environ, "LIVE_KEY": key}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert node.stdout is not None
    async with asyncio.timeout(DEADLINE):
        line = await node.stdout.readline()
        if not ends:
            node.terminate()
        _, errors = await node.communicate()
    assert node.returncode == 0 or not ends, errors.decode()
    return line.decode().strip()


@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
async def test_each_example_for_node_runs(valkey_url: str, tmp_path: Path) -> None:
    """The events that examples send count. The other examples print the line that the documentation shows."""
    install(tmp_path)
    settings = fresh_settings(valkey_url)
    key = await make_key(settings, "shop")
    async with run_server(settings, [rolling_board()]) as url:
        for number, example in enumerate((SEND, SEND_OF_PACKAGE), 1):
            assert await run(here(example, url), tmp_path, key) == ""
            assert await scores(url) == {"Ada": 5 * number}
        assert await run(here(WATCH, url), tmp_path, key, ends=False) == "1 Ada 10"
        says = re.findall(r"^console\.log.* // (.*)$", WORDS, re.MULTILINE)
        assert [await run(here(WORDS, url), tmp_path, key)] == says


class Site(NamedTuple):
    """A browser page, a folder that two sites of different origins serve, and the URLs of the sites and the server."""

    page: Page
    folder: Path
    allowed: str
    forbidden: str
    url: str

    def write(self, name: str, body: str) -> None:
        """Write a page that can import the modules of the package by their names."""
        names = {
            f"live-board{name[1:]}": f"{self.url}/client/{entry['default'][2:]}" for name, entry in EXPORTS.items()
        }
        imports = json.dumps({"imports": names})
        text = f'<!doctype html><html lang="en"><script type="importmap">{imports}</script>{here(body, self.url)}'
        (self.folder / name).write_text(text, encoding="utf-8")

    async def says(self, origin: str, name: str) -> str:
        """Open a page, and return the first text that it writes with `console.log`."""
        async with self.page.expect_console_message(lambda message: message.type == "log", timeout=PATIENCE) as said:
            await self.page.goto(f"{origin}/{name}")
        return (await said.value).text


@asynccontextmanager
async def sites(store: str, folder: Path) -> AsyncIterator[Site]:
    """Sites on two origins, one of which may watch the boards of a server and vote there. Ada is on both boards."""
    faults: list[str] = []
    (folder / "favicon.ico").touch()
    cup = parse_boards('[[board]]\nid = "cup"\nwindow = "forever"\ntypes = ["vote"]\nvotes = { per_key = 1 }')
    with site(folder) as allowed, site(folder) as forbidden:
        settings = fresh_settings(store, allowed_origins=(allowed,), token_secret=SECRET)
        async with (
            run_server(settings, [rolling_board(), *cup]) as url,
            httpx.AsyncClient(base_url=url) as producer,
            browser() as chromium,
        ):
            await post(producer, {"key": "Ada", "amount": 5}, {"key": "Ada", "type": "vote", "actor": "first"})
            page = await (await chromium.new_context()).new_page()
            page.on("pageerror", lambda error: faults.append(str(error)))
            yield Site(page, folder, allowed, forbidden, url)
            assert faults == []


@in_browser
async def test_each_example_for_pages_runs(valkey_url: str, tmp_path: Path) -> None:
    """Each example shows the board. The style of an example applies to the element."""
    shown = {
        "top.html": (TOP, "#top li", "Ada: 5"),
        "element.html": (f"{ELEMENT}<style>{STYLE}</style>", "live-board [part~=row]", "Ada"),
        "name.html": (ELEMENT_BY_NAME, "live-board [part~=row]", "Ada"),
    }
    async with sites(valkey_url, tmp_path) as there:
        if ESBUILD.exists():
            install(tmp_path)
            for name, example in (("react", REACT), ("package", REACT_OF_PACKAGE)):
                (tmp_path / f"{name}.jsx").write_text(here(example, there.url) + RENDERED)
                shown[f"{name}.html"] = (f'<body><script src="{name}.js"></script>', "main li", "Ada: 5")
            build = await asyncio.create_subprocess_exec(
                ESBUILD, "react.jsx", "package.jsx", "--bundle", "--jsx=automatic", "--preserve-symlinks", "--outdir=.",
                cwd=tmp_path, stderr=subprocess.PIPE,
            )  # fmt: skip
            _, errors = await build.communicate()
            assert build.returncode == 0, errors.decode()
        for name, (body, selector, text) in shown.items():
            there.write(name, body)
            await there.page.goto(f"{there.allowed}/{name}")
            await there.page.locator(selector, has_text=text).wait_for(timeout=PATIENCE)
            if STYLE in body:
                score = there.page.locator("live-board [part~=score]").last
                assert await score.evaluate("score => getComputedStyle(score).fontWeight") == "400"


def sign(folder: Path, token: str) -> None:
    """Write a token for the page.

    The modification time grows by a second each time, because a browser does not fetch the file again otherwise.
    """
    file = folder / "vote-token"
    changed = file.stat().st_mtime + 1 if file.exists() else time.time()
    file.write_text(token)
    os.utime(file, (changed, changed))


@in_browser
async def test_a_page_votes_only_if_its_origin_is_allowed(valkey_url: str, tmp_path: Path) -> None:
    """A browser asks the server before it sends a vote.

    If the origin is not allowed, the browser sends no vote, and the page learns which setting to change.
    """
    async with sites(valkey_url, tmp_path) as there:
        sent: list[str] = []
        there.page.on("response", lambda answer: sent.append(f"{answer.request.method} {answer.status} {answer.url}"))
        there.write("vote.html", f'<script type="module">{VOTE}</script>')
        sign(tmp_path, make_token(likes=("cup",), sub="ann"))
        assert await there.says(there.allowed, "vote.html") == "counted"
        assert await there.says(there.allowed, "vote.html") == "counted before"
        votes = [answer for answer in sent if answer.endswith("/likes")]
        assert votes == [f"POST 200 {there.url}/boards/cup/likes"] * 2
        sign(tmp_path, make_token(likes=("cup",), sub="bob"))
        refused = await there.says(there.forbidden, "vote.html")
        assert refused == (
            f"to let pages of {there.forbidden} watch boards or vote, add it to LIVE_ALLOWED_ORIGINS of the server"
        )
        assert [answer for answer in sent if answer.endswith("/likes")] == votes
        async with httpx.AsyncClient(base_url=there.url) as reader:
            assert (await reader.get("/v1/boards/cup/records/Ada")).json()["score"] == 2
        sign(tmp_path, make_token(sub="bob"))
        assert "likes" in await there.says(there.allowed, "vote.html"), (
            "the page does not say that the token names no board"
        )
