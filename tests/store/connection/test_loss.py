"""A process notices that the store has lost data."""

import asyncio
from pathlib import Path

import pytest

from live.domain.event import make_entry
from live.errors import SetupError, StoreUnavailableError
from live.process.serve import check_store
from live.store.board.keys import Keys, SystemKeys
from live.store.board.ledger import Ledger
from live.store.connection.client import connect
from live.store.connection.high_water import HighWater
from live.store.connection.loss import Losses, LossWatch, require_no_loss
from live.store.registry.definitions import Definition, DefinitionStore
from tests.harness.boards import BOARD, rolling_board
from tests.harness.server import define
from tests.harness.settings import fresh_settings
from tests.harness.tasks import stop
from tests.harness.waiting import eventually


@pytest.mark.parametrize(
    ("held", "reign", "known", "lost"),
    [
        (("e", "5", "r", None), "", ("e", 5), ""),
        (("e", "4", "r", None), "", ("e", 5), "board b (epoch e) went back from offset 5 to 4"),
        (("e", None, "r", None), "r", ("e", 1), "board b (epoch e) went back from offset 1 to 0"),
        (("e", "4", "q", None), "r", ("e", 5), ""),  # the board was not checked after a failover
        (("f", "4", "r", None), "r", ("e", 5), ""),
        ((None, None, None, None), "", ("", -1), ""),
        (
            ("e", "9", "r", "2"),
            "r",
            ("e", 5),
            "board b (epoch e) was at offset 2 after a failover, and 3 was acknowledged",
        ),
        (("e", "9", "r", "3"), "r", ("e", 5), ""),
        (("f", "9", "r", "2"), "r", ("e", 5), ""),
        (("e", "9", "q", "2"), "q", ("e", 5), ""),  # the board did not move to the server whose reign began
    ],
)
def test_a_board_that_went_back_is_lost(
    tmp_path: Path, held: tuple[str | None, ...], reign: str, known: tuple[str, int], lost: str
) -> None:
    """Offsets of different epochs are not compared. Offset 3 was acknowledged before the reign r began."""
    high_water = HighWater(tmp_path, "live")
    high_water.acknowledge("b", "e", 3)
    high_water.begin_reign("r")
    state = [None if word is None else word.encode() for word in held]
    assert high_water.compare_board("b", state, reign, known, high_water.earlier["b"]) == lost
    assert bool(high_water.earlier) == (reign != held[2]), "only a board that is not checked waits"


@pytest.mark.one_server
async def test_each_loss_is_found_and_described(valkey_url: str, tmp_path: Path) -> None:
    """A new store has lost nothing. A board that was deleted or can't be read is not lost."""
    settings = fresh_settings(valkey_url, data_dir=tmp_path)
    prefix = settings.key_prefix
    client, names = connect(valkey_url, settings), SystemKeys(prefix)
    watch, high_water = LossWatch(client), client.high_water
    assert (await watch.find(), high_water.active) == (Losses(), True)
    identity = await client.call(names.store, "GET", names.store)
    assert high_water.facts.store == identity.decode()
    ledger = Ledger(client, rolling_board(), settings)
    await ledger.writer.add([make_entry("a", 1, None)])
    definitions, definition = DefinitionStore(client), Definition(epoch="e", choices={})
    version = ""
    for board in ("deleted", "missing", "other"):
        version = str(await definitions.keep(version, {board: definition}))
    ended = Definition(epoch="e", choices={}, state="leaving")
    version = str(await definitions.keep(version, {"ended": ended}))
    await client.call(names.store, "HSET", Keys(prefix, "deleted").gone, "epoch", "e")
    await client.call(names.store, "HSET", Keys(prefix, "other").meta, "epoch", "f")
    defined = {
        "missing": "board missing is defined with epoch e, and the store holds none",
        "other": "board other is defined with epoch e, and the store holds f",
    }
    assert await watch.find() == Losses([], defined)
    for one, message in (("missing", "missing is defined"), (None, "missing is defined.*; board other")):
        with pytest.raises(SetupError, match=message):
            await require_no_loss(client, one)
    await require_no_loss(client, "posts")
    await client.call(names.store, "DEL", names.definitions)
    await client.call(names.producers, "DEL", names.producers)
    high_water.note_version("producers", 3)
    high_water.note("posts", ledger.state.epoch or "", 7)
    lost = f"board posts (epoch {ledger.state.epoch}) went back from offset 7 to 1"
    versions = [f"the definitions of boards went back from version {version} to none"]
    versions.append("the producers went back from version 3 to none")
    assert await watch.find() == Losses(versions, {"posts": lost})
    with pytest.raises(SetupError, match="the producers went back"):
        await require_no_loss(client, "other")
    await client.call(names.producers, "HSET", names.producers, ":version", 2)
    await client.call(names.producers, "SET", Keys(prefix, "other").gone, "no hash")
    await client.call(names.producers, "DEL", ledger.state.keys.meta)
    await client.call(names.producers, "SET", ledger.state.keys.meta, "no hash")
    versions[1] = "the producers went back from version 3 to 2"
    assert await watch.find() == Losses(versions, {}), "a board that can't be read counts as lost"
    for held, has in ((None, "has no identity"), ("other", "has the identity other")):
        await client.call(names.store, *(("DEL", names.store) if held is None else ("SET", names.store, held)))
        said = f"the store {has}, and not {identity.decode()}: it was emptied, or is another one"
        assert str(await watch.find()) == said
    await client.aclose()


@pytest.mark.one_server
async def test_losses_are_noticed(valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process notices the loss of a board with its next connection, and the loss of everything soon."""
    monkeypatch.setattr("live.store.connection.loss.BEAT", 0.05)
    settings = fresh_settings(valkey_url, data_dir=tmp_path)
    await define(settings, [rolling_board()])
    await check_store(settings)
    client = connect(valkey_url, settings)
    watch, ledger = LossWatch(client), Ledger(client, rolling_board(), settings)
    watch.guard_connections()
    await ledger.state.open()
    await ledger.writer.add([make_entry("a", 1, None)])
    running = asyncio.create_task(watch.run())
    await client.call(ledger.state.keys.meta, "HSET", ledger.state.keys.meta, "offset", 0)
    client.servers.shared.drop()
    with pytest.raises(StoreUnavailableError, match="lost data"):
        await client.call("", "PING")
    assert client.high_water.lost_boards.keys() == {"posts"}
    assert not client.high_water.lost
    for name in [name async for name in client.names(f"{settings.key_prefix}:*")]:
        await client.call(name, "DEL", name)

    async def is_lost() -> bool:
        return bool(client.high_water.lost)

    await eventually(is_lost)
    await stop(running)
    await client.aclose()


@pytest.mark.parametrize("began", [1, 2])
async def test_a_board_that_another_machine_has_checked_is_compared(
    sentinel_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, began: int
) -> None:
    """After a failover, the process waits until the board is checked. Then it compares where the reign began."""
    monkeypatch.setattr("live.store.connection.loss.BEAT", 0.05)
    settings = fresh_settings(sentinel_url, data_dir=tmp_path)
    client = connect(sentinel_url, settings)
    watch, ledger, high_water = (
        LossWatch(client),
        Ledger(client, BOARD, settings),
        client.high_water,
    )
    watch.guard_connections()
    for _ in range(2):
        await ledger.writer.add([make_entry("a", 1, None)])
    meta = ledger.state.keys.meta
    reign = client.servers.reign_of(meta)
    high_water.begin_reign(reign)
    await client.call(meta, "HSET", meta, "reign", "before")
    running = asyncio.create_task(watch.run())

    async def is_compared() -> bool:
        return not high_water.earlier

    await asyncio.sleep(0.3)
    assert (list(high_water.earlier), high_water.lost_boards) == (["posts"], {})
    await client.call(meta, "HSET", meta, "reign", reign, "reign_from", began, "offset", 9)
    await eventually(is_compared)
    lost = f"board posts (epoch {ledger.state.epoch}) was at offset 1 after a failover, and 2 was acknowledged"
    assert high_water.lost_boards == ({"posts": lost} if began == 1 else {})
    await stop(running)
    await client.aclose()
