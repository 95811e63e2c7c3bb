"""After the store is lost, `live rebuild` restores every board, definition and API key from the journal."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from live.journal.database import Database
from live.journal.status import status
from live.settings import HostPattern, Settings
from live.store.connection.client import connect
from tests.harness.server import ServerProcess
from tests.harness.waiting import eventually

pytestmark = pytest.mark.slow

BOARDS = """
[[board]]
id = "posts"
source = ["like"]
ties = "first"
[[board]]
id = "hot"
source = ["like"]
window = { sliding = "3h" }
[[board]]
id = "days"
source = ["like"]
window = { calendar = "day" }
[[board]]
id = "best"
source = ["run"]
window = "forever"
operator = "best"
cap = 5
[[board]]
id = "vote"
source = ["vote"]
window = "forever"
votes = { per_actor = 2, per_key = 1, registered = true }
"""
NAMES = ("posts", "hot", "days", "best", "vote", "made")


class Machine:
    """A server with its embedded store and its journal in one data directory, and commands beside it."""

    def __init__(self, folder: Path) -> None:
        boards = folder / "boards.toml"
        boards.write_text(BOARDS, encoding="utf-8")
        self.data = folder / "data"
        self.settings = Settings(
            port=0, data_dir=self.data, boards=boards, journal="sqlite", allowed_hosts=(HostPattern("x"),)
        )
        self.server = ServerProcess(self.settings, folder)
        self.key = ""

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command beside the server."""
        return subprocess.run(
            [sys.executable, "-m", "live", *words],
            env=self.server.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def client(self) -> httpx.Client:
        """A client that is an administrator."""
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.Client(base_url=self.server.url, headers=headers, timeout=30)

    def lose(self) -> None:
        """Delete everything that the store has written."""
        for path in self.data.glob("appendonlydir/*"):
            path.unlink()
        for path in self.data.glob("*.rdb"):
            path.unlink()

    async def drained(self) -> None:
        """Wait until SQL has everything that the boards hold."""
        with self.client() as client:
            offsets = {name: client.get(f"/v1/boards/{name}").json()["offset"] for name in NAMES}
        offsets["days"] -= 2  # the turn of a period is a change without an entry

        async def equal() -> bool:
            with Database("sqlite", self.data, "live", writes=False) as database:
                found = {life.board: life.offset for life in database.work(lambda sql: status(sql, "live"))}
            return all(found.get(name, -1) >= offset for name, offset in offsets.items() if offset)

        await eventually(equal)


def fill(machine: Machine) -> None:
    """Boards of all kinds, with votes, hidden and registered members, and a run-time board."""
    with machine.client() as client:
        made = client.put("/v1/boards/made", json={"source": ["like"], "ties": "last"})
        assert made.status_code == 201, made.text
        for member in ("ann", "bob"):
            assert client.put(f"/v1/boards/vote/records/{member}", json={"metadata": {"n": 1}}).is_success
        for number in range(40):
            events = [
                {"type": "like", "key": f"p{number % 9}", "id": f"e{number}", "source": "test"},
                {"type": "run", "key": f"r{number % 8}", "amount": number * 7 % 11},
                {"type": "vote", "key": ("ann", "bob")[number % 2], "actor": f"v{number % 25}"},
            ]
            assert client.post("/v1/events", json=events).status_code == 200
        assert client.put("/v1/items/p1", json={"title": "The first"}).is_success
        assert client.patch("/v1/boards/posts/records/p3", json={"hidden": True}).is_success


def seen(machine: Machine) -> dict[str, Any]:
    """What the server says of every board, but for epochs and cursors."""
    with machine.client() as client:
        found = {name: client.get(f"/v1/boards/{name}", params={"limit": 100}).json() for name in NAMES}
    for page in found.values():
        for name in ("epoch", "next_cursor", "prev_cursor", "viewer_count"):
            page.pop(name)
    found["days"].pop("offset")
    return found


async def test_everything_comes_back_from_the_journal(tmp_path: Path) -> None:
    """The server refuses an emptied store; after the command it goes on where it was, and knows every event again."""
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
        assert "live rebuild" in refused.stderr
        dry = json.loads(machine.run("rebuild", "--dry-run", "--json").stdout)
        offsets = {board["board"]: board["offset"] for board in dry["boards"] if board["board"] != "days"}
        assert offsets == {name: page["offset"] for name, page in before.items() if name != "days"}
        done = machine.run("rebuild", "--json")
        assert done.returncode == 0, done.stderr
        assert machine.run("rebuild").stdout.startswith("The journal has no board")
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
        assert machine.run("journal", "verify").returncode == 0
        assert machine.run("audit").returncode == 0
    finally:
        machine.server.kill()


def test_a_time_needs_a_zone(tmp_path: Path) -> None:
    """Otherwise nobody knows which hour is meant."""
    machine = Machine(tmp_path)
    refused = machine.run("rebuild", "--at", "2026-01-01T00:00:00")
    assert (refused.returncode, "time zone" in refused.stderr) == (2, True)


async def test_without_a_journal_nothing_waits_in_the_store(tmp_path: Path) -> None:
    """A server that is started with LIVE_JOURNAL=off ends the journals that an earlier start began."""
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
        assert (await asyncio.to_thread(machine.run, "journal", "verify")).returncode == 0
    finally:
        machine.server.kill()


async def _like(machine: Machine) -> None:
    async with httpx.AsyncClient(base_url=machine.server.url) as client:
        assert (await client.post("/v1/events", json={"type": "like", "key": "a"})).status_code == 200
