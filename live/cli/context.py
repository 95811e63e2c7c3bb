"""What each command gets: its settings, the store, the journal, and how it reports. Common options are defined once."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Final, Literal, ParamSpec

import msgspec
import typer

from live.cli.terminal import fail, progress_bar
from live.domain.board_file import load_boards
from live.domain.text import visible
from live.errors import EpochLostError, JournalError, NotFoundError, SetupError, StoreUnavailableError
from live.settings import Settings, environment_name, load_settings

if TYPE_CHECKING:
    from live.domain.board import Boards
    from live.journal.database import Database
    from live.store.connection.client import Store

_Common = Literal["store", "boards", "data_dir"]
_P = ParamSpec("_P")


def setting_help(name: str) -> str:
    """Describe a setting: its meaning, its default and its environment variable."""
    field = next(field for field in msgspec.structs.fields(Settings) if field.name == name)
    meaning = next(part.description for part in field.type.__metadata__ if isinstance(part, msgspec.Meta))
    default = "" if field.default in (None, "", False) else f" (default {field.default})"
    return f"{meaning}{default} [{environment_name(name)}]"


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

    @property
    def prefix(self) -> str:
        """The prefix of the store keys."""
        return self.settings.key_prefix

    def store(self, *, start: bool = True) -> "AbstractAsyncContextManager[Store]":
        """Connect to the store, as `opened_store` does."""
        from live.store.connection.embedded import opened_store  # noqa: PLC0415 - some commands need no store

        return opened_store(self.settings, start=start)

    def journal(self, *, writes: bool = True) -> "Database":
        """Open the journal, as `existing_journal` does."""
        from live.journal.database import existing_journal  # noqa: PLC0415 - most commands need no SQL

        return existing_journal(self.settings, writes=writes)

    def in_file(self) -> "Boards":
        """Read the boards file."""
        return load_boards(self.settings.boards)

    def progress(self, what: str) -> AbstractContextManager[Any]:
        """Show a progress bar on a terminal, as `progress_bar` does."""
        return progress_bar(what, quiet=self.as_json)

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
