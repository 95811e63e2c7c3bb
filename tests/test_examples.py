"""The examples of the JavaScript client, in a browser, with a server of boards on another origin."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest
from playwright.async_api import Page

from tests.harness.boards import rolling_board
from tests.harness.browser import IN_BROWSER, PATIENCE, browser, until_first
from tests.harness.network import free_port
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually
from tests.test_browser_axe import AXE, faults
from tests.test_browser_client import MODULES, site

ROOT: Final = Path(__file__).parents[1]
EXAMPLES: Final = ROOT / "docs" / "examples"
ADDRESS: Final = "http://127.0.0.1:8000"  # the address of the server in the examples
ESBUILD: Final = MODULES / ".bin" / "esbuild"
NODE: Final = shutil.which("node")

pytestmark = IN_BROWSER


def installed(folder: Path, boards: str) -> Path:
    """The examples as `npm install` leaves them, with the address `boards` for the server."""
    others = shutil.ignore_patterns("recipes", "django", "fastapi")
    examples = shutil.copytree(EXAMPLES, folder / "examples", ignore=others)
    for path in examples.iterdir():
        path.write_text(path.read_text(encoding="utf-8").replace(ADDRESS, boards), encoding="utf-8")
    install(examples)
    return examples


def install(folder: Path) -> None:
    """Install the package and React, as `npm install` does."""
    packages = folder / "node_modules"
    packages.mkdir()
    (packages / "live-board").symlink_to(ROOT / "static" / "client")
    for name in ("react", "react-dom", "scheduler"):
        if (MODULES / name).exists():
            (packages / name).symlink_to(MODULES / name)


@asynccontextmanager
async def watched(store: str, folder: Path, origin: str) -> AsyncIterator[tuple[Page, httpx.AsyncClient, Path]]:
    """A browser page, a producer of boards that pages of `origin` may watch, and the examples."""
    said: list[str] = []
    async with (
        run_server(fresh_settings(store, allowed_origins=(origin,)), [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url) as producer,
        browser() as chromium,
    ):
        await post(producer, {"key": "a", "amount": 2000}, {"key": "<b>&", "amount": 1000})
        page = await (await chromium.new_context(bypass_csp=True)).new_page()
        page.on("pageerror", lambda error: said.append(str(error)))
        await page.add_init_script(AXE.read_text(encoding="utf-8") if AXE.exists() else "")
        yield page, producer, installed(folder, url)
        assert not AXE.exists() or await faults(page) == []
        assert said == []


def build(examples: Path) -> None:
    """Run what `npm run react` runs."""
    name, *choices = json.loads((examples / "package.json").read_text())["scripts"]["react"].split()
    assert name == ESBUILD.name
    subprocess.run([ESBUILD, *choices], cwd=examples, check=True, capture_output=True)


@contextmanager
def rendering(examples: Path, port: int) -> Iterator[None]:
    """Run the server that renders a page, as a process."""
    process = subprocess.Popen([str(NODE), "server.js"], cwd=examples, env={**os.environ, "PORT": str(port)})
    try:
        yield
    finally:
        process.terminate()
        process.wait()


async def test_a_plain_page_shows_the_board(valkey_url: str, tmp_path: Path) -> None:
    """The page shows the records, its state, and every change."""
    examples = tmp_path / "examples"
    with site(tmp_path) as origin:
        async with watched(valkey_url, tmp_path, origin) as (page, producer, _):
            await page.goto(f"{origin}/{examples.name}/plain.html")
            await page.locator("#records tr").nth(1).wait_for(timeout=PATIENCE)
            assert await page.locator("#records tr").all_inner_texts() == ["1\ta\t2,000", "2\t<b>&\t1,000"]
            await page.get_by_role("status").get_by_text("Live").wait_for(timeout=PATIENCE)
            await post(producer, {"key": "c", "amount": 9000})
            await until_first(page, "c")


@pytest.mark.skipif(not ESBUILD.exists(), reason="esbuild is not installed")
async def test_a_page_with_react_shows_the_board(valkey_url: str, tmp_path: Path) -> None:
    """A button shows more records."""
    with site(tmp_path) as origin:
        async with watched(valkey_url, tmp_path, origin) as (page, producer, examples):
            await asyncio.to_thread(build, examples)
            await post(producer, *({"key": f"m{number}", "amount": number} for number in range(5, 0, -1)))
            await page.goto(f"{origin}/{examples.name}/react.html")
            await page.get_by_text("a: 2,000").wait_for(timeout=PATIENCE)
            assert await page.locator("li").all_inner_texts() == ["a: 2,000", "<b>&: 1,000", "m5: 5"]
            await page.get_by_role("button").click()
            await page.get_by_text("m2: 2").wait_for(timeout=PATIENCE)
            await post(producer, {"key": "m2", "amount": 3000})
            await page.locator("li:first-child", has_text="m2: 3,002").wait_for(timeout=PATIENCE)
            assert await page.get_by_role("status").inner_text() == "Live"


@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
async def test_a_page_that_a_server_renders_becomes_live(valkey_url: str, tmp_path: Path) -> None:
    """The page has records without script.

    With script, its first message has only what has changed since the server rendered it.
    """
    port = free_port()
    async with watched(valkey_url, tmp_path, f"http://127.0.0.1:{port}") as (page, producer, examples):
        with rendering(examples, port):
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as reader:

                async def rendered() -> str:
                    try:
                        return (await reader.get("/")).text
                    except httpx.ConnectError:
                        return ""

                html = await eventually(rendered)
                assert (await reader.get("/other")).status_code == 404
            assert (
                '<td class="rank">2</td><th scope="row"><bdi>&#60;b&#62;&#38;</bdi></th>\n<td class="score">1,000<'
                in html
            )
            frames: list[str] = []

            def note(frame: str | bytes) -> None:
                frames.append(str(frame))

            page.on("websocket", lambda socket: socket.on("framereceived", note))
            await page.goto(f"http://127.0.0.1:{port}/")

            async def is_watching() -> bool:
                return bool(frames)

            await eventually(is_watching)
            await post(producer, {"key": "c", "amount": 9000})
            await until_first(page, "c")
            assert await page.locator("#records tr").count() == 3
            assert not any('"sync"' in frame for frame in frames)
