"""Writes tables as CSV, NDJSON and Parquet, row by row."""

import csv
import io
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import msgspec

from live.errors import SetupError
from live.journal.export import Column, Row

Format = Literal["csv", "ndjson", "parquet"]
Write = Callable[[Sequence[Row]], None]

# Characters that can begin a formula, with their full-width forms.
_FORMULA: Final = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "\t", "\r", "\n")
_JSON: Final = msgspec.json.Encoder()


@contextmanager
def output_file(target: str) -> Iterator[BinaryIO]:
    """A file that gets its name when it is complete; `-` is standard output.

    Raises:
        SetupError: the file system refuses.
    """
    if target == "-":
        try:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        except BrokenPipeError:  # the reader has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    path = Path(target)
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:  # noqa: PTH123
            yield file
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise SetupError(f"can't write {path}: {error.strerror}") from None
    finally:
        new.unlink(missing_ok=True)


def table(form: Format, file: BinaryIO, columns: Sequence[Column]) -> AbstractContextManager[Write]:
    """A table in a file. Call what the context gives with rows.

    Raises:
        SetupError: the format needs a library that is not installed.
    """
    return _FORMATS[form](file, columns)


@contextmanager
def _csv(file: BinaryIO, columns: Sequence[Column]) -> Iterator[Write]:
    """RFC 4180, in UTF-8 with a header. Nothing in it is a formula for a spreadsheet."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    rows = csv.writer(text)
    rows.writerow([column.name for column in columns])
    of_kind: dict[str, Callable[[Any], str | int]] = {"integer": int, "time": _time, "text": _inert, "json": _inert}
    shown = [of_kind[column.kind] for column in columns]

    def write(some: Sequence[Row]) -> None:
        rows.writerows(
            ["" if value is None else show(value) for show, value in zip(shown, row, strict=True)] for row in some
        )

    try:
        yield write
    finally:
        text.detach()


@contextmanager
def _ndjson(file: BinaryIO, columns: Sequence[Column]) -> Iterator[Write]:
    """One JSON object on each line."""
    names = [column.name for column in columns]
    of_kind: dict[str, Callable[[Any], Any]] = {"time": _time, "json": lambda text: msgspec.Raw(text.encode())}
    shown = [of_kind.get(column.kind, lambda value: value) for column in columns]

    def write(some: Sequence[Row]) -> None:
        for row in some:
            values = [None if value is None else show(value) for show, value in zip(shown, row, strict=True)]
            file.write(_JSON.encode(dict(zip(names, values, strict=True))) + b"\n")

    yield write


@contextmanager
def _parquet(file: BinaryIO, columns: Sequence[Column]) -> Iterator[Write]:
    """Parquet, with times as timestamps in UTC."""
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


def _time(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _inert(text: str) -> str:
    """A text that no spreadsheet runs as a formula: an apostrophe comes before what may begin one."""
    return f"'{text}" if text.startswith(_FORMULA) else text


_FORMATS: Final[Mapping[Format, Callable[[BinaryIO, Sequence[Column]], AbstractContextManager[Write]]]] = {
    "csv": _csv, "ndjson": _ndjson, "parquet": _parquet,
}  # fmt: skip
