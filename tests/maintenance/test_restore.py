"""`live backup` while events are counted, and `live restore` into a new data directory."""

import asyncio
import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any, Self

import httpx
import msgspec
import pytest

from live.store.registry.audit_trail import AuditTrail
from tests.harness.forked import ForkedProcess
from tests.harness.journal_server import Machine, fill, seen
from tests.harness.journaled import journaled
from tests.harness.server import ServerProcess
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually
from tests.web.api.test_trail import command

pytestmark = pytest.mark.slow


class Load:
    """Likes members of `posts` from a thread, and counts what was acknowledged."""

    def __init__(self, url: str, key: str) -> None:
        self.url, self.key = url, key
        self.acknowledged = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.key}"}, timeout=180) as client:
            while not self._ended.is_set():
                events = [{"type": "like", "key": f"load{number}"} for number in range(50)]
                assert client.post("/v1/events", json=events).json()["accepted"] == 50
                self.acknowledged += 50

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def loaded(machine: Machine) -> int:
    """The number of likes of a load on the board `posts`."""
    with machine.client() as client:
        page = client.get("/v1/boards/posts", params={"limit": 100}).json()
    return sum(record["score"] for record in page["records"] if record["key"].startswith("load"))


def started(folder: Path) -> Machine:
    """A running machine with boards of all kinds."""
    folder.mkdir()
    machine = Machine(folder)
    machine.key = json.loads(machine.run("keys", "add", "ann", "--verbs", "post,admin", "--json").stdout)["key"]
    machine.server.start()
    fill(machine)
    return machine


def empty(folder: Path, key: str) -> Machine:
    """Return a machine without data, and give it an API key that a restore will make valid."""
    folder.mkdir()
    machine = Machine(folder)
    machine.key = key
    return machine


def without_load(pages: dict[str, Any]) -> dict[str, Any]:
    """Everything that a server shows, without the members and boards of the load."""
    kept = {name: page for name, page in pages.items() if name in ("best", "vote")}
    scores = {
        name: {record["key"]: record["score"] for record in page["records"] if not record["key"].startswith("load")}
        for name, page in pages.items()
    }
    return {"pages": kept, "scores": scores}


async def test_a_restore_has_everything_acknowledged_before_the_backup(tmp_path: Path) -> None:
    """Boards of all kinds are under load. Every restored board has a new epoch; all else is unchanged."""
    machine = await asyncio.to_thread(started, tmp_path / "first")
    folder = tmp_path / "backup"
    try:
        before = await asyncio.to_thread(seen, machine)
        with Load(machine.server.url, machine.key) as load:
            await eventually(lambda: _above(load, 500))
            acknowledged = load.acknowledged
            done = await asyncio.to_thread(machine.run, "backup", str(folder), "--json")
            most = load.acknowledged + 50
        assert done.returncode == 0, done.stderr
        made = json.loads(done.stdout)
        assert {board["board"] for board in made["boards"]} == {"posts", "hot", "days", "best", "vote", "made"}
        assert machine.run("journal", "--verify").returncode == 0
    finally:
        machine.server.kill()

    other = empty(tmp_path / "second", machine.key)
    done = await asyncio.to_thread(other.run, "restore", str(folder), "--json")
    assert done.returncode == 0, done.stderr
    epochs = {board["board"]: board["epoch"] for board in json.loads(done.stdout)["boards"]}
    assert not {board["epoch"] for board in made["boards"]} & set(epochs.values())
    other.server.start()
    try:
        assert acknowledged <= await asyncio.to_thread(loaded, other) <= most
        assert without_load(await asyncio.to_thread(seen, other)) == without_load(before)
        with other.client() as client:
            again = client.post("/v1/events", json={"type": "like", "key": "p1", "id": "e1", "source": "test"})
            assert again.json()["duplicate"] == 1
            assert client.get("/v1/items/p1").json()["title"] == "The first"
            assert client.get("/v1/boards/posts").json()["epoch"] == epochs["posts"]
        await other.drained()
        assert other.run("journal", "--verify").returncode == 0
        acts = json.loads(other.run("trail", "--json").stdout)["trail"]
        whats = [act["what"] for act in acts]
        assert (whats.count("restored"), whats[whats.index("restored") - 1]) == (1, "begun")
        assert other.run("check").returncode == 0
    finally:
        other.server.kill()


def test_boards_move_to_another_store(own_store: StoreProcess, tmp_path: Path) -> None:
    """The refusal says how: stop, set LIVE_STORE, recover, start. Nothing that was acknowledged is lost."""
    machine = started(tmp_path / "server")
    before = seen(machine)
    machine.server.kill()
    assert machine.run("backup", str(tmp_path / "backup")).returncode == 0  # also moves what waits in the store to SQL
    store = ("--store", own_store.url)
    refused = machine.run("serve", *store)
    assert refused.returncode == 2
    assert (
        "If you move to another store, stop the server, set LIVE_STORE, run `live recover --from journal`, and start"
        in refused.stderr
    )
    done = machine.run("recover", "--from", "journal", *store)
    assert done.returncode == 0, done.stderr
    machine.server = ServerProcess(msgspec.structs.replace(machine.settings, store=own_store.url), tmp_path)
    machine.server.start()
    try:
        assert without_load(seen(machine)) == without_load(before)
    finally:
        machine.server.kill()


async def _above(load: Load, count: int) -> bool:
    return load.acknowledged >= count


def kill_in_the_middle(machine: Machine, folder: Path) -> None:
    """Start a backup, and kill it when it has begun to write. Try again if the backup was already complete."""
    printed = machine.data.parent / "killed"
    process = ForkedProcess(["backup", str(folder)], machine.server.environment, folder.parent, printed, printed)
    while process.poll() is None and not (folder.exists() and list(folder.iterdir())):
        time.sleep(0.002)
    process.kill()
    process.wait()
    if (folder / "manifest.json").exists():
        shutil.rmtree(folder)
        kill_in_the_middle(machine, folder)


def test_a_backup_of_a_stopped_server_is_complete(tmp_path: Path) -> None:
    """The backup has entries that no drainer moved to SQL. Incomplete backups and existing data are refused."""
    machine = started(tmp_path / "first")
    folder, half = tmp_path / "backup", tmp_path / "half"
    try:
        kill_in_the_middle(machine, half)
        assert "interrupted" in refusal(machine, half)
        with machine.client() as client:
            for _ in range(5):
                assert client.post("/v1/events", json={"type": "like", "key": "last"}).status_code == 200
        machine.server.kill()
        done = machine.run("backup", str(folder))
        assert done.returncode == 0, done.stderr
        assert "--force" in refusal(machine, folder)
        first, second = (restored(machine, folder) for _ in range(2))
        assert Path(first["set_aside"], "appendonlydir").is_dir()
        assert {one["epoch"] for one in first["boards"]}.isdisjoint(one["epoch"] for one in second["boards"])
        machine.server.start()
        with machine.client() as client:
            assert client.get("/v1/boards/posts/records/last").json()["score"] == 5
        assert "a server runs" in refusal(machine, folder)
    finally:
        machine.server.kill()


async def test_a_refused_restore_and_recovery_leave_no_entry(valkey_url: str, tmp_path: Path) -> None:
    """The store stays empty, so the same backup can be restored when its damaged file is whole again."""
    folder = tmp_path / "backup"
    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        await board.like("a")
        await drainer.sweep()
        await board.databases.pop().aclose()  # the commands lock the journal
        trail = AuditTrail(board.client)
        await command(board.settings, "recover", "--from", "journal", "--board", "typo", status=1)
        assert await trail.last(9) == []
        await command(board.settings, "backup", str(folder))
        async for name in board.client.names(f"{board.settings.key_prefix}:*"):
            await board.client.delete(name)
        copied = max(folder.iterdir(), key=lambda path: path.stat().st_size)
        content = copied.read_bytes()
        for found, status in ((content[:-1], 2), (content, 0)):
            copied.write_bytes(found)
            await command(board.settings, "restore", str(folder), "--force", status=status)
        assert [entry.what for entry in await trail.last(9)] == ["restored", "begun"]


def refusal(machine: Machine, folder: Path) -> str:
    """Return the message with which a restore is refused."""
    done = machine.run("restore", str(folder))
    assert done.returncode == 2, done.stdout
    return done.stderr


def restored(machine: Machine, folder: Path) -> Any:
    """The output of `live restore` when it sets data aside."""
    done = machine.run("restore", str(folder), "--force", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
