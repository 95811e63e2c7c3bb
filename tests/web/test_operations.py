"""For whoever operates the board."""

import re
from typing import Any

import httpx

from live.settings import Duration
from live.store.client import connect
from live.store.keys import Keys
from tests.support import StoreProcess, eventually, fresh_settings, post, rolling_board, run_server


async def test_health_is_of_the_process_and_readiness_of_the_board(own_store: StoreProcess) -> None:
    """Without a store the process lives but is not ready; when the store is back, it is."""
    settings = fresh_settings(own_store.url, store_timeout=Duration(0.3))
    async with run_server(settings, [rolling_board()]) as url, httpx.AsyncClient(base_url=url) as client:
        assert (await client.get("/readyz")).json() == {"status": "ready"}
        own_store.kill()
        away = await client.get("/readyz")
        assert (away.status_code, away.headers["retry-after"]) == (503, "2")
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        own_store.start()

        async def ready() -> bool:
            return (await client.get("/readyz")).status_code == 200

        await eventually(ready)


async def test_a_board_that_was_lost_is_not_ready(own_store: StoreProcess) -> None:
    """A store that forgot the board is not taken for an empty one: nothing is counted, the page is stale."""
    settings = fresh_settings(own_store.url)
    store: Any = connect(own_store.url, settings)
    async with run_server(settings, [rolling_board()]) as url, httpx.AsyncClient(base_url=url) as client:
        await post(client, {"key": "a"})
        await store.flushall()

        ready, counted, page = (
            await client.get("/readyz"),
            await client.post("/v1/events", json={"key": "a"}),
            await client.get("/boards/posts"),
        )
        assert [answer.status_code for answer in (ready, counted, page)] == [503, 503, 503]
        assert counted.json()["code"] == "epoch_lost"
        assert "Stale" in page.text
        assert await store.exists(Keys(settings.key_prefix, "posts").meta) == 0
    await store.aclose()


async def test_metrics_count_what_happens(valkey_url: str) -> None:
    """Accepted and refused events, by board and by code, and the size of script calls."""
    board = rolling_board(board="measured")
    async with run_server(fresh_settings(valkey_url), [board]) as url, httpx.AsyncClient(base_url=url) as client:
        before = (await client.get("/metrics")).text
        await post(client, {"key": "a"}, {"key": "b"}, {"key": ""})
        await client.post("/v1/events", content=b"x", headers={"Content-Type": "text/plain"})
        after = await client.get("/metrics")

        def value(text: str, sample: str) -> float:
            found = re.search(rf"^{re.escape(sample)} (\S+)$", text, re.MULTILINE)
            return float(found[1]) if found else 0.0

        def grown(sample: str) -> float:
            return value(after.text, sample) - value(before, sample)

        assert after.headers["content-type"].startswith("text/plain")
        assert grown('live_events_accepted_total{board="measured"}') == 2
        assert grown('live_events_rejected_total{code="key_invalid"}') == 1
        assert grown('live_problems_total{code="unsupported_media_type"}') == 1
        assert grown("live_commit_events_count") == 1
        assert grown("live_commit_events_sum") == 2
