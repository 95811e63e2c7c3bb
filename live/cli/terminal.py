"""Flags and output that the commands share."""

import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, Final, Literal, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from live.domain.text import visible
from live.errors import SetupError

_WIDE: Final = 10_000  # columns


def _width() -> int | None:
    """Return None if a terminal or COLUMNS determines the width of standard output.

    Otherwise return a width that breaks no line, for a file or a pipe.
    """
    return None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDE


class Terminal(Console):
    """A console that shows control characters in each `str` as escapes, so that the terminal does not obey them.

    Tables and other objects come from the program, so the console does not escape them.
    """

    def print(self, *objects: Any, **options: Any) -> None:  # noqa: ANN401 - as the console
        """Print as `Console` does."""
        super().print(*(visible(part) if isinstance(part, str) else part for part in objects), **options)


class Rows(Table):
    """A table that shows control characters in each `str` as escapes, as `Terminal` does."""

    def add_row(self, *cells: Any, **options: Any) -> None:  # noqa: ANN401 - as the table
        """Add a row as `Table` does."""
        super().add_row(*(Text(visible(cell)) if isinstance(cell, str) else cell for cell in cells), **options)


out = Terminal(markup=False, highlight=False, emoji=False, width=_width())
err = Terminal(stderr=True, markup=False, highlight=False, emoji=False)


def several(name: str, meaning: str, metavar: str | None = None) -> Any:  # noqa: ANN401 - of Typer
    """Describe an option that lists things. `words_of` reads its value, a `list[str] | None`."""
    return typer.Option(name, metavar=metavar, help=f"{meaning} Separate several by commas, or repeat the option.")


def words_of(given: Sequence[str] | None) -> tuple[str, ...]:
    """Return the words of an option that lists things, each once."""
    return tuple(dict.fromkeys(word.strip() for text in given or () for word in text.split(",") if word.strip()))


UrlOption = Annotated[str, typer.Option("--server", metavar="URL", help="Address of the running server.")]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key", envvar="LIVE_KEY", metavar="ID.SECRET",
        help="The API key. Prefer LIVE_KEY: other users of this machine can see the command line.",
    ),
]  # fmt: skip


def fail(message: str, status: int = 2) -> NoReturn:
    """Print an error message and exit."""
    for line in f"live: {message}".split("\n"):
        err.print(line, soft_wrap=True)
    raise typer.Exit(status)


@contextmanager
def progress_bar(what: str, *, quiet: bool) -> Iterator[Any]:
    """Show a progress bar. Yield a function that takes the amount done, the total, and an optional count to show."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeElapsedColumn())
    with Progress(*columns, console=err, disable=quiet or not err.is_terminal, transient=True) as bar:
        task = bar.add_task(escape(visible(what)), total=None, note="")

        def show(done: float, total: float, count: int | None = None) -> None:
            bar.update(task, completed=done, total=total, note=f"{done if count is None else count:,.0f}")

        yield show


def make_table(*headings: str, wraps: Collection[str] = (), numbers: Collection[str] = ()) -> Table:
    """Make an empty table. If the terminal is narrow, cells in the columns `wraps` take several lines."""
    table = Rows(box=None, pad_edge=False)
    for heading in headings:
        justify: Literal["left", "right"] = "right" if heading in numbers else "left"
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=heading not in wraps)
    return table


def milliseconds_of(text: str, flag: str) -> int:
    """Parse the time that a flag names into milliseconds since 1970.

    Raises:
        SetupError: the text is not a time with a time zone.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise SetupError(f"{flag} {text!r} is not a time such as 2026-11-22T12:00:00Z") from None
    if time.tzinfo is None:
        raise SetupError(f"{flag} {text!r} names no time zone: add Z for UTC, or an offset such as +08:00")
    return round(time.timestamp() * 1000)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before an action that can't be undone. Without a terminal, `yes` must be true.

    Raises:
        SetupError: there is nobody to ask.
        Exit: the answer is no.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and err.is_terminal):
        raise SetupError(f"{question} Add --yes to do it without this question")
    if not typer.confirm(visible(question), err=True):
        raise typer.Exit(1)
