"""Writes CSV (RFC 4180) whose cells no spreadsheet runs as formulas, and reads cells of such a table."""

import csv
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

# The characters that spreadsheets take for the start of a formula, and their full-width forms.
_FORMULA: Final = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "\t", "\r", "\n")

Cell = str | int | None


class _File(Protocol):
    def write(self, text: str, /) -> object: ...


def csv_writer(file: _File, columns: Sequence[str]) -> Callable[[Iterable[Iterable[Cell]]], None]:
    """Write a header to a file that does not translate line ends. Return a function that writes rows.

    A text that may begin a formula gets an apostrophe in front, even if it begins with apostrophes already.
    `plain_cell` removes it. Numbers stay numbers, and None is an empty cell.
    """
    table = csv.writer(file)
    table.writerow([_inert(column) for column in columns])

    def write(rows: Iterable[Iterable[Cell]]) -> None:
        table.writerows([_inert(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)

    return write


def _inert(text: str) -> str:
    return f"'{text}" if text.lstrip("'").startswith(_FORMULA) else text


def plain_cell(text: str) -> str:
    """Return the text of a cell without the apostrophe that `csv_writer` puts before it."""
    return text[1:] if text.startswith("'") and text.lstrip("'").startswith(_FORMULA) else text
