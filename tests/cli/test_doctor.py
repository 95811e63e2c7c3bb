"""`live doctor`: what it finds, and what it advises."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from live import __version__
from live.cli import doctor
from tests.harness.commands import run_command
from tests.harness.store import valkey


def examine(*words: str, **environment: str) -> tuple[int, dict[str, list[tuple[str, str]]]]:
    """Return the exit status, and the state and detail of each finding, by check."""
    ended = run_command("doctor", "--json", *words, **environment)
    found: dict[str, Any] = json.loads(ended.stdout)
    assert found["sound"] is (ended.returncode == 0)
    findings: dict[str, list[tuple[str, str]]] = {}
    for one in found["findings"]:
        findings.setdefault(one["check"], []).append((one["state"], one["detail"]))
    return ended.returncode, findings


def test_a_sound_machine_has_no_fault(valkey_url: str, tmp_path: Path) -> None:
    """Every part is checked, and nothing is changed: the command does not create the data directory."""
    folder = tmp_path / "data"
    status, found = examine("--store", valkey_url, "--data-dir", str(folder))
    assert status == 0
    assert found.keys() == {"versions", "settings", "boards", "network", "limits", "files", "store", "clock", "journal"}
    assert any("answers: Valkey " in detail for _, detail in found["store"])
    assert found["clock"] == [("ok", "the store and this machine have the same time")]
    assert not folder.exists()
    assert "not asked" in examine("--data-dir", str(folder))[1]["store"][0][1]
    assert run_command("doctor", "--store", valkey_url, "--data-dir", str(folder)).stdout.startswith("check ")


def test_another_client_in_the_same_environment_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of the client contains modules of the server, so two versions would be mixed."""
    metadata = tmp_path / "live_board_client-0.0.1.dist-info" / "METADATA"
    metadata.parent.mkdir()
    for version, found in (("0.0.1", ["warning"]), (__version__, [])):
        metadata.write_text(f"Metadata-Version: 2.1\nName: live-board-client\nVersion: {version}\n", encoding="ascii")
        monkeypatch.syspath_prepend(tmp_path)
        at = doctor._Examination()
        doctor._check_packages(at)
        assert [finding.state for finding in at.findings] == found


def test_each_fault_is_found(tmp_path: Path) -> None:
    """The exit status tells whether there are faults, or only warnings."""
    (tmp_path / "data").mkdir(mode=0o755)
    (tmp_path / "data").chmod(0o755)
    (tmp_path / "boards.toml").write_text("[[board]]\nid = 5\n")
    store = valkey(tmp_path)
    store.start()
    redis.Redis.from_url(store.url).config_set("requirepass", "sesame")
    data = {"LIVE_DATA_DIR": str(tmp_path / "data")}
    for check, state, words, environment in (
        ("settings", "fault", "did you mean `LIVE_PORT`?", {"LIVE_PROT": "1"}),
        ("boards", "fault", "`id`: expected a text, got 5", {"LIVE_BOARDS": str(tmp_path / "boards.toml")}),
        ("files", "warning", "chmod 700", {}),
        ("network", "warning", "LIVE_ALLOWED_HOSTS", {"LIVE_HOST": "0.0.0.0"}),  # noqa: S104
        ("network", "warning", "LIVE_TRUSTED_PROXIES", {"LIVE_HOST": "0.0.0.0"}),  # noqa: S104
        ("limits", "warning", "LimitNOFILE", {"LIVE_MAX_VIEWERS": "2000000000"}),
        ("store", "fault", "USER:PASSWORD@HOST", {"LIVE_STORE": store.url}),
        ("store", "fault", "Start the store, or correct LIVE_STORE", {"LIVE_STORE": "redis://127.0.0.1:9"}),
        ("journal", "warning", "can't be rebuilt", {"LIVE_JOURNAL": "off"}),
        ("journal", "fault", "postgresql://user:password@host", {"LIVE_JOURNAL": "mysql://h/d"}),
        ("journal", "fault", "correct LIVE_JOURNAL", {"LIVE_JOURNAL": "postgresql://u:p@127.0.0.1:9/d"}),
    ):
        status, found = examine(**{**data, **environment})
        assert any(one[0] == state and words in one[1] for one in found[check]), (check, words, found)
        assert status == (1 if state == "fault" else 0)
        assert state != "fault" or {one[0] for one in found[check]} == {"fault"}, found
    store.kill()


def test_a_clock_that_differs_is_noticed() -> None:
    """The clocks may differ by a second in either direction. The time that the store takes to answer does not count."""
    for apart, state in ((0.0, "ok"), (-0.5, "ok"), (30.0, "warning"), (-30.0, "warning")):
        at = doctor._Examination()
        now = time.time()
        doctor._compare_clocks(at, [str(int(now + apart)).encode(), b"500000"], now)
        assert [finding.state for finding in at.findings] == [state], apart
