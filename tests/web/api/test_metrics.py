"""The metrics: what they count, and that nothing stays of deleted boards."""

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from tests.harness.boards import rolling_board
from tests.harness.producer import post
from tests.harness.server import ServerProcess, run_server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually

pytestmark = pytest.mark.slow


async def test_metrics_count_requests_by_route_and_status(valkey_url: str) -> None:
    """The fast path and the routes name the template of the route, never the path that a client chose.

    Requests of viewers have no duration.
    """
    board, other = rolling_board(board="counted"), ("GET", "/healthz")
    asked = [
        ("POST", "/v1/events"), ("GET", "/v1/boards/counted"), ("GET", "/v1/boards/counted?limit=1&period=x"),
        ("GET", "/v1/boards/counted/records/a"), ("GET", "/v1/boards/counted/records/a/slots"),
        ("GET", "/boards/counted"), ("GET", "/v1/bords"), ("DELETE", "/v1/events"), ("BREW", "/healthz"),
        ("GET", "/client/none.js"), other, other,
    ]  # fmt: skip
    expected = {
        ("POST /v1/events", 200): 1, ("GET /v1/boards/{board}", 200): 1, ("GET /v1/boards/{board}", 400): 1,
        ("GET /v1/boards/{board}/records/{key}", 200): 1, ("GET /v1/boards/{board}/records/{key}/slots", 200): 1,
        ("GET /boards/{board}", 200): 1, ("GET /client", 404): 1, ("GET /healthz", 200): 2, ("other", 404): 1,
        ("other", 405): 1, ("other", 400): 1,
    }  # fmt: skip

    async def counted(client: httpx.AsyncClient) -> dict[tuple[str, int], int]:
        text = (await client.get("/metrics")).text
        lines = re.findall(r'^live_request_seconds_count{route="(.+)",status="(\d+)"} (.+)$', text, re.MULTILINE)
        buckets = re.findall(r'_seconds_bucket{le="\+Inf",route="(.+)",status="(\d+)"} (.+)$', text, re.MULTILINE)
        assert sorted(lines) == sorted(buckets)
        return {(route, int(status)): int(float(count)) for route, status, count in lines if "metrics" not in route}

    async with run_server(fresh_settings(valkey_url), [board]) as url, httpx.AsyncClient(base_url=url) as client:
        before = await counted(client)
        async with client.stream("GET", "/v1/boards/counted/stream") as viewing:
            await anext(viewing.aiter_lines())
        for method, path in asked:
            await client.request(method, path, json={"key": "a"} if method == "POST" else None)

        async def are_counted() -> bool:
            found = await counted(client)
            more = {name: count - before.get(name, 0) for name, count in found.items()}
            return {name: count for name, count in more.items() if count} == expected

        await eventually(are_counted)
        text = (await client.get("/metrics")).text
        queues = re.findall(r'^live_queue_length{queue="(.+)"} 0.0$', text, re.MULTILINE)
        assert {"events", "bodies", "boards", "pages"} <= set(queues)


async def test_metrics_count_events(valkey_url: str) -> None:
    """The metrics count accepted and refused events by board and code, and the events of each commit."""
    board = rolling_board(board="measured")
    async with run_server(fresh_settings(valkey_url), [board]) as url, httpx.AsyncClient(base_url=url) as client:
        before = (await client.get("/metrics")).text
        await post(client, {"key": "a"}, {"key": "b"}, {"key": ""})
        await client.post("/v1/events", content=b"x", headers={"Content-Type": "text/plain"})

        async def changed() -> httpx.Response | None:
            response = await client.get("/metrics")  # a process keeps this answer for a second
            return None if response.text == before else response

        after: httpx.Response = await eventually(changed)

        def value(text: str, sample: str) -> float:
            found = re.search(rf"^{re.escape(sample)} (\S+)$", text, re.MULTILINE)
            return float(found[1]) if found else 0.0

        def growth_of(sample: str) -> float:
            return value(after.text, sample) - value(before, sample)

        assert after.headers["content-type"].startswith("text/plain")
        assert growth_of('live_events_accepted_total{board="measured"}') == 2
        assert growth_of('live_events_rejected_total{code="key_invalid"}') == 1
        assert growth_of('live_problems_total{code="unsupported_media_type"}') == 1
        assert growth_of("live_commit_events_count") == 1
        assert growth_of("live_commit_events_sum") == 2


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
async def test_metrics_of_deleted_boards_are_removed(valkey_url: str, tmp_path: Path, workers: int) -> None:
    """A hundred created and deleted boards leave no series, in one process and in several."""
    settings = fresh_settings(valkey_url, workers=workers, anonymous_admin=True)
    server = ServerProcess(settings, tmp_path)
    server.start()
    try:
        async with httpx.AsyncClient(base_url=server.url, timeout=180) as client:
            metrics = ("live_events_accepted_total", "live_viewers", "live_rotation_lag_seconds")

            async def complete() -> set[str] | None:
                found = await series(client)
                return found if found >= {f'{metric}{{board="posts"}}' for metric in metrics} else None

            before: set[str] = await eventually(complete)
            await create_and_delete_boards(client, [f"gone{number}" for number in range(100)])

            async def are_removed() -> bool:
                return await series(client) == before

            await eventually(are_removed)
    finally:
        server.stop()


async def create_and_delete_boards(client: httpx.AsyncClient, names: list[str]) -> None:
    """Create boards, post to each until all are in the metrics, and delete them."""
    for name in names:
        assert (await client.put(f"/v1/boards/{name}", json={"types": ["kiss"]})).status_code == 201

    async def counted() -> bool:
        await post(client, {"type": "kiss", "key": "a"})
        text = (await client.get("/metrics")).text
        return all(f'live_events_accepted_total{{board="{name}"}}' in text for name in names)

    await eventually(counted)
    for name in names:
        assert (await client.delete(f"/v1/boards/{name}")).status_code == 204


async def series(client: httpx.AsyncClient) -> set[str]:
    """The series with a board label."""
    text = (await client.get("/metrics")).text
    return {line.rpartition(" ")[0] for line in text.splitlines() if "board=" in line}


async def test_metrics_say_how_full_the_disk_and_the_store_are(own_store: StoreProcess) -> None:
    """A store without a limit of memory is never full."""
    client: Any = redis.Redis.from_url(own_store.url)

    async def shown(client: httpx.AsyncClient) -> tuple[float, float]:
        text = (await client.get("/metrics")).text
        disk, memory = (
            float(re.findall(rf"^live_{what}_used_ratio (.+)$", text, re.MULTILINE)[0])
            for what in ("disk", "store_memory")
        )
        return disk, memory

    for limit in (0, 2**30):
        client.config_set("maxmemory", limit)
        used = int(client.info("memory")["used_memory"])
        async with (
            run_server(fresh_settings(own_store.url), [rolling_board()]) as url,
            httpx.AsyncClient(base_url=url) as browser,
        ):

            async def is_measured(client: httpx.AsyncClient = browser, limit: int = limit, used: int = used) -> bool:
                disk, memory = await shown(client)
                return 0 < disk < 1 and (memory == 0 if not limit else used / limit / 2 < memory < 1)

            await eventually(is_measured)
