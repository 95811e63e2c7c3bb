"""A backup that is made while events are counted holds everything that was acknowledged before."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import func, select

import live.journal.upkeep.compactor
import live.maintenance.backup
import live.maintenance.draining
from live.boards.admin import BoardAdmin
from live.domain.event import make_entry
from live.errors import JournalBrokenError, SetupError
from live.journal.database import Database
from live.journal.log.reader import contents_of
from live.journal.log.timelines import open_timelines
from live.journal.schema import SEGMENT
from live.journal.state.ranking import ranked_at
from live.maintenance.backup import back_up, check_files, put_back, read_manifest
from live.maintenance.draining import draining, is_settled
from live.maintenance.journal import verify
from live.maintenance.recover import Recovery, Wanted
from live.store.board.keys import SystemKeys
from live.store.board.ledger import Ledger
from live.store.board.manage.lifecycle import delete_keys
from tests.harness.journaled import Journaled, Rows, backed_up, journaled
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.server import define
from tests.harness.waiting import DEADLINE, eventually
from tests.maintenance.test_erase import checkpoint
from tests.maintenance.test_recover_again import lose, rows
from tests.maintenance.test_rules import board_of, rule

copy_database = live.maintenance.backup.copy_database


def rows_in(board: Journaled, folder: Path) -> Rows:
    """The ranking in a backup, or in another data directory."""
    prefix = board.settings.key_prefix
    with Database("sqlite", folder, prefix, writes=False) as copy:
        assert verify(copy, lambda *_: None).sound
        (timeline,) = copy.work(open_timelines)
        data = copy.work(lambda sql: contents_of(sql, timeline))
    found = ranked_at(board.board, data, data.time // 1000)
    return [(member, found.scores[member]) for member in found.members]


async def back_up_before_sql_has_all(board: Journaled, folder: Path) -> None:
    """Begin a backup while some likes wait in the store. Then a drainer moves them."""
    drainer = await board.drainer()
    await board.like("a", "b")
    await drainer.sweep()
    await board.like("a")
    source = Database("sqlite", board.folder, board.settings.key_prefix, writes=False)
    backup = asyncio.create_task(back_up(board.client, board.settings, source, folder, lambda *_: None))
    await asyncio.wait([backup], timeout=0.3)
    await drainer.sweep()
    await backup
    assert rows_in(board, folder) == await board.rows()


async def test_a_backup_waits_until_sql_has_what_the_store_had(valkey_url: str, tmp_path: Path) -> None:
    """The backup has every event that was acknowledged before it began."""
    async with journaled(valkey_url, tmp_path) as board:
        await back_up_before_sql_has_all(board, tmp_path / "backup")


@pytest.mark.mutant
async def test_a_backup_that_does_not_wait_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant copies the database at once."""

    async def at_once(*_: object) -> bool:
        return True

    async with journaled(valkey_url, tmp_path) as board:
        with must_be_caught("entries are missing"), replaced(live.maintenance.backup, "is_settled", at_once):
            await back_up_before_sql_has_all(board, tmp_path / "backup")


async def test_a_backup_is_refused_if_nobody_moves_the_entries(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backup leaves no files, so the same command can run again."""
    monkeypatch.setattr(live.maintenance.draining, "_PATIENCE", 0.3)
    async with journaled(valkey_url, tmp_path) as board:
        await (await board.drainer()).sweep()
        await board.like("a")
        source = Database("sqlite", tmp_path, board.settings.key_prefix, writes=False)
        folder = tmp_path / "backup"
        with pytest.raises(SetupError, match="still wait in the store"):
            await back_up(board.client, board.settings, source, folder, lambda *_: None)
        assert list(folder.iterdir()) == []
        await backed_up(board, folder)


async def test_boards_that_are_not_in_sql_yet_are_in_the_backup(valkey_url: str, tmp_path: Path) -> None:
    """The whole journal of such boards waits in the store. In the backup, the timeline of a deleted board ends."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a")
        await board.drainer()
        state = board.ledger.state
        await delete_keys(board.client, state.keys, state.epoch or "")
        again = Ledger(board.client, board.board, board.settings)
        await again.writer.add([make_entry("new", 1, None, None)])
        folder = tmp_path / "backup"
        manifest = await backed_up(board, folder)
        assert [(one.board, one.epoch) for one in manifest.boards] == [("posts", again.state.epoch)]
        assert rows_in(board, folder) == [("new", 1)]


async def test_rules_change_while_a_backup_is_made(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy of the database lacks the change, and its definition of the board has it. The backup can be restored."""
    copy_all = live.maintenance.backup._copy
    async with journaled(valkey_url, tmp_path, board_of({"ties": "first"})) as board:
        admin = BoardAdmin(board.client, board.settings)

        async def copy(*words: Any) -> None:
            await copy_all(*words)
            await admin.rule("posts", {"ties": "last"}, "me", None, lambda ruling: rule(board, ruling.new))

        monkeypatch.setattr(live.maintenance.backup, "_copy", copy)
        await board.like("a", "b")
        before = await board.rows()
        await backed_up(board, tmp_path / "backup")
        assert rows_in(board, tmp_path / "backup") == before
        await lose(board)
        (tmp_path / "new").mkdir()
        with Database("sqlite", tmp_path / "new", board.settings.key_prefix, writes=True) as database:
            put_back(tmp_path / "backup", database)
        with Database("sqlite", tmp_path / "new", board.settings.key_prefix, writes=True) as database:
            await Recovery(board.client, board.settings, database, lambda *_: None).recover(Wanted())
        assert await rows(board) == before


async def test_a_board_without_its_rules_is_a_fault(valkey_url: str, tmp_path: Path) -> None:
    """Nobody could recover it, so a backup of it is refused, and `live journal --verify` tells it."""
    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        await board.like("a")
        await drainer.sweep()
        await drainer._definitions.follow()
        definitions = BoardAdmin(board.client, board.settings).definitions
        held = await definitions.load()
        other = msgspec.structs.replace(held.boards["posts"], choices={"types": ["like"], "window": "forever"})
        assert await definitions.keep(held.version, {"posts": other})
        fault = "does not say by which rules board 'posts' counted"
        with pytest.raises(SetupError, match=fault):
            await backed_up(board, tmp_path / "backup")
        await drainer._definitions.follow()
        (verdict,) = verify(drainer.database, lambda *_: None).boards
        assert [fault in one for one in verdict.faults] == [True]


async def test_a_store_that_lost_data_is_not_backed_up(valkey_url: str, tmp_path: Path) -> None:
    """In such a backup, the lost boards would look deleted."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a")
        await (await board.drainer()).sweep()
        async for name in board.client.names(f"{board.settings.key_prefix}:*"):
            await board.client.delete(name)
        with pytest.raises(SetupError, match="live recover"):
            await backed_up(board, tmp_path / "backup")


async def test_a_backup_names_the_boards_without_a_journal(valkey_url: str, tmp_path: Path) -> None:
    """The backup has no data of these boards."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a")
        await (await board.drainer()).sweep()
        off = msgspec.structs.replace(board.board, id="off", journal="off")
        source = Database("sqlite", tmp_path, board.settings.key_prefix, writes=False)
        await define(board.settings, [off])
        made = await back_up(board.client, board.settings, source, tmp_path / "backup", lambda *_: None)
        assert made.left_out == ["off"]


async def test_files_are_private_and_damage_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """Each file has a checksum, and no other user can read it. A directory that has files is refused."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a")
        await (await board.drainer()).sweep()
        folder = tmp_path / "backup"
        made = await backed_up(board, folder)
        with pytest.raises(SetupError, match="not empty"):
            await backed_up(board, folder)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())}
    assert modes == {"backup": 0o700, made.files[0].name: 0o600, "manifest.json": 0o600}
    assert read_manifest(folder) == made
    check_files(folder, made, lambda *_: None)
    path = folder / made.files[0].name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(SetupError, match="damaged"):
        check_files(folder, made, lambda *_: None)
    (folder / "manifest.json").unlink()
    with pytest.raises(SetupError, match="interrupted"):
        read_manifest(folder)


async def test_the_copy_is_of_one_instant_while_another_process_writes(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write between two steps does not restart the copy."""
    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        for _ in range(20):
            await board.like(*(f"m{number}" for number in range(200)))
            await drainer.sweep()
        before = await board.rows_in_sql()
        steps: list[tuple[int, int]] = []
        target = tmp_path / "copy" / board.databases[0].path.name
        target.parent.mkdir()
        loop = asyncio.get_running_loop()

        async def write() -> None:
            await board.like("new")
            await drainer.sweep()

        def show(done: int, total: int) -> None:
            steps.append((done, total))
            assert len(steps) < 100, "writes made the copy begin again"
            asyncio.run_coroutine_threadsafe(write(), loop).result(10)

        monkeypatch.setattr(live.maintenance.backup, "_PAGES", 4)
        await asyncio.to_thread(copy_database, board.databases[0].path, target, show)
        assert len(steps) > 3
        assert [done for done, _ in steps] == sorted(done for done, _ in steps)
        assert before != await board.rows()
        assert rows_in(board, target.parent) == before


async def test_a_command_that_moves_entries_deletes_nothing_of_the_past(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command does not know for how long each board keeps its events."""
    monkeypatch.setattr(live.journal.upkeep.compactor, "_INTERVAL", 0.0)
    async with journaled(valkey_url, tmp_path, journal_events=0.001) as board:
        drainer = await board.drainer()
        await board.like("a")
        await drainer.sweep()
        database = board.databases[0]
        await asyncio.to_thread(database.work, lambda sql: checkpoint(sql, board))
        await database.aclose()
        async with draining(board.client, board.settings) as (journal, mover):
            assert mover.writes
            for _ in range(10):
                await board.like("a")
                assert await is_settled(board.client)
            kept = await journal.run(lambda sql: sql.scalar(select(func.sum(SEGMENT.c.entries))))
        assert kept == 12


async def test_a_command_with_another_journal_says_so_and_reports_no_fault(valkey_url: str, tmp_path: Path) -> None:
    """The journals of the store are sound: only the settings of the command are wrong."""
    other = tmp_path / "other"
    other.mkdir()
    async with journaled(valkey_url, tmp_path) as board:
        await (await board.drainer()).claim()
        await board.drainer(other)
        settings = msgspec.structs.replace(board.settings, data_dir=other)
        names = SystemKeys(settings.key_prefix)

        async def reported() -> None:
            async with draining(board.client, settings):
                await eventually(partial(board.client.call, names.journal_fault, "GET", names.journal_fault))

        with pytest.raises(SetupError, match="the journals of this store go into the database"):
            await reported()
        for name in (names.journal_fault, names.journal_health):
            assert await board.client.call(name, "GET", name) is None


async def test_a_command_ends_when_its_journal_breaks(valkey_url: str, tmp_path: Path) -> None:
    """It names the reason at once, and waits for no entry that can't be moved."""
    async with journaled(valkey_url, tmp_path) as board:
        await (await board.drainer()).claim()
        await board.databases[0].aclose()

        async def breaking() -> None:
            async with draining(board.client, board.settings):
                board.databases[0].path.unlink()
                await asyncio.sleep(DEADLINE)

        with pytest.raises(JournalBrokenError, match="was deleted"):
            await breaking()
