"""A process lease: one process at a time holds it, and another one when that process has ended."""

import asyncio

import pytest

from live.errors import StoreUnavailableError
from live.store.connection.client import connect
from live.store.registry.processes import ProcessLease
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually


@pytest.mark.slow
async def test_one_process_holds_the_lease(any_store: str) -> None:
    """The first process keeps it by asking. When it stops asking, another process gets it for good."""
    settings = fresh_settings(any_store)
    client = connect(any_store, settings)
    leases = [ProcessLease(client, f"{settings.key_prefix}:{{:lease}}", 0.5) for _ in range(3)]
    for _ in range(10):
        assert [await lease.take() for lease in leases] == [True, False, False]
        await asyncio.sleep(0.1)

    async def second() -> bool:
        return await leases[1].take()

    await eventually(second)
    assert [await lease.take() for lease in leases] == [False, True, False]
    await client.aclose()


async def test_without_a_store_nobody_holds_the_lease(own_store: StoreProcess) -> None:
    """It is unknown who holds it."""
    settings = fresh_settings(own_store.url)
    client = connect(own_store.url, settings)
    own_store.kill()
    with pytest.raises(StoreUnavailableError):
        await ProcessLease(client, f"{settings.key_prefix}:{{:lease}}").take()
    await client.aclose()
