"""The figures of faults: what became of events while servers failed. The test run prints them at its end."""

from collections.abc import Iterable
from typing import Final

import msgspec
import pytest

_FIGURES: Final = "figures"  # the name of the property with which pytest passes figures from its workers to the report


class Figures(msgspec.Struct, kw_only=True):
    """What one test measured. Events are counted over all boards; None stands for a figure that was not measured."""

    acknowledged: int
    store: int
    journal: int | None = None
    refused: int = 0
    longest_stop: float = 0.0  # the most seconds between two acknowledged events of a board


_measured: list[Figures] = []


def record(figures: Figures) -> None:
    """Keep figures for the report of the test that runs."""
    _measured.append(figures)


def attach(item: pytest.Item) -> None:
    """Add what a test has recorded to its report, unless the test runs a mutant."""
    if item.get_closest_marker("mutant") is None:
        item.user_properties.extend((_FIGURES, msgspec.to_builtins(figures)) for figures in _measured)
    _measured.clear()


def table(reports: Iterable[object]) -> list[str]:
    """The lines of the table, one for each time that a test has recorded figures."""
    lines = []
    for report in reports:
        if not isinstance(report, pytest.TestReport) or report.when != "call":
            continue
        for name, value in report.user_properties:
            if name == _FIGURES:
                found = msgspec.convert(value, Figures)
                journal = "-" if found.journal is None else f"{found.journal:,}"
                lines.append(
                    f"{found.acknowledged:>12,} {found.store:>9,} {journal:>9} {found.refused:>8,} "
                    f"{found.longest_stop:>13.2f} s  {report.nodeid.partition('::')[2]}"
                )
    head = f"{'acknowledged':>12} {'store':>9} {'journal':>9} {'refused':>8} {'longest stop':>15}  test"
    return [head, *lines] if lines else []
