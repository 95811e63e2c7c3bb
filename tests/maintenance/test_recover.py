"""After the store is lost, `live recover --from journal` restores every board, definition and API key."""

import asyncio
import json
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import httpx
import msgspec
import pytest

from live.domain.board_file import parse_boards
from live.domain.choices import Votes
from live.domain.event import make_entry
from live.domain.window import Periods
from live.errors import JournalError
from live.journal.database import Database
from live.journal.state.difference import ContentsDifference
from live.journal.state.snapshot import Ranking, Snapshot
from live.maintenance.journal import status
from live.maintenance.recover import Recovery, Wanted
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.board.manage.swap import Write
from live.store.board.requests import SCRIPTS
from live.store.connection.client import connect
from tests.harness.boards import built
from tests.harness.clock import set_clock, with_clock
from tests.harness.journal_server import Machine, fill, seen
from tests.harness.journaled import journaled
from tests.harness.waiting import eventually

pytestmark = pytest.mark.slow


async def test_everything_is_restored_from_the_journal(tmp_path: Path) -> None:
    """The server refuses an emptied store. After the command it continues, and recognizes every earlier event."""
    machine = Machine(tmp_path)
    made = machine.run("keys", "add", "ann", "--verbs", "post,admin", "--json")
    machine.key = json.loads(made.stdout)["key"]
    machine.server.start()
    try:
        await asyncio.to_thread(fill, machine)
        before = await asyncio.to_thread(seen, machine)
        await machine.drained()
        machine.server.kill()
        machine.lose()

        refused = machine.run("serve")
        assert refused.returncode == 2
        assert "live recover --from journal" in refused.stderr
        dry = json.loads(machine.run("recover", "--from", "journal", "--dry-run", "--json").stdout)
        offsets = {board["board"]: board["offset"] for board in dry["boards"] if board["board"] != "days"}
        assert offsets == {name: page["offset"] for name, page in before.items() if name != "days"}
        done = machine.run("recover", "--from", "journal", "--json")
        assert done.returncode == 0, done.stderr
        assert "You have three choices" not in done.stderr, "the operator has chosen"
        assert machine.run("recover", "--from", "journal").stdout.startswith("The journal has no board")
        machine.server.start()
        assert await asyncio.to_thread(seen, machine) == before
        with machine.client() as client:
            again = client.post("/v1/events", json={"type": "like", "key": "p1", "id": "e1", "source": "test"})
            assert again.json()["duplicate"] == 1
            vote = client.post("/v1/events", json={"type": "vote", "key": "bob", "actor": "v1"})
            assert vote.json()["rejected"][0]["code"] == "quota_exceeded"
            assert client.get("/v1/items/p1").json()["title"] == "The first"
            shown = client.patch("/v1/boards/posts/records/p3", json={"hidden": False})
            assert shown.is_success
        await machine.drained()
        assert machine.run("journal", "--verify").returncode == 0
        assert machine.run("check").returncode == 0
    finally:
        machine.server.kill()


async def test_a_board_under_another_id_has_a_past_too(tmp_path: Path) -> None:
    """The new board's journal continues the journal of the old board, which stays as it is."""
    machine = Machine(tmp_path)
    await asyncio.to_thread(machine.server.start, "--open")
    try:
        offset = await _like(machine)
        await eventually(lambda: _is_in_sql(machine, offset))  # the recovery reads only SQL
        assert await asyncio.to_thread(machine.server.stop) == 0
        done = await asyncio.to_thread(machine.run, "recover", "--from", "journal", "--board", "posts", "--as", "copy")
        assert done.returncode == 0, done.stderr
        with (tmp_path / "boards.toml").open("a") as file:
            file.write('[[board]]\nid = "copy"\ntypes = ["like"]\nties = "first"\n')
        await asyncio.to_thread(machine.server.start, "--open")
        await _like(machine)
        async with httpx.AsyncClient(base_url=machine.server.url, timeout=180) as client:
            for board in ("posts", "copy"):
                at = await moment_of(client, board)
                page = await client.get(f"/v1/boards/{board}", params={"as_of": at})
                assert [(record["key"], record["score"]) for record in page.json()["records"]] == [("a", 2)], page.text
        assert await asyncio.to_thread(machine.server.stop) == 0
        assert (await asyncio.to_thread(machine.run, "journal", "--verify")).returncode == 0
    finally:
        machine.server.kill()


async def test_what_waits_in_the_store_is_not_lost(valkey_url: str, tmp_path: Path) -> None:
    """The journal of a board can outlive the board, with entries that SQL lacks."""
    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        await drainer.claim()
        await board.like("a")
        await drainer.sweep()
        await board.like("a", "b")
        await board.client.delete(board.ledger.state.keys.meta)
        work = Recovery(board.client, board.settings, board.databases[0], lambda *_: None)
        (done,) = await work.recover(Wanted(board="posts"))
        assert (done.offset, done.members) == (2, 2)
        board.ledger = Ledger(board.client, board.board, board.settings)
        await board.must_agree()


@pytest.mark.one_server
async def test_a_board_whose_clock_ran_ahead_is_recovered_as_it_was_before(valkey_url: str, tmp_path: Path) -> None:
    """The new board follows the clock of the store again."""
    (posts,) = parse_boards('[[board]]\nid = "posts"\nwindow = { sliding = "1h" }')
    async with journaled(valkey_url, tmp_path, posts) as board:
        drainer, client, settings = await board.drainer(), board.client, board.settings
        await drainer.claim()
        now = time.time_ns() // 1_000_000
        await board.like("a")
        board.ledger = Ledger(client, posts, settings, with_clock(SCRIPTS, settings))
        await set_clock(client, settings, now + 7_200_000)
        await board.like("b")
        while await board.ledger.rotator.rotate() is None:
            pass
        board.ledger = Ledger(client, posts, settings)
        await board.like("c")
        assert sorted(await board.rows()) == [("b", 1), ("c", 1)]
        held = await client.hget(board.ledger.state.keys.meta, "clock")
        assert int(held or 0) == (now + 7_200_000) * 1000
        await drainer.sweep()
        work = Recovery(client, settings, board.databases[0], lambda *_: None)
        await work.recover(Wanted(board="posts", at=now + 3_600_000, name="again"))
        again = Ledger(client, msgspec.structs.replace(posts, id="again"), settings)
        await again.writer.add([make_entry("d", 1, None, None)])
        assert {record.member for record in (await again.reader.read(9)).records} == {"a", "d"}
        held = await client.hget(again.state.keys.meta, "clock")
        assert now <= int(held or 0) // 1000 <= time.time_ns() // 1_000_000


async def moment_of(client: httpx.AsyncClient, board: str) -> str:
    """Return a time at which the board is as it is now."""
    response = await client.get(f"/v1/boards/{board}")
    assert response.status_code == 200, response.text
    return datetime.now(UTC).isoformat()


def test_a_time_needs_a_zone(tmp_path: Path) -> None:
    """A time without a zone is ambiguous."""
    machine = Machine(tmp_path)
    refused = machine.run("recover", "--from", "journal", "--at", "2026-01-01T00:00:00")
    assert (refused.returncode, "time zone" in refused.stderr) == (2, True)


async def test_without_a_journal_nothing_waits_in_the_store(tmp_path: Path) -> None:
    """A server with LIVE_JOURNAL=off ends the journals of earlier starts."""
    machine = Machine(tmp_path)
    await asyncio.to_thread(machine.server.start, "--open")
    try:
        for journal in ("off", "sqlite"):
            await _like(machine)
            assert await asyncio.to_thread(machine.server.stop) == 0
            machine.server.environment["LIVE_JOURNAL"] = journal
            await asyncio.to_thread(machine.server.start, "--open")
            await _like(machine)
            client = connect(f"unix://{machine.data / 'valkey.sock'}", machine.settings)
            assert bool(await client.hexists("live:{posts}:meta", "journal")) == (journal == "sqlite")
            await client.aclose()
        assert await asyncio.to_thread(machine.server.stop) == 0
        assert (await asyncio.to_thread(machine.run, "journal", "--verify")).returncode == 0
    finally:
        machine.server.kill()


async def _like(machine: Machine) -> int:
    """Post a like; returns the offset of the board after the like."""
    async with httpx.AsyncClient(base_url=machine.server.url, timeout=180) as client:
        assert (await client.post("/v1/events", json={"type": "like", "key": "a"})).status_code == 200
        return int((await client.get("/v1/boards/posts")).json()["offset"])


async def _is_in_sql(machine: Machine, offset: int) -> bool:
    with suppress(JournalError), Database("sqlite", machine.data, "live", writes=False) as database:
        found = {board.board: board.offset for board in database.work(status)}
        return found.get("posts", -1) >= offset
    return False


def test_a_period_that_has_only_votes_is_recovered() -> None:
    """Its members were erased. The board drops the votes with the period, so it must know the period."""
    contest = built(id="songs", title="Songs", window=Periods(unit="day"), votes=Votes())
    data = Snapshot(newest=86_400, slots={0: {}, 86_400: {}}, rankings={":0": Ranking(votes={b"a" * 16: 1})})
    keys = Keys("live", "songs")
    writes = list(ContentsDifference(contest, keys).advance(data, 86_400_000))
    assert Write("ZADD", keys.slots, [0, "0"]) in writes
    assert [write.name for write in writes].count(keys.slots) == 1
