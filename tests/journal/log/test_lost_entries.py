"""A store went back to an older copy of a board, and gets what it lacks from SQL."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import Connection
from structlog.testing import capture_logs

from live.domain.board import Board
from live.domain.event import make_entry
from live.domain.window import Forever, Rolling, Sliding, Window
from live.errors import SetupError, StoreUnavailableError
from live.journal.log.entries import parse_head
from live.journal.log.lost_entries import Mend, UnwrittenError, write_lost
from live.journal.log.reader import entries_of
from live.journal.log.timelines import Timeline, find_timeline
from live.journal.state.difference import ContentsDifference
from live.maintenance.set_back import set_back
from live.maintenance.void import Criteria, Voiding
from live.store.board.journal_stream import trim
from live.store.board.ledger import Ledger
from live.store.board.manage.lifecycle import renew
from live.store.board.manage.mending import MEND, Mending
from live.store.board.manage.swap import Write
from live.store.board.reign import confirm
from live.store.board.requests import SCRIPTS
from live.store.board.rotation import BoardRotator
from tests.harness.boards import built, rolling_board
from tests.harness.clock import set_clock, with_clock
from tests.harness.folded import data_of
from tests.harness.journaled import Journaled, journaled
from tests.harness.mutation import must_be_caught, mutated, replaced
from tests.harness.plans import HOUR, SERVER

pytestmark = pytest.mark.one_server  # a test writes the state of a board by hand


class Losing(Journaled):
    """A board that can go back to a copy."""

    async def begin(self) -> None:
        """Move entries to SQL from now on."""
        self.drains = await self.drainer()
        self.database = self.databases[0]

    async def copy(self) -> dict[str, bytes]:
        """Every store key of the board."""
        names = [name async for name in self.client.names(self.ledger.state.keys.pattern)]
        return {name: await self.client.call(name, "DUMP", name) for name in names}

    async def put_back(self, copies: dict[str, bytes]) -> None:
        """Replace the board by a copy."""
        async for name in self.client.names(self.ledger.state.keys.pattern):
            await self.client.call(name, "DEL", name)
        for name, copy in copies.items():
            await self.client.call(name, "RESTORE", name, 0, copy)

    def timeline(self, connection: Connection) -> Timeline:
        """The timeline of the board in SQL."""
        epoch = self.ledger.state.epoch or ""
        found = find_timeline(connection, self.board.id, epoch)
        assert found is not None
        return found

    async def write(self) -> Timeline:
        """Write what the store lacks, as the drainer does."""
        timeline = await self.database.run(self.timeline)
        await write_lost(self.client, self.database, timeline, self.board)
        keys = self.ledger.state.keys
        await trim(self.client, keys, timeline.epoch, timeline.drained, timeline.size)
        return timeline

    async def send(self, member: str, identity: int, writer: Ledger | None = None) -> bool:
        """Send an event with an id. Return whether it counts."""
        entry = make_entry(member, 1, None, bytes([identity]) * 16)
        added = await (writer or self.ledger).writer.add([entry])
        self.counted += 1 - len(added.refused)
        return not added.refused


@asynccontextmanager
async def losing(store: str, folder: Path, board: Board | None = None) -> AsyncIterator[Losing]:
    """A board with a drainer."""
    async with journaled(store, folder, board) as found:
        found.__class__ = Losing
        assert isinstance(found, Losing)
        await found.begin()
        yield found


async def gets_back(store: str, folder: Path) -> None:
    """Lose batches, and send an event and a batch again. Then go on, and move the new entries to SQL."""
    async with losing(store, folder) as board:
        keys = board.ledger.state.keys
        await board.like("a", "b")
        await board.drains.sweep()
        copies = await board.copy()
        await board.like("b", "c")
        await board.send("c", 1)
        await board.drains.sweep()
        before, gained = await data_of(board.client, keys), await board.client.hget(keys.meta, "gained")
        rows = await board.rows()
        await board.put_back(copies)
        timeline = await board.write()
        assert await data_of(board.client, keys) == before, "the store does not hold what it held"
        assert await board.client.hget(keys.meta, "gained") == gained
        assert int(await board.client.hget(keys.meta, "offset") or 0) > timeline.offset
        assert await board.rows() == rows
        other = Ledger(board.client, board.board, board.settings)
        assert not await board.send("c", 1, other), "an event counts twice"
        board.ledger.writer._sequence -= 1  # after a lost reply, the writer uses the number of its last batch again
        await board.ledger.writer.add([make_entry("c", 1, None)])
        assert await board.rows() == rows, "a batch counts twice"
        await board.like("d")
        await board.drains.sweep()
        await board.must_agree()
        assert await board.database.run(board.timeline) != timeline
        assert await board.begun_again() == 0


async def test_the_store_gets_back_what_it_lost(valkey_url: str, tmp_path: Path) -> None:
    """It holds the same as before. What was counted is not counted again, and SQL keeps its entries."""
    await gets_back(valkey_url, tmp_path)


NUMBERS, TOUCHED = Mend._numbers, ContentsDifference._touched


def without(name: str) -> Any:
    """Leave out the store keys with a part of the name."""

    def forgetful(mend: Mend) -> Iterator[Write]:
        return (write for write in NUMBERS(mend) if name not in write.name)

    return forgetful


@pytest.mark.mutant
@pytest.mark.parametrize("name", [":writers", ":seen:"])
async def test_forgotten_numbers_are_detected(valkey_url: str, tmp_path: Path, name: str) -> None:
    """The mutants don't write the numbers of batches, or the identities of events."""
    with must_be_caught(name), replaced(Mend, "_numbers", without(name)):
        await gets_back(valkey_url, tmp_path)


@pytest.mark.mutant
async def test_a_member_that_is_left_out_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant does not write the record of a member."""

    def careless(difference: ContentsDifference, *given: Any) -> dict[str, None]:
        return {member: None for member in TOUCHED(difference, *given) if member != "c"}

    with must_be_caught("a member is left out"), replaced(ContentsDifference, "_touched", careless):
        await gets_back(valkey_url, tmp_path)


@pytest.mark.mutant
@pytest.mark.parametrize(
    "change",
    [
        {"math.max(board.offset, request.offset)": "board.offset"},
        {"digits(board.gained + (request.gained or 0))": "digits(board.gained)"},
    ],
)
async def test_a_wrong_end_is_detected(valkey_url: str, tmp_path: Path, change: dict[str, str]) -> None:
    """In the mutants, the offset goes back, or amounts are missing in the pace."""
    script = MEND.changed(mutated(MEND.source, change))
    with must_be_caught(str(change)), replaced(Mending, "finish", ended_by(script)):
        await gets_back(valkey_url, tmp_path)


def ended_by(script: Any) -> Any:
    """End the repair with another script."""
    finish = Mending.finish

    async def wrong(mending: Mending, request: Any) -> None:
        with replaced(__import__("live.store.board.manage.mending", fromlist=["MEND"]), "MEND", script):
            await finish(mending, request)

    return wrong


async def is_fenced(store: str, folder: Path) -> None:
    """Kill who writes after the first write. Then nobody uses the board, until another attempt has succeeded."""
    async with losing(store, folder) as board:
        keys = board.ledger.state.keys
        await board.like("a")
        await board.drains.sweep()
        copies = await board.copy()
        await board.like("a", "b")
        await board.drains.sweep()
        rows = await board.rows()
        await board.put_back(copies)
        load = Mending._load

        async def killed(mending: Mending, write: Write) -> None:
            if write.name != keys.table().ranking:
                raise StoreUnavailableError("killed")
            await load(mending, write)

        with replaced(Mending, "_load", killed), pytest.raises(StoreUnavailableError, match="killed"):
            await board.write()
        reasons = []
        for work in (board.rows, lambda: board.like("c"), lambda: board.ledger.moderation.hide("a", hidden=True)):
            try:
                await work()
            except StoreUnavailableError as error:
                reasons.append(str(error))
        assert len(reasons) == 3, "a process uses a board that holds a part"
        assert "waits until the store has again what a failover lost" in reasons[0]
        with pytest.raises(SetupError, match="live recover --from journal --board posts"):
            await renew(board.client, keys, "new")
        await board.write()
        assert await board.rows() == rows
        await board.like("c")
        await board.drains.sweep()
        await board.must_agree()


async def test_nobody_uses_a_board_that_holds_a_part(valkey_url: str, tmp_path: Path) -> None:
    """A loss can't be accepted then, because the store holds neither the old state nor the new one."""
    await is_fenced(valkey_url, tmp_path)


@pytest.mark.mutant
async def test_a_fence_that_ends_with_the_process_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """In the mutant, the board goes on after the first attempt."""
    begin = Mending.begin

    async def unfenced(mending: Mending, link: str) -> None:
        await begin(mending, link)
        await mending._client.call(mending._keys.meta, "HDEL", mending._keys.meta, "reign")

    with must_be_caught("the fence ends"), replaced(Mending, "begin", unfenced):
        await is_fenced(valkey_url, tmp_path)


async def test_of_two_who_write_the_first_one_stops(valkey_url: str, tmp_path: Path) -> None:
    """It can write nothing more, and it can't end the fence."""
    async with losing(valkey_url, tmp_path) as board:
        await board.like("a")
        keys, epoch = board.ledger.state.keys, board.ledger.state.epoch or ""
        held = await board.client.call(keys.meta, "HGET", keys.meta, "journal")
        link = held.decode().rpartition(" ")[0]
        first, second = (Mending(board.client, keys, epoch) for _ in range(2))
        await first.begin(link)
        await second.begin(link)
        write = Write("HSET", keys.slot(0), ["a", 7])
        with pytest.raises(StoreUnavailableError, match="another process writes"):
            await first.write([write])
        with pytest.raises(StoreUnavailableError, match="has changed since"):
            await Mending(board.client, keys, epoch).begin("1-0 1 w 1")
        assert await board.client.exists(keys.slot(0)) == 0
        await second.write([write])
        assert await board.client.exists(keys.slot(0)) == 1


async def test_an_entry_that_sql_lacks_ends_the_repair(valkey_url: str, tmp_path: Path) -> None:
    """The store has counted on, so one of the two must be chosen. The same goes for entries of some kinds."""
    async with losing(valkey_url, tmp_path) as board:
        await board.like("a")
        await board.drains.sweep()
        copies = await board.copy()
        await board.like("b")
        await board.drains.sweep()
        timeline, before = await board.database.run(board.timeline), await board.copy()
        await board.put_back(copies)
        await board.like("c")
        with pytest.raises(UnwrittenError, match=r"no entry 2-0 like that of the store.*`live recover --board posts"):
            await board.write()
        await board.put_back(before)
        head = parse_head(f"forget 9 3-0 1 - 0 {timeline.link}")
        keys, data = board.ledger.state.keys, await board.contents()
        with pytest.raises(
            UnwrittenError, match=r"entry 3-0, of the kind 'forget', .* `live recover --from journal --board posts`"
        ):
            await Mend(board.client, keys, board.board, timeline, data, [(head, b"")]).run()
        assert await board.rows() == [("a", 1), ("b", 1)]


async def subtracts_once(store: str, folder: Path, kind: str) -> None:
    """Lose entries after something has left the window. The copy has subtracted a part of it.

    Kill who writes before each write, and write again.
    """
    sliding = built(id="posts", title="p", window=Sliding(7200), ties="first", ranks="dense")
    made = sliding if kind == "sliding" else rolling_board("2h", "1h", ties="first")
    async with losing(store, folder, made) as board:
        client, settings = board.client, msgspec.structs.replace(board.settings, rotation_step=1)
        board.ledger = Ledger(client, made, settings, with_clock(SCRIPTS, settings))
        start = (time.time_ns() // (HOUR * 1_000_000_000) + 2) * HOUR * 1000
        await set_clock(client, settings, start)
        await board.like("a", "b", "c", "a")
        await board.drains.sweep()
        await set_clock(client, settings, start + 3600_000)
        await board.like("b", "d")
        await board.drains.sweep()
        await set_clock(client, settings, start + 3 * 3600_000 + 1)
        rotator: BoardRotator = board.ledger.rotator
        for _ in range(2):
            await rotator.rotate()  # in part
        copies = await board.copy()
        while await rotator.rotate() is None:
            pass
        await board.like("a", "b", "c", "e")
        await board.drains.sweep()
        keys = board.ledger.state.keys
        before, rows = await data_of(client, keys), await board.rows()
        load, left, kills = Mending._load, [0], 0

        async def killed(mending: Mending, write: Write) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise StoreUnavailableError("killed")
            await load(mending, write)

        while left[0] <= 0:
            await board.put_back(copies)
            kills, left[0] = kills + 1, kills
            with replaced(Mending, "_load", killed), suppress(StoreUnavailableError):
                await board.write()
            if left[0] < 0:
                await board.write()
            while await rotator.rotate() is None:
                pass
            assert await data_of(client, keys) == before
            assert await board.rows() == rows
        assert kills > 6


@pytest.mark.parametrize("kind", ["rolling", "sliding"])
async def test_what_leaves_the_window_is_subtracted_once(valkey_url: str, tmp_path: Path, kind: str) -> None:
    """The repair subtracts the rest of it, also after a kill between any two writes."""
    await subtracts_once(valkey_url, tmp_path, kind)


@pytest.mark.mutant
@pytest.mark.parametrize("kind", ["rolling", "sliding"])
@pytest.mark.parametrize("mistake", ["_leaving", "_step"])
async def test_a_wrong_repair_of_what_leaves_is_detected(
    valkey_url: str, tmp_path: Path, kind: str, mistake: str
) -> None:
    """The mutants do not read what the store still holds of it, or delete it before everything else is written."""

    async def nothing(mend: Mend) -> set[int]:
        mend._difference.move(mend._data, mend._now)
        return set()

    step = Mend._step
    wrong: Any = nothing if mistake == "_leaving" else lambda mend, write: -step(mend, write)
    with must_be_caught(mistake), replaced(Mend, mistake, wrong):
        await subtracts_once(valkey_url, tmp_path, kind)


async def test_a_server_whose_clock_is_behind_goes_on_with_the_clock_of_the_board(
    valkey_url: str, tmp_path: Path
) -> None:
    """The times of entries do not go back, and what the lost entries counted stays in its slots."""
    async with losing(valkey_url, tmp_path, SERVER) as board:
        client, board.ledger = board.client, Ledger(board.client, SERVER, board.settings)
        keys = board.ledger.state.keys
        await board.like("a")
        await board.drains.sweep()
        copies = await board.copy()
        ahead = time.time_ns() // 1_000_000 + 3 * HOUR * 1000
        board.ledger = Ledger(client, SERVER, board.settings, with_clock(SCRIPTS, board.settings))
        await set_clock(client, board.settings, ahead)
        for member in "bcb":
            await board.like(member)
        await board.drains.sweep()
        rows, before = await board.rows(), await board.contents()
        await board.put_back(copies)
        await board.write()
        board.ledger = Ledger(client, SERVER, board.settings)
        assert await board.rows() == rows
        after = await board.contents()
        assert (after.slots, after.newest) == (before.slots, before.newest)
        assert int(await client.hget(keys.meta, "clock") or 0) == after.time == ahead * 1000
        await board.like("a")
        await board.drains.sweep()
        heads = await board.database.run(lambda sql: [head for head, _ in entries_of(sql, board.timeline(sql))])
        assert [head.time for head in heads] == sorted(head.time for head in heads)
        await board.must_agree()


async def test_a_lost_swap_leaves_its_edition(valkey_url: str, tmp_path: Path) -> None:
    """A warning says that the swap may have repaired what the store has now again."""
    async with losing(valkey_url, tmp_path) as board:
        await board.like("a")
        await board.drains.sweep()
        keys, epoch = board.ledger.state.keys, board.ledger.state.epoch or ""
        await board.client.hset(keys.baseline, "marks", "old")
        data = await board.contents()
        head = parse_head(f"swap 99 2-0 {data.time + 1} - 0 {data.link}")
        end = Timeline(1, "posts", epoch, head.id, head.link, head.size)
        mend = Mend(board.client, keys, board.board, end, data, [(head, msgspec.msgpack.encode({"edition": 1}))])
        with capture_logs() as logs:
            await mend.run()
        ((level, message),) = [(line["log_level"], line["event"]) for line in logs]
        assert (level, "live check --repair store" in message) == ("warning", True)
        assert await confirm(board.client, keys, epoch, "") is None
        assert (await board.ledger.reader.read(1)).epoch == f"{epoch}e1"
        assert await board.client.exists(keys.baseline) == 0


@pytest.mark.parametrize("window", [Sliding(HOUR), Rolling(2 * HOUR, HOUR)])
async def test_events_that_were_taken_back_stay_so(valkey_url: str, tmp_path: Path, window: Window) -> None:
    """The store lost the swap that has taken them back, and events around it."""
    async with losing(valkey_url, tmp_path, built(id="posts", title="p", window=window, ties="first")) as board:
        keys = board.ledger.state.keys
        await board.ledger.writer.add([make_entry("a", 5), make_entry("b", 1)], [("ann", 1), ("bob", 1)])
        await board.drains.sweep()
        copies = await board.copy()
        await board.ledger.writer.add([make_entry("c", 3), make_entry("b", 4)], [("ann", 1), ("bob", 1)])
        voiding = Voiding(board.client, board.settings, board.database, lambda *_: None)
        (outcome,) = await voiding.void(Criteria(producer="ann"), "posts", dry=False)
        assert (outcome.events, outcome.fault) == (2, "")
        await board.ledger.writer.add([make_entry("b", 1), make_entry("d", 2)], [("ann", 1), ("bob", 1)])
        rows = await board.rows()
        assert rows == [("b", 6), ("d", 2)]
        await board.drains.sweep()
        before = await data_of(board.client, keys)
        await board.put_back(copies)
        await board.write()
        assert await data_of(board.client, keys) == before
        board.ledger = Ledger(board.client, board.board, board.settings)
        assert await board.rows() == rows == await board.rows_in_sql()


async def test_a_ranking_that_a_lost_swap_has_emptied_has_no_total(valkey_url: str, tmp_path: Path) -> None:
    """The only event of the board was taken back, and a failover lost that."""
    async with losing(valkey_url, tmp_path, built(id="posts", title="p", window=Forever())) as board:
        await board.ledger.writer.add([make_entry("a", 5)], [("ann", 1)])
        await board.drains.sweep()
        copies = await board.copy()
        voiding = Voiding(board.client, board.settings, board.database, lambda *_: None)
        (outcome,) = await voiding.void(Criteria(producer="ann"), "posts", dry=False)
        assert (outcome.events, outcome.fault) == (1, "")
        await board.drains.sweep()
        await board.put_back(copies)
        await board.write()
        board.ledger = Ledger(board.client, board.board, board.settings)
        assert (await board.ledger.reader.read(1)).total_score == 0


@pytest.mark.parametrize("lost", ["swap", "all"])
async def test_events_that_a_lost_swap_has_undone_may_come_again(valkey_url: str, tmp_path: Path, lost: str) -> None:
    """The board was set back, and a failover lost that, alone or with the event that was undone."""
    async with losing(valkey_url, tmp_path) as board:
        assert await board.send("x", 1)
        await board.drains.sweep()
        await asyncio.sleep(0.002)
        at = time.time_ns() // 1_000_000
        await asyncio.sleep(0.002)
        copies = await board.copy()
        assert await board.send("c", 2)
        await board.drains.sweep()
        copies = copies if lost == "all" else await board.copy()
        epoch = board.ledger.state.epoch or ""
        await set_back(board.client, board.settings, board.database, board.board, epoch, at, lambda *_: None, dry=False)
        await board.drains.sweep()
        await board.put_back(copies)
        await board.write()
        board.ledger = Ledger(board.client, board.board, board.settings)
        assert not await board.send("x", 1), "an event from before that time is a duplicate"
        assert await board.send("c", 2)
        await board.drains.sweep()
        assert sorted(await board.rows()) == sorted(await board.rows_in_sql()) == [("c", 1), ("x", 1)]
