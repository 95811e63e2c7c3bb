"""The nightly backup: its unit on a machine whose service runs, and a rehearsal on another machine."""

import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.harness.journal_server import BOARDS, fill, seen
from tests.harness.mutation import must_be_caught
from tests.harness.service import BACKUP, BACKUPS, DATA, LIVE, MAY_RUN, Host, Unit, host
from tests.harness.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not MAY_RUN, reason="only root can act as a service of systemd")]

DAY: Final = 86_400
NAME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d{6}Z")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Host]:
    """A machine whose service has boards of all kinds."""
    with host(tmp_path / "first", boards=BOARDS) as made:
        made.start()
        fill(made)
        yield made


def backups(machine: Host) -> set[str]:
    """The names of the directories of backups."""
    return {path.name for path in machine.outside(BACKUPS).iterdir()}


def add_old(machine: Host, name: str, days: float) -> None:
    """Add a backup that is some days old."""
    path = machine.outside(BACKUPS) / name
    path.mkdir(mode=0o700)
    (path / "manifest.json").write_text("{}", encoding="ascii")
    os.chown(path, machine.user, machine.user)
    then = time.time() - days * DAY
    os.utime(path, (then, then))


def exported(machine: Host) -> dict[str, str]:
    """The rankings of two boards as tables."""
    done = {name: machine.run(LIVE, "export", name) for name in ("posts", "vote")}
    assert not any(each.returncode for each in done.values()), done
    return {name: each.stdout for name, each in done.items()}


def test_a_backup_of_the_timer_is_restored_on_another_machine(machine: Host, tmp_path: Path) -> None:
    """The other machine has another user. Its boards, tables and journal are those of the first machine."""
    assert machine.run_unit(BACKUP).returncode == 0
    (name,) = backups(machine)
    assert NAME.fullmatch(name)
    made = machine.outside(BACKUPS)
    assert all(path.stat().st_mode & 0o077 == 0 for path in (made, *made.rglob("*")))
    before, tables = seen(machine), exported(machine)
    machine.stop()
    with Host(tmp_path / "second", 1) as other:
        # As `scp` of root does: the user of the service may not read the files yet.
        shutil.copytree(made / name, other.outside(BACKUPS) / name)
        shutil.copyfile(made / name / "boards.toml", other.opt / "boards.toml")
        other.settings["LIVE_BOARDS"] = "/opt/boards.toml"
        other.key = machine.key
        done = other.run(LIVE, "restore", f"{BACKUPS}/{name}", unit=BACKUP)
        assert done.returncode == 0, done.stderr
        other.start()
        assert seen(other) == before
        assert exported(other) == tables
        for words in (("check",), ("journal", "--verify")):
            assert other.run(LIVE, *words).returncode == 0, words
        with other.client() as client:
            again = client.post("/v1/events", json={"type": "like", "key": "p1", "id": "e1", "source": "test"})
            assert again.json()["duplicate"] == 1


def test_a_copy_that_the_user_may_not_read_is_named(machine: Host, tmp_path: Path) -> None:
    """The refusal names the directory, and the data directory stays empty."""
    assert machine.run_unit(BACKUP).returncode == 0
    (name,) = backups(machine)
    with Host(tmp_path / "second", 1) as other:
        shutil.copytree(machine.outside(BACKUPS) / name, other.outside("/var/lib/copied"))
        done = other.run(LIVE, "restore", "/var/lib/copied")
        assert done.returncode == 2
        assert "'/var/lib/copied' is not readable" in done.stderr
        assert not any(other.outside(DATA).iterdir())


def keeps_what_is_needed(machine: Host, unit: Unit) -> None:
    """Run the unit twice: when the store of the service is away, and when it is back."""
    shutil.rmtree(machine.outside(BACKUPS), ignore_errors=True)
    machine.settings.pop("LIVE_STORE", None)
    assert machine.run_unit(unit).returncode == 0
    (first,) = backups(machine)
    add_old(machine, "old", 14.1)
    add_old(machine, "young", 13.9)
    machine.settings["LIVE_STORE"] = "redis://127.0.0.1:9"
    failed = machine.run_unit(unit)
    assert (failed.returncode, "the store is unavailable" in failed.stderr) == (2, True), failed
    complete = {path.parent.name for path in machine.outside(BACKUPS).glob("*/manifest.json")}
    assert complete == {first, "old", "young"}, "the last backups are gone, and there is no new one"
    del machine.settings["LIVE_STORE"]
    until(lambda: time.strftime("%Y-%m-%dT%H%M%SZ", time.gmtime()) > first)  # two backups can't have one name
    assert machine.run_unit(unit).returncode == 0
    complete = {path.parent.name for path in machine.outside(BACKUPS).glob("*/manifest.json")}
    assert {first, "young"} < complete
    assert len(complete) == 3, "the old backup is still there"


def test_old_backups_are_deleted_after_a_new_one_only(machine: Host) -> None:
    """A backup that fails deletes nothing, and its unit fails, so that `systemctl --failed` lists it."""
    keeps_what_is_needed(machine, BACKUP)


@pytest.mark.mutant
def test_a_unit_that_deletes_too_much_is_noticed(machine: Host) -> None:
    """It deletes before it has a backup, or at another age, or hides the failure."""
    for changes in (
        {"ExecStartPost=": "ExecStartPre="},
        {"-mtime +13": "-mtime +14"},
        {"-mtime +13": "-mtime +12"},
        {"'exec ": "'", """SZ)"'""": """SZ)" || true'"""},
    ):
        with must_be_caught(str(changes)):
            keeps_what_is_needed(machine, Unit("live-board-backup.service", changes))
