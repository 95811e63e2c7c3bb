"""A full store refuses events, and everything that frees memory still works."""

import itertools
from pathlib import Path
from typing import Final

import httpx
import pytest

from live.domain.producer import Scope
from live.store.connection.client import connect
from live.store.registry.producers import ProducerStore
from tests.harness.server import ServerProcess
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.security]

BOARDS: Final = """
[[board]]
id = "short"
types = ["short"]
window = { rolling = "4s", slot = "1s" }
"""


@pytest.mark.slow
async def test_a_full_store_recovers(tmp_path: Path) -> None:
    """Although the store counts no event, slots expire and boards can be deleted. After that, events count again."""
    (tmp_path / "boards.toml").write_text(BOARDS)
    settings = fresh_settings(
        "", data_dir=tmp_path / "d", boards=tmp_path / "boards.toml", store_memory=16 * 1024**2, rate=0,
        rotation_step=2000,
    )  # fmt: skip
    server = ServerProcess(settings, tmp_path)
    server.start()
    store = connect(f"unix://{tmp_path / 'd' / 'valkey.sock'}", settings)
    _, secret = await ProducerStore(store).add("shop", Scope(verbs=("post", "admin")))
    headers = {"Authorization": f"Bearer shop.{secret}"}
    try:
        async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=180) as client:
            numbers = itertools.count()

            async def is_created() -> bool:
                return (await client.put("/v1/boards/big", json={"types": ["big"]})).status_code < 300

            await eventually(is_created)

            async def is_refused(kind: str) -> bool:
                """Send new members until they are refused."""
                for _ in range(50):
                    keys = [f"{kind}-{next(numbers)}-{'x' * 900}" for _ in range(200)]
                    response = await client.post("/v1/events", json=[{"key": member, "type": kind} for member in keys])
                    if response.status_code != 200:
                        assert response.status_code == 503
                        return bool(
                            response.json()["code"] == "store_unavailable"
                        )  # the first answers may say that the store is slow
                return False

            await client.post("/v1/events", json=[{"key": f"s{i}", "type": "short"} for i in range(1000)])
            await eventually(lambda: is_refused("big"), 60)

            async def is_empty() -> bool:
                return bool((await client.get("/v1/boards/short")).json()["rank_count"] == 0)

            await eventually(is_empty)
            assert (await client.get("/v1/boards/big?limit=1")).status_code == 200
            assert (await client.delete("/v1/boards/big")).status_code == 204

            async def is_counted() -> bool:
                response = await client.post("/v1/events", json={"key": "a", "type": "short"})
                return response.status_code == 200 and response.json()["accepted"] == 1

            await eventually(is_counted)
            assert (await client.get("/readyz")).status_code == 200
    finally:
        await store.aclose()
        server.stop()
