"""The service as the unit runs it: its keys, its files, and what commands of root do to them."""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.harness.mutation import must_be_caught
from tests.harness.service import DATA, LIVE, MAY_RUN, ROOT, Host, host
from tests.harness.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not MAY_RUN, reason="only root can act as a service of systemd")]

DOCUMENTED: Final = (ROOT / "docs" / "systemd.md").read_text(encoding="utf-8")


def documented_key(producer: str) -> list[str]:
    """The command of the documentation that creates a key, without `systemd-run`, whose place the test takes."""
    (command,) = re.findall(rf"^ *({LIVE} keys add .*)$", DOCUMENTED, re.MULTILINE)
    words = shlex.split(command)
    assert words[-2:] == ["--data-dir", DATA]
    return [word if word != "shop" else producer for word in words]


def foreign(machine: Host) -> list[Path]:
    """The files in the data directory that another user owns, or that others may read."""
    data = machine.outside(DATA)
    return [
        path
        for path in (data, *data.rglob("*"))
        if path.lstat().st_uid != machine.user or (path.lstat().st_mode & 0o077 and not path.is_socket())
    ]


def post(machine: Host, key: str) -> int:
    """The status with which an event is answered."""
    with machine.client() as client:
        headers = {"Authorization": f"Bearer {key}"}
        return client.post("/v1/events", json={"key": "a"}, headers=headers).status_code


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Host]:
    """A machine with an installed service that does not run."""
    with host(tmp_path / "host") as made:
        yield made


def test_keys_of_the_services_user_open_the_service(machine: Host) -> None:
    """Keys from before the start and from later are valid. The service has no rights, and its files are private."""
    first = machine.run(*documented_key("shop"))
    assert first.returncode == 0, first.stderr
    machine.start()
    second = machine.run(*documented_key("app"))
    assert second.returncode == 0, second.stderr
    assert post(machine, first.stdout.strip()) == 200
    until(lambda: post(machine, second.stdout.strip()) == 200)
    assert post(machine, "shop.guess") == 401
    assert machine.process is not None
    status = Path(f"/proc/{machine.process.pid}/status").read_text(encoding="ascii")
    assert re.search(rf"^Uid:\t{machine.user}\t{machine.user}\t", status, re.MULTILINE)
    assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\t1$", status, re.MULTILINE)
    assert foreign(machine) == []
    machine.stop()
    assert foreign(machine) == []


def test_the_settings_of_the_file_are_those_of_the_service(machine: Host) -> None:
    """A setting that does not exist ends the start with a sentence."""
    machine.settings["LIVE_WORKERS"] = "2"
    machine.start()
    assert '"workers": 2' in machine.log.read_text(encoding="utf-8")
    assert post(machine, machine.key) == 200
    machine.stop()
    machine.settings["LIVE_WORKER"] = "2"
    with pytest.raises(RuntimeError, match="did you mean `LIVE_WORKERS`"):
        machine.start()


def root_must_not_harm(machine: Host) -> None:
    """Run commands as root, while the service runs and after it. They must leave nothing that breaks the service."""
    running = (["keys", "add", "two"], ["check"])
    stopped = (["keys", "add", "two"], ["recover", "--from", "journal"], ["backup", "/var/lib/by-root"])
    for words in (None, *running, None, *stopped):
        if words is None:
            if machine.process is None:
                machine.start()
            else:
                machine.stop()
            continue
        done = machine.run(LIVE, *words, as_root=True)
        assert foreign(machine) == [], words
        assert done.returncode == 2, words
        user = f"setpriv --reuid={machine.user} --regid={machine.user} --clear-groups"
        assert f"belongs to the user with id {machine.user}" in done.stderr
        assert f"put `{user}` before the command" in done.stderr
    done = machine.run(*shlex.split(user), LIVE, "keys", "add", "three", as_root=True)
    assert done.returncode == 0, done.stderr
    machine.start()
    assert post(machine, done.stdout.strip()) == 200


def test_a_command_of_root_does_not_break_the_service(machine: Host) -> None:
    """It is refused, and the sentence says how to run it."""
    root_must_not_harm(machine)


def test_a_key_that_root_makes_before_the_first_start_is_valid(tmp_path: Path) -> None:
    """The service's user gets the directory of root from systemd."""
    with Host(tmp_path / "host") as machine:
        done = machine.run(*documented_key("shop"), as_root=True)
        assert done.returncode == 0, done.stderr
        assert {path.stat().st_uid for path in machine.outside(DATA).iterdir()} == {os.getuid()}
        machine.start()
        assert post(machine, done.stdout.strip()) == 200
        assert foreign(machine) == []


@pytest.mark.mutant
def test_commands_that_write_as_root_are_noticed(machine: Host) -> None:
    """The mutant lets root use the data directory of another user."""
    mistake = {"if os.geteuid() != 0 or not folder.exists()": "if True or not folder.exists()"}
    machine.install(changes={"live/system/data_directory.py": mistake})
    with must_be_caught("commands of root write into the data directory of another user"):
        root_must_not_harm(machine)
