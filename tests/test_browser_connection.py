"""What the page does with each message and at the end of its connection, and what a browser's EventSource does."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
from playwright.async_api import Page, WebSocketRoute

from tests.harness.boards import rolling_board
from tests.harness.browser import (
    IN_BROWSER,
    PATIENCE,
    board_in_browser,
    browser,
    rows,
    until_first,
    until_live,
    until_loaded,
)
from tests.harness.network import free_port
from tests.harness.producer import post
from tests.harness.server import ServerProcess, run_server, serving
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually

pytestmark = IN_BROWSER

SYNC = {
    "type": "sync", "board": "posts", "epoch": "e", "offset": 7, "rank_count": 1, "total_score": 1, "recovered": False,
    "records": [{"key": "a", "score": 1, "rank": 1}],
}  # fmt: skip
UPDATE = {
    "type": "update", "epoch": "e", "since": 7, "offset": 9, "rank_count": 2, "total_score": 6,
    "changed": [{"key": "b", "score": 5, "rank": 1}], "removed": [],
}  # fmt: skip
REASONS = """async () => {
    const { LiveBoard } = await import("/client/live-board.js");
    const board = new LiveBoard(location.origin, "posts", { transports: ["sse", "poll"] });
    const reasons = [];
    await new Promise((live) => {
        board.on("state", ({ name, reason }) => {
            if (reason) reasons.push(reason);
            if (name === "live") live(reasons.push(name));
        });
        board.start();
    });
    board.stop();
    return reasons;
}"""
SIX_BOARDS = """async () => {
    const { LiveBoard } = await import("/client/live-board.js");
    const wish = { transports: ["sse", "poll"] };
    const boards = Array.from({ length: 6 }, () => new LiveBoard(location.origin, "posts", wish));
    for (const board of boards) board.start();
    await Promise.all(boards.map((board) => board.ready()));
    const answer = await fetch("/v1/boards/posts/baseline", { signal: AbortSignal.timeout(20_000) }).catch(String);
    const states = boards.map(({ snapshot }) => snapshot.state.name);
    for (const board of boards) board.stop();
    return [answer.status ?? answer, ...new Set(states)];
}"""
SHUTTING_DOWN = {"type": "status", "stale": True, "reason": "the server is shutting down", "retry_after": 0.7}


class Server:
    """The server's end of the page's sockets, which the test controls."""

    def __init__(self) -> None:
        self.sockets: list[WebSocketRoute] = []
        self.times: list[float] = []

    def take(self, socket: WebSocketRoute) -> None:
        self.sockets.append(socket)
        self.times.append(time.monotonic())

    async def socket(self, number: int) -> WebSocketRoute:
        """Wait until the page has opened the connection with this number, counted from 0, and return it."""

        async def is_there() -> bool:
            return len(self.sockets) > number

        await eventually(is_there)
        return self.sockets[number]

    def query(self, number: int) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.sockets[number].url).query)


def send(socket: WebSocketRoute, *messages: dict[str, Any]) -> None:
    """Send messages to the page."""
    for message in messages:
        socket.send(json.dumps(message))


@asynccontextmanager
async def controlled(store: str, query: str = "") -> AsyncIterator[tuple[Page, Server]]:
    """The page of a board whose sockets the test controls."""
    server = Server()
    async with (
        run_server(fresh_settings(store), [rolling_board()]) as url,
        browser() as chromium,
    ):
        page = await chromium.new_page()
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        await page.route_web_socket("**/live**", server.take)
        await page.goto(f"{url}/boards/posts{query}")
        yield page, server
        assert faults == []


async def test_the_page_reconnects_after_the_requested_pause(valkey_url: str) -> None:
    """Even if the network comes back, the page does not reconnect earlier. It receives only what it missed."""
    async with controlled(valkey_url) as (page, server):
        first = await server.socket(0)
        send(first, SYNC)
        await until_live(page)
        asked = time.monotonic()
        send(first, SHUTTING_DOWN)
        await first.close(code=3001)
        await page.wait_for_selector("#connection[data-state=reconnecting]", timeout=PATIENCE)
        await page.evaluate("dispatchEvent(new Event('offline')); dispatchEvent(new Event('online'))")
        assert "Reconnecting in" in (await page.text_content("#connection") or "")
        second = await server.socket(1)
        assert server.times[1] - asked >= 0.7
        assert {name: value for name, (value,) in server.query(1).items() if name != "limit"} == {
            "epoch": "e", "offset": "7"
        }  # fmt: skip
        send(second, {**UPDATE, "recovered": True})
        await until_first(page, "b")
        await until_live(page)
        assert await rows(page) == [("1", "b", "5"), ("2", "a", "1")]


async def test_the_requested_pause_has_some_jitter(valkey_url: str) -> None:
    """Clients that receive the same pause do not return at the same instant, because each adds a random time."""
    async with board_in_browser(valkey_url) as (page, _):
        pauses = await page.evaluate("""async () => {
            const own = document.querySelector('script[type=module]').src;
            const { Backoff } = await import(own.replace('en/board', 'client/backoff'));
            const after = (random) => new Backoff({ random }).after(3);
            return [after(() => 0), after(() => 0.5), after(() => 1)];
        }""")
    assert pauses == [3000, 3250, 3500]


async def test_a_gap_makes_the_page_reconnect(valkey_url: str) -> None:
    """The page reconnects with the position of the last message that it applied."""
    async with controlled(valkey_url) as (page, server):
        send(await server.socket(0), SYNC, UPDATE)
        await until_first(page, "b")
        send(server.sockets[0], {**UPDATE, "since": 10, "offset": 11})
        await server.socket(1)
        assert (server.query(1)["epoch"], server.query(1)["offset"]) == (["e"], ["9"])


AROUND = {
    "type": "around", "epoch": "e", "offset": 7, "key": "me", "rank_count": 2000, "score": 12, "rank": 1234, "gap": 5,
    "records": [{"key": "me&you", "score": 12, "rank": 1234}],
}  # fmt: skip


async def test_other_messages_are_shown_or_ignored(valkey_url: str) -> None:
    """The messages are the viewer count, the rank of a member, and an unknown type, which the page ignores."""
    async with controlled(valkey_url, "?key=me%26you") as (page, server):
        assert await page.get_attribute("tr.own th", "data-note") == "You, not ranked"
        socket = await server.socket(0)
        assert server.query(0)["key"] == ["me&you"]
        send(socket, {"type": "weather", "sunny": True}, SYNC, {"type": "viewers", "count": 1234}, AROUND)
        await page.wait_for_function(
            "() => document.getElementById('viewers').textContent === '1,234'", timeout=PATIENCE
        )
        await page.locator("tfoot td.rank", has_text="1,234").wait_for(timeout=PATIENCE)
        send(socket, {**AROUND, "rank": None, "gap": None, "score": None, "records": []})
        await page.wait_for_selector("tfoot th[data-note='You, not ranked']", timeout=PATIENCE)
        assert (await page.inner_text("tfoot")).split() == ["me&you"]
        await until_live(page)
        assert len(server.sockets) == 1


async def test_missing_elements_are_ignored(valkey_url: str) -> None:
    """A page of an older version may lack the elements for the viewer count and the rank."""
    async with controlled(valkey_url) as (page, server):
        assert await page.locator("tfoot").count() == 0
        socket = await server.socket(0)
        assert "key" not in server.query(0)
        await page.evaluate("document.getElementById('viewers').parentElement.remove()")
        send(socket, {"type": "viewers", "count": 2}, AROUND, SYNC)
        await until_live(page)


async def test_the_viewer_count_is_live(valkey_url: str) -> None:
    """The page shows the count that the server sends."""
    async with board_in_browser(valkey_url) as (page, _):
        await page.wait_for_function("() => document.getElementById('viewers').textContent === '1'", timeout=PATIENCE)


LISTEN = """(path) => {
    window.messages = [];
    window.source = new EventSource(path);
    for (const type of ["sync", "update", "status"])
        source.addEventListener(type, (event) => messages.push({ id: event.lastEventId, ...JSON.parse(event.data) }));
}"""


async def received(page: Page, test: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Wait for a message that passes `test`, and return the first one."""

    async def found() -> dict[str, Any] | None:
        messages: list[dict[str, Any]] = await page.evaluate("messages")
        return next(filter(test, messages), None)

    message: dict[str, Any] = await eventually(found, PATIENCE / 1000)
    return message


async def test_late_scripts_come_although_a_page_is_not_live(valkey_url: str) -> None:
    """Pages repeat a failed request for a script."""
    async with serving(fresh_settings(valkey_url), rolling_board()) as client, browser() as chromium:
        await post(client, {"key": "a"})
        context = await chromium.new_context()
        await context.route_web_socket("**/live**", lambda _: None)  # the WebSocket opens, and brings no message
        page = await context.new_page()
        await page.route("**/later.js", lambda route: route.abort(), times=1)
        await page.goto(f"{client.base_url}/boards/posts")
        await until_loaded(page)


async def test_a_part_of_the_client_that_did_not_load_is_named_and_asked_for_again(valkey_url: str) -> None:
    """The part is `fallbacks.js`, which event streams and polling need. The next transport asks for it again."""
    async with run_server(fresh_settings(valkey_url), [rolling_board()]) as url, browser() as chromium:
        page = await chromium.new_page()
        await page.route("**/fallbacks.js", lambda route: route.abort(), times=1)
        await page.goto(f"{url}/boards/none")
        reasons = await page.evaluate(REASONS)
        assert "client/fallbacks.js" in reasons[0]
        assert reasons[-1] == "live"


async def test_an_event_source_reconnects(valkey_url: str, tmp_path: Path) -> None:
    """After a restart of the server, the browser continues the stream from its last event."""
    process = ServerProcess(fresh_settings(valkey_url, port=free_port()), tmp_path)
    process.start()
    async with browser() as chromium, httpx.AsyncClient() as producer:
        page = await chromium.new_page()
        await page.goto(f"{process.url}/")
        await page.evaluate(LISTEN, "/v1/boards/posts/stream?limit=5")
        sync = await received(page, lambda message: message["type"] == "sync")
        assert sync["id"] == f"{sync['epoch']}:0"
        await producer.post(f"{process.url}/v1/events", json={"key": "a"})
        update = await received(page, lambda message: message["type"] == "update")
        assert (update["id"], update["changed"][0]["key"]) == (f"{sync['epoch']}:1", "a")
        assert await asyncio.to_thread(process.stop) == 0
        status = await received(page, lambda message: message["type"] == "status")
        assert status["retry_after"] > 0
        await asyncio.to_thread(process.start)
        back = await received(page, lambda message: message.get("recovered"))
        assert (back["type"], back["since"], back["offset"]) == ("update", 1, 1)
        await producer.aclose()
    assert await asyncio.to_thread(process.stop) == 0


async def test_an_event_source_stops_when_its_board_is_deleted(valkey_url: str) -> None:
    """The browser reconnects once. The answer says that there is no such board, and the browser gives up."""
    settings = fresh_settings(valkey_url, anonymous_admin=True)
    async with run_server(settings, [rolling_board()]) as url, browser() as chromium:
        async with httpx.AsyncClient(base_url=url) as client:
            await client.put("/v1/boards/june", json={})
            page = await chromium.new_page()
            await page.goto(f"{url}/")
            await page.evaluate(LISTEN, "/v1/boards/june/stream")
            await received(page, lambda message: message["type"] == "sync")
            await client.delete("/v1/boards/june")
        await received(page, lambda message: message.get("reason") == "board deleted")
        await page.wait_for_function("() => source.readyState === EventSource.CLOSED", timeout=PATIENCE)


async def test_six_boards_without_websockets_leave_room_for_requests(valkey_url: str) -> None:
    """A browser opens six connections to a server. Two of them are event streams, and the other boards poll."""
    async with run_server(fresh_settings(valkey_url), [rolling_board()]) as url, browser() as chromium:
        streams: list[str] = []
        page = await chromium.new_page()
        page.on("request", lambda request: streams.append(request.url) if "/stream" in request.url else None)
        await page.goto(f"{url}/boards/none")
        async with asyncio.timeout(60):
            assert await page.evaluate(SIX_BOARDS) == [200, "live"]
        assert len(streams) == 2
