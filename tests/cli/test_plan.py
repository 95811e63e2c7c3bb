"""`live plan` and its unit costs: the documentation has the same figures, and they follow from the benchmarks."""

import json
import re
import shlex
from pathlib import Path
from typing import Final

import msgspec
import pytest

from bench.__main__ import PARTS
from live.cli.plan import (
    FRAME,
    IDLE,
    IDLE_BOARD,
    MICRO,
    STORE_BUSY,
    TICK,
    UNIT_COSTS,
    CapacityPlan,
    Demand,
    UnitCost,
    plan,
)
from tests.harness.commands import run_command

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGE: Final = (DOCS / "scaling.md").read_text(encoding="utf-8")
BENCHMARKS: Final = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
ROWS: Final = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in PAGE.splitlines()]
UNITS: Final = {"µs": MICRO, "ms": 1e-3, "bytes": 1, "KB": 1e3, "MB": 1e6}
MILLION: Final = 1_000_000


@pytest.mark.parametrize("cost", UNIT_COSTS, ids=lambda cost: cost.work)
def test_the_documentation_has_each_unit_cost(cost: UnitCost) -> None:
    """The table has each cost with its figure, its calculation, the command that measures it, and the day."""
    assert [cost.work, cost.figure, cost.sum or "\u2013", f"`{cost.command}`", cost.measured] in ROWS
    assert cost.part in PARTS


@pytest.mark.parametrize("cost", UNIT_COSTS, ids=lambda cost: cost.work)
def test_a_unit_cost_follows_from_the_benchmarks(cost: UnitCost) -> None:
    """The plan uses the documented figure.

    `sum` is the calculation of the figure. The page of benchmarks has its numbers, except the factors 1 and 5.
    """
    number, unit = re.match(r"([\d.]+) (µs|ms|bytes|KB|MB)", cost.figure).groups()  # type: ignore[union-attr]
    assert cost.value == pytest.approx(float(number) * UNITS[unit])
    for figure in re.findall(r"\d[\d,.]*\d|\d", cost.sum or number):
        assert re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d])", BENCHMARKS) or figure in {"1", "5"}, figure


def test_the_documentation_shows_what_the_command_prints() -> None:
    """The example has the same words. Only the width of lines may differ."""
    example = re.search(r"```text\nlive (plan .*)\n\n((?:.*\n)*?)```", PAGE)
    assert example is not None
    assert run_command(*shlex.split(example[1])).stdout.split() == example[2].split()


PLANS: Final = {
    "1,000,000 viewers, a frame a second": Demand(viewers=MILLION),
    "1,000,000 viewers, 10 frames a second": Demand(viewers=MILLION, frames=10),
    "1,000,000 events a second on many boards": Demand(events=MILLION, boards=1000),
}


@pytest.mark.parametrize(("row", "demand"), PLANS.items())
def test_the_documented_plans_are_those_of_the_command(row: str, demand: Demand) -> None:
    """The table has the numbers of the plan: cores, processes, memory and bytes."""
    made = plan(demand)
    (shown,) = (cells[1] for cells in ROWS if cells[0] == row)
    part = made.viewer_processes if demand.viewers else made.ingest_processes
    cores = f"{part.cores:.1f}" if demand.events else f"{part.cores:.0f}"
    assert f"{cores} cores in {part.count} processes" in shown
    if demand.viewers:
        assert f"{part.memory / 1e9:.0f} GB, {part.bytes_per_second / 1e9:.2g} GB/s" in shown
    else:
        assert f"{made.primaries.cores:.0f} cores on {made.primaries.count} primaries" in shown


def advice(**given: float) -> str:
    """The advice for a demand, as one text."""
    return "\n".join(plan(msgspec.convert(given, Demand)).advice)


@pytest.mark.parametrize(
    ("engine", "small", "large"),
    [
        ("Flink", {"events": 250_000}, {"events": 260_000}),
        ("Kafka or", {"events": 1000, "has_ids": True}, {"events": 100_000, "has_ids": True}),
        ("ClickHouse: rank", {"members": 10**8}, {"members": 2 * 10**8}),
        ("large primary", {"members": 10**7}, {"members": 2 * 10**7}),
        ("Parquet", {"events": 100_000}, {"events": 500_000}),
        ("A CDN", {"viewers": MILLION}, {"viewers": MILLION, "frames": 10}),
        ("MemoryDB", {"events": 100_000, "boards": 10}, {"events": 900_000, "boards": 100}),
        ("hash of the path", {"viewers": MILLION}, {"viewers": MILLION, "boards": 2}),
        ("LIVE_MAX_BOARDS=", {"boards": 1000, "events": 1}, {"boards": 1001, "events": 1}),
        ("can't use", {"events": 300_000, "boards": 3}, {"events": 300_000, "boards": 2}),
    ],
)  # fmt: skip
def test_another_engine_is_named_only_where_it_is_better(
    engine: str, small: dict[str, float], large: dict[str, float]
) -> None:
    """The advice names the other engine for a large demand, and not for a small one."""
    assert engine not in advice(**small)
    assert engine in advice(**large)


def test_more_of_anything_never_takes_less() -> None:
    """If any number of a demand grows, no part of the plan has fewer processes, fewer cores or less memory."""
    base = Demand(viewers=1000, events=1000, boards=10, members=1000)
    before = plan(base)
    for change in (
        {"viewers": MILLION}, {"frames": 10.0}, {"events": 1e6}, {"boards": 10_000}, {"members": MILLION},
        {"slots": 24}, {"has_ids": True},
    ):  # fmt: skip
        after = plan(msgspec.structs.replace(base, **change))
        for name in ("viewer_processes", "ingest_processes", "primaries"):
            one, other = getattr(before, name), getattr(after, name)
            assert other.count >= one.count
            assert other.cores >= one.cores
            assert other.memory >= one.memory


def test_boards_are_read_once_per_frame_in_each_process_that_shows_them() -> None:
    """The plan fills one process after another with viewers of the same board. Boards without viewers are not read."""
    for viewers, boards, reads in ((0, 5, 0), (3, 10, 3), (10, 3, 3), (50_000, 1, 3)):
        for frames in (1.0, 10.0):
            made = plan(Demand(viewers=viewers, boards=boards, frames=frames)).viewer_processes
            own = viewers * (frames * FRAME.value + IDLE.value) + made.count * boards * IDLE_BOARD.value
            assert made.cores - own == pytest.approx(reads * frames * TICK.value)


def test_a_plan_leaves_no_core_too_busy() -> None:
    """No primary is busier than `STORE_BUSY`. A plan has one primary, or at least three, as a Cluster needs."""
    for events in (1, 50_000, 100_000, MILLION):
        made = plan(Demand(events=events, boards=1000))
        assert made.primaries.cores / made.primaries.count <= STORE_BUSY
        assert made.primaries.count not in {0, 2}


def test_the_command_prints_one_json_object() -> None:
    """The JSON object contains the plan."""
    ended = run_command("plan", "--viewers", "10", "--json")
    assert msgspec.convert(json.loads(ended.stdout), CapacityPlan) == plan(Demand(viewers=10))


def test_memory_that_depends_on_members_asks_for_them() -> None:
    """Without `--members`, the output asks for it, because the memory of the primaries depends on the members."""
    words = ["plan", "--events", "1000"]
    assert "give --members" in run_command(*words).stdout
    assert "give --members" not in run_command(*words, "--members", "10").stdout


def test_the_command_reads_the_settings_that_matter() -> None:
    """The settings give the viewers of a process, the boards of a server, and the time for which ids are remembered."""
    arguments = ("plan", "--viewers", "1000", "--board-count", "5", "--events", "1000", "--ids", "--json")
    small = {"LIVE_MAX_VIEWERS": "100", "LIVE_MAX_BOARDS": "2", "LIVE_DEDUPE_WINDOW": "10s"}
    made = msgspec.json.decode(run_command(*arguments, **small).stdout, type=CapacityPlan)
    assert made.viewer_processes.count == 10
    assert made.primaries.memory == 1000 * 10 * 41
    assert any("LIVE_MAX_BOARDS=5" in line for line in made.advice)


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (("--board-count", "3"), {}, "there is nothing to plan: give --viewers, --events or --members"),
        (("--viewers", "3"), {"LIVE_MAX_VIEWERS": "0"}, "LIVE_MAX_VIEWERS is 0"),
        (("--viewers", "3"), {"LIVE_MAX_VIEWRS": "1"}, "did you mean `LIVE_MAX_VIEWERS`?"),
        (("--viewers", "-1"), {}, "--viewers"),
        (("--board-count", "0"), {}, "--board-count"),
    ],
)
def test_a_mistake_is_refused(arguments: tuple[str, ...], environment: dict[str, str], message: str) -> None:
    """The exit status is 2, and standard output is empty."""
    ended = run_command("plan", *arguments, **environment)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert message in ended.stderr
