"""The processes that read the past."""

import asyncio
from pathlib import Path

import pytest

from live.errors import JournalError
from live.journal.database import Database, identity
from live.journal.past.pool import Past
from live.system.resources import PAST_AT_ONCE, Turns
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually


async def test_more_clients_than_processes_take_turns(tmp_path: Path) -> None:
    """Each client gets the result of its own query. At the end, no process is left."""
    settings = fresh_settings("", journal="sqlite", data_dir=tmp_path)
    with Database("sqlite", tmp_path, settings.key_prefix, writes=True) as database:
        assert database.take_now()
    past = Past(settings, Turns(PAST_AT_ONCE, 32))
    await past.aclose()  # nothing has begun
    try:
        found = await asyncio.gather(*(past.run(f"client{number}", identity) for number in range(5)))
        assert past._pool is not None
        processes = list(past._pool._processes.values())
    finally:
        await past.aclose()
    assert len(processes) == 2
    assert not any(process.is_alive() for process in processes)
    assert len(set(found)) == 1
    assert found[0]


async def test_processes_that_ended_while_idle_are_replaced(tmp_path: Path) -> None:
    """At most one query fails, with the error of a database that does not answer.

    The next query starts new processes.
    """
    settings = fresh_settings("", journal="sqlite", data_dir=tmp_path)
    with Database("sqlite", tmp_path, settings.key_prefix, writes=True) as database:
        assert database.take_now()
    past = Past(settings, Turns(PAST_AT_ONCE, 32))
    try:
        found = await past.run("client", identity)
        pool = past._pool
        assert pool is not None
        for process in list(pool._processes.values()):
            process.kill()

        async def is_broken() -> bool:
            return bool(pool._broken)

        await eventually(is_broken)
        with pytest.raises(JournalError, match="has ended"):
            await past.run("client", identity)
        assert await past.run("client", identity) == found
    finally:
        await past.aclose()
