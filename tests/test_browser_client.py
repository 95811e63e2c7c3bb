"""The client on a page of another origin: the element, and a component of React."""

import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Page, Route, WebSocket

from live.domain.board_file import parse_boards
from tests.harness.boards import rolling_board
from tests.harness.browser import IN_BROWSER, PATIENCE, browser
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

pytestmark = IN_BROWSER

MODULES: Final = Path(__file__).parents[1] / ".tools" / "node_modules"
ELEMENT: Final = """<!doctype html><html lang="zh"><title>Element</title>
<meta http-equiv="Content-Security-Policy" content="script-src SERVER 'self'; style-src 'self'">
<script type="module" src="SERVER/client/element.js"></script>
<live-board src="SERVER/boards/posts" limit="2" theme="dark"><table><tr><td>old</td></tr></table></live-board>"""
FIELDS: Final = """<!doctype html><html lang="en"><title>Fields</title>
<meta name="viewport" content="width=device-width">
<script type="module" src="SERVER/client/element.js"></script>
<live-board src="SERVER/boards/climb"></live-board><live-board src="SERVER/boards/posts"></live-board>"""
CLIMB: Final = """
[[board]]
id = "climb"
title = "Climbers"
types = ["climb"]
window = "forever"
operator = "best"
score = [{field = "levels", max = 99}, {field = "seconds", order = "asc", max = 5000}]
"""
HOSTILE: Final = """
* { all: unset !important; color: red !important; font: italic 40px serif !important; letter-spacing: 9px !important;
    text-transform: uppercase !important; visibility: hidden !important; --_ink: red; --_paper: red; --_line: red; }
live-board { display: block !important; width: 500px !important; }
table, tr, td, th, .frame, .score, .rank, .status, .bar, #records { display: flex !important; width: 3px !important; }
"""
NAMESAKES: Final = """<!doctype html><html lang="en"><title>Names</title><style>live-board { width: 500px }STYLE</style>
<live-board src="SERVER/boards/posts" theme="light"></live-board>
<div class="live" id="records"><p class="status">a</p><div class="frame"><table class="packed"><tbody>
<tr class="me lead"><td class="rank">1</td><th class="name"><bdi>b</bdi></th>
<td class="score">c</td></tr></tbody></table></div></div>"""
OWN_LOOK: Final = """() => [...document.querySelectorAll("#records, #records *")].map((part) => {
    const { color, font, display, backgroundColor, padding } = getComputedStyle(part);
    const { width, height } = part.getBoundingClientRect();
    return [part.tagName, part.className, color, font, display, backgroundColor, padding, width, height];
})"""
INNER_LOOK: Final = """() => [
    ...document.querySelector("live-board").shadowRoot.querySelectorAll(".live, .live *")
].map((part) => {
    const { color, font, display, backgroundColor, padding, letterSpacing, visibility } = getComputedStyle(part);
    const { width, height } = part.getBoundingClientRect();
    const box = [width, height].map(Math.round);
    return [part.tagName, color, font, display, backgroundColor, padding, letterSpacing, visibility, ...box];
})"""
REACT: Final = """<!doctype html><title>React</title><div id="root"></div>
<script type="importmap">{"imports": {"react": "./react.js"}}</script>
<script type="module">
  import React, { createRoot } from "./react.js";
  import { useLiveBoard } from "SERVER/client/react.js";
  const Top = ({ limit }) => {
    const { records, state } = useLiveBoard("SERVER", "posts", { limit });
    const words = records.map(({ key, score }) => `${key} ${score}`);
    return React.createElement("p", { title: state.name }, words.join(", "));
  };
  const Two = () => [React.createElement(Top, { key: 1, limit: 2 }), React.createElement(Top, { key: 2, limit: 2 })];
  const root = createRoot(document.querySelector("#root"));
  root.render(React.createElement(React.StrictMode, null, React.createElement(Two)));
  window.leave = () => root.unmount();
</script>"""
# React is published as CommonJS. This script makes one module of its files.
REACT_MODULE: Final = """
const files = FILES;
const made = {};
const require = (name) => {
  if (!made[name]) {
    made[name] = { exports: {} };
    files[name](made[name], made[name].exports, require);
  }
  return made[name].exports;
};
const React = require("react");
export default React;
export const { useSyncExternalStore } = React;
export const { createRoot } = require("react-dom/client");
"""


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder and logs nothing."""

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def site(folder: Path) -> Iterator[str]:
    """The URL of a file server on another origin."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest_asyncio.fixture(loop_scope="session")
async def foreign(valkey_url: str, tmp_path: Path) -> AsyncIterator[tuple[Page, httpx.AsyncClient]]:
    """A page of a foreign site with files in `tmp_path`, and a producer of the board that the page may watch."""
    faults: list[str] = []
    with site(tmp_path) as origin:
        settings = fresh_settings(valkey_url, allowed_origins=(origin,), anonymous_admin=True)
        async with (
            run_server(settings, [rolling_board(), *parse_boards(CLIMB)]) as url,
            httpx.AsyncClient(base_url=url) as producer,
            browser() as chromium,
        ):
            await post(producer, {"key": "a", "amount": 2}, {"key": "b", "amount": 1})
            page = await chromium.new_page()
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
            (tmp_path / "element.html").write_text(ELEMENT.replace("SERVER", url))
            (tmp_path / "fields.html").write_text(FIELDS.replace("SERVER", url))
            (tmp_path / "react.html").write_text(REACT.replace("SERVER", url))
            (tmp_path / "favicon.ico").touch()
            await page.goto(f"{origin}/favicon.ico")
            yield page, producer
            assert faults == []


async def until_text(page: Page, selector: str, text: str) -> None:
    """Wait until an element, possibly in a shadow tree, has a text."""
    await page.locator(selector, has_text=text).first.wait_for(timeout=PATIENCE)


async def test_the_element_shows_fields_titles_and_whole_names(foreign: tuple[Page, httpx.AsyncClient]) -> None:
    """On a narrow phone, a title is not cut, however long other names are. A packed score is never shown."""
    page, producer = foreign
    title = "Twelve birds of the marsh"
    items = [{"key": "a", "title": title}, {"key": "ada", "title": title}]
    assert (await producer.put("/v1/items", json={"items": items})).status_code == 204
    for member, levels in (("ada", 7), ("x" * 300, 6)):
        await post(producer, {"board": "climb", "key": member, "fields": {"levels": levels, "seconds": 1200}})
    await page.set_viewport_size({"width": 320, "height": 640})
    await page.goto(page.url.replace("favicon.ico", "fields.html"))
    for number in (0, 1):
        await page.locator("live-board").nth(number).get_by_text(title).wait_for(timeout=PATIENCE)
    rows = """() => [...document.querySelector("live-board").shadowRoot.querySelectorAll("tr")].map(
        row => [...row.cells].map(cell => cell.querySelector("bdi")?.textContent ?? cell.textContent))"""
    shown = await page.evaluate(rows)
    assert shown[:2] == [["Rank", "Name", "levels", "seconds"], ["1", title, "7", "1,200"]]
    assert await page.get_attribute("live-board >> nth=0 >> [data-member=ada] bdi", "title") == "ada"
    cut = """() => [...document.querySelectorAll("live-board")].flatMap(({ shadowRoot }) =>
        [...shadowRoot.querySelectorAll(".frame, td, bdi")]
            .filter((part) => (part.title ?? "").length < 100)
            .filter((part) => part.scrollWidth > part.clientWidth || part.scrollHeight > part.clientHeight)
            .map((part) => `${part.outerHTML.slice(0, 200)} ${part.scrollWidth} ${part.clientWidth}`))"""
    assert await page.evaluate(cut) == []


async def test_the_element_shows_a_board_of_another_origin(foreign: tuple[Page, httpx.AsyncClient]) -> None:
    """The element replaces its content, follows its attributes and the page's language, and needs no inline style."""
    page, producer = foreign
    await page.add_init_script(
        "window.states = []; addEventListener('live-board-state', ({ detail }) => states.push(detail.name), true)"
    )
    await page.goto(page.url.replace("favicon.ico", "element.html"))
    await until_text(page, "live-board [part=body] tr:first-child", "a")
    assert not await page.get_by_text("old").is_visible()
    assert await page.text_content("live-board .status") == "\u5b9e\u65f6"
    assert await page.text_content("live-board thead") == "\u540d\u6b21\u540d\u79f0\u5206\u6570"
    await post(producer, {"key": "c", "amount": 9})
    await until_text(page, "live-board [part=body] tr:first-child", "c")
    assert await page.locator("live-board [part=body] tr").count() == 2
    assert (await page.evaluate("states"))[-1] == "live"
    look = """() => {
        const score = document.querySelector("live-board").shadowRoot.querySelector("td.score");
        const { color, backgroundColor } = getComputedStyle(score);
        return [color, backgroundColor];
    }"""
    assert (await page.evaluate(look))[1] == "rgb(20, 23, 29)"
    await page.evaluate(
        """() => {
            const sheet = new CSSStyleSheet();
            sheet.replaceSync("live-board { --lb-paper: rgb(1, 2, 3) } ::part(score) { color: rgb(4, 5, 6) }");
            document.adoptedStyleSheets = [sheet];
            const board = document.querySelector("live-board");
            board.setAttribute("limit", "3");
            board.setAttribute("lang", "en");
            board.setAttribute("member", "b");
        }"""
    )
    await until_text(page, "live-board .status", "Live")
    await until_text(page, "live-board [part=body] tr:nth-child(3)", "b")
    assert await page.text_content("live-board .me bdi") == "b"
    assert await page.evaluate(look) == ["rgb(4, 5, 6)", "rgb(1, 2, 3)"]


async def test_an_element_that_leaves_the_page_leaves_no_work_behind(
    foreign: tuple[Page, httpx.AsyncClient],
) -> None:
    """After the element has left, the page draws nothing for it and asks for no titles, even if none ever came."""
    page, _ = foreign
    asked: list[str] = []

    async def answer(route: Route) -> None:
        asked.append(route.request.url)
        await route.fulfill(body="no JSON")

    await page.route("**/v1/items?*", answer)
    await page.clock.install()
    await page.goto(page.url.replace("favicon.ico", "element.html"))
    await until_text(page, "live-board [part=body] tr:nth-child(2)", "b")
    await page.evaluate("() => document.querySelector('live-board').setAttribute('limit', '1')")
    await page.wait_for_function(
        "() => document.querySelector('live-board').shadowRoot.querySelectorAll('[part=body] tr').length === 1",
        timeout=PATIENCE,
    )
    await page.evaluate(
        """() => {
            const request = requestAnimationFrame;
            window.draws = 0;
            window.requestAnimationFrame = (work) => { draws++; return request(work); };
        }"""
    )
    await page.clock.fast_forward(3_000)
    before = await page.evaluate("draws")
    await page.evaluate("() => dispatchEvent(new Event('scroll'))")
    await page.clock.fast_forward(1_000)
    assert await page.evaluate("draws") == before + 1  # only the present table draws
    assert asked
    await page.evaluate("() => document.querySelector('live-board').remove()")
    await page.clock.fast_forward(3_000)
    before, asked_before = await page.evaluate("draws"), len(asked)
    await page.evaluate("() => dispatchEvent(new Event('scroll'))")
    await page.clock.fast_forward(15_000)
    await page.clock.fast_forward(15_000)
    assert (await page.evaluate("draws"), len(asked)) == (before, asked_before)


async def test_no_style_reaches_the_element_or_leaves_it(
    foreign: tuple[Page, httpx.AsyncClient], tmp_path: Path
) -> None:
    """A page with hostile rules and the names of the element's parts, changes nothing in it, and stays as it is."""
    page, producer = foreign
    await post(producer, {"key": "long name of a member", "amount": 12_345_678})
    origin, own = page.url.removesuffix("favicon.ico"), str(producer.base_url).rstrip("/")
    looks = dict[str, tuple[object, object]]()
    for name, style in (("plain", ""), ("hostile", HOSTILE)):
        html = NAMESAKES.replace("SERVER", own).replace("STYLE", style)
        (tmp_path / f"{name}.html").write_text(html)
        await page.goto(f"{origin}{name}.html")
        before = await page.evaluate(OWN_LOOK)
        await page.evaluate("(address) => import(address)", f"{own}/client/element.js")
        await until_text(page, "live-board [part=body] tr:first-child", "long name")
        await page.wait_for_function("() => document.getAnimations().length === 0", timeout=PATIENCE)
        assert await page.evaluate(OWN_LOOK) == before, name
        looks[name] = await page.evaluate(INNER_LOOK)
    assert looks["plain"] == looks["hostile"]


@pytest.mark.skipif(not (MODULES / "react-dom").exists(), reason="React is not installed")
async def test_components_of_react_share_a_connection(foreign: tuple[Page, httpx.AsyncClient], tmp_path: Path) -> None:
    """Two components in strict mode, on another origin, open one connection, and close it when both are removed."""
    page, producer = foreign
    paths = {
        "react": "react/cjs/react.production.js",
        "scheduler": "scheduler/cjs/scheduler.production.js",
        "react-dom": "react-dom/cjs/react-dom.production.js",
        "react-dom/client": "react-dom/cjs/react-dom-client.production.js",
    }
    files = ",".join(
        f"{json.dumps(name)}: (module, exports, require) => {{{(MODULES / path).read_text()}\n}}"
        for name, path in paths.items()
    )
    (tmp_path / "react.js").write_text(REACT_MODULE.replace("FILES", f"{{{files}}}"))
    sockets: list[bool] = []

    def note(socket: WebSocket) -> None:
        sockets.append(True)
        socket.on("close", lambda _: sockets.append(False))

    page.on("websocket", note)
    await page.goto(page.url.replace("favicon.ico", "react.html"))
    await until_text(page, "p[title=live] + p[title=live]", "a 2, b 1")
    await post(producer, {"key": "b", "amount": 5})
    await until_text(page, "p[title=live] + p[title=live]", "b 6, a 2")
    assert sockets == [True]
    async with page.expect_event("console", predicate=lambda message: message.text == "left", timeout=PATIENCE):
        await page.evaluate("() => { leave(); setTimeout(() => console.log('left'), 1500); }")
    assert sockets == [True, False]
