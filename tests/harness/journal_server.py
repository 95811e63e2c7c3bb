"""A server with a journal and boards of all kinds, and commands on the same data."""

import subprocess
from pathlib import Path
from typing import Any, Protocol

import httpx

from live.journal.database import Database
from live.journal.log.definitions import latest
from live.maintenance.journal import status
from live.settings import Settings
from tests.harness.forked import run_live
from tests.harness.server import ServerProcess
from tests.harness.waiting import eventually

BOARDS = """
[[board]]
id = "posts"
types = ["like"]
ties = "first"
[[board]]
id = "hot"
types = ["like"]
window = { sliding = "3h" }
[[board]]
id = "days"
types = ["like"]
window = { calendar = "day" }
[[board]]
id = "best"
types = ["run"]
window = "forever"
operator = "best"
cap = 5
[[board]]
id = "vote"
types = ["vote"]
window = "forever"
votes = { per_actor = 2, per_key = 1, registered = true }
"""
NAMES = ("posts", "hot", "days", "best", "vote", "made")


class Served(Protocol):
    """A server that has these boards."""

    def client(self) -> httpx.Client:
        """A client with an admin API key."""


class Machine:
    """A server with its embedded store and its journal in one data directory, and commands on the same data."""

    def __init__(self, folder: Path) -> None:
        boards = folder / "boards.toml"
        boards.write_text(BOARDS, encoding="utf-8")
        self.data = folder / "data"
        self.settings = Settings(port=0, data_dir=self.data, boards=boards, journal="sqlite")
        self.server = ServerProcess(self.settings, folder)
        self.key = ""

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command with the settings of the server."""
        return run_live(*words, environment=self.server.environment)

    def client(self) -> httpx.Client:
        """A client with an admin API key."""
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.Client(base_url=self.server.url, headers=headers, timeout=180)

    def lose(self) -> None:
        """Delete everything that the store has written."""
        for path in self.data.glob("appendonlydir/*"):
            path.unlink()
        for path in self.data.glob("*.rdb"):
            path.unlink()

    async def drained(self) -> None:
        """Wait until SQL has all entries of the boards and the title of the item."""
        with self.client() as client:
            offsets = {name: client.get(f"/v1/boards/{name}").json()["offset"] for name in NAMES}
        offsets["days"] -= 2  # two ends of periods raised the offset, but have no entries in the journal

        async def equal() -> object:
            with Database("sqlite", self.data, "live", writes=False) as database:
                found = {timeline.board: timeline.offset for timeline in database.work(status)}
                titles = database.work(lambda sql: latest(sql, "items"))
            return titles and all(found.get(name, -1) >= offset for name, offset in offsets.items() if offset)

        await eventually(equal)


def fill(machine: Served) -> None:
    """Fill boards of all kinds: with votes, hidden and registered members, and one that is made over HTTP."""
    with machine.client() as client:
        made = client.put("/v1/boards/made", json={"types": ["like"], "ties": "last"})
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


def seen(machine: Served) -> dict[str, Any]:
    """The boards as the server shows them, without epochs, cursors, numbers of viewers, and the offset of `days`."""
    with machine.client() as client:
        found = {name: client.get(f"/v1/boards/{name}", params={"limit": 100}).json() for name in NAMES}
    for page in found.values():
        for name in ("epoch", "next_cursor", "prev_cursor", "viewer_count"):
            page.pop(name)
    found["days"].pop("offset")
    return found
