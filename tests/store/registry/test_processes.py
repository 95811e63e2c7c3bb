"""The processes that share the work: each board has one owner, and other processes take over from an ended process."""

import asyncio
import re
from collections import Counter

import pytest

from live.errors import StoreUnavailableError
from live.store.board.keys import SystemKeys
from live.store.connection.client import connect
from live.store.registry.processes import BEAT, Processes, ProcessLease
from tests.harness.clock import set_clock
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually

BOARDS = [f"board-{number}" for number in range(400)]


def owners(processes: list[Processes]) -> list[int]:
    """The number of the process that owns each board."""
    found = []
    for board in BOARDS:
        (owner,) = [number for number, process in enumerate(processes) if process.owns(board)]
        found.append(owner)
    return found


async def ended(processes: list[Processes]) -> bool:
    """Whether the next beat of each process says that another process has ended. All processes must agree."""
    (answer,) = {beat.has_ended for beat in [await process.beat() for process in processes]}
    return answer


async def test_each_board_has_one_owner(any_store: str) -> None:
    """The processes share the boards.

    When a process ends, only its boards move. The other processes learn once that it has ended.
    """
    settings = fresh_settings(any_store)
    client = connect(any_store, settings)
    processes = [Processes(client) for _ in range(4)]
    assert all(process.owns(board) for process in processes for board in BOARDS), (
        "a process that has not reported yet owns not all boards"
    )
    for _ in range(2):
        assert not await ended(processes)
    before = owners(processes)
    assert min(Counter(before).values()) > len(BOARDS) / 8
    await processes.pop().leave()
    assert await ended(processes)
    assert not await ended(processes)
    after = owners(processes)
    assert [new for old, new in zip(before, after, strict=True) if old != 3] == [old for old in before if old != 3]
    await client.aclose()


async def test_a_silent_process_has_ended(any_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next beat of another process drops its record, and the last record expires."""
    monkeypatch.setattr("live.store.registry.processes._TTL_MS", 200)
    settings = fresh_settings(any_store)
    client = connect(any_store, settings)
    silent, other = Processes(client), Processes(client)
    await silent.beat()
    await other.beat()
    assert not all(other.owns(board) for board in BOARDS)

    async def is_noticed() -> bool:
        return (await other.beat()).has_ended

    await eventually(is_noticed)
    assert all(other.owns(board) for board in BOARDS)

    async def is_gone() -> bool:
        return not await client.exists(SystemKeys(settings.key_prefix).processes)

    await eventually(is_gone)
    await client.aclose()


async def test_processes_report_the_version_that_they_run(any_store: str) -> None:
    """A change has arrived everywhere when no live process reports an earlier version. Beats repeat the report."""
    settings = fresh_settings(any_store)
    client = connect(any_store, settings)
    one, other, new = (Processes(client) for _ in range(3))
    assert await one.all_run("9")
    await new.beat()
    assert await one.all_run("9"), "the process waits for a process that has reported no version"
    assert await other.all_run("9")
    assert not await other.all_run("10")
    await one.beat()
    assert not await other.all_run("10")
    assert await one.all_run("10")
    assert await other.all_run("10")
    assert not await one.all_run("11")
    await other.leave()
    assert await one.all_run("11")
    await client.aclose()


@pytest.mark.one_server
async def test_a_clock_that_is_set_is_noticed(any_store: str) -> None:
    """The process notices a change of the clock once, in either direction."""
    settings = fresh_settings(any_store)
    client = connect(any_store, settings)
    own_clock = BEAT.changed(
        BEAT.source.replace("redis.call('TIME')", f"redis.call('LRANGE', '{settings.key_prefix}:time', 0, -1)")
    )
    process = Processes(client, beat=own_clock)
    for hour, was_set in ((0, False), (1, True), (1, False), (0, True), (0, False)):
        await set_clock(client, settings, hour * 3_600_000)
        assert (await process.beat()).was_set is was_set
    await client.aclose()


@pytest.mark.slow
async def test_one_process_holds_the_lease(any_store: str) -> None:
    """The first process renews the lease each time it asks.

    When it stops asking, another process gets the lease for good.
    """
    settings = fresh_settings(any_store)
    client = connect(any_store, settings)
    leases = [ProcessLease(client, f"{settings.key_prefix}:{{:lease}}", 1.5) for _ in range(3)]
    for _ in range(7):
        assert [await lease.take() for lease in leases] == [True, False, False]
        await asyncio.sleep(0.3)

    async def second() -> bool:
        return await leases[1].take()

    await eventually(second)
    assert [await lease.take() for lease in leases] == [False, True, False]
    await client.aclose()


async def test_a_lease_names_its_process_with_16_digits(valkey_url: str) -> None:
    """So two processes never have the same name, and the name stays short."""
    settings = fresh_settings(valkey_url)
    client = connect(valkey_url, settings)
    key = f"{settings.key_prefix}:{{:lease}}"
    assert await ProcessLease(client, key).take()
    name = (await client.call(key, "GET", key)).decode()
    await client.aclose()
    assert re.fullmatch("[0-9a-f]{16}", name)


async def test_without_a_store_nobody_holds_the_lease(own_store: StoreProcess) -> None:
    """Without the store, no process knows who holds the lease."""
    settings = fresh_settings(own_store.url)
    client = connect(own_store.url, settings)
    own_store.kill()
    with pytest.raises(StoreUnavailableError):
        await ProcessLease(client, f"{settings.key_prefix}:{{:lease}}").take()
    await client.aclose()
