"""The files in `ops`: the dashboard shows every metric and no other, and each alert has a runbook."""

import json
import re
import shutil
import subprocess
from inspect import signature
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
import yaml  # type: ignore[import-untyped]
from prometheus_client import Counter, Gauge, Histogram

from live import metrics
from live.cli.journal import journal
from live.domain.window import parse_duration
from live.settings import Settings, environment_name
from tests.harness.server import server

ROOT: Final = Path(__file__).parents[1]
OPS: Final = ROOT / "ops"
UNITS: Final = [
    OPS / f"live-board{name}"
    for name in (
        ".service", ".socket", "-verify.service", "-verify.timer", "-backup.service", "-backup.timer",
    )
]  # fmt: skip
TABLE: Final = {
    f"{family.name}{'_total' if family.type == 'counter' else ''}"
    for metric in vars(metrics).values()
    if isinstance(metric, Counter | Gauge | Histogram)
    for family in metric.describe()
}
NAME: Final = re.compile(r"\b(?:live|process)_[a-z_]+")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(valkey_url: str) -> set[str]:
    """The metrics that a server shows: those of `live/metrics.py`, and those of its processes."""
    async with server(valkey_url) as client:
        text = (await client.get("/metrics")).text
    lines = re.findall(r"^# TYPE (\S+) \w+$", text, re.MULTILINE)
    return {name for name in lines if not name.endswith("_created")}


def named(expression: str) -> set[str]:
    """The metrics in an expression of Prometheus."""
    return {re.sub("_(bucket|count)$", "", name) for name in NAME.findall(re.sub(r'"[^"]*"', "", expression))}


def test_the_dashboard_shows_every_metric(shown: set[str]) -> None:
    """The dashboard shows the metrics of a real server and no others.

    Each panel has its own id, and no panel covers another.
    """
    panels = json.loads((OPS / "grafana.json").read_text(encoding="utf-8"))["panels"]
    drawn = {name for panel in panels for target in panel.get("targets", ()) for name in named(target["expr"])}
    assert shown >= {"process_start_time_seconds", "process_virtual_memory_bytes"}
    assert drawn == TABLE | shown
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [(at["x"], at["y"]) for at in (panel["gridPos"] for panel in panels)]
    assert len(set(places)) == len(places)


def test_every_alert_is_about_a_metric_and_has_a_section(shown: set[str]) -> None:
    """The headings in `docs/metrics.md` are the names of the alerts, in the same order."""
    (group,) = yaml.safe_load((OPS / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert re.findall(r"^### (LiveBoard\w+)$", text, re.MULTILINE) == [rule["alert"] for rule in group["rules"]]
    for rule in group["rules"]:
        assert (
            {"alert", "expr", "labels", "annotations"}
            <= rule.keys()
            <= {"alert", "expr", "for", "labels", "annotations"}
        )
        assert named(rule["expr"]) <= TABLE | shown, rule
        assert named(rule["expr"]) or rule["expr"].startswith("up{")
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert rule["annotations"]["runbook"] == f"docs/metrics.md#{rule['alert'].lower()}"
        assert parse_duration(rule.get("for", "0s")) <= 600
        if quantile := re.fullmatch(r"histogram_quantile\(.+\) > ([\d.]+)", rule["expr"]):
            assert float(quantile[1]) in metrics.SECONDS, (
                "the alert compares a quantile with a time that is no bound of the histogram"
            )


def test_prometheus_accepts_the_alerts() -> None:
    """The tool of Prometheus checks the rules and their expressions."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed, so no program has checked the rules")
    subprocess.run([promtool, "check", "rules", str(OPS / "alerts.yml")], check=True, capture_output=True)


def test_files_for_services_name_settings_that_exist() -> None:
    """Settings that are named in comments must exist too."""
    known = {environment_name(field) for field in Settings.__struct_fields__} | {"LIVE_NAME"}
    for name in ("Caddyfile", *(unit.name for unit in UNITS)):
        text = (OPS / name).read_text(encoding="utf-8")
        assert set(re.findall(r"\bLIVE_[A-Z_]+", text)) <= known, name
    if caddy := shutil.which("caddy"):
        command = [caddy, "validate", "--adapter", "caddyfile", "--config", str(OPS / "Caddyfile")]
        subprocess.run(command, check=True, capture_output=True)


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """Checking the units gives no warning. The service reports when it is ready, and that it is alive."""
    text = UNITS[0].read_text(encoding="utf-8")
    for line in ("Type=notify", "WatchdogSec=30", "StateDirectory=live-board", "LimitNOFILE=65536"):
        assert f"\n{line}\n" in text
    assert "ListenStream=127.0.0.1:8000" in UNITS[1].read_text(encoding="utf-8")
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd is not installed")
    for unit in UNITS:
        made = unit.read_text(encoding="utf-8").replace("/opt/live-board/bin/live", "/bin/true")
        (tmp_path / unit.name).write_text(made, encoding="utf-8")
    paths = [str(tmp_path / unit.name) for unit in UNITS]
    checked = subprocess.run([analyze, "verify", *paths], capture_output=True, text=True, check=False)
    own = [line for line in checked.stderr.splitlines() if "live-board" in line]
    assert (checked.returncode, own) == (0, [])
    for path in (paths[0], paths[2], paths[4]):
        rating = [analyze, "security", "--offline=true", "--threshold=20", path]
        rated = subprocess.run(rating, capture_output=True, text=True, check=False)
        assert rated.returncode == 0, rated.stdout


def test_the_timers_run_commands_that_exist() -> None:
    """They run once a week and every night, with the data and the settings of the service, and with no more rights."""
    verify, backup_unit = (UNITS[number].read_text(encoding="utf-8") for number in (2, 4))
    (line,) = re.findall(r"^ExecStart=/opt/live-board/bin/live (.+)$", verify, re.MULTILINE)
    assert line == "journal --verify"
    assert "verify_rows" in signature(journal).parameters
    wanted = ("Environment=", "EnvironmentFile=", "StateDirectory=")
    served, checked, saved = (
        [line for line in UNITS[number].read_text(encoding="utf-8").splitlines() if line.startswith(wanted)]
        for number in (0, 2, 4)
    )
    assert served == checked
    assert saved == [*served[:2], f"{served[2]} live-board-backups"]
    assert backup_unit.partition("StateDirectoryMode=")[2] == verify.partition("StateDirectoryMode=")[2]
    assert "\nOnCalendar=weekly\n" in UNITS[3].read_text(encoding="utf-8")
    assert "\nOnCalendar=*-*-* 03:00:00\n" in UNITS[5].read_text(encoding="utf-8")
