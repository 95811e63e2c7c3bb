"""`live token`: signs viewer tokens."""

import sys
from typing import Annotated, Final

import segno
import typer

from live.auth.api_keys import board_faults
from live.auth.signing import sign_token
from live.cli.context import Context, command
from live.cli.terminal import err, several, words_of
from live.client.target import parse_url
from live.domain.event import rfc3339
from live.domain.producer import ALL
from live.errors import SetupError
from live.settings import Settings

ServerOption = Annotated[
    str | None, typer.Option("--server", metavar="URL", help="Address of the server, for the links.")
]

_DEFAULT_TIME: Final = "8h"


@command()
def token(
    context: Context,
    *,
    opens: Annotated[
        list[str] | None, several("--board", "A private board that the token opens, or boards such as acme-*.")
    ] = None,
    length: Annotated[str, typer.Option("--for", metavar="TIME", help="Time until the token expires.")] = _DEFAULT_TIME,
    key: Annotated[str | None, typer.Option("--key", help="The viewer's own member.")] = None,
    likes: Annotated[list[str] | None, several("--likes", "A board on which --sub may vote.", "BOARD")] = None,
    voter: Annotated[str | None, typer.Option("--sub", help="Who votes: the actor of the votes.")] = None,
    server: ServerOption = None,
) -> None:
    """Sign a viewer token with LIVE_TOKEN_SECRET, and print it with a link and a QR code.

    Until the token expires, everybody who has the token or the link may read the boards. The link opens the first
    board. With --likes, these people may also vote on the boards that --likes names, on pages of the server and of
    allowed origins. These votes count for the actor --sub.

    Example: live token --board staff --for 8h
    """
    opened, voted = _named("--board", opens), _named("--likes", likes)
    try:
        signed, ends = sign_token(context.settings, opened, length, key, voted, voter)
    except ValueError as error:
        raise SetupError(f"--{error}") from None
    first = next((f"boards/{board}" for board in opened + voted if not board.endswith(ALL)), "")
    link = f"{address_of(context.settings, server)}/{first}?token={signed}"
    expires = rfc3339(ends, 1, "seconds")
    if context.report({"token": signed, "link": link, "boards": opened, "likes": voted, "expires": expires}):
        return
    err.print(f"Valid until {expires}. The link opens the board in a browser:", soft_wrap=True)
    err.print(link, soft_wrap=True)
    if sys.stderr.isatty():
        segno.make(link, error="l", micro=False).terminal(out=sys.stderr, compact=True)
    typer.echo(signed)


def address_of(settings: Settings, server: str | None) -> str:
    """Return the address of the server: what `--server` says, or else what the settings say.

    Raises:
        SetupError: `--server` is not an address.
    """
    try:
        return parse_url(server or f"http://{settings.host}:{settings.port}{settings.root_path}")
    except ValueError as error:
        raise SetupError(f"--server: {error}") from None


def _named(option: str, boards: list[str] | None) -> tuple[str, ...]:
    named = words_of(boards)
    if fault := next(board_faults(option, named), None):
        raise SetupError(fault)
    return named
