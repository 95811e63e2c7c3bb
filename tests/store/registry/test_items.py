"""Items: what a process reads, remembers and forgets, with the number of commands that it sends."""

from typing import Any
from unittest.mock import patch

import pytest

from live.domain.item import Item
from live.errors import ProblemError, StoreUnavailableError
from live.store.board.keys import SystemKeys
from live.store.connection.client import connect
from live.store.registry import items as module
from live.store.registry.items import FRESH, Items
from live.store.registry.journals import (
    JournalHealth,
    is_sql_away,
    publish_health,
)
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess

A, B, C = (Item(name, name.upper()) for name in "abc")


async def test_an_item_is_deleted_while_memory_is_full(own_store: StoreProcess) -> None:
    """Nothing can be stored then, but what is there can go."""
    settings = fresh_settings(own_store.url)
    client = connect(own_store.url, settings)
    items = Items(client, 3)
    try:
        await items.put([A])
        await client.config_set("maxmemory", 1)
        with pytest.raises(StoreUnavailableError):
            await items.put([B])
        await items.delete("a")
        assert await items.of(["a", "b"]) == {}
    finally:
        await client.aclose()


async def test_items_are_asked_for_once_a_second_and_remembered(valkey_url: str) -> None:
    """Items are cached until one changes. Members without an item are asked for each time, invalid names never."""
    settings = fresh_settings(valkey_url)
    client, now = connect(valkey_url, settings), [100.0]
    ours = Items(client, 3, lambda: now[0])
    others = Items(client, 3, lambda: now[0])
    asked: list[str] = []
    call = type(client).call

    async def counted(store: Any, key: str, *words: Any, **options: Any) -> Any:
        asked.append(words[0])
        return await call(store, key, *words, **options)

    async def read(*members: str) -> tuple[dict[str, Item], list[str]]:
        asked.clear()
        return dict(await ours.of(members)), list(asked)

    with patch.object(type(client), "call", counted):
        assert (await read("a"), ours.exist) == (({}, ["GET"]), False)  # the store has no items
        await others.put([A, B])
        assert await read("a") == ({}, [])
        now[0] += FRESH
        assert (await read("b", "a", "none", ""), ours.exist) == (({"b": B, "a": A}, ["GET", "HMGET"]), True)
        assert list(await ours.of(["b", "a"])) == ["b", "a"]
        assert await read("a", "b") == ({"a": A, "b": B}, [])
        assert await read("a", "none") == ({"a": A}, ["HMGET"])
        assert await read("") == ({}, [])
        now[0] += FRESH
        assert await read("a") == ({"a": A}, ["GET"])  # the items have not changed
        await ours.put([Item("a", "new")])
        assert await read("a") == ({"a": Item("a", "new")}, ["GET", "HMGET"])
        await ours.delete("a")
        assert await read("a", "b") == ({"b": B}, ["GET", "HMGET"])

        most = len(b'{"key":"b","title":"B"}') + module._ITEM
        with patch.object(module, "_MOST_MEMORY", 2 * most):
            await ours.put([A, B, C])
            assert await read("a", "b") == ({"a": A, "b": B}, ["GET", "HMGET"])
            assert await read("a", "b") == ({"a": A, "b": B}, [])
            # The cache has no room for three items, so it is emptied first.
            assert await read("c") == ({"c": C}, ["HMGET"])
            assert await read("c") == ({"c": C}, [])
            assert await read("a", "b") == ({"a": A, "b": B}, ["HMGET"])
    await client.aclose()


async def test_all_items_are_stored_or_none(valkey_url: str) -> None:
    """There may be as many items as the setting allows. An item that can't be read is an error."""
    settings = fresh_settings(valkey_url)
    client = connect(valkey_url, settings)
    items = Items(client, 2)
    await items.put([A, B])
    await items.put([A])
    for more in ([C], [A, B, C]):
        with pytest.raises(ProblemError) as caught:
            await items.put(more)
        assert caught.value.code == "too_many_items"
    assert dict(await items.of("abc")) == {"a": A, "b": B}
    await client.hset(SystemKeys(settings.key_prefix).items, "c", "{")
    with pytest.raises(StoreUnavailableError, match="the item of member 'c'"):
        await items.of("c")
    await client.aclose()


async def test_the_state_of_journals_is_known_to_all_processes(valkey_url: str) -> None:
    """If no process publishes the state, SQL counts as away. A fault is stored only while it exists."""
    settings = fresh_settings(valkey_url)
    client, prefix = connect(valkey_url, settings), settings.key_prefix
    names = SystemKeys(prefix)
    assert await is_sql_away(client)
    await publish_health(client, JournalHealth(), "")
    assert (await is_sql_away(client), await client.exists(names.journal_fault)) == (False, 0)
    await publish_health(client, JournalHealth(sql_away=True), "why")
    assert (await is_sql_away(client), await client.get(names.journal_fault)) == (True, b"why")
    for name in (names.journal_health, names.journal_fault):
        assert await client.pttl(name) > 0
    await client.aclose()
