"""The admin page in a browser: by keyboard, without script, in each theme and language, and its live parts."""

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from playwright.async_api import Page

from live.settings import Settings, TokenSecret
from live.web.parts import assets
from tests.harness.admin import add_key
from tests.harness.boards import rolling_board
from tests.harness.browser import IN_BROWSER, PATIENCE, browser
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.test_browser_axe import AXE, faults

pytestmark = IN_BROWSER

PAGES: Final = (
    "", "boards/june", "boards/posts", "new", "members", "member?key=Ada", "void", "keys", "health",
    "events",
    "log",
    "boards/none",
)  # fmt: skip
JUNE: Final = {"title": "June", "types": ["request"]}
WIDTHS: Final = (360, 820, 1440)
MOST: Final = 4096  # bytes; the compressed script must be smaller


@asynccontextmanager
async def opened(settings: Settings, key: str, **context: Any) -> AsyncIterator[tuple[Page, httpx.AsyncClient]]:
    """Yield a page with the form to sign in, and a client of the API with the same API key."""
    async with (
        run_server(settings, [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {key}"}) as api,
        browser() as chromium,
    ):
        (await api.put("/v1/boards/june", json=JUNE)).raise_for_status()
        page = await (await chromium.new_context(**context)).new_page()
        await page.goto(f"{url}/admin")
        yield page, api


async def sign_in(page: Page, key: str) -> None:
    """Enter an API key with the keyboard. Its field must have the focus from the beginning."""
    await page.wait_for_selector("#key:focus", timeout=PATIENCE)
    await page.keyboard.type(key)
    await page.keyboard.press("Enter")
    await page.wait_for_selector("header nav", timeout=PATIENCE)


async def tab_to(page: Page, selector: str) -> None:
    """Press Tab until an element has the focus. It must be visible that the element has the focus."""
    for _ in range(80):
        await page.keyboard.press("Tab")
        if await page.evaluate("selector => document.activeElement.matches(selector)", selector):
            outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", selector
            return
    raise AssertionError(f"the keyboard does not reach {selector}")


async def test_all_can_be_done_by_keyboard_without_script(valkey_url: str) -> None:
    """An administrator signs in, changes boards, members and events, and signs out."""
    settings = fresh_settings(valkey_url)
    key = await add_key(settings, "chief", verbs=("admin", "post"))
    async with opened(settings, key, java_script_enabled=False) as (page, api):
        await sign_in(page, key)

        async def choose(selector: str) -> None:
            """Focus an element and press Enter. Without script, the test can't see where Tab leads."""
            await page.focus(selector)
            await page.keyboard.press("Enter")
            await page.wait_for_load_state()

        await choose("nav a[href$='/new']")
        await page.focus("#title")
        await page.keyboard.type("Best <of> all")
        await page.focus("#id")
        await page.keyboard.type("best")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/boards/best?*")
        assert await page.inner_text("h1") == "Best <of> all"
        await choose("form button:text('Freeze')")
        await page.wait_for_url("**done=frozen*")
        boards = {one["board"]: one for one in (await api.get("/v1/boards")).json()["boards"]}
        assert boards["best"]["frozen"]
        await choose("nav a[href$='/log']")
        await page.locator("ol.log", has_text="frozen").wait_for(timeout=PATIENCE)
        await page.goto(f"{api.base_url}/admin/boards/best")
        await page.focus("#id")
        await page.keyboard.type("best")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**done=deleted*")
        assert (await api.get("/v1/boards/best")).status_code == 404
        await post(api, {"key": "Ada"})
        await page.goto(f"{api.base_url}/admin/members?board=posts")
        await choose("tbody button")
        await page.wait_for_url("**done=hidden*")
        await choose("nav a[href$='/events']")
        await page.focus("#try-key")
        await page.keyboard.type("Bo")
        await page.keyboard.press("Enter")
        await page.locator("[role=status]", has_text="counted").wait_for(timeout=PATIENCE)
        assert [one["key"] for one in (await api.get("/v1/boards/posts")).json()["records"]] == ["Bo"]
        await choose(".leave button")
        await page.wait_for_selector("#key")


@pytest.mark.timeout(900)
@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed")
async def test_every_page_is_accessible_and_fits(valkey_url: str, tmp_path: Path) -> None:
    """Both themes and languages are tried, on a phone, a tablet and a desk. Tab reaches the navigation."""
    settings = fresh_settings(valkey_url, journal="sqlite", data_dir=tmp_path, token_secret=TokenSecret("s" * 32))
    key = await add_key(settings, "chief", verbs=("admin", "post"))
    async with opened(settings, key, bypass_csp=True) as (page, api):
        await post(api, {"key": "Ada"})
        await api.patch("/v1/boards/posts/records/Ada", json={"add": 3, "reason": "a long reason " * 20})
        # If a board has items, its page uses another style sheet.
        await api.put("/v1/items/Ada", json={"title": "A title"})
        await page.add_init_script(AXE.read_text(encoding="utf-8"))
        await page.reload()
        assert await faults(page) == []
        await sign_in(page, key)
        await tab_to(page, "nav a[href$='/new']")
        for theme, lang in (("light", "en"), ("dark", "zh-Hans")):
            for path in PAGES:
                await page.goto(
                    f"{api.base_url}/admin/{path}".rstrip("/")
                    + f"{'&' if '?' in path else '?'}theme={theme}&lang={lang}"
                )
                for place in range(min(2, await page.locator("summary").count())):
                    await page.locator("summary").nth(place).click()
                assert await faults(page) == [], path
                assert await page.evaluate("getComputedStyle(document.querySelector('.skip')).position") == "absolute"
                for width in WIDTHS:
                    await page.set_viewport_size({"width": width, "height": 900})
                    wide = "() => document.documentElement.scrollWidth - innerWidth"
                    assert await page.evaluate(wide) <= 0, (path, width)


async def test_the_script_shows_the_command_of_a_form_and_keeps_figures_up_to_date(valkey_url: str) -> None:
    """The compressed script has less than 4 KiB. The content security policy of the page lets it work."""
    assert len(gzip.compress((assets("static") / "admin.js").read_bytes())) < MOST
    settings = fresh_settings(valkey_url)
    key = await add_key(settings, "chief", verbs=("admin", "post"))
    wrong: list[str] = []
    async with opened(settings, key) as (page, api):
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        await sign_in(page, key)
        await page.goto(f"{api.base_url}/admin/keys")
        await page.fill("#id", "shop")
        await page.fill("#for", "30d <b>")
        await page.locator("#add-command", has_text="30d <b>").wait_for(timeout=PATIENCE)
        assert "/v1/keys/shop" in await page.inner_text("#add-command")
        assert await page.input_value("#id") == "shop"
        assert wrong == []
        await page.goto(f"{api.base_url}/admin")
        await post(api, {"key": "Ada"}, {"key": "Bo"})
        row = page.locator("tbody tr", has_text="posts").locator("td:nth-child(4)", has_text="2")
        await row.wait_for(timeout=PATIENCE)
        await page.goto(f"{api.base_url}/admin/members?board=posts")
        await page.keyboard.press("j")
        await page.keyboard.press("j")
        await page.keyboard.press("k")
        assert "key=Ada" in await page.evaluate("document.activeElement.href")
        await page.keyboard.press("h")
        await page.wait_for_url("**done=hidden*")
        assert [one["key"] for one in (await api.get("/v1/boards/posts")).json()["records"]] == ["Bo"]
        await page.keyboard.press("u")
        await page.wait_for_url("**done=shown*")
        assert wrong == []
