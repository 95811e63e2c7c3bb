"""The command `live`. It imports only what the given command needs, because importing all commands takes a second."""

import gc
import os
from collections import Counter
from collections.abc import Mapping
from importlib import import_module
from inspect import cleandoc
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from live import __version__
from live.cli.context import DataDirOption, JsonOption, StoreOption
from live.logs import configure_logs
from live.system.data_directory import UMASK
from live.system.version import commit

if TYPE_CHECKING:
    from typer._click import Command, Context  # Typer has its own copy of Click, and gives it no public name

# Where each command is: a module, and a function or a group of commands in the module. The help has the same order.
COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "serve": ("live.cli.serve", "serve"),
    "send": ("live.cli.send", "send"),
    "load": ("live.cli.send", "load"),
    "boards": ("live.cli.boards", "show_boards"),
    "keys": ("live.cli.keys", "keys"),
    "token": ("live.cli.token", "token"),
    "tickets": ("live.cli.token", "tickets"),
    "check": ("live.cli.check", "check"),
    "journal": ("live.cli.journal", "journal"),
    "recover": ("live.cli.recover", "recover"),
    "backup": ("live.cli.backup", "backup"),
    "restore": ("live.cli.backup", "restore"),
    "export": ("live.cli.export", "export"),
    "import": ("live.cli.export", "import_scores"),
    "void": ("live.cli.personal", "void"),
    "erase": ("live.cli.personal", "erase"),
    "merge": ("live.cli.personal", "merge"),
    "rename": ("live.cli.personal", "rename"),
    "trail": ("live.cli.journal", "trail"),
}


_COMMON: Final = frozenset({"store", "data_dir", "as_json"})  # options of `live`, for every command


class LiveCommand(TyperCommand):
    """A command that also takes the options before its name. No value is lost: what it can't use is refused."""

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        """Read the words behind the command. An option for one value counts once, and before one of `live`."""
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        for option, times in Counter(order).items():
            if times > 1 and option.nargs == 1 and not (option.multiple or getattr(option, "is_flag", False)):
                raise typer.BadParameter("give it once: it takes one value", ctx=ctx, param_hint=option.opts[0])
        rest = super().parse_args(ctx, args)
        common = ctx.find_root()
        for option in common.command.params:
            name, value = option.name or "", common.params.get(option.name or "")
            if not value or name not in _COMMON:
                continue
            if name not in ctx.params:
                raise typer.BadParameter(f"`{ctx.command_path}` takes no such option", param_hint=option.opts[0])
            ctx.params[name] = ctx.params[name] or value
        return rest


class Commands(TyperGroup):
    """The commands, each imported when it is used. An unknown name imports all, to suggest a similar one."""

    def list_commands(self, ctx: "Context") -> list[str]:  # noqa: ARG002 - of the base class
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: "Context", cmd_name: str) -> "Command | None":
        """Import the command with a name. Return None if there is no such command.

        What it imports is never collected as garbage. Most commands are short, and would spend half of their time on
        collections: a few during the imports, and some of everything at the end.
        """
        for name in (cmd_name,) if cmd_name in COMMANDS else COMMANDS:
            if name not in self.commands:
                module, attribute = COMMANDS[name]
                gc.disable()
                try:
                    found = getattr(import_module(module), attribute)
                finally:
                    gc.enable()
                    gc.freeze()
                single = typer.Typer()
                if isinstance(found, typer.Typer):
                    for inner in found.registered_commands:
                        inner.cls = LiveCommand
                    single.add_typer(found, name=name)
                else:
                    single.command(name, cls=LiveCommand)(found)
                self.commands[name] = _with_paragraphs(get_group(single).commands[name])
        return super().get_command(ctx, cmd_name)


def _with_paragraphs(command: "Command") -> "Command":
    """Join the lines of each paragraph of the help, so that the width of the terminal decides where lines break."""
    command.help = "\n\n".join(" ".join(part.split()) for part in cleandoc(command.help or "").split("\n\n"))
    if isinstance(command, TyperGroup):
        for inner in command.commands.values():
            _with_paragraphs(inner)
    return command


app = typer.Typer(
    name="live",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A real-time ranking server: POST events, watch an exact ranking move in every browser.",
    epilog="To start, run `live serve --demo` and open the address that it prints.",
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    store: StoreOption = None,  # noqa: ARG001 - `LiveCommand` reads the common options
    data_dir: DataDirOption = None,  # noqa: ARG001
    as_json: JsonOption = False,  # noqa: ARG001
) -> None:
    """Handle --version; everything else is a command."""
    if version:
        typer.echo(f"live {__version__}{f' ({commit()})' if commit() else ''}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        context.fail("Missing command.")


def main() -> None:
    """Run the command. The files that it writes are readable by their owner only.

    Logs go to standard error, so that standard output has nothing but the result, such as JSON.
    """
    os.umask(UMASK)
    configure_logs("info")  # `live serve` sets its log level later
    app()
