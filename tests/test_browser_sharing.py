"""The panel that shares a board, and the command that fills an empty one, in a real browser."""

from tests.harness.browser import IN_BROWSER, PATIENCE, board_in_browser, open_menu, until_live

pytestmark = IN_BROWSER


async def test_a_link_and_a_snippet_are_copied(valkey_url: str) -> None:
    """The buttons work by keyboard. Each button says that the text was copied, and the page tells screen readers."""
    async with board_in_browser(
        valkey_url, {"key": "a"}, permissions=["clipboard-read", "clipboard-write"], locale="zh-CN"
    ) as (page, _):
        await until_live(page)
        await open_menu(page)
        await page.focus(".share summary")
        await page.keyboard.press("Enter")
        assert await page.locator(".share img").count() == 0, "the panel has a QR code of a loopback address"
        for name in ("link", "snippet"):
            await page.focus(f"[data-copy={name}]")
            await page.keyboard.press("Enter")
            await page.wait_for_selector(f"[data-copy={name}] >> text=已复制", timeout=PATIENCE)
            copied = await page.evaluate("navigator.clipboard.readText()")
            assert copied == await page.input_value(f"#{name}")
            assert "/posts" in copied
        await page.wait_for_selector("#announcer >> text=已复制", state="attached", timeout=PATIENCE)


async def test_without_permission_the_text_is_selected(valkey_url: str) -> None:
    """If the browser does not permit the copy, the page selects the text, and the button says what to do."""
    async with board_in_browser(valkey_url, path="posts") as (page, _):
        await until_live(page)
        await page.evaluate("() => void (navigator.clipboard.writeText = () => Promise.reject(new Error('no')))")
        await page.click("[data-copy=curl]")
        await page.wait_for_selector("[data-copy=curl] >> text=Select the text", timeout=PATIENCE)
        selected = await page.evaluate("getSelection().toString()")
        assert selected.strip() == await page.inner_text("#curl")
