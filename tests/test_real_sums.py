"""Real sums with published results: the points of Eurovision finals, and seven days of cases in Germany."""

import asyncio
import csv
import gzip
import io
from collections import defaultdict
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import msgspec
import pytest

from tests.harness.real_input import REAL_INPUT
from tests.harness.stage import Stage, stage

DATA = REAL_INPUT.parent
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.exists(), reason="the real input is not beside this checkout"),
]
BERLIN = ZoneInfo("Europe/Berlin")
DAYS = """
[[board]]
id = "days{size}"
types = ["cases{size}"]
window = {{ calendar = "day", timezone = "Europe/Berlin", last = 7 }}
clock = "event"
zeros = true
"""


async def test_the_points_of_65_finals_equal_the_published_totals(valkey_url: str) -> None:
    """Each year is a period. Countries without a point are in the table too."""
    totals: dict[str, dict[str, int]] = msgspec.json.decode((DATA / "eurovision-totals.json").read_bytes())
    with gzip.open(DATA / "eurovision-votes.ndjson.gz") as file:
        events = [msgspec.json.decode(line) for line in file]
    board = '[[board]]\nid = "finals"\ntypes = ["esc"]\nclock = "event"\nzeros = true\n'
    window = 'window = { calendar = "year", timezone = "UTC", keep = 100, grace = "1d" }\n'
    async with stage(valkey_url, board + window) as boards:
        for first in range(0, len(events), 1000):
            await boards.accept(*events[first : first + 1000])
        found = {year: dict(await boards.rows("finals", period=year, limit=100)) for year in totals}
    assert found == totals
    assert sum(score == 0 for scores in found.values() for score in scores.values()) == 37


def published() -> dict[str, dict[str, tuple[int, int]]]:
    """The new cases and the sum of seven days of each group, by day."""
    days: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    with gzip.open(DATA / "germany-seven-days.csv.gz") as file:
        for row in csv.DictReader(io.TextIOWrapper(file)):
            days[row["day"]][row["group"]] = (int(row["new"]), int(row["seven_days"]))
    return days


@pytest.mark.timeout(1800)
async def test_seven_days_in_germany_equal_the_published_sums(valkey_url: str, effort: int) -> None:
    """A body may have one event, those of a day or those of months. The past has the same sums.

    The first six days have no published sum.
    """
    days = published()
    sizes = (1, 7, 1000)
    async with stage(valkey_url, "".join(DAYS.format(size=size) for size in sizes), journal="sqlite") as boards:
        for size in sizes:
            await send(boards, size, days)
        step = max(1, 100 // effort)  # days
        for day in list(days)[6::step]:
            right = {group: total for group, (_, total) in days[day].items()}
            end = datetime.combine(datetime.fromisoformat(day), time(), BERLIN) + timedelta(days=1)
            at = (end.astimezone(UTC) - timedelta(seconds=1)).isoformat()
            for size in sizes:
                assert dict(await boards.rows(f"days{size}", as_of=at, limit=100)) == right, (size, day)


async def send(boards: Stage, size: int, days: dict[str, dict[str, tuple[int, int]]]) -> None:
    """Send the cases in bodies of a size, and compare the board whenever a body ends with a day."""
    body = []
    for number, (day, groups) in enumerate(days.items()):
        noon = datetime.combine(datetime.fromisoformat(day), time(12), BERLIN).isoformat()
        bodies = []
        for group, (new, _) in groups.items():
            body.append({"type": f"cases{size}", "key": group, "amount": new, "time": noon})
            if len(body) == size:
                bodies.append(boards.accept(*body))
                body = []
        await asyncio.gather(*bodies)
        if not body and number % 100 in (50, 99):
            right = {group: total for group, (_, total) in groups.items()}
            assert dict(await boards.rows(f"days{size}", limit=100)) == right, (size, day)
    if body:
        await boards.accept(*body)
