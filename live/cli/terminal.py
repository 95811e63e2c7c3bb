"""Flags and output that the commands share."""

import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NoReturn

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from live.errors import SetupError, StoreUnavailableError
from live.settings import Settings, environment_name

_WIDE: Final = 10_000  # columns


def _width() -> int | None:
    """The width of standard output. A terminal or COLUMNS decides; a file or a pipe gets whole lines."""
    return None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDE


out = Console(highlight=False, width=_width())
err = Console(stderr=True, highlight=False)


def setting_help(name: str) -> str:
    """The meaning of a setting, its default and its environment variable."""
    field = next(field for field in msgspec.structs.fields(Settings) if field.name == name)
    meaning = next(part.description for part in field.type.__metadata__ if isinstance(part, msgspec.Meta))
    default = "" if field.default in (None, "", False) else f" (default {field.default})"
    return f"{meaning}{default} [{environment_name(name)}]"


BoardsOption = Annotated[Path | None, typer.Option("--boards", help=setting_help("boards"))]
DataDirOption = Annotated[Path | None, typer.Option("--data-dir", help=setting_help("data_dir"))]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
StoreOption = Annotated[str | None, typer.Option("--store", help=setting_help("store"))]
UrlOption = Annotated[str, typer.Option("--to", help="URL of the running server.")]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key", envvar="LIVE_KEY", metavar="ID.SECRET",
        help="The API key. Prefer LIVE_KEY: other users of this machine can see the command line.",
    ),
]  # fmt: skip


def fail(message: str) -> NoReturn:
    """Print an error message and exit with status 2."""
    err.print("live:", message, markup=False, soft_wrap=True)
    raise typer.Exit(2)


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn expected errors into one clear message."""
    try:
        yield
    except SetupError as error:
        fail(str(error))
    except StoreUnavailableError as error:
        fail(f"the store is unavailable: {error}")


@contextmanager
def progress_bar(what: str, *, quiet: bool) -> Iterator[Any]:
    """A progress bar. Call it with the amount done, the total, and an optional count to show."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeElapsedColumn())
    with Progress(*columns, console=err, disable=quiet or not err.is_terminal, transient=True) as bar:
        task = bar.add_task(what, total=None, note="")

        def show(done: float, total: float, count: int | None = None) -> None:
            bar.update(task, completed=done, total=total, note=f"{done if count is None else count:,.0f}")

        yield show


def make_table(*headings: str, wraps: Collection[str] = (), numbers: Collection[str] = ()) -> Table:
    """An empty table. Where the terminal is narrow, cells in the columns `wraps` take several lines."""
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        justify: Literal["left", "right"] = "right" if heading in numbers else "left"
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=heading not in wraps)
    return table


def milliseconds_of(text: str, flag: str) -> int:
    """The time that a flag names, in milliseconds since 1970.

    Raises:
        SetupError: it is not a time with a time zone.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise SetupError(f"{flag} {text!r} is not a time such as 2026-11-22T12:00:00Z") from None
    if time.tzinfo is None:
        raise SetupError(f"{flag} {text!r} names no time zone: add Z for UTC, or an offset such as +08:00")
    return round(time.timestamp() * 1000)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something that can't be undone. Without a terminal, `yes` has to be given.

    Raises:
        SetupError: there is nobody to ask.
        Exit: the answer is no.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and err.is_terminal):
        raise SetupError(f"{question} Add --yes to do it without this question")
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)


def print_json(value: object) -> None:
    """Print one JSON object on standard output."""
    typer.echo(msgspec.json.encode(value).decode())
