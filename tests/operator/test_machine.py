"""Faults of the machine under the service: a full disk, a wrong clock, a killed store."""

import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from tests.harness.disk import Disk, small_disk
from tests.harness.mutation import must_be_caught
from tests.harness.service import LIVE, MAY_RUN, Host, host
from tests.harness.shims import Clock, has_compiler
from tests.harness.waiting import until

pytestmark = [
    pytest.mark.fault,
    pytest.mark.slow,
    pytest.mark.skipif(not MAY_RUN, reason="only root can act as a service of systemd"),
]

ROOM: Final = 64 << 20


class Producer:
    """Posts events one by one, repeats each until it is acknowledged, and counts these."""

    def __init__(self, machine: Host) -> None:
        self._machine = machine
        self.acknowledged = 0
        self.number = 0
        self.codes: set[str] = set()

    def post(self) -> bool:
        """Send the next event once. Return whether it was acknowledged."""
        with self._machine.client() as client:
            answer = client.post("/v1/events", json={"key": "a", "id": str(self.number), "source": "test"})
        if answer.status_code != 200:
            self.codes.add(answer.json()["code"])
            return False
        assert answer.json()["accepted"] + answer.json()["duplicate"] == 1
        self.number += 1
        self.acknowledged += 1
        return True

    def require_all(self) -> None:
        """Require that each acknowledged event counted once, in the store and in the journal."""
        with self._machine.client() as client:
            record = client.get("/v1/boards/posts/records/a").json()
        assert record["score"] == self.acknowledged
        done = self._machine.run(LIVE, "check")
        assert done.returncode == 0, done.stdout + done.stderr


def ready(machine: Host) -> dict[str, Any]:
    """The answer of `/readyz`."""
    with machine.client() as client:
        found: dict[str, Any] = client.get("/readyz").json()
    return found


def survive_a_full_disk(machine: Host, disk: Disk) -> None:
    """Fill the disk until events are refused, and make room. The service must say why, and go on by itself."""
    machine.start()
    assert machine.process is not None
    producer, process = Producer(machine), machine.process.pid
    for _ in range(10):
        assert producer.post()
    disk.fill()
    until(lambda: not producer.post())
    for _ in range(5):
        reasons = " ".join(ready(machine)["reasons"])
        assert "the disk of the data directory is full" in reasons, reasons
    assert producer.codes <= {"store_unavailable", "outcome_unknown"}
    disk.clear()
    for _ in range(20):
        until(producer.post)
    until(lambda: ready(machine) == {"status": "ready", "journal": "ok", "reasons": []})
    assert (machine.process.pid, machine.process.poll()) == (process, None)
    producer.require_all()


def on_a_small_disk(folder: Path, changes: dict[str, dict[str, str]]) -> None:
    """Run a service with some mistakes in its files, whose data directory is a small disk."""
    (folder / "lib" / "private").mkdir(parents=True, mode=0o700)
    with small_disk(folder / "lib" / "private" / "live-board", f"{ROOM}") as disk, host(folder) as machine:
        if changes:
            machine.change(changes)
        survive_a_full_disk(machine, disk)


def test_a_full_disk_refuses_events_until_there_is_room(tmp_path: Path) -> None:
    """`/readyz` names the disk. After that, the service goes on without a restart."""
    on_a_small_disk(tmp_path / "host", {})


@pytest.mark.mutant
def test_a_health_that_does_not_name_the_disk_is_noticed(tmp_path: Path) -> None:
    """The mutant does not look at the disk."""
    mistake = {"full = disk_fault(self._settings.data_dir)": 'full = ""'}
    with must_be_caught("a service on a full disk only says that its store is unavailable"):
        on_a_small_disk(tmp_path / "host", {"live/boards/readiness.py": mistake})


@pytest.mark.skipif(not has_compiler(), reason="needs a C compiler to set a wrong clock")
def test_a_wrong_clock_refuses_right_times_until_it_is_set(tmp_path: Path) -> None:
    """The machine starts with a clock that is behind. Events that say their time are `early`, which an alert counts."""
    with Host(tmp_path / "host") as machine:
        folder = machine.opt / "clock"
        folder.mkdir()
        clock = Clock(folder)
        machine.preloaded = {"LD_PRELOAD": "/opt/clock/clock.so", "CLOCK_FILE": "/opt/clock/clock"}
        clock.shift(-7200)
        machine.add_key()
        machine.start()
        with machine.client() as client:

            def post() -> list[str]:
                """Post an event of now, and return the codes with which it is refused."""
                answer = client.post("/v1/events", json={"key": "timed", "time": datetime.now(UTC).isoformat()})
                assert answer.status_code == 200, answer.text
                return [fault["code"] for fault in answer.json()["rejected"]]

            def score(member: str) -> int:
                return int(client.get(f"/v1/boards/posts/records/{member}").json()["score"])

            assert post() == ["early"]
            assert 'live_events_rejected_total{code="early"} 1.0' in client.get("/metrics").text
            assert client.post("/v1/events", json={"key": "plain"}).json()["accepted"] == 1
            clock.shift(0)
            assert post() == []
            assert client.post("/v1/events", json={"key": "plain"}).json()["accepted"] == 1
            assert (score("timed"), score("plain")) == (1, 2)
        assert machine.run(LIVE, "check").returncode == 0


def store_of(machine: Host) -> int:
    """The process id of the store of the service."""
    assert machine.process is not None
    for task in Path(f"/proc/{machine.process.pid}/task").iterdir():
        for child in (task / "children").read_text(encoding="ascii").split():
            if "valkey-server" in Path(f"/proc/{child}/cmdline").read_text(encoding="utf-8"):
                return int(child)
    raise AssertionError("the service has no store")


def survive_a_killed_store(machine: Host) -> None:
    """Kill the store three times while events arrive. The service must start it again, and lose and repeat nothing."""
    machine.start()
    producer = Producer(machine)
    for _ in range(3):
        for _ in range(20):
            until(producer.post)
        os.kill(store_of(machine), signal.SIGKILL)
        assert machine.process is not None
        assert machine.process.poll() is None
    for _ in range(20):
        until(producer.post)
    producer.require_all()


def test_a_killed_store_comes_back(tmp_path: Path) -> None:
    """The service goes on. Each acknowledged event counts once, although the producer repeats what had no answer."""
    with host(tmp_path / "host") as machine:
        survive_a_killed_store(machine)


@pytest.mark.mutant
def test_a_store_that_stays_away_is_noticed(tmp_path: Path) -> None:
    """The mutant does not start the store again."""
    mistake = {"if not self._is_up:\n                self._failed = True": "if self._is_up:\n                pass"}
    with must_be_caught("the store is not started again"), host(tmp_path / "host") as machine:
        machine.change({"live/store/connection/embedded.py": mistake})
        survive_a_killed_store(machine)
