"""/docs: the API reference, as a client without JavaScript and as a browser receives it."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from typing import Any

import httpx
import pytest

from live.errors import PROBLEMS, REFUSALS
from live.web.contract.documents import openapi_document, prose
from tests.harness.boards import rolling_board
from tests.harness.browser import browser, in_browser
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings


@asynccontextmanager
async def server(store: str, **changes: Any) -> AsyncIterator[str]:
    """The URL of a server."""
    async with run_server(fresh_settings(store, **changes), [rolling_board()]) as url:
        yield url


async def page_of(url: str) -> str:
    """The HTML of the reference."""
    async with httpx.AsyncClient(base_url=url) as client:
        response = await client.get("/docs")
        assert response.status_code == 200
        assert "script-src 'self'" in response.headers["content-security-policy"]
        return response.text


async def test_every_operation_and_code_is_on_the_page(valkey_url: str) -> None:
    """Each operation has a line with its method, path and summary, which opens to its parameters and statuses.

    Operations with the member in the query are the same as those with the member in the path.
    """
    async with server(valkey_url) as url:
        html = unescape((await page_of(url)).replace("<wbr>", ""))
    for path, item in openapi_document()["paths"].items():
        for method, operation in item.items():
            if operation["operationId"].endswith("ByQuery"):
                assert f'id="{operation["operationId"].removesuffix("ByQuery")}"' in html
                continue
            part = html.split(f'<details id="{operation["operationId"]}">')[1].split("</details>")[0]
            assert f"<b>{method.upper()}</b> {path}</code> <span>{operation['summary']}</span></summary>" in part
            for name in [parameter["name"] for parameter in operation["parameters"]]:
                assert f"<dt><code>{name}</code>" in part
            assert re.findall(r"<code>(\d+)</code>", part.split("Responses: ")[1]) == sorted(operation["responses"])
    body = html.split('<details id="postEvents">')[1].split("</details>")[0]
    for field in openapi_document()["components"]["schemas"]["Event"]["properties"]:
        assert f"<dt><code>{field}</code> <small>body" in body
    assert [code for code in PROBLEMS if f'<div id="{code}"><dt><code>{code}</code>' not in html] == []
    assert [code for code in REFUSALS if f"<dt><code>{code}</code></dt>" not in html] == []


async def test_every_link_has_a_target(valkey_url: str) -> None:
    """Links within the page have a target. This server serves the targets of all other links."""
    async with server(valkey_url) as url, httpx.AsyncClient(base_url=url) as client:
        html = (await client.get("/docs")).text
        assert '<a href="/docs">' in (await client.get("/")).text
        ids = re.findall(r' id="([^"]+)"', html)
        assert len(set(ids)) == len(ids)
        links = set(re.findall(r'(?:href|src)="([^"]+)"', html))
        assert {link[1:] for link in links if link.startswith("#")} <= set(ids)
        for link in links:
            if not link.startswith("#"):
                assert (await client.get(link)).status_code == 200


@pytest.mark.parametrize("role", ["ingest", "viewers"])
async def test_every_role_serves_the_reference(valkey_url: str, role: str) -> None:
    """In every role, a process serves the page and its style sheets."""
    async with server(valkey_url, role=role) as url, httpx.AsyncClient(base_url=url) as client:
        html = (await client.get("/docs")).text
        for path in re.findall(r'href="(/static/[^"]+\.css)"', html):
            assert (await client.get(path)).status_code == 200


async def test_links_include_the_root_path(valkey_url: str) -> None:
    """All links of the page begin with the root path."""
    async with server(valkey_url, root_path="/below") as url:
        html = await page_of(f"{url}/below")
    assert 'href="/below/openapi.json"' in html
    assert not re.findall(r'(?:href|src)="/(?!below/)', html)


def test_html_in_a_description_is_text() -> None:
    """No text of the contract becomes markup."""
    assert "<b>" not in prose("<b>bold</b>\n\n<script>")
    assert prose("a `b`.\n\n- c\n- `<d>`") == (
        "<p>a <code>b</code>.</p>\n<ul><li>c</li><li><code>&lt;d&gt;</code></li></ul>"
    )


@in_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280])
async def test_the_reference_works_without_script_on_any_screen(valkey_url: str, scheme: Any, width: int) -> None:
    """No request goes to another host, nothing is wider than the screen, and text has contrast.

    The page is short until an operation is opened.
    """
    faults: list[str] = []
    async with server(valkey_url) as url, browser() as chromium:
        context = await chromium.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, java_script_enabled=False
        )
        page = await context.new_page()
        page.on("console", lambda message: faults.append(message.text))
        page.on("request", lambda request: faults.append(request.url) if url not in request.url else None)
        await page.goto(f"{url}/docs")
        tall = await page.evaluate("document.documentElement.scrollHeight")
        for summary in await page.locator("main summary").all():
            await summary.click()
        wide = await page.evaluate("document.documentElement.scrollWidth")
        ratios = await page.evaluate(CONTRAST)
    assert faults == []
    assert wide <= width
    assert tall < 10_000, "a phone shows the closed page in a minute"
    assert len(ratios) == 3
    assert {colours: ratio for colours, ratio in ratios.items() if ratio < 4.5} == {}


@in_browser
async def test_an_operation_opens_by_keyboard(valkey_url: str) -> None:
    """Enter opens the operation that has the focus."""
    async with server(valkey_url) as url, browser() as chromium:
        page = await chromium.new_page()
        await page.goto(f"{url}/docs")
        await page.locator("#getBoard summary").focus()
        await page.keyboard.press("Enter")
        assert await page.locator("#getBoard").get_attribute("open") is not None
        assert await page.locator("#getBoard dt", has_text="cursor").is_visible()


# Returns the contrast of each text on the page with its background, by WCAG 2.2. All colours are opaque.
CONTRAST = """
(() => {
  const luminance = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(part => {
      const value = part / 255;
      return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = element => {
    const colour = getComputedStyle(element).backgroundColor;
    return colour === "rgba(0, 0, 0, 0)" && element.parentElement ? ground(element.parentElement) : colour;
  };
  const found = {};
  for (const element of document.querySelectorAll("body *")) {
    if (element.closest(".menu, .unseen")) continue;
    if (![...element.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
    const colours = [getComputedStyle(element).color, ground(element)];
    const [low, high] = colours.map(luminance).sort((a, b) => a - b);
    found[colours.join(" on ")] = (high + 0.05) / (low + 0.05);
  }
  return found;
})()
"""
