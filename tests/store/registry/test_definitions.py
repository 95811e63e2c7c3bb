"""Definitions in the store: changed by compare-and-set, with an increasing version and an audit log."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from live.errors import EpochLostError, StoreUnavailableError
from live.store.board.keys import SystemKeys
from live.store.connection.client import Store, connect
from live.store.connection.handshake import FORMAT
from live.store.registry.audit_trail import AuditEntry, AuditTrail
from live.store.registry.definitions import Definition, DefinitionCache, DefinitionStore
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess

ONE = Definition(epoch="00c0ffee", choices={"title": "One"})


@asynccontextmanager
async def definitions(store: str) -> AsyncIterator[tuple[DefinitionStore, Store]]:
    """Definitions under their own key prefix."""
    settings = fresh_settings(store)
    client = connect(store, settings)
    try:
        yield DefinitionStore(client), client
    finally:
        await client.aclose()


async def test_definitions_are_stored_and_read(any_store: str) -> None:
    """At first there are no definitions.

    Then each definition is returned as stored. Each change increases the common version.
    """
    async with definitions(any_store) as (store, client):
        assert await store.version() == ""
        found = await store.load()
        assert (found.version, dict(found.boards)) == ("", {})
        assert await store.keep("", {"a": ONE}, AuditEntry(who="ann", what="created"))
        first = await store.load()
        assert first.boards == {"a": ONE}
        assert await store.version() == first.version
        assert await store.keep(first.version, {"b": ONE})
        second = await store.load()
        assert int(second.version) == int(first.version) + 1
        assert await store.keep(second.version, {"a": None}, AuditEntry(who="bob", what="deleted"))
        assert (await store.load()).boards == {"b": ONE}
        entries = await AuditTrail(client).last(9)
        assert [(entry.who, entry.what) for entry in entries] == [("bob", "deleted"), ("ann", "created")]


async def test_a_change_of_an_outdated_definition_is_refused(any_store: str) -> None:
    """The definitions and the audit log stay as they are, even if the other change was of a different board."""
    async with definitions(any_store) as (store, client):
        await store.keep("", {"a": ONE})
        assert not await store.keep("", {"b": ONE}, AuditEntry(who="ann", what="created"))
        assert (await store.load()).boards == {"a": ONE}
        assert await AuditTrail(client).last(9) == []


async def test_an_emptied_store_does_not_repeat_a_version(any_store: str) -> None:
    """A process that has read the definitions before finds another version than its own."""
    async with definitions(any_store) as (store, client):
        await store.keep("", {"a": ONE})
        before = int(await store.version())
        assert abs(before - (await store.load()).now) < 60
        await client.delete(store.key)
        assert not await store.keep(str(before), {"a": ONE})


async def test_an_unreadable_definition_is_reported(any_store: str) -> None:
    """The message names the board."""
    async with definitions(any_store) as (store, client):
        await client.hset(store.key, "a", "{}")
        with pytest.raises(StoreUnavailableError, match="'a'"):
            await store.load()


@pytest.mark.slow
async def test_after_a_lost_reply_the_outcome_is_unknown(own_store: StoreProcess) -> None:
    """A store that can't be reached has certainly changed nothing."""
    async with definitions(own_store.url) as (store, _):
        await store.version()
        with own_store.frozen(), pytest.raises(StoreUnavailableError) as lost:
            await store.keep("", {"a": ONE})
        assert lost.value.unknown
        own_store.kill()
        with pytest.raises(StoreUnavailableError):
            await store.version()
        with pytest.raises(StoreUnavailableError) as away:
            await store.keep("", {"a": ONE})
        assert not away.value.unknown


async def test_a_change_is_refused_after_a_loss(valkey_url: str, tmp_path: Path) -> None:
    """A loss of another board does not matter. Each new version is remembered, and a lower version is a loss.

    The identity of the store is checked in the same step in which the definition changes.
    """
    settings = fresh_settings(valkey_url, data_dir=tmp_path)
    async with aclosing(connect(valkey_url, settings)) as client:
        store, high_water = DefinitionStore(client), client.high_water
        high_water.active = True
        high_water.remember_store("one")
        names = SystemKeys(settings.key_prefix)
        await client.set(names.format, FORMAT)  # later connections refuse an identity without it
        await client.set(names.store, "one")
        version = await store.keep("", {"a": ONE})
        assert high_water.version_of("definitions") == int(version or 0) > 0
        high_water.lose_boards({"b": "b is gone"})
        with pytest.raises(EpochLostError, match="b is gone"):
            await store.keep(version or "", {"b": ONE})
        version = await store.keep(version or "", {"a": None})
        assert high_water.version_of("definitions") == int(version or 0)
        await client.set(names.store, "other")
        with pytest.raises(EpochLostError, match="the store has the identity other, and not one"):
            await store.keep(version or "", {"a": ONE})
        with high_water.accepting("it is another store"):
            high_water.remember_store("other")
        high_water.note_version("definitions", int(version or 0) + 1)
        await store.load()
        assert high_water.lost == f"the definitions went back from version {int(version or 0) + 1} to {version}"


async def test_only_changed_definitions_are_read(any_store: str) -> None:
    """Each changed board is returned once, in its present form, or as None if it was deleted."""
    async with definitions(any_store) as (store, _):
        version: str | None = ""
        for board in ("a", "b", "c"):
            version = await store.keep(version or "", {board: ONE})
        since = await store.changes(None)
        assert (since.version, since.boards, since.is_whole) == (version, {"a": ONE, "b": ONE, "c": ONE}, True)
        assert (await store.changes(version)).boards == {}
        two = Definition(epoch="2", choices={})
        for board, definition in (("a", two), ("b", ONE), ("a", ONE), ("b", None), ("a", two)):
            version = await store.keep(version or "", {board: definition})
        found = await store.changes(since.version)
        assert (found.version, found.boards, found.is_whole) == (version, {"a": two, "b": None}, False)
        assert (await store.load()).boards == {"a": two, "c": ONE}


@pytest.mark.parametrize("lost", ["some", "all", "newest", "unknown"])
async def test_after_a_gap_all_definitions_are_read(any_store: str, lost: str) -> None:
    """Changes are not listed any more, a server without the list made the changes, or the version is unknown."""
    async with definitions(any_store) as (store, client):
        changes = store.key.replace("definitions", "changes")
        version = await store.keep("", {"a": ONE})
        since = "12345" if lost == "unknown" else version
        for board in ("b", "c", "d"):
            version = await store.keep(version or "", {board: ONE})
        if lost in ("some", "all"):
            await client.ltrim(changes, 0, 1 if lost == "some" else -9)
        if lost == "newest":
            await client.hincrby(store.key, ":version")
        found = await store.changes(since)
        assert found.is_whole
        assert found.boards.keys() == {"a", "b", "c", "d"}


async def test_the_list_of_changes_is_bounded(any_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list keeps only the newest `_MAX_CHANGES` changes."""
    monkeypatch.setattr("live.store.registry.definitions._MAX_CHANGES", 5)
    async with definitions(any_store) as (store, client):
        versions = [await store.keep("", {"a": ONE})]
        for _ in range(20):
            versions.append(await store.keep(versions[-1] or "", {"a": ONE}))
        assert await client.llen(store.key.replace("definitions", "changes")) == 5
        assert not (await store.changes(versions[-6])).is_whole
        assert (await store.changes(versions[-7])).is_whole


async def test_a_cache_follows_every_change(any_store: str) -> None:
    """After any changes, and after a gap, the cache equals a full read."""
    async with definitions(any_store) as (store, client):
        cache = DefinitionCache(store)
        for number in range(40):
            held = await cache.load()
            board = f"b{number * 7 % 5}"
            assert await store.keep(held.version, {board: None if board in held.boards else ONE})
            if number % 10 == 9:
                await client.delete(store.key.replace("definitions", "changes"))
            if number % 3 == 0:
                assert dict((await cache.load()).boards) == dict((await store.load()).boards)
