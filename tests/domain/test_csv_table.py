"""CSV that spreadsheets open without running anything."""

import csv
import io

from live.domain.csv_table import csv_writer, plain_cell

FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\uff1d1", "\uff0b1", "\uff0d1", "\uff201", "\t=1", "\r=1", "\n=1"]


def written(*cells: str | int | None) -> list[str]:
    """A row as a reader of CSV sees it."""
    file = io.StringIO()
    csv_writer(file, ["=head"] * len(cells))([cells])
    head, row = csv.reader(io.StringIO(file.getvalue(), newline=""))
    assert head == ["'=head"] * len(cells)
    return row


def test_no_text_begins_a_formula() -> None:
    """Full-width signs and leading white space are covered too. Other texts and numbers stay as they are."""
    assert written(*FORMULAS) == [f"'{formula}" for formula in FORMULAS]
    texts = [*FORMULAS, "'=1", "''@a", "'a", "'", "a'=1"]
    assert [plain_cell(cell) for cell in written(*texts)] == texts  # reading a written cell returns the original text
    assert written("a=1", "", None, -5, "a\nb", 'a"b') == ["a=1", "", "", "-5", "a\nb", 'a"b']
