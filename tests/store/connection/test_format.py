"""The format number of the store: written once. A server that cannot read the format says what to do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from live.domain.board import Boards
from live.errors import SetupError, StoreUnavailableError
from live.serve import check_store
from live.settings import Settings
from live.store.board.keys import SystemKeys
from live.store.connection import handshake
from live.store.connection.client import connect
from live.store.connection.handshake import FORMAT, MIGRATIONS, StoreFormatError
from live.store.connection.pipelined import PipelinedConnection
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess


@asynccontextmanager
async def stored(url: str, held: object | None) -> AsyncIterator[tuple[Settings, Any]]:
    """A store with a format number, or None; settings for it, and a client that is not connected."""
    settings = fresh_settings(url)
    client: Any = connect(url, settings)
    if held is not None:
        await client.set(SystemKeys(settings.key_prefix).format, str(held))
    yield settings, client
    await client.aclose()


async def stored_number(client: Any, settings: Settings) -> Any:
    """The number in the store."""
    return await client.get(SystemKeys(settings.key_prefix).format)


async def test_a_new_store_gets_a_number_and_an_identity(any_store: str) -> None:
    """A server writes both when it starts. A command that only inspects the store writes no store key."""
    async with stored(any_store, None) as (settings, client):
        await client.shared.call("PING")
        assert await stored_number(client, settings) is None
        await check_store(settings, Boards([]))
        assert await stored_number(client, settings) == b"%d" % FORMAT
        await check_store(settings, Boards([]))


async def test_a_store_without_a_number_is_migrated(any_store: str) -> None:
    """The data of earlier versions is found under the current names, and the store has a number."""
    async with stored(any_store, None) as (settings, client):
        names = SystemKeys(settings.key_prefix)
        old, new = names.moved[0]
        await client.hset(old, "b", "{}")
        await client.set(names.store, "me")
        await client.shared.call("PING")
        assert (await client.exists(old), await client.hgetall(new)) == (0, {b"b": b"{}"})
        assert await stored_number(client, settings) == b"%d" % FORMAT


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (FORMAT + 1, "a newer version has written to it. Start that version, or set another LIVE_KEY_PREFIX"),
        ("hello", "another program uses this key prefix"),
    ],
)
async def test_an_unknown_format_is_refused(any_store: str, held: object, message: str) -> None:
    """No command accesses such a store, nothing in it changes, and a server does not start on it."""
    async with stored(any_store, held) as (settings, client):
        with pytest.raises(StoreFormatError, match=message):
            await client.shared.call("SET", f"{settings.key_prefix}:mine", 1)
        assert await client.exists(f"{settings.key_prefix}:mine") == 0
        assert await stored_number(client, settings) == str(held).encode()
        with pytest.raises(SetupError, match=message):
            await check_store(settings, Boards([]))


async def test_a_format_without_a_migration_is_refused(any_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says which version to run in between. Nothing is migrated in part."""
    monkeypatch.setattr(handshake, "FORMAT", FORMAT + 2)
    async with stored(any_store, FORMAT) as (settings, client):
        with pytest.raises(StoreUnavailableError, match=f"it can't migrate format {FORMAT}. Start a version that can"):
            await client.shared.call("PING")
        assert await stored_number(client, settings) == b"%d" % FORMAT


async def test_an_older_format_is_migrated_step_by_step(any_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each migration runs once, in order, and then the number is written."""
    steps: list[tuple[int, bytes | None]] = []
    async with stored(any_store, FORMAT) as (settings, client):
        await client.set(SystemKeys(settings.key_prefix).store, "me")

        async def first(connection: PipelinedConnection, prefix: str) -> None:
            steps.append((1, await connection.call("GET", SystemKeys(prefix).format)))

        async def second(connection: PipelinedConnection, prefix: str) -> None:
            steps.append((2, await connection.call("GET", SystemKeys(prefix).format)))

        monkeypatch.setattr(handshake, "FORMAT", FORMAT + 2)
        monkeypatch.setattr(handshake, "MIGRATIONS", {**MIGRATIONS, FORMAT: first, FORMAT + 1: second})
        await client.shared.call("PING")
        assert steps == [(1, b"%d" % FORMAT), (2, b"%d" % FORMAT)]
        assert await stored_number(client, settings) == b"%d" % (FORMAT + 2)


async def test_a_full_store_without_a_number_is_read(own_store: StoreProcess) -> None:
    """It gets its number when there is room again."""
    async with stored(own_store.url, None) as (settings, client):
        await client.set(SystemKeys(settings.key_prefix).store, "me")
        await client.config_set("maxmemory", 1)
        assert await client.shared.call("PING") == b"PONG"
        assert await stored_number(client, settings) is None
        await client.config_set("maxmemory", 0)
        other = connect(own_store.url, settings)
        await other.shared.call("PING")
        await other.aclose()
        assert await stored_number(client, settings) == b"%d" % FORMAT
