"""`live serve`: runs a server."""

import sys
from typing import Annotated, Any

import typer

from live.cli.context import BoardsOption, Context, DataDirOption, clear_errors, make_table, out, setting_help
from live.errors import SetupError
from live.process.checks import blame, mistakes_in
from live.process.serve import examine
from live.process.serve import serve as serve_board
from live.settings import Settings, load_settings

AdminKeyOption = Annotated[
    bool | None,
    typer.Option(
        "--admin-key/--no-admin-key",
        help="Create the admin API key of the data directory if there is no API key, and print the path of its file; "
        "on a terminal, print the API key too. Default: on if standard output is a terminal.",
    ),
]
CheckOption = Annotated[
    bool,
    typer.Option(
        "--check", help="Only check whether the server would start, and say what to do; exit with 1 if it would not."
    ),
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
    check: CheckOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --check: print one JSON object.")] = False,
) -> None:
    """Serve boards: pages, HTTP and WebSockets.

    Without --store, it starts an embedded Valkey server that keeps its data in the data directory. Until `live keys
    add` has created an API key that may post, it refuses a --host that other machines can reach, unless --open is
    given. Every other setting is an environment variable; docs/settings.md lists them all.

    With --check, it checks settings, files, limits, the port, the store, the database and the clocks, also beside a
    running server. It starts nothing and changes nothing.

    Example: live serve --demo
    """
    given: dict[str, Any] = {
        "host": host, "port": port, "store": store, "boards": boards, "data_dir": data_dir, "workers": workers,
        "role": role, "open": open_to_all or None, "demo": demo or None,
    }  # fmt: skip
    if check:
        _check(given, as_json=as_json)
        return
    with clear_errors():
        if as_json:
            raise SetupError("--json goes with --check")
        settings = load_settings(**given, check=mistakes_in)
        try:
            serve_board(settings, admin_key=sys.stdout.isatty() if admin_key is None else admin_key)
        except KeyboardInterrupt:
            raise typer.Exit from None


def _check(given: dict[str, Any], *, as_json: bool) -> None:
    try:
        findings = list(examine(load_settings(**given)))
    except SetupError as error:
        findings = list(blame("settings", error))
    starts = all(finding.state != "fault" for finding in findings)
    if not Context(Settings(), as_json=as_json).report({"starts": starts, "findings": findings}):
        table = make_table("check", "state", "what", wraps=["what"])
        for finding in findings:
            table.add_row(finding.check, finding.state, finding.detail)
        out.print(table)
        out.print("The server would start." if starts else "The server would NOT start.")
    if not starts:
        raise typer.Exit(1)
