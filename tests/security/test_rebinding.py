"""DNS rebinding in a real Chromium: the host name of the attacker's page begins to resolve to this machine."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.async_api import Page, Route

from tests.harness.boards import rolling_board
from tests.harness.browser import CHROMIUM, launched
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

pytestmark = [
    pytest.mark.security,
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]

NAME = "rebind.test"
# Chromium blocks requests from public pages to private addresses. Other browsers do not.
UNGUARDED = ["--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests"]
# Tries everything that a page can do to a server of its own origin. Returns the results.
ATTACK = """async (base) => {
    const json = { "Content-Type": "application/json" };
    const ask = async (path, options = {}) => {
        try {
            const response = await fetch(base + path, options);
            return response.type === "opaque" ? "opaque" : response.status;
        } catch (error) {
            return "blocked";
        }
    };
    const socket = (path) => new Promise((done) => {
        const made = new WebSocket(base.replace("http", "ws") + path);
        made.onopen = () => { made.close(); done("open"); };
        made.onerror = () => done("refused");
    });
    const stream = () => new Promise((done) => {
        const made = new EventSource(base + "/v1/boards/posts/stream");
        made.onopen = () => { made.close(); done("open"); };
        made.onerror = () => { made.close(); done("refused"); };
    });
    const body = '{"key":"fetch"}';
    const results = {
        page: await ask("/boards/posts"),
        read: await ask("/v1/boards/posts"),
        metrics: await ask("/metrics"),
        post: await ask("/v1/events", { method: "POST", headers: json, body }),
        put: await ask("/v1/boards/evil", { method: "PUT", headers: json, body: "{}" }),
        patch: await ask("/v1/boards/posts/records/a", { method: "PATCH", headers: json, body: '{"hidden":true}' }),
        remove: await ask("/v1/boards/posts", { method: "DELETE" }),
        viewer: await socket("/v1/boards/posts/live"),
        stream: await stream(),
    };
    for (const [name, value] of [["Forwarded", "for=127.0.0.1;host=localhost"], ["X-Forwarded-Host", "localhost"]])
        results[name] = await ask("/v1/events", { method: "POST", headers: { ...json, [name]: value }, body });
    for (const type of ["text/plain", "application/x-www-form-urlencoded"])
        results[type] = await ask("/v1/events",
            { method: "POST", mode: "no-cors", headers: { "Content-Type": type }, body });
    results.untyped = await ask("/v1/events", { method: "POST", mode: "no-cors", body: new Blob([body]) });
    results.beacon = navigator.sendBeacon(base + "/v1/events", new Blob([body], { type: "text/plain" }));
    await ask("/healthz", { mode: "no-cors" });  // the beacon has left before this one
    return results;
}"""


@asynccontextmanager
async def attacked(store: str, **changes: Any) -> AsyncIterator[tuple[Page, str, httpx.AsyncClient]]:
    """Yield a page of the attacker, then the server's address, then an honest client.

    The attacker's host name now resolves to this machine.
    """
    settings = fresh_settings(store, **{"allowed_hosts": (), "anonymous_admin": True, **changes})
    async with (
        run_server(settings, [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url) as client,
        launched(f"--host-resolver-rules=MAP {NAME} 127.0.0.1", *UNGUARDED) as chromium,
    ):
        await client.post("/v1/events", json={"key": "a"})
        page = await chromium.new_page()
        address = f"http://{NAME}:{urlsplit(url).port}"

        # The attacker's own server served this page before the name pointed to the board's address.
        async def serve(route: Route) -> None:
            await route.fulfill(body="<!doctype html><title>free games</title>", content_type="text/html")

        await page.route(f"{address}/attack", serve)
        await page.goto(f"{address}/attack")
        assert await page.evaluate("location.origin") == address
        yield page, address, client


async def is_unchanged(client: httpx.AsyncClient) -> bool:
    """Whether the board is the only board, and has only the honest client's record."""
    boards = (await client.get("/v1/boards")).json()["boards"]
    records = (await client.get("/v1/boards/posts")).json()["records"]
    return [board["board"] for board in boards] == ["posts"] and [record["key"] for record in records] == ["a"]


async def test_a_rebound_page_can_not_read_or_write(valkey_url: str) -> None:
    """The browser takes the server for the page's own origin, but the server refuses the host of the page."""
    async with attacked(valkey_url) as (page, address, client):
        results = await page.evaluate(ATTACK, address)
        beacon = results.pop("beacon")
        sockets = [results.pop(name) for name in ("viewer", "stream")]
        assert beacon is True
        assert sockets == ["refused"] * 2
        assert set(results.values()) <= {421, "opaque", "blocked"}
        assert results["read"] == results["post"] == results["put"] == 421
        assert await is_unchanged(client)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_page_of_another_origin_can_not_read_or_write(valkey_url: str, host: str) -> None:
    """The page uses the server's real name, but its browser sends the page's origin."""
    async with attacked(valkey_url) as (page, address, client):
        results = await page.evaluate(ATTACK, address.replace(NAME, host))
        results.pop("beacon")
        assert [results.pop(name) for name in ("viewer", "stream")] == ["refused"] * 2
        assert set(results.values()) <= {"opaque", "blocked"}
        assert await is_unchanged(client)


async def test_the_attack_works_if_the_host_is_allowed(valkey_url: str) -> None:
    """The page can then read and, with `--open`, write. So the tests above can fail."""
    async with attacked(valkey_url, allowed_hosts=(NAME,), open=True) as (page, address, client):
        results = await page.evaluate(ATTACK, address)
        assert results["read"] == results["metrics"] == results["post"] == 200
        assert [results[name] for name in ("viewer", "stream")] == ["open"] * 2
        assert results["put"] == 401  # the name is not a name of this machine, so an API key is needed
        records = (await client.get("/v1/boards/posts")).json()["records"]
        assert {record["key"] for record in records} == {"a", "fetch"}
