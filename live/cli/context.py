"""What each command gets: its settings, the store, the journal, and how it reads options and prints."""

import asyncio
import inspect
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import datetime
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Final, Literal, NoReturn, ParamSpec

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from live.domain.text import visible
from live.errors import EpochLostError, JournalError, NotFoundError, SetupError, StoreUnavailableError
from live.settings import METAS, Settings, environment_name, load_settings
from live.system.data_directory import require_owner

if TYPE_CHECKING:
    from live.journal.database import Database
    from live.store.connection.client import Store

_Common = Literal["store", "boards", "data_dir"]
_P = ParamSpec("_P")
_WIDE: Final = 10_000  # columns


def _width() -> int | None:
    """Return a width that breaks no line for a file or a pipe; None if a terminal or COLUMNS determines it."""
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


UrlOption = Annotated[
    str | None,
    typer.Option(
        "--server", metavar="URL",
        help="Address of the running server. Default: this machine, with LIVE_PORT and LIVE_ROOT_PATH.",
    ),
]  # fmt: skip
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


def make_table(*headings: str, wraps: Collection[str] = (), numbers: Collection[str] = ()) -> Table:
    """Make an empty table. If the terminal is narrow, cells in the columns `wraps` take several lines."""
    table = Rows(box=None, pad_edge=False)
    for heading in headings:
        justify: Literal["left", "right"] = "right" if heading in numbers else "left"
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=heading not in wraps)
    return table


def milliseconds_of(text: str, flag: str) -> int:
    """Parse the time that a flag names into milliseconds since 1970."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise SetupError(f"{flag} {text!r} is not a time such as 2026-11-22T12:00:00Z") from None
    if time.tzinfo is None:
        raise SetupError(f"{flag} {text!r} names no time zone: add Z for UTC, or an offset such as +08:00")
    return round(time.timestamp() * 1000)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before an action that can't be undone. Without a terminal, `yes` must be true."""
    if yes:
        return
    if not (sys.stdin.isatty() and err.is_terminal):
        raise SetupError(f"{question} Add --yes to do it without this question")
    if not typer.confirm(visible(question), err=True):
        raise typer.Exit(1)


def setting_help(name: str) -> str:
    """Describe a setting: its meaning, its default and its environment variable."""
    default = getattr(Settings(), name)
    shown = "" if default in (None, "", False) else f" (default {default})"
    return f"{METAS[name].description}{shown} [{environment_name(name)}]"


StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", help="address of the store; without one, the embedded store of the data directory [LIVE_STORE]"
    ),
]
BoardsOption = Annotated[Path | None, typer.Option("--boards", help=setting_help("boards"))]
DataDirOption = Annotated[Path | None, typer.Option("--data-dir", help=setting_help("data_dir"))]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
_OPTIONS: Final[dict[str, Any]] = {"store": StoreOption, "boards": BoardsOption, "data_dir": DataDirOption}


class Context:
    """The settings of a command, and how it reaches the store, the journal and the user."""

    def __init__(self, settings: Settings, *, as_json: bool) -> None:
        """Keep the settings. With `as_json`, the command prints one JSON object, and no progress."""
        self.settings = settings
        self.as_json = as_json

    def store(self, *, start: bool = True) -> "AbstractAsyncContextManager[Store]":
        """Connect to the store, as `opened_store` does."""
        from live.store.connection.embedded import opened_store  # noqa: PLC0415 - some commands need no store

        return opened_store(self.settings, start=start)

    def server(self, given: str | None) -> str:
        """Return the address that `--server` gives, or else the one of the settings on this machine."""
        if given is not None:
            return given
        if not self.settings.port:
            raise SetupError("LIVE_PORT is 0, so the server has chosen its port: name its address with --server")
        return f"http://127.0.0.1:{self.settings.port}{self.settings.root_path}"

    def journal(self, *, writes: bool = True) -> "Database":
        """Open the journal, as `existing_journal` does."""
        from live.journal.database import existing_journal  # noqa: PLC0415 - most commands need no SQL

        return existing_journal(self.settings, writes=writes)

    @contextmanager
    def progress(self, what: str) -> Iterator[Any]:
        """Show a progress bar on a terminal. Yield a function of the amount done, the total, and a count to show."""
        words, note = TextColumn("{task.description}"), TextColumn("{task.fields[note]}")
        columns = (words, BarColumn(), note, TimeElapsedColumn())
        with Progress(*columns, console=err, disable=self.as_json or not err.is_terminal, transient=True) as bar:
            task = bar.add_task(escape(visible(what)), total=None, note="")

            def show(done: float, total: float, count: int | None = None) -> None:
                bar.update(task, completed=done, total=total, note=f"{done if count is None else count:,.0f}")

            yield show

    def report(self, value: object) -> bool:
        """With `--json`, print a result as one JSON object on standard output. Return whether it was printed."""
        if self.as_json:
            typer.echo(visible(msgspec.json.encode(value).decode()))
        return self.as_json


def command(*common: _Common) -> Callable[[Callable[Concatenate[Context, _P], object]], Callable[..., None]]:
    """Make a command of a function, which may be `async`: it gets a context, and the command `--json`.

    `common` names its options for settings. An expected error ends the command with one clear message.
    """

    def decorate(work: Callable[Concatenate[Context, _P], object]) -> Callable[..., None]:
        untyped: Callable[..., object] = work

        @wraps(work)
        def run(*, as_json: bool, **given: Any) -> None:  # noqa: ANN401 - the options of the command
            with clear_errors():
                settings = load_settings(**{name: given.pop(name) for name in common})
                if "data_dir" in common:
                    require_owner(settings.data_dir)
                done = untyped(Context(settings, as_json=as_json), **given)
                if inspect.iscoroutine(done):
                    asyncio.run(done)

        own = list(inspect.signature(work).parameters.values())[1:]
        added = [
            *(Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=_OPTIONS[name]) for name in common),
            Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption),
        ]
        run.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined] # Typer reads it
        return run

    return decorate


@contextmanager
def clear_errors() -> Iterator[None]:
    """Print an expected error of the `with` block as one clear message, and exit."""
    try:
        yield
    except NotFoundError as error:
        fail(str(error), 1)
    except (SetupError, JournalError, EpochLostError) as error:
        fail(str(error))
    except StoreUnavailableError as error:
        fail(f"the store is unavailable: {error}")
