"""The service as the unit runs it: its keys, its files, and what commands of root do to them."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.harness.mutation import must_be_caught
from tests.harness.nginx import DOCUMENTED as DOCUMENTED_NGINX
from tests.harness.nginx import NGINX, nginx
from tests.harness.service import BACKUP, DATA, LIVE, MAY_RUN, ROOT, SERVICE, Host, host
from tests.harness.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not MAY_RUN, reason="only root can act as a service of systemd")]

DOCUMENTED: Final = (ROOT / "docs" / "systemd.md").read_text(encoding="utf-8")


def run(machine: Host, before: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command behind the words of `systemd-run`, whose place the test takes. They must say what the unit says."""
    name, *options = shlex.split(before)
    assert name == "systemd-run"
    pairs = list(pairwise(options))
    given = dict(pair.split("=", 1) for option, pair in pairs if option == "-p")
    assert given.pop("User") == SERVICE.name.removesuffix(".service")
    unit = BACKUP if BACKUP["StateDirectory"] == [given["StateDirectory"]] else SERVICE
    for each, value in given.items():
        assert unit[each] == [value]
    assert {"DynamicUser", "StateDirectory", "EnvironmentFile"} <= given.keys()
    assert [pair for option, pair in pairs if option == "-E"] == unit["Environment"]
    return machine.run(LIVE, *words, unit=unit)


def add_key(machine: Host, producer: str) -> str:
    """Create a key with the function of the documentation."""
    pattern = rf"^board\(\) {{ (systemd-run .*?) \\\n +\"\${{LIVE:-{LIVE}}}\" \"\$@\"; }}$"
    (function,) = re.findall(pattern, DOCUMENTED, re.MULTILINE | re.DOTALL)
    assert "\nboard keys add shop\n" in DOCUMENTED
    done = run(machine, function.replace("\\\n", " "), "keys", "add", producer)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


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
    first = add_key(machine, "shop")
    machine.start()
    second = add_key(machine, "app")
    assert post(machine, first) == 200
    until(lambda: post(machine, second) == 200)
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
        assert f"belongs to the user with id {machine.user}" in done.stderr
    (before,) = re.findall("put `(.*)` before the command", done.stderr)
    done = run(machine, before, "keys", "add", "three")
    assert done.returncode == 0, done.stderr
    machine.start()
    assert post(machine, done.stdout.strip()) == 200


def test_a_command_of_root_does_not_break_the_service(machine: Host) -> None:
    """It is refused, and the sentence says how to run it."""
    root_must_not_harm(machine)


def test_a_key_that_root_makes_before_the_first_start_is_valid(tmp_path: Path) -> None:
    """The service's user gets the directory of root from systemd."""
    with Host(tmp_path / "host") as machine:
        done = machine.run(LIVE, "keys", "add", "shop", as_root=True)
        assert done.returncode == 0, done.stderr
        assert {path.stat().st_uid for path in machine.outside(DATA).iterdir()} == {os.getuid()}
        machine.start()
        assert post(machine, done.stdout.strip()) == 200
        assert foreign(machine) == []


@pytest.mark.mutant
def test_commands_that_write_as_root_are_noticed(machine: Host) -> None:
    """The mutant lets root use the data directory of another user."""
    mistake = {"if os.geteuid() != 0 or not folder.exists()": "if True or not folder.exists()"}
    machine.change({"live/system/data_directory.py": mistake})
    with must_be_caught("commands of root write into the data directory of another user"):
        root_must_not_harm(machine)


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
def test_nginx_as_shipped_serves_the_service(machine: Host, tmp_path: Path) -> None:
    """With the settings that its file names, the public name is served, and another name is refused."""
    text = DOCUMENTED_NGINX.read_text(encoding="utf-8")
    for name in ("LIVE_TRUSTED_PROXIES", "LIVE_ALLOWED_HOSTS"):
        (machine.settings[name],) = re.findall(rf"^#   {name}=(\S+) ", text, re.MULTILINE)
    machine.start()
    with nginx(machine.url, tmp_path / "nginx") as url, httpx.Client(base_url=url, timeout=180) as client:
        client.headers = {"Host": machine.settings["LIVE_ALLOWED_HOSTS"]}
        key = {"Authorization": f"Bearer {machine.key}"}
        assert client.post("/v1/events", json={"key": "a"}).status_code == 401
        assert client.post("/v1/events", json={"key": "a"}, headers=key).status_code == 200
        assert client.get("/boards/posts").status_code == 200
        assert client.get("/v1/boards/posts", headers={"Host": "evil.example"}).json()["code"] == "host_forbidden"
