"""Faults on real servers: kills, freezes, lost answers, concurrent rotators.

Some tests are repeated with a mutant that they must detect.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from live.domain.event import make_entry
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.board.requests import SCRIPTS, RotateRequest, Scripts
from live.store.connection.client import connect
from tests.harness.boards import open_ledger, rolling_board
from tests.harness.folded import Folded
from tests.harness.invariants import drifted
from tests.harness.mutation import compiled, mutated
from tests.harness.producer import post
from tests.harness.server import ServerProcess, run_server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually

pytestmark = pytest.mark.fault

FAST_BOARD = '[[board]]\nid = "posts"\nwindow = {rolling = "2s", slot = "1s"}\n'


class NaiveScripts:
    """Scripts with a naive rotation: it reads the slot, subtracts members one by one, and deletes the slot."""

    def __init__(self) -> None:
        self.rotate = self
        right = Scripts()
        self.add, self.open, self.create, self.read = right.add, right.open, right.create, right.read
        self.expire_events, self.rotate_period = right.expire_events, right.rotate_period

    async def __call__(self, client: Any, keys: list[str], _request: RotateRequest) -> list[bytes]:
        """Take the place of the `rotate` script."""
        ranking, _, _, meta, slots, *_ = keys
        seconds, _ = await client.time()
        due = await client.zrangebyscore(slots, "-inf", f"({int(seconds) - 2}", start=0, num=1)
        if not due:
            return [b"idle", b"100"]
        slot = f"{ranking.removesuffix('ranking')}slot:{due[0].decode()}"
        values = await client.hgetall(slot)
        for member, value in values.items():
            if await client.zincrby(ranking, -int(value), member) <= 0:
                await client.zrem(ranking, member)
            await client.hincrby(meta, "total", -int(value))
        await client.delete(slot)
        await client.zrem(slots, due[0])
        await client.hincrby(meta, "offset", 1)
        await client.execute_command("SPUBLISH", meta.removesuffix(":meta"), "changed")
        return [b"moved", b"1", b"0"]


async def drift_under_load(store: str, scripts: Scripts, seconds: float = 6.0, least: int = 50) -> int:
    """Add with eight writers and rotate with two processes, for at least so many seconds and checks.

    Return the number of inconsistencies.
    """
    settings = fresh_settings(store, rotation_step=8)
    board = rolling_board("2s", "1s")
    client: Any = connect(store, settings)
    end = asyncio.get_running_loop().time() + seconds
    ledgers = [Ledger(client, board, settings, scripts) for _ in range(8)]
    await ledgers[0].state.open()
    checks = inconsistent = 0

    def goes_on() -> bool:
        return checks < least or asyncio.get_running_loop().time() < end

    async def write(ledger: Ledger, seed: int) -> None:
        chance = random.Random(seed)
        while goes_on():
            await ledger.writer.add(
                [make_entry(f"k{chance.randrange(60)}", chance.randint(1, 3), None) for _ in range(20)]
            )
            await asyncio.sleep(0.002)

    async def rotate() -> None:
        ledger = Ledger(client, board, settings, scripts)
        while goes_on():
            wait = await ledger.rotator.rotate()
            await asyncio.sleep(0 if wait is None else min(wait, 0.02))

    async def check() -> None:
        nonlocal checks, inconsistent
        while goes_on():
            checks += 1
            inconsistent += bool(await drifted(client, ledgers[0].state.keys))
            await asyncio.sleep(0.01)

    await asyncio.gather(*(write(ledger, seed) for seed, ledger in enumerate(ledgers)), rotate(), rotate(), check())
    await client.aclose()
    return inconsistent


async def test_two_rotators_and_eight_writers_never_drift(any_store: str) -> None:
    """The board is consistent at every instant, not only at the end."""
    assert await drift_under_load(any_store, Scripts()) == 0


async def test_a_naive_rotation_is_detected(valkey_url: str) -> None:
    """The test above fails for a rotation in separate steps."""
    inconsistent = await drift_under_load(valkey_url, NaiveScripts())  # type: ignore[arg-type]

    assert inconsistent > 0


async def likes(url: str, acknowledged: Counter[str], stop: asyncio.Event, seed: int) -> None:
    """Post single likes until stopped, and count the acknowledged likes by member."""
    chance = random.Random(seed)
    async with httpx.AsyncClient(base_url=url, timeout=5) as client:
        while not stop.is_set():
            member = f"k{chance.randrange(200)}"
            with suppress(httpx.TransportError):
                response = await client.post("/v1/events", json={"key": member})
                if response.status_code == 200 and response.json()["accepted"]:
                    acknowledged[member] += 1


@pytest.fixture
async def rotating(valkey_url: str, tmp_path: Path) -> AsyncIterator[tuple[list[ServerProcess], Any, Keys]]:
    """Two servers with a two-second board, and a client of their store. No server is left if the test fails."""
    boards = tmp_path / "boards.toml"
    boards.write_text(FAST_BOARD, encoding="utf-8")
    settings = fresh_settings(valkey_url, boards=boards, rotation_step=5)
    servers = [ServerProcess(settings, tmp_path) for _ in range(2)]
    client = connect(valkey_url, settings)
    try:
        for server in servers:
            server.start()
        yield servers, client, Keys(settings.key_prefix, "posts")
    finally:
        for server in servers:
            if server.process is not None:
                server.kill()
        await client.aclose()


async def test_servers_rotate_under_load(rotating: tuple[list[ServerProcess], Any, Keys]) -> None:
    """Two servers rotate a two-second board while eight producers post: it is always consistent, and finally empty."""
    servers, client, keys = rotating
    acknowledged: Counter[str] = Counter()
    stop = asyncio.Event()
    producing = [asyncio.create_task(likes(servers[seed % 2].url, acknowledged, stop, seed)) for seed in range(8)]
    checks = 0
    end = asyncio.get_running_loop().time() + 6
    while checks <= 20 or asyncio.get_running_loop().time() < end:  # on a busy machine, each check takes longer
        assert await drifted(client, keys) == []
        checks += 1
        await asyncio.sleep(0.01)
    stop.set()
    await asyncio.gather(*producing)

    async def empty() -> bool:
        return int(await client.zcard(keys.ranking)) == 0

    assert acknowledged.total() > 100
    await eventually(empty)  # the servers subtract expired slots without new events
    assert await drifted(client, keys) == []
    for server in servers:
        assert server.stop() == 0


async def test_a_server_can_be_killed_during_a_rotation(tmp_path: Path) -> None:
    """`kill -9` between two steps leaves a consistent board. The next server finishes the slot, and nothing is lost."""
    boards = tmp_path / "boards.toml"
    boards.write_text(FAST_BOARD, encoding="utf-8")
    data = tmp_path / "d"
    settings = fresh_settings("", boards=boards, data_dir=data, rotation_step=1)
    url = f"unix://{data / 'valkey.sock'}"
    keys = Keys(settings.key_prefix, "posts")
    server = ServerProcess(settings, tmp_path)
    middle = 0
    for _ in range(4):
        server.start()
        client = connect(url, settings)
        async with httpx.AsyncClient(base_url=server.url, timeout=10) as producer:
            await post(producer, *({"key": f"k{i}", "amount": i + 1} for i in range(1000)))

        async def leaving(client: Any = client) -> bool:
            return 0 < int(await client.zcard(keys.ranking)) < 900

        await eventually(leaving)
        server.kill()
        await client.aclose()
        server = ServerProcess(settings, tmp_path)
        server.start()
        client = connect(url, settings)
        middle += int(await client.zcard(keys.ranking)) > 0
        assert await drifted(client, keys) == []

        async def empty(client: Any = client) -> bool:
            return int(await client.zcard(keys.ranking)) == 0

        await eventually(empty)
        assert await drifted(client, keys) == []
        assert server.stop() == 0
        await client.aclose()
    assert middle, "no kill hit the middle of a rotation"


async def test_no_acknowledged_event_is_lost_when_the_store_is_killed(own_store: StoreProcess, effort: int) -> None:
    """After five or more kills of the store, it has every acknowledged like, and the board is consistent."""
    settings = fresh_settings(own_store.url, write_deadline=0.5, store_timeout=0.3)
    client: Any = connect(own_store.url, fresh_settings(own_store.url))
    acknowledged: Counter[str] = Counter()
    stop = asyncio.Event()
    async with run_server(settings, [rolling_board()]) as url:
        producing = [asyncio.create_task(likes(url, acknowledged, stop, seed)) for seed in range(8)]
        for _ in range(5 * effort):
            before = acknowledged.total()

            async def some(before: int = before) -> bool:
                return acknowledged.total() > before + 50

            await eventually(some)
            own_store.kill()
            own_store.start()
        stop.set()
        await asyncio.gather(*producing)
        keys = Keys(settings.key_prefix, "posts")
        held = {
            member.decode(): int(score) for member, score in await client.zrange(keys.ranking, 0, -1, withscores=True)
        }
        assert all(held.get(member, 0) >= count for member, count in acknowledged.items())
        assert await drifted(client, keys) == []
    await client.aclose()


async def test_an_unavailable_store_is_answered_with_503(own_store: StoreProcess) -> None:
    """While the store is frozen, POST returns 503 with Retry-After in time. Afterwards everything works again."""
    # With a rate, a POST may ask the store for credit first, and then nothing of it was counted.
    settings = fresh_settings(own_store.url, write_deadline=1, store_timeout=0.4, rate=0)
    async with (
        run_server(settings, [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url, timeout=10) as client,
    ):
        await post(client, {"key": "a"})
        with own_store.frozen():
            answers = await asyncio.gather(
                client.post("/v1/events", json={"key": "b"}), client.get("/v1/boards/posts"), client.get("/readyz"),
                client.get("/boards/posts"), client.get("/"),
            )  # fmt: skip
            assert [answer.status_code for answer in answers] == [503, 503, 503, 503, 200]
            assert all(int(answer.headers["Retry-After"]) >= 1 for answer in answers[:4])
            assert answers[0].json()["code"] == "outcome_unknown"  # the store may still execute the command
            assert (await client.get("/healthz")).status_code == 200

        async def counts() -> bool:
            return (await client.post("/v1/events", json={"key": "c"})).status_code == 200

        await eventually(counts)
        assert (await client.get("/v1/boards/posts/records/a")).json()["score"] == 1


@asynccontextmanager
async def swallowing_proxy(store: Path, folder: Path, swallow: int) -> AsyncIterator[tuple[str, list[int]]]:
    """A proxy that forwards commands, and drops the first `swallow` answers to `add` with their connections."""
    swallowed = [0]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_unix_connection(str(store))
        adding = False

        async def back() -> None:
            while answer := await upstream_reader.read(65536):
                if adding and swallowed[0] < swallow:
                    swallowed[0] += 1
                    break
                writer.write(answer)
            writer.close()

        returning = asyncio.create_task(back())
        with suppress(ConnectionError):
            while command := await reader.read(1 << 20):
                adding = (
                    b"EVALSHA" in command
                    and b":writers" in command
                    and b"sequence" in command
                    and b"{posts}" in command
                )
                upstream_writer.write(command)
        upstream_writer.close()
        await returning

    path = folder / "proxy.sock"
    server = await asyncio.start_unix_server(serve, str(path))
    try:
        yield f"unix://{path}", swallowed
    finally:
        server.close()


async def count_through_lost_answers(store: StoreProcess, folder: Path, scripts: Scripts) -> list[int]:
    """Count one like while the answers to three attempts are lost; returns its score in the store and its journal."""
    settings = fresh_settings(store.url, write_deadline=5, journal="sqlite")
    ready: Any = connect(store.url, settings)
    opened = Ledger(ready, rolling_board(), settings, scripts)
    await opened.state.open()
    async with swallowing_proxy(store.path, folder, 3) as (url, swallowed):
        client: Any = connect(url, settings)
        ledger = Ledger(client, rolling_board(), settings, scripts)
        ledger.state.epoch, ledger.state.clock = opened.state.epoch, opened.state.clock
        ledger.state.buckets = opened.state.buckets
        await ready.script_load(scripts.add.source)  # the store knows the script, so one call is one command
        await ledger.writer.add([make_entry("a", 1, None)])
        assert swallowed == [3]
        await client.aclose()
    score = await ready.zscore(ledger.state.keys.ranking, "a")
    folded = Folded(ready, ledger.state.keys, ledger.state.epoch or "")
    await folded.read()
    await ready.aclose()
    return [int(score or 0), *(slot["a"] for slot in folded.contents.slots.values())]


async def test_a_lost_answer_counts_once(own_store: StoreProcess, tmp_path: Path) -> None:
    """The like counts once, because the writer retries with the same batch number."""
    assert await count_through_lost_answers(own_store, tmp_path, Scripts()) == [1, 1]


async def test_a_retry_without_a_batch_number_is_detected(own_store: StoreProcess, tmp_path: Path) -> None:
    """The test above fails for a script that ignores the batch number."""
    wrong = {
        "if sequence == request.sequence then": "if false then",
        "if sequence > request.sequence": "if false",
    }
    mutant = compiled(own_store.url, SCRIPTS.add.changed(mutated(SCRIPTS.add.source, wrong)))

    assert await count_through_lost_answers(own_store, tmp_path, Scripts(add=mutant)) == [4, 4]


async def test_a_frozen_store_that_resumes_counts_no_batch_twice(own_store: StoreProcess) -> None:
    """When the store resumes, it executes the attempts that the writer has given up.

    Each acknowledged batch counts once.
    """
    async with open_ledger(own_store.url, rolling_board(), store_timeout=0.5, write_deadline=10) as led:
        await led.writer.add([make_entry("a", 1, None)])
        with own_store.frozen():
            adding = asyncio.create_task(led.writer.add([make_entry("a", 1, None)]))
            await asyncio.sleep(1.6)  # the store's sockets now hold several attempts
            assert not adding.done()
        await adding
        # The store executes this event after the abandoned attempts.
        later = await led.writer.add([make_entry("b", 1, None)])

        page = await led.reader.read(2)
        assert [(record.member, record.score) for record in page.records] == [("a", 2), ("b", 1)]
        assert page.offset == later.offset == 3
