"""`live check`: its exit status and its report, with and without a server."""

import asyncio
from pathlib import Path
from typing import Final

import httpx
import msgspec
import pytest
from redis import Redis
from sqlalchemy import update

from live.journal.schema import SEGMENT
from live.store.board.keys import Keys
from live.store.board.manage.swap import Beside, Write
from tests.harness.commands import run_command
from tests.harness.compared import Compared, compared
from tests.harness.drift import BOARDS, fill, wrong_value
from tests.harness.server import ServerProcess
from tests.harness.settings import as_environment, fresh_settings
from tests.harness.waiting import until
from tests.store.board.manage.test_swap import loose


async def check(board: Compared, *flags: str) -> tuple[int, str, str]:
    """Run `live check`; returns its exit status and its output."""
    ended = await asyncio.to_thread(run_command, "check", *flags, **as_environment(board.settings))
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.slow
async def test_the_exit_status_tells_whether_there_is_drift(valkey_url: str, tmp_path: Path) -> None:
    """The status is 0 if nothing differs or all was repaired, 1 if something differs, and 2 for a wrong flag."""
    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        await fill(board)
        await wrong_value(board)
        status, text, _ = await check(board, "--board", "first")
        assert status == 1
        assert "ann: value of" in text
        assert text.splitlines()[2].endswith(": 50 instead of 7")
        status, text, _ = await check(board, "--repair", "journal", "--json")
        found = msgspec.json.decode(text)
        assert (status, found["clean"]) == (0, False)
        (differences,) = found["boards"]
        assert (differences["drifted"], differences["repaired"]) == (1, True)
        assert differences["drift"][0]["right"] == 7
        assert (await check(board))[0] == 0
        status, text, error = await check(board, "--repair")
        assert (status, text) == (2, "")
        assert "--repair" in error
        status, text, error = await check(board, "--repair", "store")
        assert (status, "no drift" in text) == (0, True), "the command replaces a store that equals the journal"


@pytest.mark.slow
async def test_without_a_server_what_waits_is_compared_and_stays(valkey_url: str, tmp_path: Path) -> None:
    """Entries that are not in SQL yet count in the comparison, and stay in the store. A repair keeps them too."""
    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        await fill(board)
        await board.is_drained()
        await board.stop_draining()
        await board.add(("dan", 1))
        rows, epoch = await board.rows(), board.ledger.state.epoch
        status, text, _ = await check(board)
        assert (status, text.split(";")[0]) == (0, f"first (epoch {epoch}): no drift")
        assert await board.waiting() == 1, "the comparison moved an entry to SQL"
        await wrong_value(board)
        status, text, error = await check(board, "--repair", "store")
        assert (status, text.split(";")[0]) == (0, f"first (epoch {epoch}): the store is replaced"), error
        page = await board.ledger.reader.read(10)
        assert [(record.member, record.score) for record in page.records] == rows
        assert page.epoch == f"{epoch}e1"
        assert (await check(board))[0] == 0


@pytest.mark.slow
async def test_a_repair_deletes_what_a_killed_command_has_left(valkey_url: str, tmp_path: Path) -> None:
    """This also holds for a board that equals its journal."""
    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        await fill(board)
        keys = board.ledger.state.keys
        await (await Beside.begin(board.ledger.state)).write([Write("ZADD", keys.ranking, [1, "a"])])
        assert len(await loose(board.ledger)) == 2
        assert (await check(board))[0] == 0
        assert len(await loose(board.ledger)) == 2, "a comparison ends a swap"
        status, text, error = await check(board, "--repair", "store")
        assert (status, "no drift" in text) == (0, True), error
        assert await loose(board.ledger) == []
        assert await board.do("HGET", "meta", "swap") is None


@pytest.mark.slow
@pytest.mark.fault
async def test_a_damaged_journal_is_not_repaired(valkey_url: str, tmp_path: Path) -> None:
    """The report says what helps, and the journal does not begin again in vain."""
    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        await fill(board)
        await board.is_drained()
        await board.databases[0].run(lambda connection: connection.execute(update(SEGMENT).values(crc=1)))
        for flags in ((), ("--repair", "journal"), ("--repair", "store")):
            status, text, error = await check(board, *flags)
            assert (status, "NOT COMPARED; the journal is damaged" in text) == (1, True), error
            assert text.endswith("`live journal --adopt`\n")
        assert await board.waiting() == 0


FILE: Final = """
[[board]]
id = "kept"
types = ["like"]
window = "forever"
[[board]]
id = "alone"
types = ["like"]
window = "forever"
journal = "off"
"""


@pytest.mark.slow
@pytest.mark.fault
def test_each_loss_of_the_store_is_named_with_the_command_that_helps(valkey_url: str, tmp_path: Path) -> None:
    """A board with a journal goes back, and so does one without. Then everything is lost."""
    file = tmp_path / "boards.toml"
    file.write_text(FILE, encoding="utf-8")
    settings = fresh_settings(valkey_url, data_dir=tmp_path / "data", journal="sqlite", boards=file)
    server, store, prefix = ServerProcess(settings, tmp_path), Redis.from_url(valkey_url), settings.key_prefix
    kept, alone = (Keys(prefix, name).meta for name in ("kept", "alone"))

    def examine(*flags: str) -> tuple[int, str]:
        ended = run_command("check", *flags, **as_environment(settings))
        return ended.returncode, ended.stdout + ended.stderr

    server.start()
    try:
        httpx.post(f"{server.url}/v1/events", json={"key": "a"}).raise_for_status()
        older = store.hget(kept, "journal")
        for _ in range(2):
            httpx.post(f"{server.url}/v1/events", json={"key": "a"}).raise_for_status()
        until(lambda: not [name for name in store.scan_iter(f"{prefix}:{{kept}}:journal:*") if store.xlen(name)])
    finally:
        server.stop()
    assert examine()[0] == 0
    assert older is not None
    store.hset(kept, mapping={"journal": older, "offset": 2})
    store.hset(alone, "offset", 2)
    for flags in ((), ("--repair", "store"), ("--repair", "journal")):
        status, text = examine(*flags)
        assert (status, text.count("NOT COMPARED")) == (1, 2), text
        assert "went back from offset 3 to 2" in text
        for side, board in (("journal", "kept"), ("store", "alone")):
            assert f". Stop the servers, and run `live recover --from {side} --board {board}`\n" in text
    store.delete(kept)
    assert "Stop the servers, and run `live recover --from journal --board kept`" in examine("--board", "kept")[1]
    store.delete(*store.scan_iter(f"{prefix}:*"))
    status, text = examine()
    assert (status, "the store lost data" in text, "live recover --from journal" in text) == (2, True, True), text
