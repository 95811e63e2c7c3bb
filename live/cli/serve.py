"""`live serve`: runs a server."""

import sys
from typing import Annotated

import typer

from live.cli.context import BoardsOption, DataDirOption, clear_errors, setting_help
from live.serve import mistakes_in
from live.serve import serve as serve_board
from live.settings import load_settings

AdminKeyOption = Annotated[
    bool | None,
    typer.Option(
        "--admin-key/--no-admin-key",
        help="Create the admin API key of the data directory if there is no API key, and print the path of its file; "
        "on a terminal, print the API key too. Default: on if standard output is a terminal.",
    ),
]
AcceptLossOption = Annotated[
    bool,
    typer.Option("--accept-loss", help="Continue with a store that lost data. Use this once, not in a service file."),
]


def serve(  # noqa: PLR0913 - one parameter per flag
    *,
    host: Annotated[str | None, typer.Option("--host", help=setting_help("host"))] = None,
    port: Annotated[int | None, typer.Option("--port", help=setting_help("port"))] = None,
    store: Annotated[str | None, typer.Option("--store", help=setting_help("store"))] = None,
    boards: BoardsOption = None,
    data_dir: DataDirOption = None,
    workers: Annotated[int | None, typer.Option("--workers", help=setting_help("workers"))] = None,
    role: Annotated[str | None, typer.Option("--role", help=setting_help("role"))] = None,
    open_to_all: Annotated[bool, typer.Option("--open", help=setting_help("open"))] = False,
    demo: Annotated[bool, typer.Option("--demo", help=setting_help("demo"))] = False,
    admin_key: AdminKeyOption = None,
    accept_loss: AcceptLossOption = False,
) -> None:
    """Serve boards: pages, HTTP and WebSockets.

    Without --store, it starts an embedded Valkey server that keeps its data in the data directory. Until `live keys
    add` has created an API key that may post, it refuses a --host that other machines can reach, unless --open is
    given. Every other setting is an environment variable; docs/settings.md lists them all.

    Example: live serve --demo
    """
    with clear_errors():
        settings = load_settings(
            host=host, port=port, store=store, boards=boards, data_dir=data_dir, workers=workers, role=role,
            open=open_to_all or None, demo=demo or None, check=mistakes_in,
        )  # fmt: skip
        try:
            serve_board(
                settings, admin_key=sys.stdout.isatty() if admin_key is None else admin_key, accept_loss=accept_loss
            )
        except KeyboardInterrupt:
            raise typer.Exit from None
