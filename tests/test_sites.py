"""The whole small sites of the documentation, with Django under gunicorn and with FastAPI under uvicorn."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest

from live.domain.board_file import parse_boards
from tests.harness.browser import IN_BROWSER, PATIENCE, browser
from tests.harness.network import free_port
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually

ROOT: Final = Path(__file__).parents[1]
PROGRAMS: Final = {
    "django": ("gunicorn", "--preload", "--workers", "2", "--bind", "127.0.0.1:{port}", "songs.wsgi"),
    "fastapi": ("uvicorn", "app:app", "--workers", "2", "--port", "{port}"),
}
# Accounts, as each site knows them: name and password.
ACCOUNTS: Final = {"ann": "the password of ann", "bob": "the password of bob"}
CREATE: Final = "from django.contrib.auth.models import User; User.objects.create_user({!r}, password={!r})"

pytestmark = [*IN_BROWSER, pytest.mark.slow, pytest.mark.timeout(300)]


@asynccontextmanager
async def site(name: str, valkey_url: str, folder: Path, **variables: str) -> AsyncIterator[tuple[str, str]]:
    """Run a site with environment variables, beside a server with its board. Yield the addresses of both."""
    folder = shutil.copytree(ROOT / "docs" / "examples" / name, folder / name)
    boards = parse_boards((folder / "boards.toml").read_text(encoding="utf-8"))
    async with run_server(fresh_settings(valkey_url), boards) as server:
        environment = {**os.environ, "BOARD_URL": server, "PYTHONWARNINGS": "error", **variables}
        if name == "django":
            manage = [sys.executable, "manage.py"]
            for words in (["migrate"], *(["shell", "-c", CREATE.format(*account)] for account in ACCOUNTS.items())):
                await asyncio.to_thread(
                    subprocess.run, [*manage, *words], cwd=folder, env=environment, check=True, capture_output=True
                )
        port = free_port()
        command = [word.format(port=port) for word in PROGRAMS[name]]
        program = subprocess.Popen(  # noqa: ASYNC220 - it starts in milliseconds
            [sys.executable, "-m", *command], cwd=folder, env=environment, start_new_session=True
        )
        try:
            async with httpx.AsyncClient() as client:

                async def answers() -> bool:
                    assert program.poll() is None
                    try:
                        return (await client.get(f"http://127.0.0.1:{port}/")).status_code == 200
                    except httpx.TransportError:
                        return False

                await eventually(answers)
            yield f"http://127.0.0.1:{port}", server
        finally:
            os.killpg(program.pid, signal.SIGTERM)
            await asyncio.to_thread(program.wait, 60)


class Visitor(httpx.AsyncClient):
    """A visitor with cookies, who fills in the forms of the pages."""

    async def sign_in(self, account: str) -> None:
        """Sign in as an account."""
        names = {"name": account, "username": account, "password": ACCOUNTS[account]}
        path = "/login"
        answer = await self.post(path, data={**names, **await self.token("/login")}, follow_redirects=True)
        assert account in answer.text

    async def token(self, path: str = "/") -> dict[str, str]:
        """The hidden field of a form that proves that it is from the site's own page."""
        page = await self.get(path)
        text = page.text if page.status_code == 200 else (await self.get("/")).text
        found = re.search(r'name="(csrf\w*)" value="(\w+)"', text)
        assert found
        return {found[1]: found[2]}

    async def like(self, song: str) -> str:
        """Like a song, and return the page that comes next."""
        return (await self.post(f"/like/{song}", data=await self.token(), follow_redirects=True)).text


@pytest.mark.parametrize("name", PROGRAMS)
async def test_an_account_likes_a_song_once(name: str, valkey_url: str, tmp_path: Path) -> None:
    """Both workers count likes, so each has a client of its own. Nothing but a form of the site likes."""
    async with site(name, valkey_url, tmp_path) as (url, server), Visitor(base_url=url) as ann:
        assert (await ann.post("/like/Aurora")).status_code == 403
        assert "You like" not in await ann.like("Aurora")
        await ann.sign_in("ann")
        assert "You like Aurora." in await ann.like("Aurora")
        assert "You have liked Aurora before." in await ann.like("Aurora")
        assert (await ann.get("/like/Aurora")).status_code == 405
        assert (await ann.post("/like/Aurora")).status_code == 403
        assert (await ann.post("/like/nothing", data=await ann.token())).status_code == 404
        async with Visitor(base_url=url) as bob:
            await bob.sign_in("bob")
            answers = await asyncio.gather(
                *(one.like(song) for one in (bob, bob, ann) for song in ("Aurora", "Copper Sun"))
            )
            assert not any("can't be reached" in answer for answer in answers)
        async with httpx.AsyncClient() as client:
            records = (await client.get(f"{server}/v1/boards/songs")).json()["records"]
        assert {record["key"]: record["score"] for record in records} == {"Aurora": 2, "Copper Sun": 2}


async def test_the_site_answers_under_its_names_only(valkey_url: str, tmp_path: Path) -> None:
    """In production, `DJANGO_ALLOWED_HOSTS` has the names of the site. Django refuses all others."""
    production = {"DJANGO_SECRET_KEY": "of this test", "DJANGO_ALLOWED_HOSTS": "127.0.0.1,songs.example"}
    async with site("django", valkey_url, tmp_path, **production) as (url, _), httpx.AsyncClient() as client:
        for name, status in (("songs.example", 200), ("other.example", 400), ("localhost", 400)):
            assert (await client.get(url, headers={"Host": name})).status_code == status, name


@pytest.mark.parametrize("name", PROGRAMS)
async def test_the_frame_takes_the_height_of_the_board(name: str, valkey_url: str, tmp_path: Path) -> None:
    """A browser likes with the buttons of the page. The frame shows the song, and is as high as its board."""
    async with site(name, valkey_url, tmp_path) as (url, _), browser() as chromium:
        page = await (await chromium.new_context()).new_page()
        await page.goto(f"{url}/login" if name == "django" else url)
        await page.fill("[name=username], [name=name]", "ann")
        await page.fill("[name=password]", ACCOUNTS["ann"])
        await page.get_by_role("button", name="Log in").click()
        await page.get_by_role("button", name="Like").nth(1).click()
        await page.get_by_text("You like Blue Lake.").wait_for(timeout=PATIENCE)
        row = page.frame_locator("iframe").get_by_role("row").filter(has_text="Blue Lake")
        await row.wait_for(timeout=PATIENCE)
        await page.wait_for_function("document.querySelector('iframe').height !== '480'", timeout=PATIENCE)
        inner = await page.frame_locator("iframe").locator("body").evaluate("body => body.scrollHeight")
        height = await page.locator("iframe").evaluate("frame => frame.clientHeight")
        assert inner <= height < 480
