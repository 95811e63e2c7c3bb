"""The fence after a failover, while connections of several reigns are open."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import live.journal.log.drainer
import live.store.board.manage.erasure
import live.store.board.manage.lifecycle
from live.domain.event import make_entry
from live.errors import EpochLostError, StoreUnavailableError
from live.store.board.journal_stream import ADOPT, begin_journal
from live.store.board.keys import SystemKeys
from live.store.board.ledger import Ledger
from live.store.board.manage.erasure import erase_digests, forget_member, read_held
from live.store.board.manage.lifecycle import expire, update
from live.store.board.reign import Fence, Unchecked
from live.store.board.requests import SCRIPTS
from live.store.connection.client import connect
from live.store.connection.pipelined import Word
from live.store.registry.journals import JournalHealth, publish_health
from tests.harness.boards import BOARD, open_ledger
from tests.harness.journaled import journaled
from tests.harness.mutation import replaced
from tests.harness.scripts import under
from tests.harness.settings import fresh_settings
from tests.harness.waiting import DEADLINE


async def test_a_board_that_is_refused_after_each_check_is_unavailable(sentinel_url: str, tmp_path: Path) -> None:
    """The board is checked under one reign, but scripts run under another reign.

    After some attempts, the caller gives up.
    """
    settings = fresh_settings(sentinel_url, data_dir=tmp_path)
    client = connect(sentinel_url, settings)
    ledger = Ledger(client, BOARD, settings)
    try:
        await ledger.writer.add([make_entry("a", 1, None)])
        ledger.state.scripts = msgspec.structs.replace(SCRIPTS, read=under(SCRIPTS.read))
        with pytest.raises(StoreUnavailableError, match="waits until it was checked"):
            await asyncio.wait_for(ledger.reader.read(1), DEADLINE)
    finally:
        await client.aclose()


async def test_a_board_goes_on_without_sql_after_a_while(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While scripts refuse a board, its process asks the drainer at most twice a second to check it.

    After two seconds without a refusal, the wait begins again. If SQL answers, or producers wait for SQL, the board
    waits for the drainer. A board without a journal waits for nobody.
    """
    now, asked = [100.0], list[Word]()
    monkeypatch.setattr("live.store.board.reign.time", SimpleNamespace(monotonic=lambda: now[0]))
    async with open_ledger(valkey_url, BOARD, data_dir=tmp_path) as ledger:
        client, keys, settings = ledger.state.client, ledger.state.keys, ledger.state.settings
        call, fence = client.call, Fence(client, keys, settings)

        async def noting(key: str, *words: Word) -> Any:
            if words[0] == "SPUBLISH":
                asked.append(words[2])
            return await call(key, *words)

        async def waits_at(*times: float) -> list[bool]:
            found = []
            for now[0] in times:
                try:
                    await fence.check("e", 1, b"link", behind=False)
                except StoreUnavailableError as error:
                    assert "waits until it was checked" in str(error)  # noqa: PT017 - the other outcome counts too
                    found.append(True)
                else:
                    found.append(False)
            return found

        monkeypatch.setattr(client, "call", noting)
        assert await waits_at(100, 100.4) == [True, True]
        assert asked == ["e:1"]
        assert await waits_at(100.5, 101.9, 102, 104) == [True, True, False, False]
        assert len(asked) == 4
        with pytest.raises(StoreUnavailableError, match="waits until the store has again what a failover lost"):
            await fence.check("e", 1, b"link", behind=True)
        assert await waits_at(106.1, 107, 108, 109) == [True, True, True, False]
        await publish_health(client, JournalHealth(), "")
        assert await waits_at(109) == [True]
        asked.clear()
        await fence.check("e", 1, b"", behind=True)
        assert asked == []
        client.high_water.active = True
        client.high_water.note(keys.board, "e", 2)
        lost = r"board posts \(epoch e\) is at offset 1 after a failover, and 2 was acknowledged"
        with pytest.raises(EpochLostError, match=lost):
            await fence.check("e", 1, b"", behind=False)
        with pytest.raises(EpochLostError, match=lost):
            await fence.check("e", 2, b"", behind=False)
        health = SystemKeys(settings.key_prefix).journal_health
        await client.call(health, "DEL", health)
        client.high_water.end_losses([])
        client.high_water.offsets.forget()
        fence = Fence(client, keys, replace(settings, journal_ack=True))
        assert await waits_at(200, 201, 202, 203) == [True] * 4


async def test_a_change_of_an_unchecked_board_is_refused(valkey_url: str) -> None:
    """The scripts of erasures and other changes without a ledger also refuse the board, and change nothing."""
    async with open_ledger(valkey_url, BOARD) as ledger, asyncio.timeout(DEADLINE):
        await ledger.writer.add([make_entry("a")])
        client, keys, epoch = ledger.state.client, ledger.state.keys, ledger.state.epoch or ""
        held = await read_held(client, keys)
        assert held is not None
        for module, name, work in (
            (live.store.board.manage.erasure, "FORGET", lambda: forget_member(client, BOARD, keys, "a", [], b"")),
            (live.store.board.manage.erasure, "ERASE", lambda: erase_digests(client, keys, held, [], b"")),
            (live.store.board.manage.lifecycle, "UPDATE", lambda: update(client, keys, epoch, 1, frozen=True)),
            (live.store.board.manage.lifecycle, "EXPIRE_BOARD", lambda: expire(client, keys, epoch, 0)),
        ):
            script = under(getattr(module, name))
            with replaced(module, name, script), pytest.raises(StoreUnavailableError, match="waits until it was"):
                await work()
        with pytest.raises(StoreUnavailableError, match="waits until it was"):
            await begin_journal(client, keys, epoch, adopt=under(ADOPT))
        page = await ledger.reader.read(1)
        assert (page.offset, [record.score for record in page.records]) == (1, [1])


async def test_a_board_of_which_sql_has_more_stops_if_no_file_defines_it(valkey_url: str, tmp_path: Path) -> None:
    """Without the board's definition, nobody can write what SQL has.

    The reason names the last entries of SQL and store.
    """
    async with journaled(valkey_url, tmp_path) as board:
        board.client.high_water.active = True
        drainer = await board.drainer()
        links = []
        for _ in range(2):
            await board.like("a")
            await drainer.sweep()
            ((name, timeline),) = drainer._timelines.items()
            links.append(timeline.link)

        async def behind(*_arguments: object) -> Unchecked:
            return Unchecked(1, links[0], behind=False)

        with replaced(live.journal.log.drainer, "confirm", behind):
            for _ in range(2):
                await asyncio.wait_for(drainer._confirm_one(name), DEADLINE)
        reason = (
            f"the journal has board posts (epoch {name[1]}) up to entry 2-0, and the store continues after 1-0: "
            "it lost data"
        )
        assert drainer._health.lost == {name: reason}
        assert drainer._behind == {name}
        assert board.client.high_water.lost_boards == {"posts": reason}


async def test_a_drainer_gives_up_a_board_that_stays_refused(valkey_url: str, tmp_path: Path) -> None:
    """The drainer stops asking the board's scripts after some attempts, so that it can go on with other journals."""

    async def refuse(*_arguments: object) -> Unchecked:
        return Unchecked(1, "", behind=False)

    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a")
        drainer = await board.drainer()
        await drainer.sweep()
        (name,) = drainer._timelines
        with (
            replaced(live.journal.log.drainer, "confirm", refuse),
            pytest.raises(StoreUnavailableError, match="waits until it was checked"),
        ):
            await asyncio.wait_for(drainer._confirm_one(name), DEADLINE)
