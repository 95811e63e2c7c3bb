"""`promtool` runs every alert of `ops/alerts.yml`: it fires when something is wrong, not before, and not otherwise."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client import Counter, Gauge, Histogram

from live import metrics
from live.domain.window import parse_duration
from tests.harness.mutation import must_be_caught
from tests.harness.service import OPS

PROMTOOL: Final = shutil.which("promtool")
pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")

RULES: Final = yaml.safe_load((OPS / "alerts.yml").read_text(encoding="utf-8"))
ALERTS: Final = {rule["alert"]: rule for rule in RULES["groups"][0]["rules"]}
COMPARISON: Final = re.compile(r"(==|[<>]) ([\d.]+)")
STEP: Final = 15  # seconds between two values of a series


class Case(NamedTuple):
    """The series of an alert, with values with which it fires and values with which it does not.

    The values have the notation of Prometheus. They are near the bound, so that another bound fails the test.
    """

    series: dict[str, tuple[str, str]]
    labels: tuple[tuple[str, str], ...] = ()
    """The labels of the alert, without its instance and its severity."""

    begins: int = 0
    """Seconds until its condition holds: a rate looks five minutes back."""


def rising(per_second: float) -> str:
    """The values of a counter."""
    return f"0+{per_second * STEP:g}x200"


def constant(value: float) -> str:
    """The values of a gauge."""
    return f"{value:g}x200"


def slow(metric: str, bound: float) -> Case:
    """A histogram of which a hundredth is above the bound, or hardly below it."""
    return Case(
        {
            f'{metric}_bucket{{le="0.1"}}': (constant(0), constant(0)),
            f'{metric}_bucket{{le="{bound:g}"}}': ("0+197x200", "0+200x200"),
            f'{metric}_bucket{{le="{2 * bound:g}"}}': ("0+200x200", "0+200x200"),
            f'{metric}_bucket{{le="+Inf"}}': ("0+200x200", "0+200x200"),
        }
    )


def gauge(metric: str, wrong: float, right: float, **labels: str) -> Case:
    """A metric with one value, and its labels."""
    given = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return Case({f"{metric}{{{given}}}": (constant(wrong), constant(right))}, tuple(labels.items()))


CASES: Final[dict[str, Case]] = {
    "LiveBoardDown": gauge("up", 0, 1, job="live-board"),
    "LiveBoardStoreStale": gauge("live_store_stale", 1, 0),
    "LiveBoardRefusesRequests": Case(
        {
            'live_problems_total{code="overloaded"}': (rising(0.12), rising(0.08)),
            'live_problems_total{code="rate_exceeded"}': (rising(9), rising(9)),  # a mistake of a client
        },
        (("code", "overloaded"),),
        begins=240,
    ),
    "LiveBoardSlowCommits": slow("live_commit_seconds", 0.25),
    "LiveBoardLateFrames": slow("live_send_lag_seconds", 0.5),
    "LiveBoardRotationBehind": gauge("live_rotation_lag_seconds", 121, 119, board="posts"),
    "LiveBoardScoreRange": gauge("live_score_range_left", 0.09, 0.11, board="posts"),
    "LiveBoardJournalBehind": gauge("live_journal_lag_seconds", 61, 59),
    "LiveBoardJournalMissing": Case({"live_journal_missing_total{}": ("0x4 1x200", constant(7))}),
    "LiveBoardArchiveBehind": gauge("live_journal_archive_lag_seconds", 901, 899),
    "LiveBoardDescriptors": Case(
        {
            "process_open_fds{}": (constant(820), constant(780)),
            "process_max_fds{}": (constant(1000), constant(1000)),
        }
    ),
    "LiveBoardDisk": gauge("live_disk_used_ratio", 0.91, 0.89),
    "LiveBoardStoreMemory": gauge("live_store_memory_used_ratio", 0.86, 0.84),
    # `promtool` begins at the time 0, and looks at most twenty minutes later.
    "LiveBoardKeyExpires": gauge("live_api_keys_expire_timestamp_seconds", 604_000, 606_500),
    "LiveBoardWrongTimes": Case(
        {
            'live_events_rejected_total{code="early"}': (rising(0.12), rising(0.08)),
            'live_events_rejected_total{code="late"}': (rising(0.08), rising(0.08)),
            'live_events_rejected_total{code="amount_too_large"}': (rising(9), rising(9)),
        },
        (("code", "early"),),
        begins=240,
    ),
}


def filled(text: str, labels: dict[str, str]) -> str:
    """A text of an alert, as a person reads it."""
    return re.sub(r"{{ \$labels\.(\w+) }}", lambda found: labels[found[1]], text)


def checked(name: str, rule: dict[str, Any], folder: Path) -> str:
    """Run `promtool` with one alert and its case. Return what it finds wrong."""
    assert PROMTOOL is not None
    case, labels = CASES[name], {**dict(CASES[name].labels), "instance": "one"}
    wait = round(parse_duration(ALERTS[name].get("for", "0s")))
    fired = {
        "exp_labels": {**labels, **rule["labels"]},
        "exp_annotations": {each: filled(text, labels) for each, text in rule["annotations"].items()},
    }
    times = ((f"{wait + 600}s", [fired]), *([(f"{case.begins + wait - STEP}s", [])] if wait else []))
    tests = [
        {
            "name": kind,
            "interval": f"{STEP}s",
            "input_series": [
                {
                    "series": series.replace("}", ',instance="one"}').replace("{,", "{"),
                    "values": values[kind == "right"],
                }
                for series, values in case.series.items()
            ],
            "alert_rule_test": [
                {"eval_time": time, "alertname": name, "exp_alerts": found if kind == "wrong" else []}
                for time, found in times
            ],
        }
        for kind in ("wrong", "right")
    ]
    (folder / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "one", "rules": [rule]}]}))
    (folder / "tests.yml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yml"], "evaluation_interval": f"{STEP}s", "tests": tests})
    )
    done = subprocess.run(
        [PROMTOOL, "test", "rules", str(folder / "tests.yml")], capture_output=True, text=True, check=False
    )
    if done.returncode and "FAILED" not in done.stderr + done.stdout:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout + done.stderr if done.returncode else ""


def require_right(name: str, rule: dict[str, Any], folder: Path) -> None:
    """Require that the alert fires when it should."""
    assert checked(name, rule, folder) == ""


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_fires_when_it_should(name: str, tmp_path: Path) -> None:
    """It fires after its time, with the sentence that people read, and is silent on the good side of its bound."""
    require_right(name, ALERTS[name], tmp_path)


def test_the_series_are_those_of_the_server() -> None:
    """They have the labels of the real metrics."""
    endings = {"counter": "_total", "histogram": "_bucket"}
    found = {
        family.name + endings.get(family.type, ""): metric
        for metric in vars(metrics).values()
        if isinstance(metric, Counter | Gauge | Histogram)
        for family in metric.describe()
    }
    for case in CASES.values():
        for series in case.series:
            name, _, labels = series.partition("{")
            if name.startswith("live_"):
                assert set(re.findall(r"(\w+)=", labels)) - {"le"} == set(found[name]._labelnames), series


@pytest.mark.mutant
@pytest.mark.parametrize("name", ALERTS)
def test_another_bound_or_time_is_noticed(name: str, tmp_path: Path) -> None:
    """The bound is higher or lower, or the alert does not wait."""
    rule = ALERTS[name]
    bound = COMPARISON.search(rule["expr"])
    assert bound is not None
    number = float(bound[2])
    for other in (number / 2 or -1, number * 1.5 or 2):
        expression = f"{rule['expr'][: bound.start()]}{bound[1]} {other:g}{rule['expr'][bound.end() :]}"
        with must_be_caught(f"{name}: {expression}"):
            require_right(name, {**rule, "expr": expression}, tmp_path)
    if "for" in rule:
        with must_be_caught(f"{name}: it fires at once"):
            require_right(name, {**rule, "for": "0s"}, tmp_path)
