"""The results of benchmarks, and how they are printed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Final

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

Report = Callable[[str], None]
FINE: Final = 0.2  # smaller ratios are shown with three decimals


def of_round(report: Report, number: int) -> Report:
    """Make a report function that begins its notes with the number of the round."""
    return lambda note: report(f"round {number}: {note}")


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """The size of each benchmark."""

    rounds: int = 3
    single_requests: int = 20_000
    batch_bodies: int = 200
    growth_bodies: int = 100
    growth_members: tuple[int, int] = (10_000, 1_000_000)
    ids: int = 200_000
    read_requests: int = 20_000
    members: int = 100_000
    many_members: int = 1_000_000
    idle_seconds: float = 6.0
    idle_watch: float = 20.0
    viewers: int = 5_000
    fan_seconds: float = 4.0
    idle_viewers: int = 10_000
    crowd: int = 20_000
    crowd_seconds: float = 6.0
    boards: int = 1_000
    unwatched_boards: int = 10_000
    definitions: int = 300
    likes_a_second: int = 2_000
    load_seconds: int = 10
    journal_bodies: int = 200
    past_events: int = 200_000
    past_requests: int = 20
    recover_events: int = 1_000_000
    lost: int = 10_000
    busy_boards: int = 2_500
    busy_seconds: float = 15.0


QUICK = Scale(
    rounds=1, single_requests=3_000, batch_bodies=30, growth_bodies=30, growth_members=(10_000, 60_000), ids=40_000,
    read_requests=1_000, members=20_000, many_members=60_000, idle_seconds=2.0, idle_watch=2.0,
    viewers=200, fan_seconds=1.5, idle_viewers=600, crowd=600, crowd_seconds=2.0, boards=40, unwatched_boards=200,
    definitions=20, likes_a_second=200, load_seconds=3, journal_bodies=30, past_events=20_000, past_requests=3,
    recover_events=50_000, lost=200, busy_boards=100, busy_seconds=2.0,
)  # fmt: skip


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table; `figures` are the numbers behind it, of every round."""

    work: str
    measured: str
    against: str = ""
    ratio: float | None = None
    goal: str = ""
    figures: dict[str, object] = {}


def medians(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the median of each figure over the rounds."""
    return {name: median(figures[name] for figures in rounds) for name in rounds[0]}


def total(figures: Mapping[str, float], names: Iterable[str]) -> float:
    """Return the sum of some figures, such as those of all processes that handle an event."""
    return sum(figures[name] for name in names)


def median_ratio(rounds: Sequence[dict[str, float]], ours: Sequence[str], against: Sequence[str]) -> float:
    """Return the median of the ratios of two figures that are measured one right after the other."""
    return median(total(figures, ours) / total(figures, against) for figures in rounds)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value before which `share` of the ordered values come."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def print_table(rows: Sequence[Row]) -> None:
    """Print the rows; without a terminal, wide enough for all of them."""
    table = Table("work", "measured", "against", box=box.SIMPLE_HEAD)
    table.add_column("ratio", justify="right")
    table.add_column("goal")
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.{2 if row.ratio >= FINE else 3}f} x"
        table.add_row(row.work, row.measured, row.against, ratio, row.goal)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200
    console.print(table)
