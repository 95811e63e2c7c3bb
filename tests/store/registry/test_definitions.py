"""Definitions in the store: changed by compare-and-set, with a version that grows and an audit log."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from live.errors import StoreUnavailableError
from live.store.connection.client import Store, connect
from live.store.registry.definitions import Definition, DefinitionStore
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess

ONE = Definition(epoch="00c0ffee", choices={"title": "One"})


@asynccontextmanager
async def definitions(store: str) -> AsyncIterator[tuple[DefinitionStore, Store]]:
    """Definitions under a prefix of their own."""
    settings = fresh_settings(store)
    client = connect(store, settings)
    try:
        yield DefinitionStore(client, settings.key_prefix), client
    finally:
        await client.aclose()


async def test_what_is_kept_is_read(any_store: str) -> None:
    """Nothing at first; then each definition as it was stored, under a version that grows with every change."""
    async with definitions(any_store) as (store, _):
        assert await store.version() == ""
        found = await store.load()
        assert (found.version, dict(found.boards)) == ("", {})
        assert await store.keep("", "a", ONE, ("ann", "created", ONE.choices))
        first = await store.load()
        assert first.boards == {"a": ONE}
        assert await store.version() == first.version
        assert await store.keep(first.version, "b", ONE, None)
        second = await store.load()
        assert int(second.version) == int(first.version) + 1
        assert await store.keep(second.version, "a", None, ("bob", "deleted", ONE.choices))
        assert (await store.load()).boards == {"b": ONE}
        entries = await store.audit_log(9)
        assert [(entry.who, entry.what) for entry in entries] == [("bob", "deleted"), ("ann", "created")]


async def test_who_has_read_something_older_changes_nothing(any_store: str) -> None:
    """Neither the definitions nor the audit log, not even those of another board."""
    async with definitions(any_store) as (store, _):
        await store.keep("", "a", ONE, None)
        assert not await store.keep("", "b", ONE, ("ann", "created", {}))
        assert (await store.load()).boards == {"a": ONE}
        assert await store.audit_log(9) == []


async def test_a_store_that_lost_all_does_not_come_to_an_old_version(any_store: str) -> None:
    """A process that read before finds another version than its own."""
    async with definitions(any_store) as (store, client):
        await store.keep("", "a", ONE, None)
        before = int(await store.version())
        assert abs(before - (await store.load()).now) < 60
        await client.delete(store.key)
        assert not await store.keep(str(before), "a", ONE, None)


async def test_what_can_not_be_read_is_said(any_store: str) -> None:
    """The message names the board."""
    async with definitions(any_store) as (store, client):
        await client.hset(store.key, "a", "{}")
        with pytest.raises(StoreUnavailableError, match="'a'"):
            await store.load()


@pytest.mark.slow
async def test_a_lost_answer_may_have_changed_something(own_store: StoreProcess) -> None:
    """Without a reply, the outcome is unknown. A store that cannot be reached has done nothing."""
    async with definitions(own_store.url) as (store, _):
        await store.version()
        with own_store.frozen(), pytest.raises(StoreUnavailableError) as lost:
            await store.keep("", "a", ONE, None)
        assert lost.value.unknown
        own_store.kill()
        with pytest.raises(StoreUnavailableError):
            await store.version()
        with pytest.raises(StoreUnavailableError) as away:
            await store.keep("", "a", ONE, None)
        assert not away.value.unknown
