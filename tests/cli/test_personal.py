"""`live void` and `live erase` as operators use them: beside a running server, and while it is stopped."""

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import httpx
import pytest
import typer

from live.auth.visitors import Visitors
from live.cli import personal
from live.settings import Settings
from live.store.board.keys import SystemKeys
from live.store.connection.client import connect
from tests.harness.commands import run_command
from tests.harness.server import ServerProcess
from tests.harness.settings import fresh_settings

BOARDS = """
[[board]]
id = "posts"
types = ["like"]
[[board]]
id = "vote"
types = ["vote"]
window = "forever"
votes = { per_key = 1 }
[[board]]
id = "best"
types = ["run"]
window = "forever"
operator = "best"
"""
TO_ALL = "2000-01-01T00:00:00Z"


class Machine:
    """A server with its embedded store and journal, two API keys, and commands on the same data."""

    def __init__(self, folder: Path) -> None:
        boards = folder / "boards.toml"
        boards.write_text(BOARDS, encoding="utf-8")
        self.data = folder / "data"
        settings = Settings(port=0, data_dir=self.data, boards=boards, journal="sqlite")
        self.server = ServerProcess(settings, folder)
        self.keys = {name: json.loads(self.run("keys", "add", name, "--json").stdout)["key"] for name in ("ann", "bob")}
        self.server.start()

    def run(self, *words: str) -> CompletedProcess[str]:
        """Run a command next to the server, without a terminal."""
        return run_command(*words, **{**self.server.environment, "COLUMNS": "200"})

    def post(self, producer: str, *events: dict[str, Any]) -> None:
        """Post events with the API key of a producer. All events must count."""
        headers = {"Authorization": f"Bearer {self.keys[producer]}"}
        answer = httpx.post(f"{self.server.url}/v1/events", json=events, headers=headers, timeout=180)
        assert answer.json()["accepted"] == len(events), answer.text

    def scores(self, board: str) -> dict[str, int]:
        """The scores of a board from the server."""
        found = httpx.get(f"{self.server.url}/v1/boards/{board}", timeout=180).json()
        return {record["key"]: record["score"] for record in found["records"]}


@pytest.mark.slow
def test_a_producer_is_voided_while_the_server_runs(tmp_path: Path) -> None:
    """Every kind of board gives its events back."""
    machine = Machine(tmp_path)
    try:
        for producer, votes in (("ann", ("v1", "v2")), ("bob", ("v3",))):
            machine.post(producer, {"type": "like", "key": "a", "amount": 5}, {"type": "like", "key": "b"})
            machine.post(producer, *({"type": "vote", "key": "song", "actor": voter} for voter in votes))
        machine.post("ann", {"type": "like", "key": "a"})
        begun = machine.run("void", "--producer", "ann", "--since", TO_ALL)
        assert (begun.returncode, "--yes" in begun.stderr) == (2, True)
        dry = json.loads(machine.run("void", "--producer", "ann", "--since", TO_ALL, "--dry-run", "--json").stdout)
        assert {board["board"]: board["events"] for board in dry["boards"]} == {"posts": 3, "vote": 2, "best": 0}
        assert machine.scores("posts") == {"a": 11, "b": 2}

        done = machine.run("void", "--producer", "ann", "--since", TO_ALL, "--yes")
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == [
            "posts: 3 events taken back. The scores of 2 members change",
            "  a: 11 → 5",
            "  b: 2 → 1",
            "vote: 2 events, 2 votes among them, taken back. The scores of 1 member change",
            "  song: 3 → 1",
        ]
        assert (machine.scores("posts"), machine.scores("vote")) == ({"a": 5, "b": 1}, {"song": 1})
        machine.post("ann", {"type": "vote", "key": "song", "actor": "v1"}, {"type": "run", "key": "r", "amount": 9})

        again = machine.run("void", "--actor", "v1", "--since", TO_ALL, "--yes", "--json")
        assert [board["votes"] for board in json.loads(again.stdout)["boards"]] == [0, 1, 0]
        best = machine.run("void", "--producer", "ann", "--since", TO_ALL, "--board", "best", "--yes")
        assert (best.returncode, machine.scores("best")) == (0, {}), best.stderr
        assert machine.scores("vote") == {"song": 1}
        planned = machine.run("erase", "--actor", "v3", "--dry-run")
        assert (planned.returncode, "would be erased" in planned.stdout) == (0, True), planned.stderr
        gone = json.loads(machine.run("erase", "--actor", "v3", "--take-back", "--yes", "--json").stdout)
        assert [board["votes"] for board in gone["boards"]] == [0, 0, 1]
        assert gone["left"] == ""
        running = machine.run("journal", "--compact", "--yes")
        assert (running.returncode, "stop the servers" in running.stderr) == (2, True)
        assert machine.server.stop() == 0
        stopped = machine.run("erase", "--actor", "v1", "--yes")
        assert (stopped.returncode, "Delete older backups" in stopped.stdout) == (0, True), stopped.stdout
        compacted = machine.run("journal", "--compact", "--yes", "--board", "vote")
        assert (compacted.returncode, compacted.stdout.startswith("vote (epoch ")) == (0, True), compacted.stderr
        unknown = machine.run("journal", "--compact", "--yes", "--board", "vot")
        assert (unknown.returncode, "did you mean `vote`?" in unknown.stderr) == (1, True)
        machine.server.start()
        assert machine.scores("vote") == {}
        assert machine.run("journal", "--verify").returncode == 0
        assert machine.run("check").returncode == 0
    finally:
        machine.server.kill()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--since", TO_ALL), "either --producer or --actor"),
        (("--since", "noon", "--actor", "a"), "not a time"),
        (("--since", "2026-01-01T00:00:00", "--actor", "a"), "time zone"),
    ],
)
def test_what_is_to_be_voided_must_be_clear(tmp_path: Path, words: tuple[str, ...], reason: str) -> None:
    """Unclear flags are refused before the command opens anything."""
    refused = run_command("void", "--data-dir", str(tmp_path), *words)
    assert (refused.returncode, reason in refused.stderr) == (2, True)


async def test_a_visitor_is_named_by_the_cookie(valkey_url: str) -> None:
    """Events contain a digest of the cookie. Text that is no cookie names the actor itself."""
    settings = fresh_settings(valkey_url)
    client = connect(valkey_url, settings)
    visitors = Visitors(client)
    forged = f"{'a' * 22}.{'0' * 32}"
    try:
        assert await client.exists(SystemKeys(settings.key_prefix).visitors) == 0
        for _ in range(2):
            try:
                named, status = await personal._actor(client, forged), 0
            except typer.Exit as ended:
                named, status = "", ended.exit_code
            assert (named, status) == ("", 1)
            cookie = await visitors.make()  # this creates the secret that signs cookies
        assert await personal._actor(client, cookie) == await visitors.read(cookie) != cookie
        assert await personal._actor(client, "viewer-7") == "viewer-7"
    finally:
        await client.aclose()
