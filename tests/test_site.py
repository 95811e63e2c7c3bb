"""The documentation as a site: it builds without warnings, and a browser loads nothing from another host."""

import asyncio
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

import pytest
from playwright.async_api import async_playwright

from tests.harness.browser import CHROMIUM

ROOT: Final = Path(__file__).parent.parent
PAGES: Final = sorted(path.stem for path in (ROOT / "docs").glob("*.md"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "zensical.toml", folder)
    shutil.copytree(ROOT / "docs", folder / "docs")
    zensical = Path(sys.executable).parent / "zensical"
    built = subprocess.run(
        [zensical, "build", "--strict"], cwd=folder, capture_output=True, text=True, check=False, timeout=180
    )
    assert built.returncode == 0, built.stdout + built.stderr
    subprocess.run([sys.executable, ROOT / "packages" / "site_text.py", folder], check=True)
    return folder / "build" / "site"


@pytest.mark.slow
def test_every_page_is_in_the_site_and_in_its_navigation(site: Path) -> None:
    """Each page is in the site, and the navigation of the first page links it."""
    assert sorted(path.stem for path in site.glob("*.html")) == sorted([*PAGES, "404"])
    index = (site / "index.html").read_text(encoding="utf-8")
    assert [page for page in PAGES if f'href="{page}.html"' not in index] == []


@pytest.mark.slow
def test_the_text_of_every_page_is_beside_it(site: Path) -> None:
    """`llms.txt` describes each page, with the address of its Markdown."""
    lines = (site / "llms.txt").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# Live Board"
    described = [match for line in lines if (match := re.fullmatch(r"- \[[^]]+\]\((\S+)\.md\): [^\[]+", line))]
    assert sorted([match[1] for match in described] + ["index"]) == PAGES
    for page in PAGES:
        assert (site / f"{page}.md").read_bytes() == (ROOT / "docs" / f"{page}.md").read_bytes()


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, *_arguments: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a web server for a folder."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
async def test_a_browser_needs_only_the_files_of_the_site(site: Path) -> None:
    """The browser reads every page, and searches."""
    fetched: list[str] = []
    with served(site) as url:
        async with async_playwright() as playwright:
            chromium = await playwright.chromium.launch(
                executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
            )
            page = await chromium.new_page()
            page.on("request", lambda request: fetched.append(request.url))
            for name in PAGES:
                await page.goto(f"{url}{name}.html")
                assert await page.locator("article h1").count() == 1
            await page.goto(f"{url}index.html")
            field = page.locator("input:focus")
            async with asyncio.timeout(60):
                while not await field.count():  # the script that handles the key may not listen yet
                    await page.keyboard.press("/")
                    await page.wait_for_timeout(100)
            await field.fill("highest acknowledged offset")
            await page.locator("a", has_text="Glossary").first.wait_for()
            await chromium.close()
    assert len(fetched) > len(PAGES)
    assert [one for one in fetched if not one.startswith((url, f"blob:{url}", "data:"))] == []
