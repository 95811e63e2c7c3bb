"""A real Prometheus with the documented configuration: its rules work on real metrics, and alerts begin."""

import asyncio
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml  # type: ignore[import-untyped]
from websockets.asyncio.client import connect

from tests.harness.admin import add_key
from tests.harness.boards import rolling_board
from tests.harness.mutation import must_be_caught
from tests.harness.network import free_port
from tests.harness.server import run_server
from tests.harness.service import OPS, ROOT
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import DEADLINE, eventually

PROMETHEUS: Final = shutil.which("prometheus")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.fault,
    pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed"),
]

PAGE: Final = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
JOB: Final = "live-board"


class Prometheus:
    """A client of a running Prometheus."""

    def __init__(self, url: str) -> None:
        self._client = httpx.AsyncClient(base_url=url, timeout=DEADLINE)

    async def rules(self) -> dict[str, dict[str, Any]]:
        """The alerts by their names; none while Prometheus starts."""
        groups = (await self._get("/api/v1/rules")).get("groups", [])
        return {rule["name"]: rule for group in groups for rule in group["rules"]}

    async def until_evaluated(self) -> None:
        """Wait until each rule is evaluated without an error, and the server is up."""

        async def is_done() -> bool:
            health = {rule["health"] for rule in (await self.rules()).values()}
            up = await self._get("/api/v1/query", query=f'up{{job="{JOB}"}} == 1')
            return health == {"ok"} and bool(up.get("result"))

        await eventually(is_done)

    async def _get(self, path: str, **parameters: str) -> dict[str, Any]:
        """The data of an answer; nothing while Prometheus starts."""
        try:
            answer = await self._client.get(path, params=parameters)
        except httpx.TransportError:
            return {}
        found: dict[str, Any] = answer.json()["data"] if answer.status_code == 200 else {}
        return found

    async def until(self, name: str, state: str) -> None:
        """Wait until an alert has a state."""

        async def has_state() -> bool:
            return bool((await self.rules()).get(name, {}).get("state") == state)

        await eventually(has_state)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


@asynccontextmanager
async def running(folder: Path, url: str, key: str, job: str) -> AsyncIterator[Prometheus]:
    """Run Prometheus with the configuration of the documentation, but look at the server each second."""
    (block,) = re.findall(r"^```yaml\n(rule_files:\n.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    shutil.copy(OPS / "alerts.yml", folder)
    secret = folder / "live-board.key"
    secret.write_text(key, encoding="ascii")
    text = block.replace("/etc/prometheus/live-board.key", str(secret))
    made = yaml.safe_load(text.replace("127.0.0.1:8000", url.removeprefix("http://")))
    made["scrape_configs"][0]["job_name"] = made["scrape_configs"][0]["job_name"].replace(JOB, job)
    made["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(made), encoding="utf-8")
    assert PROMETHEUS is not None
    place = f"127.0.0.1:{free_port()}"
    with (folder / "log").open("wb") as log:
        process = await asyncio.to_thread(
            subprocess.Popen,
            [PROMETHEUS, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address={place}"],
            stdout=log, stderr=log,
        )  # fmt: skip
    client = Prometheus(f"http://{place}")
    try:
        yield client
    finally:
        await client.aclose()
        process.kill()
        await asyncio.to_thread(process.wait, DEADLINE)


async def observe(store: StoreProcess, folder: Path, *, job: str = JOB) -> None:
    """Let Prometheus look at a server whose store freezes, and which ends. The alerts must begin."""
    settings = fresh_settings(store.url, port=free_port(), metrics="key", open=True)
    key = await add_key(settings, "prometheus", verbs=("read",))
    async with running(folder, f"http://127.0.0.1:{settings.port}", key, job) as prometheus:
        async with run_server(settings, [rolling_board()]) as url:
            await prometheus.until_evaluated()
            await prometheus.until("LiveBoardDown", "inactive")
            await prometheus.until("LiveBoardStoreStale", "inactive")
            async with connect(f"{url.replace('http', 'ws')}/v1/boards/posts/live") as viewer:
                await viewer.recv()
                with store.frozen():
                    await prometheus.until("LiveBoardStoreStale", "pending")
                await prometheus.until("LiveBoardStoreStale", "inactive")
        await prometheus.until("LiveBoardDown", "pending")


async def test_rules_work_on_the_metrics_of_a_server(own_store: StoreProcess, tmp_path: Path) -> None:
    """Prometheus evaluates each rule. It sees a store that is away, that it is back, and a server that ends."""
    await observe(own_store, tmp_path)


@pytest.mark.mutant
async def test_another_name_of_the_job_is_noticed(own_store: StoreProcess, tmp_path: Path) -> None:
    """The rules name the job."""
    with must_be_caught("the job has another name than in the rules"):
        await observe(own_store, tmp_path, job="boards")
