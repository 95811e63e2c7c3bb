"""Scripts in a store: they are loaded, receive arguments unchanged, and refuse what they cannot do."""

import asyncio
import hashlib
from typing import Any

import msgspec
import pytest
from redis.exceptions import ResponseError

from live.domain.event import make_entry
from live.errors import EpochLostError
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.connection.client import Store, connect
from live.store.connection.scripts import Script, Text, text, texts
from live.store.registry.presence import Presence
from tests.harness.boards import rolling_board
from tests.harness.scripts import FLAGS, GOOD, USED, Plain, connected
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess


async def refused(store: Store, script: Script[Any]) -> str:
    """Why the store refuses a script as a whole; empty when it runs the script."""
    try:
        await store.servers.shared.call("EVAL", script.source, 0, "no request")
    except ResponseError as error:
        # The script has compiled and run, and failed because the call has no request.
        return "" if "script:" in str(error) else str(error)
    return ""


async def test_the_store_refuses_writing_scripts_as_a_whole(own_store: StoreProcess) -> None:
    """Full memory refuses scripts that need memory, and a replica refuses scripts that write.

    Scripts that read always run.
    """
    async with connected(own_store.url, fresh_settings(own_store.url)) as client:
        for name, script in USED.items():
            assert await refused(client, script) == "", name
        await client.config_set("maxmemory", 1)
        for line, names in FLAGS.items():
            for name in names:
                assert ("maxmemory" in await refused(client, USED[name])) is (line == "#!lua"), name
        await client.config_set("maxmemory", 0)
        await client.replicaof("127.0.0.1", 1)
        for line, names in FLAGS.items():
            for name in names:
                assert ("read only replica" in await refused(client, USED[name])) is ("no-writes" not in line), name


@pytest.mark.one_server
async def test_a_missing_script_is_loaded(valkey_url: str) -> None:
    """A store that does not know the hash receives the source, once."""
    client = connect(valkey_url, fresh_settings(valkey_url))
    script = Script("mine", Plain, GOOD + f"-- {fresh_settings(valkey_url).key_prefix}")
    assert await script(client, ["a"], Plain()) == [b"a"]
    assert await client.script_exists(script_hash(script)) == [True]
    assert await script(client, ["b"], Plain()) == [b"b"]
    await client.aclose()


@pytest.mark.parametrize("size", [0, 1, 31, 32, 255, 256, 65535, 65536])
async def test_bytes_are_sent_unchanged(any_store: str, size: int) -> None:
    """The bytes need not be text in any encoding."""
    content = bytes(range(128, 256)) * (size // 128 + 1)

    class Bytes(msgspec.Struct):
        one: Text
        many: Text

    client = connect(any_store, fresh_settings(any_store))
    script = Script("mine", Bytes, "local request = cmsgpack.unpack(ARGV[1]) return {request.one, request.many}")
    many = [content[:16], content[1:17]]
    assert await script(client, ["a"], Bytes(text(content[:size]), texts(many, 16))) == [content[:size], many]
    await client.aclose()


@pytest.mark.parametrize("number", [0, -1, 127, 128, -33, 2**31, -(2**31) - 1, 2**53, -(2**53), 2**53 - 1, 0.5, 1e9])
async def test_numbers_are_exact(any_store: str, number: float) -> None:
    """The numbers are integers within ±2^53 and fractions. `None` is sent as a missing field."""

    class Number(msgspec.Struct):
        number: float
        none: None = None

    client = connect(any_store, fresh_settings(any_store))
    source = (
        "local request = cmsgpack.unpack(ARGV[1]) return {string.format('%.17g', request.number), type(request.none)}"
    )
    reply, none = await Script("mine", Number, source)(client, ["a"], Number(number))
    assert (float(reply), none) == (number, b"nil")
    await client.aclose()


def script_hash(script: Script[Any]) -> str:
    """The name under which a store holds a script."""
    return hashlib.sha1(script.source.encode(), usedforsecurity=False).hexdigest()


async def test_scripts_refuse_a_missing_board(valkey_url: str) -> None:
    """Only the script `create` creates a board."""
    settings = fresh_settings(valkey_url)
    client = connect(valkey_url, settings)
    ledger = Ledger(client, rolling_board(), settings)
    await ledger.state.open()
    await client.delete(ledger.state.keys.meta)
    with pytest.raises(EpochLostError):
        await ledger.writer.add([make_entry("a", 1, None)])
    with pytest.raises(EpochLostError):
        await ledger.rotator.rotate()
    with pytest.raises(EpochLostError):
        await ledger.reader.read(1)
    assert await Presence(client).report({"posts": 1}) == {}
    assert [key.encode() async for key in client.names(f"{Keys(settings.key_prefix, 'posts').channel}*")] == []
    await client.aclose()


@pytest.mark.slow
async def test_a_restarted_store_receives_each_script_once(own_store: StoreProcess) -> None:
    """The store gets a script once even if one event feeds many boards."""
    settings = fresh_settings(own_store.url)
    client = connect(own_store.url, settings)
    ledgers = [Ledger(client, rolling_board(board=f"b{number}"), settings) for number in range(100)]
    for ledger in ledgers:
        await ledger.state.open()
    own_store.kill()
    own_store.start()
    await asyncio.gather(*(ledger.writer.add([make_entry("a")]) for ledger in ledgers))
    stats = await client.info("commandstats")
    assert "cmdstat_eval" not in stats
    assert stats["cmdstat_evalsha"]["calls"] < 250
    await client.aclose()
