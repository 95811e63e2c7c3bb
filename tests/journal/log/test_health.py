"""`/readyz` and the metrics report the state of the journal, while the server continues."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import httpx
import msgspec
import pytest

from live.domain.event import make_entry
from live.journal.log.health import HealthReport
from live.metrics import REGISTRY
from live.settings import Settings
from live.store.board.journal_stream import claim_sink, journals, read_streams
from live.store.board.keys import SystemKeys
from live.store.board.ledger import Ledger
from live.store.connection.client import connect, required
from live.store.registry.journals import JournalHealth, faults_of
from tests.harness.boards import rolling_board
from tests.harness.journaled import journaled
from tests.harness.postgres import Postgres, has_postgres, running_postgres
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.tasks import stop
from tests.harness.waiting import eventually

WITH_POSTGRES: Final = pytest.mark.skipif(
    not has_postgres(), reason="needs a PostgreSQL server: apt-get install postgresql"
)


@pytest.mark.parametrize(
    ("health", "fault", "reasons"),
    [
        (None, None, ["no process moves the journals to SQL"]),
        (None, b"the disk is full", ["the disk is full"]),
        (JournalHealth(lag=9.0, most=100), None, []),
        (JournalHealth(lag=12.4, waiting=5000), None, ["SQL is 12 s behind; 5,000 bytes wait in the store"]),
        (JournalHealth(fullest="a", most=950), None, ["board a soon takes no events: 950 bytes of its journal wait"]),
        (JournalHealth(fullest="a", most=1000), None, ["board a takes no events: 1,000 bytes of its journal wait"]),
    ],
)
def test_reasons_are_sentences(health: JournalHealth | None, fault: bytes | None, reasons: list[str]) -> None:
    """Each reason says what is wrong."""
    assert faults_of(None if health is None else msgspec.json.encode(health), fault, 1000) == reasons


class Watched:
    """A server with a journal."""

    def __init__(self, settings: Settings, client: httpx.AsyncClient) -> None:
        self.settings = settings
        self.client = client

    async def reasons(self) -> list[str]:
        """The problems of the journal. The server is ready anyway."""
        answer = await self.client.get("/readyz")
        assert answer.status_code == 200
        found = answer.json()
        assert found["status"] == "ready"
        assert (found["journal"] == "ok") is (found["reasons"] == [])
        return list(found["reasons"])

    async def has(self, reason: str) -> bool:
        """Whether a reason contains a text."""
        return any(reason in one for one in await self.reasons())


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """One PostgreSQL server for all tests of this file."""
    with running_postgres() as server:
        yield server


@WITH_POSTGRES
async def test_a_server_is_ready_while_sql_is_unavailable(valkey_url: str, tmp_path: Path, postgres: Postgres) -> None:
    """The response says why the journal is degraded, and when it works again."""
    settings = fresh_settings(valkey_url, journal=postgres.url, data_dir=tmp_path)
    async with run_server(settings, [rolling_board()]) as url, httpx.AsyncClient(base_url=url) as client:
        watched = Watched(settings, client)

        async def is_well() -> bool:
            return await watched.reasons() == []

        await eventually(is_well)
        postgres.kill()
        await post(client, {"key": "a"})
        await eventually(lambda: watched.has("the journal's database fails"))
        await post(client, {"key": "a"})
        postgres.start()
        await eventually(is_well)


async def test_a_database_that_is_not_the_sink_is_named(valkey_url: str, tmp_path: Path) -> None:
    """The journals of the store go into another database."""
    settings = fresh_settings(valkey_url, journal="sqlite", data_dir=tmp_path)
    store: Any = connect(valkey_url, settings)
    await claim_sink(store, "another")
    async with run_server(settings, [rolling_board()]) as url, httpx.AsyncClient(base_url=url) as client:
        watched = Watched(settings, client)
        assert await eventually(lambda: watched.has("go into the database another"))
    await store.aclose()


async def test_a_server_without_a_drainer_says_so(valkey_url: str, tmp_path: Path) -> None:
    """All servers have the role `viewers`, which moves no entries to SQL."""
    settings = fresh_settings(valkey_url, journal="sqlite", data_dir=tmp_path, role="viewers")
    async with run_server(settings, [rolling_board()]) as url, httpx.AsyncClient(base_url=url) as client:
        assert await Watched(settings, client).reasons() == ["no process moves the journals to SQL"]


async def test_nothing_waits_while_sql_keeps_up(valkey_url: str, tmp_path: Path) -> None:
    """The drainer does not ask the store how many bytes wait."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a")
        drainer = await board.drainer()
        await drainer.sweep()
        drainer._health.mark_drained(time.monotonic())
        await drainer._health.publish()
        stored = await board.client.get(SystemKeys(board.settings.key_prefix).journal_health)
        found = msgspec.json.decode(cast("bytes", stored), type=JournalHealth)
        assert (found.waiting, found.fullest, found.most) == (0, "", 0)


async def test_the_backlog_is_measured_rarely_and_only_while_sql_is_behind(valkey_url: str, tmp_path: Path) -> None:
    """The board with the most bytes is named. A reason that concerns no board is published as a fault."""
    async with journaled(valkey_url, tmp_path, is_defined=False) as board:
        prefix = board.settings.key_prefix
        names = SystemKeys(prefix)
        report = HealthReport(board.client)

        async def published() -> JournalHealth:
            await report.publish()
            stored = await board.client.call(names.journal_health, "GET", names.journal_health)
            return msgspec.json.decode(stored, type=JournalHealth)

        report._drained -= 20
        assert ((await published()).waiting, (await published()).fullest, (await published()).most) == (0, "", 0)
        await board.like("a")
        await Ledger(board.client, rolling_board(board="full"), board.settings).writer.add([make_entry("b" * 200)])
        assert (await published()).waiting == 0, "the backlog was measured again too soon"
        report._measured -= 60
        found = await published()
        streams = required(await read_streams(board.client, listed := await journals(board.client)))
        sizes = {name: stream.waiting for (name, _), stream in zip(listed, streams, strict=True)}
        assert (found.waiting, found.fullest, found.most) == (sum(sizes.values()), "full", sizes["full"])
        assert found.lag == pytest.approx(20, abs=9)
        assert min(sizes.values()) > 0
        report.delayed = {("x", "e"): "it is slow", ("y", "e"): "it is away"}
        report.lost, report.sql_away = {("z", "e"): "z is lost"}, True
        report.waits["list"] = "no list"
        found = await published()
        assert (found.delayed, found.why) == (2, "the journal of board x waits: it is slow")
        assert (found.lost, found.example, found.sql_away) == (1, "z is lost", True)
        assert await board.client.call(names.journal_fault, "GET", names.journal_fault) == b"no list"
        assert REGISTRY.get_sample_value("live_journal_lag_seconds") == pytest.approx(20, abs=9)
        report.mark_drained(time.monotonic() - 3)
        assert REGISTRY.get_sample_value("live_journal_lag_seconds") == pytest.approx(3, abs=2)
        found = await published()
        assert (found.waiting, found.fullest, found.most, found.sql_away) == (0, "", 0, False)


async def test_a_full_backlog_and_a_gap_are_reported(valkey_url: str, tmp_path: Path) -> None:
    """The reason names the board."""
    async with journaled(valkey_url, tmp_path) as board:
        names = SystemKeys(board.settings.key_prefix)

        async def reasons() -> list[str]:
            health, fault = cast("Any", await board.client.mget(names.journal_health, names.journal_fault))
            return faults_of(health, fault, 100)

        await board.like("a")
        drainer = await board.drainer()
        assert await drainer.database.take()
        health = drainer._health
        health.writes, health._drained = True, health._drained - 20
        await health.publish()
        (late, full) = await reasons()
        assert late.startswith("SQL is 20 s behind")
        assert full.startswith("board posts ")
        await board.client.xtrim(board.ledger.state.journal, maxlen=0, approximate=False)
        await board.like("b")
        running = asyncio.create_task(drainer.run())

        async def is_even() -> bool:
            return not await reasons()

        await eventually(is_even)
        await stop(running)
