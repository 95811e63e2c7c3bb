"""Tables are whole on a terminal of 80 columns, and have whole lines in a file or a pipe."""

import io
import sys

import pytest
from rich.console import Console
from rich.table import Table

from live.cli.boards import _memory_table
from live.cli.boards import _table as boards_table
from live.cli.context import _width
from live.cli.journal import _table as status_table
from live.cli.keys import table_of
from live.domain.producer import Secret, StoredProducer
from live.maintenance.journal import TimelineStatus
from live.settings import Settings

LONG = "b" * 64
MEMORY = {"bytes": 123_456_789_012, "bytes_per_member": 123.4, "bytes_per_event": None, "predicted": 12_345_678_901}
BOARD = {
    "board": LONG, "title": "The posts that were liked most of all this week", "records": 1_234_567,
    "offset": 123_456_789, "epoch": "", "frozen": False, "memory": MEMORY,
}  # fmt: skip
LIFE = TimelineStatus(
    board=LONG, epoch="12345678", offset=123_456_789, last=1_763_844_766_000_000, entries=12_345_678,
    bytes=12_345_678_901, checkpoints=365, timelines=1,
)  # fmt: skip
SECRET = Secret(bytes(32), 1_763_844_766)
PRODUCER = StoredProducer(
    id=LONG, boards=("posts", "songs", "votes"), verbs=("post", "admin"), created=1_763_844_766,
    revoked=1_763_844_767, secrets=(SECRET,),
)  # fmt: skip
TABLES = {
    "boards": (boards_table([BOARD]), "1,234,567  123,456,789  no data"),
    "memory": (_memory_table([BOARD], predicted=True), "1,234,567  123.5 GB   123 bytes          \u2013   12.3 GB"),
    "status": (status_table([LIFE]), "12345678  123,456,789  2025-11-22 20:52:46Z  12,345,678  12.3 GB"),
    "keys": (table_of([PRODUCER], Settings()), f"{SECRET.fingerprint}      2025-11-22  2025-11-22"),
}


def lines_of(table: Table, columns: int) -> list[str]:
    """The lines of a table on a terminal."""
    console = Console(width=columns, file=io.StringIO(), record=True)
    console.print(table, markup=False)
    return console.export_text().splitlines()


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_whole_in_80_columns(name: str) -> None:
    """Numbers and times stay on one line, and a long id takes several lines."""
    table, whole = TABLES[name]
    lines = lines_of(table, 80)
    assert whole in lines[1]
    assert sum(line.split(" ")[0].count("b") for line in lines[1:]) == len(LONG)
    assert not [line for line in lines if "…" in line or len(line) > 80]


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_one_line_per_row_where_there_is_room(name: str) -> None:
    """In a pipe, `grep` finds a whole row."""
    lines = lines_of(TABLES[name][0], 1000)
    assert len(lines) == 2
    assert lines[1].startswith(LONG)


@pytest.mark.parametrize(
    ("is_terminal", "columns", "is_wide"), [(True, None, False), (False, None, True), (False, "80", False)]
)
def test_output_is_wide_unless_a_terminal_shows_it(
    monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, columns: str | None, is_wide: bool
) -> None:
    """A width in `COLUMNS` has precedence."""
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    assert (_width() is not None) is is_wide
