"""What SQL knows of definitions, API keys, titles and the cookie secret outlives a store that loses them."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from live.auth.visitors import Visitors
from live.cli import journal
from live.domain.item import Item
from live.domain.producer import Scope
from live.errors import EpochLostError, SetupError
from live.journal.log.audit_trail import read_trail
from live.journal.log.definitions import DefinitionLog, latest
from live.store.board.keys import SystemKeys
from live.store.connection.client import connect
from live.store.connection.high_water import HighWater
from live.store.connection.loss import LossWatch
from live.store.registry.audit_trail import AuditEntry, AuditTrail, entry_of
from live.store.registry.definitions import Definition, DefinitionStore
from live.store.registry.items import Items
from live.store.registry.producers import ProducerStore
from tests.harness.commands import run_command
from tests.harness.journaled import Journaled, backed_up, journaled
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.settings import as_environment

Held = Mapping[str, Mapping[str, str]]


class Copied:
    """A store with an API key, a title and a cookie secret, which are in SQL too."""

    def __init__(self, board: Journaled) -> None:
        self.board, self.prefix = board, board.settings.key_prefix
        self.names = SystemKeys(self.prefix)
        self.watch = LossWatch(board.client)
        self.producers = ProducerStore(board.client)
        self.items = Items(board.client, 100)

    async def begin(self) -> None:
        """Copy an API key, a title and a cookie secret to SQL."""
        await self.watch.find()
        drainer = await self.board.drainer()
        self.definitions = drainer._definitions
        await self.producers.add("old", Scope(verbs=("post",)))
        await self.items.put([Item("a", title="Ann")])
        await Visitors(self.board.client).make()
        assert await self.definitions.follow()

    async def in_sql(self) -> Held:
        """What a recovery would restore."""
        return await self.board.databases[0].run(
            lambda sql: {kind: latest(sql, kind) for kind in ("boards", "producers", "items", "visitors")}
        )  # fmt: skip

    async def dump(self) -> dict[str, Any]:
        """A copy of everything in the store."""
        found: dict[str, Any] = {}
        async for name in self.board.client.names(f"{self.prefix}:*"):
            found[name] = await self.board.client.dump(name)
        return found

    async def put_back(self, copy: Mapping[str, Any]) -> None:
        """Delete everything in the store, and restore a copy."""
        async for name in self.board.client.names(f"{self.prefix}:*"):
            await self.board.client.delete(name)
        for name, content in copy.items():
            await self.board.client.restore(name, 0, content)


async def test_a_board_is_defined_in_sql_before_its_events_are_there(valkey_url: str, tmp_path: Path) -> None:
    """Without the definition, a board could not be exported or recovered in its first second."""
    async with journaled(valkey_url, tmp_path) as board:
        held = Copied(board)
        await board.like("a")
        store = DefinitionStore(board.client)
        definition = Definition(choices={}, epoch=board.ledger.state.epoch or "")
        assert await store.keep((await store.load()).version, {board.ledger.state.board.id: definition})
        await (await board.drainer()).sweep()
        assert (await held.in_sql())["boards"].keys() == {board.ledger.state.board.id}


async def outlives_an_emptied_store(board: Journaled) -> None:
    """Empty a store. A new cookie secret and a new API key, made before anybody notices, must not change SQL."""
    held = Copied(board)
    await held.begin()
    before = await held.in_sql()
    await held.put_back({})
    await Visitors(board.client).make()
    await held.producers.add("new", Scope(verbs=("post",)))
    await held.definitions.follow()
    assert await held.in_sql() == before


async def keeps_the_secret(board: Journaled) -> None:
    """Empty a store that has only a cookie secret. The secret that the next visitor makes must not change SQL."""
    held = Copied(board)
    await held.watch.find()
    drainer = await board.drainer()
    await Visitors(board.client).make()
    assert await drainer._definitions.follow()
    before = await held.in_sql()
    await held.put_back({})
    await Visitors(board.client).make()
    await drainer._definitions.follow()
    assert await held.in_sql() == before


async def outlives_an_older_store(board: Journaled, *, noticed: bool) -> None:
    """Restore a store from a copy that lacks the newest API key and the newest title. SQL must keep both."""
    held = Copied(board)
    await held.begin()
    copy = await held.dump()
    await held.producers.add("new", Scope(verbs=("post",)))
    await held.items.put([Item("b", title="Bob")])
    assert await held.definitions.follow()
    before = await held.in_sql()
    assert before["producers"].keys() == {"old", "new"}
    await held.put_back(copy)
    if noticed:
        board.client.high_water.lose("it went back")
    for _ in range(2):
        assert not await held.definitions.follow()
    assert await held.in_sql() == before
    assert board.client.high_water.lost


async def test_a_store_that_was_emptied_is_not_copied(valkey_url: str, tmp_path: Path) -> None:
    """The emptied store has another identity."""
    (tmp_path / "secret").mkdir()
    async with journaled(valkey_url, tmp_path) as board:
        await outlives_an_emptied_store(board)
    async with journaled(valkey_url, tmp_path / "secret", is_defined=False) as board:
        await keeps_the_secret(board)


@pytest.mark.parametrize("noticed", [True, False])
async def test_a_store_that_went_back_is_not_copied(valkey_url: str, tmp_path: Path, *, noticed: bool) -> None:
    """The loss was noticed before, or only the version numbers in the store show it."""
    async with journaled(valkey_url, tmp_path) as board:
        await outlives_an_older_store(board, noticed=noticed)


async def blind(log: DefinitionLog, *commands: tuple[Any, ...], **_named: Any) -> list[Any]:
    """The mutant: it copies from any store, even from a store that lost data."""
    found: list[Any] = await log._client.calls([(words[1], words) for words in commands])
    return found


@pytest.mark.mutant
async def test_a_copy_of_any_store_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """No version number shows the loss, because the store had only the secret, and a visitor has made a new secret."""
    async with journaled(valkey_url, tmp_path, is_defined=False) as board:
        with must_be_caught("definitions of a store that lost data are copied"), replaced(DefinitionLog, "_ask", blind):
            await keeps_the_secret(board)


@pytest.mark.mutant
async def test_a_copy_of_older_versions_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """Only the version number shows that the store went back."""

    def unaware(high_water: HighWater, what: Any, found: str, known: int) -> None:
        del high_water, what, found, known

    async with journaled(valkey_url, tmp_path) as board:
        with must_be_caught("the version of definitions is not checked"), replaced(HighWater, "check_version", unaware):
            await outlives_an_older_store(board, noticed=False)


async def test_definitions_are_copied_after_a_loss_was_accepted(valkey_url: str, tmp_path: Path) -> None:
    """Once the loss is accepted, the version numbers start again."""
    async with journaled(valkey_url, tmp_path) as board:
        held = Copied(board)
        await held.begin()
        await held.put_back({})
        with board.client.high_water.accepting("a test"):
            await held.watch.find()
        await held.producers.add("new", Scope(verbs=("post",)))
        assert await DefinitionLog(board.client, board.databases[0]).follow()
        assert (await held.in_sql())["producers"].keys() == {"new"}


async def test_after_a_failover_everything_is_compared_again(valkey_url: str, tmp_path: Path) -> None:
    """Another server can have other contents under the same version, and an audit log that ends earlier."""
    async with journaled(valkey_url, tmp_path) as board:
        held = Copied(board)
        await held.begin()
        before = await held.in_sql()
        await board.client.hdel(held.names.producers, "old")
        held.definitions._last_act = "9999999999999-0"
        await AuditTrail(board.client).add(entry_of("ann", "titled"))
        assert await held.definitions.follow()
        assert await held.in_sql() == before
        held.definitions.forget()
        assert await held.definitions.follow()
        assert await held.in_sql() == {**before, "producers": {}}
        acts = await board.databases[0].run(read_trail)
        assert [act.who for act in acts.values()] == ["ann"]


async def test_only_the_titles_that_changed_are_read(valkey_url: str, tmp_path: Path) -> None:
    """Everything is read only if the store does not remember what has changed."""
    right, read = DefinitionLog._ask, list[str]()

    async def asking(log: DefinitionLog, *commands: Any, **named: Any) -> list[Any] | None:
        read.extend(str(words[1]) for words in commands if words[0] == "HGETALL")
        return await right(log, *commands, **named)

    async with journaled(valkey_url, tmp_path) as board:
        held = Copied(board)
        await held.begin()
        with replaced(DefinitionLog, "_ask", asking):
            for change, title in (
                (held.items.put([Item("a", title="Anne"), Item("b c", title="Bob")]), {"a": "Anne", "b c": "Bob"}),
                (held.items.delete("a"), {"b c": "Bob"}),
                (
                    held.items.put([Item("d", title="Dan"), Item("a", title="Ann")]),
                    {"b c": "Bob", "d": "Dan", "a": "Ann"},
                ),
            ):
                await change
                assert await held.definitions.follow()
                items = (await held.in_sql())["items"]
                assert {member: json.loads(item)["title"] for member, item in items.items()} == title
            assert read == []
            await held.items.put([Item("d", title="Dora")])
            await board.client.delete(held.names.items_changes)
            assert await held.definitions.follow()
        assert read == [held.names.items]
        assert "Dora" in (await held.in_sql())["items"]["d"]


async def test_the_audit_log_has_an_entry_that_is_copied_meanwhile(valkey_url: str, tmp_path: Path) -> None:
    """`live trail` reads SQL and then the store. In between, the entry is copied to SQL."""
    async with journaled(valkey_url, tmp_path) as board:
        held, loop = Copied(board), asyncio.get_running_loop()
        await held.begin()
        await AuditTrail(board.client).add(entry_of("ann", "titled"))

        def read_then_copy(connection: Connection) -> dict[str, AuditEntry]:
            entries = read_trail(connection)
            assert asyncio.run_coroutine_threadsafe(held.definitions.follow(), loop).result(30)
            return entries

        with replaced(journal, "read_trail", read_then_copy):
            ended = await asyncio.to_thread(run_command, "trail", "--json", **as_environment(board.settings))
        assert [act["who"] for act in json.loads(ended.stdout)["trail"]] == ["ann"], ended.stderr
        assert len(await board.databases[0].run(read_trail)) == 1


async def makes_no_secret(board: Journaled) -> None:
    """Let a visitor come after a loss was noticed. No secret may be made."""
    held = Copied(board)
    await held.begin()
    await held.put_back({})
    board.client.high_water.lose("it was emptied")
    lost = ""
    try:
        await Visitors(board.client).make()
    except EpochLostError as error:
        lost = str(error)
    assert lost
    assert await board.client.get(held.names.visitors) is None


async def test_a_store_that_lost_data_gets_no_new_secret(valkey_url: str, tmp_path: Path) -> None:
    """With a new secret, a recovery would restore that secret instead of the old secret."""
    async with journaled(valkey_url, tmp_path) as board:
        await makes_no_secret(board)


@pytest.mark.mutant
async def test_a_secret_that_is_made_anyway_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant does not check whether the store lost data."""
    async with journaled(valkey_url, tmp_path) as board:
        with must_be_caught("a new secret"), replaced(HighWater, "require_no_loss", lambda _: None):
            await makes_no_secret(board)


async def test_a_store_whose_loss_was_noticed_is_not_backed_up(valkey_url: str, tmp_path: Path) -> None:
    """A server with the same data directory noticed the loss, although every board is complete."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a")
        held = Copied(board)
        await held.begin()
        await (await board.drainer()).sweep()
        board.client.high_water.lose("the producers went back")
        command = connect(valkey_url, board.settings)
        board.client, server = command, board.client
        try:
            with pytest.raises(SetupError, match="the producers went back"):
                await backed_up(board, tmp_path / "backup")
        finally:
            board.client = server
            await command.aclose()
