"""Checkpoints do not change what the journal contains, and allow it to delete older entries."""

import asyncio
import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, insert, select, update
from structlog.testing import capture_logs

import live.journal.upkeep.checkpoints
import live.journal.upkeep.compactor
from live.boards.admin import BoardAdmin
from live.boards.definitions import read_board
from live.domain.board import Boards
from live.journal.log.reader import before
from live.journal.log.timelines import begin_timelines, end_timelines, find_lost, open_timelines
from live.journal.schema import CHECKPOINT, DEFINITION, LIFE, PERIOD, SEGMENT
from live.journal.state.snapshot import pack
from live.journal.upkeep.checkpoints import due, keep, make
from live.journal.upkeep.compactor import Compactor, forget_entries, forget_timelines
from live.metrics import JOURNAL_ARCHIVE_LAG
from live.store.board.journal_stream import announced
from live.store.board.ledger import Ledger
from live.system.processes import CHILDREN, follow_parent
from tests.harness.journaled import Journaled, journaled
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.server import define
from tests.harness.tasks import stop
from tests.harness.waiting import eventually

FAR = 2**60  # microseconds
LONG = 10.0  # seconds; killing a process takes milliseconds


async def filled(board: Journaled, segments: int) -> None:
    """Drain one batch at a time."""
    drainer = await board.drainer()
    for number in range(segments):
        await board.like("a", f"m{number % 7}")
        await drainer.sweep()


async def count(board: Journaled, table: Any) -> int:
    """The number of rows of a table."""
    asked = select(func.count()).select_from(table)
    return await board.databases[0].run(lambda connection: connection.scalar(asked) or 0)


async def checkpoint(board: Journaled) -> bool:
    """Make a checkpoint if a checkpoint is due, long after the last entry."""

    def work(connection: Any) -> bool:
        (timeline,) = open_timelines(connection)
        wanted = due(connection, timeline, FAR)
        if wanted is not None:
            keep(connection, wanted, *make(connection, wanted))
        return wanted is not None

    return await board.databases[0].run(work)


async def test_a_checkpoint_does_not_change_the_past(valkey_url: str, tmp_path: Path) -> None:
    """The contents now and at an earlier time stay the same. If nothing has happened, no checkpoint is due."""
    async with journaled(valkey_url, tmp_path) as board:
        await filled(board, 5)
        middle = (await board.contents()).time // 1000 + 1
        assert await checkpoint(board)
        assert not await checkpoint(board)
        await filled(board, 5)
        with_checkpoint = [pack(await board.contents()), pack(await board.contents(stop=before(middle)))]
        assert await board.rows_in_sql() == await board.rows()
        await board.databases[0].run(lambda connection: connection.execute(CHECKPOINT.delete()))
        assert [pack(await board.contents()), pack(await board.contents(stop=before(middle)))] == with_checkpoint


async def test_entries_older_than_the_setting_are_deleted(valkey_url: str, tmp_path: Path) -> None:
    """The newest checkpoint that is old enough stays, so everything after it can be read."""
    async with journaled(valkey_url, tmp_path) as board:
        await filled(board, 3)
        (timeline,) = await board.databases[0].run(open_timelines)
        assert await board.databases[0].run(lambda connection: forget_entries(connection, timeline, FAR)) == 0, (
            "entries were deleted without a checkpoint"
        )
        await checkpoint(board)
        await filled(board, 2)
        await checkpoint(board)
        assert await board.databases[0].run(lambda connection: forget_entries(connection, timeline, FAR)) > 0
        assert (await count(board, CHECKPOINT), await count(board, SEGMENT)) == (1, 0)
        await filled(board, 2)
        assert await board.rows_in_sql() == await board.rows()


async def test_old_titles_are_kept_once_a_day(valkey_url: str, tmp_path: Path) -> None:
    """Every version of the last 30 days stays, and the newest one. So does the whole audit log."""
    day, now = 86_400_000_000, time.time_ns() // 1000
    begin = now // day * day - 40 * day
    times = [begin, begin + day // 2, begin + day - 1, begin + day, begin + 3 * day // 2, now - day, now - day + 1]
    async with journaled(valkey_url, tmp_path) as board:
        await filled(board, 1)
        database, prefix = board.databases[0], board.settings.key_prefix
        rows = [
            {"prefix": prefix, "kind": kind, "name": name, "version": version, "time": at, "value": "{}"}
            for kind, name in (("items", "a"), ("trail", "a"), ("items", "b"))
            for version, at in enumerate(times[: 2 if name == "b" else None])
        ]
        await database.run(lambda connection: connection.execute(insert(DEFINITION), rows))
        await Compactor(board.settings, database).step(now)

        def left(kind: str, name: str) -> Any:
            wanted = select(DEFINITION.c.version).where(DEFINITION.c.kind == kind, DEFINITION.c.name == name)
            return database.work(lambda connection: connection.scalars(wanted.order_by(DEFINITION.c.id)).all())

        found = [await asyncio.to_thread(left, *key) for key in (("items", "a"), ("trail", "a"), ("items", "b"))]
        assert found == [[2, 4, 5, 6], [*range(7)], [1]]


async def test_the_compactor_makes_checkpoints_in_another_process(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process only reads."""
    monkeypatch.setattr(live.journal.upkeep.checkpoints, "LEAST", 0)
    async with journaled(valkey_url, tmp_path) as board:
        await filled(board, 3)
        await Compactor(board.settings, board.databases[0]).step()
        assert await count(board, CHECKPOINT) == 1
        assert await board.rows_in_sql() == await board.rows()


async def test_entries_are_kept_for_whole_seconds(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries before the last checkpoint are deleted when they are older than `journal_events`."""
    monkeypatch.setattr(live.journal.upkeep.checkpoints, "LEAST", 0)
    day = 86_400 * 1_000_000
    async with journaled(valkey_url, tmp_path, journal_events=86_400) as board:
        await filled(board, 3)
        await Compactor(board.settings, board.databases[0]).step()
        made = await board.databases[0].run(lambda connection: connection.scalar(select(CHECKPOINT.c.time)) or 0)
        counts = []
        for late in (0, 1):
            await Compactor(board.settings, board.databases[0]).step(made + day + late)
            counts.append(await count(board, SEGMENT))
        assert counts == [3, 0]


async def test_periods_are_kept_for_whole_seconds(valkey_url: str, tmp_path: Path) -> None:
    """The age of a period counts from its end. A period that is just as old as the setting is deleted."""
    hours = read_board("hours", {"window": {"calendar": "hour", "keep": 2}})
    async with journaled(valkey_url, tmp_path, hours, journal_periods=86_400) as board:
        await filled(board, 1)
        now = (int(time.time()) // 3600 + 48) * 3600
        starts = [now - 86_400 + hour * 3600 for hour in (-1, 0, 1)]

        def archive(connection: Any) -> None:
            (timeline,) = open_timelines(connection)
            row = {"life": timeline.id, "newest": now, "revision": 1, "offset": 0, "crc": 0, "final": True, "data": b""}
            connection.execute(insert(PERIOD), [row | {"start": start} for start in starts])

        await board.databases[0].run(archive)
        for late, left in ((-1, starts), (0, starts[1:])):
            await Compactor(board.settings, board.databases[0], lambda: Boards([hours])).step(now * 1_000_000 + late)
            assert await board.databases[0].run(lambda sql: sql.scalars(select(PERIOD.c.start)).all()) == left


async def test_an_epoch_that_never_began_is_no_loss(valkey_url: str, tmp_path: Path) -> None:
    """A process announces an epoch for a new board, but another process has created the board first."""
    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        await board.like("a")
        async with announced(board.client, board.ledger.state.keys, "ffffffff"):
            pass
        for _ in range(3):
            await drainer.sweep()
        assert await find_lost(board.client, board.databases[0]) == []


def ends(*_: object) -> None:
    """Work that kills its process."""
    os._exit(9)


async def until_a_step_is_reported(compactor: Compactor, patched: pytest.MonkeyPatch) -> None:
    """Let a compactor run until the metric has the time that the archive is behind."""
    patched.setattr(live.journal.upkeep.compactor, "_INTERVAL", 0.01)
    JOURNAL_ARCHIVE_LAG.set(-1)

    async def is_reported() -> bool:
        return bool(JOURNAL_ARCHIVE_LAG._value.get() >= 0)

    running = asyncio.create_task(compactor.run())
    await eventually(is_reported)
    await stop(running)


async def test_the_compactor_outlives_the_process_that_works_for_it(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the process dies, the compactor reports the error, and starts another process at the next step."""
    monkeypatch.setattr(live.journal.upkeep.checkpoints, "LEAST", 0)
    async with journaled(valkey_url, tmp_path) as board:
        await filled(board, 3)
        compactor = Compactor(board.settings, board.databases[0])
        with monkeypatch.context() as killing:
            killing.setattr(live.journal.upkeep.compactor, "make", ends)
            with capture_logs() as logs:
                await until_a_step_is_reported(compactor, killing)
            assert "has ended" in logs[0]["reason"]
        await filled(board, 1)  # a step looks only at boards that have changed
        await until_a_step_is_reported(compactor, monkeypatch)
        assert await count(board, CHECKPOINT) == 1


def goes_on(*_: object) -> None:
    """Work that takes long."""
    time.sleep(LONG)


async def stopped_amid_work(compactor: Compactor) -> None:
    """Stop a compactor whose other process works. Nothing is left of it, and this process goes on at once."""
    step = asyncio.create_task(compactor.step())

    async def works() -> bool:
        return bool(active_children())

    await eventually(works)
    began = time.monotonic()
    await stop(step)
    assert time.monotonic() - began < LONG
    assert not active_children()


async def test_a_compactor_that_stops_does_not_wait_for_the_other_process(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that stops would otherwise serve nobody until a checkpoint is made."""
    monkeypatch.setattr(live.journal.upkeep.checkpoints, "LEAST", 0)
    monkeypatch.setattr(live.journal.upkeep.compactor, "make", goes_on)
    async with journaled(valkey_url, tmp_path) as board:
        await filled(board, 3)
        await stopped_amid_work(Compactor(board.settings, board.databases[0]))


@pytest.mark.mutant
async def test_waiting_for_the_other_process_is_detected(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant waits until the work has ended."""
    module = live.journal.upkeep.compactor
    monkeypatch.setattr(live.journal.upkeep.checkpoints, "LEAST", 0)
    monkeypatch.setattr(module, "make", goes_on)
    async with journaled(valkey_url, tmp_path) as board:
        await filled(board, 3)
        waiting = replaced(module, "_other_process", lambda: ProcessPoolExecutor(1, CHILDREN, follow_parent))
        with must_be_caught("this process waits"), waiting:
            await stopped_amid_work(Compactor(board.settings, board.databases[0]))


async def test_damage_of_one_board_does_not_stop_the_others(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next board still gets its checkpoint."""
    monkeypatch.setattr(live.journal.upkeep.checkpoints, "LEAST", 0)
    async with journaled(valkey_url, tmp_path) as board:
        await filled(board, 3)

        def damage(connection: Any) -> int:
            (timeline,) = connection.execute(select(LIFE)).mappings().all()
            other = {**timeline, "id": timeline["id"] + 1, "board": "other"}
            connection.execute(insert(LIFE), other)
            segments = connection.execute(select(SEGMENT)).mappings().all()
            copies = [{**row, "id": row["id"] + len(segments), "life": other["id"]} for row in segments]
            connection.execute(insert(SEGMENT), copies)
            connection.execute(update(SEGMENT).where(SEGMENT.c.life == timeline["id"]).values(crc=SEGMENT.c.crc + 1))
            return int(other["id"])

        sound = await board.databases[0].run(damage)
        await Compactor(board.settings, board.databases[0]).step()
        made = await board.databases[0].run(lambda sql: sql.execute(select(CHECKPOINT.c.life)).scalars().all())
        assert made == [sound]


async def ended_timelines_are_forgotten(board: Journaled) -> None:
    """A board is deleted again and again. A timeline is forgotten when it ended longer ago than the setting."""
    drainer = await board.drainer()
    for _ in range(3):
        await define(board.settings, [board.board])
        board.ledger = Ledger(board.client, board.board, board.settings)
        board.client.high_water.active = False
        await board.like("a")
        await drainer.sweep()
        await BoardAdmin(board.client, board.settings).delete("posts", "a test")
        for _ in range(2):
            await drainer.sweep()
    assert (await count(board, LIFE), await count(board, SEGMENT)) == (3, 3)
    compactor, year = Compactor(board.settings, board.databases[0]), 366 * 86_400 * 1_000_000
    await compactor.step()
    assert await count(board, LIFE) == 3, "timelines are forgotten too early"
    await compactor.step(time.time_ns() // 1000 + 10 * year)
    assert (await count(board, LIFE), await count(board, SEGMENT)) == (1, 1)


async def test_timelines_that_ended_long_ago_are_forgotten(valkey_url: str, tmp_path: Path) -> None:
    """Only the row of the newest timeline stays."""
    async with journaled(valkey_url, tmp_path) as board:
        await ended_timelines_are_forgotten(board)


@pytest.mark.mutant
async def test_ended_timelines_that_stay_are_detected(valkey_url: str, tmp_path: Path) -> None:
    """In the mutant, boards that are made and deleted every day fill the database."""
    async with journaled(valkey_url, tmp_path) as board:
        with (
            replaced(live.journal.upkeep.compactor, "forget_timelines", lambda *_: None),
            must_be_caught("ended timelines stay"),
        ):
            await ended_timelines_are_forgotten(board)


@pytest.mark.parametrize("archived", [False, True])
async def test_a_timeline_is_kept_for_whole_seconds(valkey_url: str, tmp_path: Path, *, archived: bool) -> None:
    """Archived periods may keep a timeline for longer than its events do."""
    async with journaled(valkey_url, tmp_path) as board:
        await filled(board, 1)
        day = 86_400

        def left(connection: Any) -> list[int]:
            (timeline,) = open_timelines(connection)
            end_timelines(connection, [timeline])
            begin_timelines(connection, [(board.board.id, "later")])
            ended = connection.scalar(select(LIFE.c.ended).where(LIFE.c.id == timeline.id))
            if archived:
                row = dict.fromkeys(("start", "newest", "revision", "offset", "crc"), 0)
                connection.execute(insert(PERIOD).values(life=timeline.id, final=True, data=b"", **row))
            kept, counts = (0, day) if archived else (day, 0), []
            for late in (0, 1):
                forget_timelines(connection, lambda _: kept, ended + day * 1_000_000 + late)
                counts.append(connection.scalar(select(func.count()).select_from(LIFE)))
            return counts

        assert await board.databases[0].run(left) == [2, 1]


async def test_a_timeline_stays_while_another_one_begins_with_it(valkey_url: str, tmp_path: Path) -> None:
    """Without the earlier timeline, nobody could read the contents of the later timeline.

    The earlier timeline can be deleted when the later timeline has a checkpoint.
    """
    async with journaled(valkey_url, tmp_path) as board:
        await filled(board, 2)
        (timeline,) = await board.databases[0].run(open_timelines)

        def continued(connection: Any) -> None:
            end_timelines(connection, [timeline])
            (later,) = begin_timelines(connection, [(board.board.id, "later")])
            connection.execute(update(LIFE).where(LIFE.c.id == later.id).values(parent=timeline.epoch))
            connection.execute(update(SEGMENT).values(life=later.id).where(SEGMENT.c.last == timeline.offset))

        def forget_all(connection: Any) -> None:
            forget_timelines(connection, lambda _: (0, 0), FAR)

        await board.databases[0].run(continued)
        await board.databases[0].run(forget_all)
        assert await count(board, LIFE) == 2

        def with_checkpoint(connection: Any) -> None:
            later, newest = connection.execute(
                select(SEGMENT.c.life, SEGMENT.c.id).order_by(SEGMENT.c.id.desc())
            ).first()
            row = {"life": later, "segment": newest, "time": 0, "crc": 0, "data": b""}
            connection.execute(insert(CHECKPOINT).values(row))
            connection.execute(SEGMENT.delete().where(SEGMENT.c.life == later))

        await board.databases[0].run(with_checkpoint)
        await board.databases[0].run(forget_all)
        assert (await count(board, LIFE), await count(board, SEGMENT)) == (1, 0)
