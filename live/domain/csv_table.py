"""Writes CSV (RFC 4180) whose cells no spreadsheet runs as formulas, and reads tables as spreadsheets write them."""

import codecs
import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

# The characters that spreadsheets take for the start of a formula, and their full-width forms.
_FORMULA: Final = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "\t", "\r", "\n")

_SEPARATORS: Final = (",", ";", "\t")
_MOST_SHOWN: Final = 100  # characters of a wrong first line that a message shows

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


class Header(NamedTuple):
    """The first line of a table: its text, the names of the columns, and the character between the cells."""

    text: str
    columns: list[str]
    separator: str


def read_header(text: str) -> Header:
    """Read the first line of a table whose cells a comma, a semicolon or a tab divides: the one that it has most often.

    Column names are in lower case, without white space around them.
    """
    text = text.removeprefix("\ufeff").rstrip("\r\n")
    separator = max(_SEPARATORS, key=text.count)
    return Header(text, [name.strip().lower() for name in cells_of(text, separator)], separator)


def cells_of(text: str, separator: str) -> list[str]:
    """Split a line of a table into cells. If a cell has several lines, raise `csv.Error`: a quote does not end."""
    return next(csv.reader(io.StringIO(text), strict=True, delimiter=separator), [])


def encoding_of(begin: bytes) -> str:
    """Return the encoding of a table by its first bytes: UTF-16 with a mark, or UTF-8 with or without."""
    return "utf-16" if begin[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"


def shown_header(header: Header) -> str:
    """Say what a first line was taken for, in a message about missing columns."""
    return f"the first line is {header.text[:_MOST_SHOWN]!r}"


def _inert(text: str) -> str:
    return f"'{text}" if text.lstrip("'").startswith(_FORMULA) else text


def plain_cell(text: str) -> str:
    """Return the text of a cell without the apostrophe that `csv_writer` puts before it."""
    return text[1:] if text.startswith("'") and text.lstrip("'").startswith(_FORMULA) else text
