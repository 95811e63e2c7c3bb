"""The producers in the store: no change is lost, and every change is noticed."""

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from live.domain.producer import Scope, Secret, digest_of
from live.errors import SetupError, StoreUnavailableError
from live.store.connection.client import connect
from live.store.connection.scripts import Script
from live.store.registry.producers import REGISTER, ProducerStore, refused_name
from tests.harness.mutation import compiled, mutated
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess

ADDER = """
import asyncio, sys
from live.domain.producer import Scope
from live.settings import Settings
from live.store.connection.client import connect
from live.store.registry.producers import ProducerStore

async def main(url, prefix, first):
    client = connect(url, Settings(key_prefix=prefix))
    for i in range(20):
        await ProducerStore(client).add(f"p{int(first) + i}", Scope())
    try:
        await ProducerStore(client).add("shared", Scope())
        print("added")
    except Exception as error:
        print(type(error).__name__)
    await client.aclose()

asyncio.run(main(*sys.argv[1:]))
"""


@asynccontextmanager
async def producer_store(url: str, register: Script[Any] = REGISTER) -> AsyncIterator[tuple[ProducerStore, Any]]:
    """Yield producers under their own prefix, and the client."""
    settings = fresh_settings(url)
    client = connect(url, settings)
    try:
        yield ProducerStore(client, register), client
    finally:
        await client.aclose()


async def test_a_producer_is_stored_without_its_secret(any_store: str) -> None:
    """The stored digest is enough to check the secret, and does not reveal it."""
    async with producer_store(any_store) as (producers, client):
        assert (await producers.load()).records == {}
        record, secret = await producers.add("shop", Scope(boards=("posts",)))
        assert (await producers.load()).records == {"shop": record}
        assert record.secrets[0].digest == digest_of(secret.encode())
        assert abs(record.created - int((await client.time())[0])) <= 1
        held = b"".join((await client.hgetall(producers.key)).values())
        assert secret.encode() not in held
        assert secret.encode()[:10] not in held


@pytest.mark.slow
async def test_every_change_changes_the_version(any_store: str) -> None:
    """The first version after a store has lost everything is new too."""
    async with producer_store(any_store) as (producers, client):
        versions = [await producers.version()]
        record, _ = await producers.add("a", Scope())
        versions.append(await producers.version())
        await producers.add("a", Scope())
        versions.append(await producers.version())
        await producers.revoke("a", record.secrets[0].fingerprint)
        versions.append(await producers.version())
        await producers.revoke("a")
        versions.append((await producers.load()).version)
        assert versions[0] == ""
        assert len(set(versions)) == 5
        await client.delete(producers.key)
        await asyncio.sleep(1.1)
        await producers.add("a", Scope())
        assert await producers.version() not in versions[:2]


async def test_revoked_producers_stay_recorded(any_store: str) -> None:
    """Revoked producers have no secrets, but the server still requires API keys."""
    async with producer_store(any_store) as (producers, _):
        await producers.add("a", Scope())
        await producers.revoke("a")
        loaded = (await producers.load()).records["a"]
        assert loaded.secrets == ()
        assert loaded.revoked is not None


async def test_a_refused_change_changes_nothing(any_store: str) -> None:
    """The change is a third secret, or names an unknown producer, an unknown fingerprint, or an invalid id."""
    async with producer_store(any_store) as (producers, _):
        await producers.add("a", Scope())
        await producers.add("a", Scope())
        before = await producers.load()
        for wrong in (
            producers.add("a", Scope()), producers.add("A", Scope()), producers.revoke("b"), producers.revoke("a", "x"),
        ):  # fmt: skip
            with pytest.raises(SetupError):
                await wrong
        assert await producers.load() == before


async def add_concurrently(producers: ProducerStore) -> tuple[list[Any], int]:
    """Add secrets to one producer concurrently. Returns the results, and how many are valid."""
    tasks = [producers.add("a", Scope()) for _ in range(12)]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    return results, len((await producers.load()).records["a"].secrets)


async def test_concurrent_changes_are_not_lost(any_store: str) -> None:
    """Twelve concurrent calls add a secret to one producer. Two calls succeed, and the other calls get an error."""
    async with producer_store(any_store) as (producers, _):
        results, live = await add_concurrently(producers)
        assert live == 2
        assert sum(isinstance(result, SetupError) for result in results) == 10


async def test_a_script_that_does_not_compare_is_caught(valkey_url: str) -> None:
    """`test_concurrent_changes_are_not_lost` fails if the script does not compare the stored producer."""
    right = "if (redis.call('HGET', producers, producer) or '') ~= request.known then"
    mutant = compiled(valkey_url, REGISTER.changed(mutated(REGISTER.source, {right: "if false then"})))
    async with producer_store(valkey_url, mutant) as (producers, _):
        results, _ = await add_concurrently(producers)
        assert sum(isinstance(result, SetupError) for result in results) != 10


async def test_a_producer_that_others_keep_changing_is_an_error(valkey_url: str) -> None:
    """Nobody gets a secret that was not stored."""
    script = compiled(valkey_url, REGISTER.changed("return {'moved'}"))
    async with producer_store(valkey_url, script) as (producers, _):
        with pytest.raises(StoreUnavailableError, match="other processes changed producer a 100 times in a row"):
            await producers.add("a", Scope())
        assert (await producers.load()).records == {}


@pytest.mark.slow
async def test_two_processes_add_producers_concurrently(any_store: str) -> None:
    """Every producer of both processes is stored, and the shared producer has both secrets."""
    settings = fresh_settings(any_store)
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", ADDER, any_store, settings.key_prefix, first, stdout=subprocess.PIPE
        )
        for first in ("0", "20")
    ]
    assert [(await process.communicate())[0] for process in processes] == [b"added\n"] * 2
    client = connect(any_store, settings)
    records = (await ProducerStore(client).load()).records
    await client.aclose()
    assert set(records) == {"shared", *(f"p{i}" for i in range(40))}
    assert len(records["shared"].secrets) == 2


async def test_uses_that_can_not_be_noted_are_kept(valkey_url: str) -> None:
    """Uses that the store has noted are not sent again. The store gives the time of a use."""
    async with producer_store(valkey_url) as (producers, client):
        await client.hset(producers._used, refused_name("bad"), "no number")
        digests, refused = {digest_of(b"one"), digest_of(b"two")}, Counter({"a": 2, "bad": 1})
        with pytest.raises(StoreUnavailableError, match="not an integer"):
            await producers.note_uses(digests, refused)
        assert (digests, refused) == (set(), Counter({"bad": 1}))
        await client.hdel(producers._used, refused_name("bad"))
        await producers.note_uses(digests, refused)
        assert not refused
        uses = dict(await producers.last_uses())
        assert (uses.pop(refused_name("a")), uses.pop(refused_name("bad"))) == (2, 1)
        now = int((await client.time())[0])
        assert uses == {Secret(digest_of(text), 0).fingerprint: pytest.approx(now, abs=60) for text in (b"one", b"two")}
        await client.delete(producers._used)
        await client.set(producers._used, "no hash")
        digests = {digest_of(b"one")}
        with pytest.raises(StoreUnavailableError, match="WRONGTYPE"):
            await producers.note_uses(digests, refused)
        assert digests == {digest_of(b"one")}


async def test_each_change_of_a_producer_is_remembered(valkey_url: str, tmp_path: Path) -> None:
    """The server compares the remembered version with the store, and so notices if the store loses a change."""
    settings = fresh_settings(valkey_url, data_dir=tmp_path)
    client = connect(valkey_url, settings)
    client.high_water.active = True
    producers = ProducerStore(client)
    for change in (producers.add("a", Scope()), producers.revoke("a")):
        await change
        held = await client.call(producers.key, "HGET", producers.key, ":version")
        assert client.high_water.version_of("producers") == int(held)
    await client.aclose()


async def test_an_unreadable_record_is_an_error(valkey_url: str) -> None:
    """If one record can't be read, loading fails, rather than going on with an incomplete list of producers."""
    async with producer_store(valkey_url) as (producers, client):
        await producers.add("a", Scope())
        await client.hset(producers.key, "b", '{"id": 1}')
        with pytest.raises(StoreUnavailableError, match="the record of producer 'b' can't be read"):
            await producers.load()


async def test_an_unavailable_store_is_an_error(own_store: StoreProcess) -> None:
    """All calls raise `StoreUnavailableError`."""
    async with producer_store(own_store.url) as (producers, _):
        own_store.kill()
        for call in (producers.load(), producers.version(), producers.add("a", Scope()), producers.revoke("a")):
            with pytest.raises(StoreUnavailableError):
                await call
