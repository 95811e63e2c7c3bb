"""Writes tables as CSV, NDJSON and Parquet, row by row."""

import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, cast

import msgspec

from live.domain.csv_table import csv_writer
from live.domain.event import rfc3339
from live.domain.text import visible_lines
from live.errors import SetupError
from live.maintenance.export import Column, Row
from live.system.files import replacing

Format = Literal["csv", "ndjson", "parquet"]
Write = Callable[[Sequence[Row]], None]

_JSON: Final = msgspec.json.Encoder()


@contextmanager
def output_file(target: str) -> Iterator[BinaryIO]:
    """Open a file for writing. The file gets its name when it is complete. `-` is standard output.

    Raises:
        SetupError: the file system refuses.
    """
    if target == "-":
        try:
            yield cast("BinaryIO", _Terminal()) if sys.stdout.isatty() else sys.stdout.buffer
            sys.stdout.flush()
        except BrokenPipeError:  # the reader of the pipe has ended, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    path = Path(target)
    try:
        with replacing(path) as file:
            yield file
    except OSError as error:
        raise SetupError(f"can't write {path}: {error.strerror}") from None


class _Terminal(io.RawIOBase):
    """Standard output as a binary file. A terminal shows what is written, but obeys no control character in it."""

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - any buffer
        """Show the data as text, with control characters as escapes."""
        sys.stdout.write(visible_lines(bytes(data).decode("utf-8", "replace")))
        return len(data)


def table(form: Format, file: BinaryIO, columns: Sequence[Column]) -> AbstractContextManager[Write]:
    """Write a table to a file. The `with` block gets a function that writes rows.

    Raises:
        SetupError: the format needs a library that is not installed.
    """
    return _FORMATS[form](file, columns)


@contextmanager
def _csv(file: BinaryIO, columns: Sequence[Column]) -> Iterator[Write]:
    """Write CSV (RFC 4180) in UTF-8 with a header. No cell is a formula for a spreadsheet."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    write_cells = csv_writer(text, [column.name for column in columns])
    kinds = [column.kind for column in columns]

    def write(some: Sequence[Row]) -> None:
        for row in some:
            cells = zip(row, kinds, strict=True)
            write_cells([[_utc(cell) if kind == "time" and isinstance(cell, int) else cell for cell, kind in cells]])

    try:
        yield write
    finally:
        text.detach()


@contextmanager
def _ndjson(file: BinaryIO, columns: Sequence[Column]) -> Iterator[Write]:
    """Write one JSON object on each line."""
    names = [column.name for column in columns]
    of_kind: dict[str, Callable[[Any], Any]] = {"time": _utc, "json": lambda text: msgspec.Raw(text.encode())}
    shown = [of_kind.get(column.kind, lambda value: value) for column in columns]

    def write(some: Sequence[Row]) -> None:
        for row in some:
            values = [None if value is None else show(value) for show, value in zip(shown, row, strict=True)]
            file.write(_JSON.encode(dict(zip(names, values, strict=True))) + b"\n")

    yield write


@contextmanager
def _parquet(file: BinaryIO, columns: Sequence[Column]) -> Iterator[Write]:
    """Write Parquet, with times as timestamps in UTC."""
    if find_spec("pyarrow") is None:
        raise SetupError("--format parquet needs the extra `parquet`: pip install 'live-board[parquet]'")
    import pyarrow as pa  # noqa: PLC0415 - an extra, which takes a while to load
    import pyarrow.parquet as pq  # noqa: PLC0415

    types = {"text": pa.string(), "json": pa.string(), "integer": pa.int64(), "time": pa.timestamp("us", "UTC")}
    schema = pa.schema([(column.name, types[column.kind]) for column in columns])
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:

        def write(some: Sequence[Row]) -> None:
            if some:
                arrays = [
                    pa.array(values, field.type) for values, field in zip(zip(*some, strict=True), schema, strict=True)
                ]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))

        yield write


def _utc(microseconds: int) -> str:
    return rfc3339(microseconds, 1e6, "microseconds")


_FORMATS: Final[Mapping[Format, Callable[[BinaryIO, Sequence[Column]], AbstractContextManager[Write]]]] = {
    "csv": _csv, "ndjson": _ndjson, "parquet": _parquet,
}  # fmt: skip
