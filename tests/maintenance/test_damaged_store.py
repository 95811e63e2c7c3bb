"""A flipped bit in the files of the store is noticed when it starts, or by a check, and the journal gives all back."""

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from live.errors import EpochLostError, SetupError, StoreUnavailableError
from live.maintenance.check import Checker, Report
from live.store.board.ledger import Ledger
from live.store.connection.client import connect
from tests.harness.compared import Compared, compared
from tests.harness.drift import BOARDS, fill
from tests.harness.forked import run_live
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.network import free_port
from tests.harness.server import ServerProcess
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually

_ERRORS = SetupError, StoreUnavailableError, EpochLostError, ValueError  # the last for what is no number, or no text


@contextmanager
def one_bit(files: list[Path], chance: random.Random) -> Iterator[str]:
    """Flip a bit of one of some files, and restore the file. Give the name of the file and the place."""
    path = chance.choice(files)
    whole = path.read_bytes()
    data, place = bytearray(whole), chance.randrange(len(whole))
    data[place] ^= 1 << chance.randrange(8)
    path.write_bytes(bytes(data))
    try:
        yield f"{path.name} at {place}: {whole[max(0, place - 30) : place + 20]!r}"
    finally:
        path.write_bytes(whole)


async def shown(board: Compared) -> object:
    """What viewers see; an error if the board can't be read."""
    try:
        page = await board.ledger.reader.read(100)
    except _ERRORS as error:
        return error
    return page.rank_count, page.total_score, page.records  # a start compares the position with the data directory


def reconnect(board: Compared) -> None:
    """Begin as another process does, after the store was started again."""
    board.client = connect(board.settings.store or "", board.settings)
    board.ledger = Ledger(board.client, board.board, board.settings)


async def is_found(board: Compared) -> bool:
    """Whether a check finds a difference, or finds that the board can't be compared."""
    try:
        return (await board.check()).drifted > 0
    except _ERRORS:
        return True


async def notices(store: StoreProcess, folder: Path, chance: random.Random, times: int) -> Counter[str]:
    """Flip a bit at many places. The store refuses to start, a check finds it, or viewers see the same as before."""
    files, found = store.path.parent / "appendonlydir", Counter[str]()
    async with compared(store.url, folder, BOARDS["first"]) as board:
        await fill(board)
        for number in range(20):
            await board.add((f"m{number}", number + 1))
        await board.is_drained()
        await board.stop_draining()
        right = await shown(board)
        store.kill()
        whole = folder / "whole"
        shutil.copytree(files, whole)
        logs = sorted(files.glob("*.incr.aof"))
        for _ in range(times):
            await board.client.aclose()
            with one_bit(logs, chance) as place:
                try:
                    store.start()
                except AssertionError as refused:
                    if f"reading the append only file {logs[0].name}" not in str(refused):
                        raise
                    found["refused"] += 1
                    continue
                reconnect(board)
                seen, noticed = await shown(board), await is_found(board)
                assert isinstance(seen, Exception) or seen == right or noticed, f"nobody notices a bit in {place}"
                found["found by a check"] += noticed
                store.kill()
            shutil.rmtree(files)  # the store may have written
            shutil.copytree(whole, files)
        store.start()
        reconnect(board)
        assert await shown(board) == right
    return found


@pytest.mark.slow
async def test_a_flipped_bit_in_the_append_only_file_is_noticed(
    own_store: StoreProcess, tmp_path: Path, chance: random.Random, effort: int
) -> None:
    """The file has no checksums. So a start finds bits in the form of commands, and a check finds bits in values."""
    found = await notices(own_store, tmp_path, chance, 60 * effort)
    assert all(found[kind] for kind in ("refused", "found by a check")), found


@pytest.mark.mutant
async def test_a_check_that_compares_nothing_is_detected(
    own_store: StoreProcess, tmp_path: Path, chance: random.Random
) -> None:
    """The mutant finds no difference."""

    async def nothing(_: Checker) -> Report:
        return Report(board="first", epoch="")

    with must_be_caught("a flipped bit stays"), replaced(Checker, "check", nothing):
        await notices(own_store, tmp_path, chance, 500)


@pytest.mark.slow
async def test_the_journal_gives_back_a_damaged_embedded_store(tmp_path: Path) -> None:
    """The start names the file, and what to do. After that, the board is as before."""
    settings = fresh_settings("", journal="sqlite", data_dir=tmp_path / "data", port=free_port())
    process = ServerProcess(settings, tmp_path)
    process.start()
    async with httpx.AsyncClient() as client:
        await client.post(f"{process.url}/v1/events", json=[{"key": member} for member in "aab"])
        before = (await client.get(f"{process.url}/v1/boards/posts")).json()["records"]

        async def is_in_sql() -> bool:
            past = {"as_of": datetime.now(UTC).isoformat()}
            return (await client.get(f"{process.url}/v1/boards/posts", params=past)).is_success

        await eventually(is_in_sql)
        assert process.stop() == 0
        (log,) = (tmp_path / "data" / "appendonlydir").glob("*.incr.aof")
        data = bytearray(log.read_bytes())
        data[data.rindex(b"\r\n$") + 2] ^= 1
        log.write_bytes(bytes(data))
        refused = run_live("serve", environment=process.environment, timeout=60)
        assert refused.returncode == 2
        assert log.name in refused.stderr
        assert "run `live recover --from journal`" in refused.stderr
        (tmp_path / "data" / "appendonlydir").rename(tmp_path / "damaged")
        ended = run_live("recover", "--from", "journal", environment=process.environment, timeout=60)
        assert ended.returncode == 0, ended.stderr
        process.start()
        assert (await client.get(f"{process.url}/v1/boards/posts")).json()["records"] == before
    assert process.stop() == 0
