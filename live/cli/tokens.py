"""`live tokens`: signs viewer tokens."""

import sys
from typing import Annotated

import segno
import typer

from live.auth.api_keys import board_faults
from live.auth.signing import sign_token
from live.cli.terminal import JsonOption, clear_errors, err, reported, several, words_of
from live.client.target import parse_url
from live.domain.event import rfc3339
from live.domain.producer import ALL
from live.errors import SetupError
from live.settings import load_settings

tokens = typer.Typer(name="tokens", no_args_is_help=True, help="Sign viewer tokens, which open private boards.")


@tokens.callback()
def root() -> None:
    """Sign viewer tokens, which open private boards."""


@tokens.command()
def sign(
    *,
    boards: Annotated[
        list[str] | None, several("--board", "A private board that the token opens, or boards such as acme-*.")
    ] = None,
    length: Annotated[
        str, typer.Option("--for", metavar="TIME", help="Time until the token expires, such as 8h.")
    ] = "8h",
    key: Annotated[str | None, typer.Option("--key", help="The viewer's own member.")] = None,
    likes: Annotated[list[str] | None, several("--likes", "A board on which --sub may vote.", "BOARD")] = None,
    voter: Annotated[str | None, typer.Option("--sub", help="Who votes: the actor of the votes.")] = None,
    server: Annotated[
        str | None, typer.Option("--server", metavar="URL", help="Address of the server, for the link.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Sign a viewer token with LIVE_TOKEN_SECRET, and print it with a link and a QR code.

    Until the token expires, everybody who has the token or the link may read the boards. The link opens the first
    board. With --likes, these people may also vote on the boards that --likes names, on pages of the server and of
    allowed origins. These votes count for the actor --sub.

    Example: live tokens sign --board staff --for 8h
    """
    with clear_errors():
        settings = load_settings()
        opened, voted = _named("--board", boards), _named("--likes", likes)
        try:
            token, ends = sign_token(settings, opened, length, key, voted, voter)
        except ValueError as error:
            raise SetupError(f"--{error}") from None
        try:
            address = parse_url(server or f"http://{settings.host}:{settings.port}{settings.root_path}")
        except ValueError as error:
            raise SetupError(f"--server: {error}") from None
    first = next((f"boards/{board}" for board in opened + voted if not board.endswith(ALL)), "")
    link = f"{address}/{first}?token={token}"
    expires = rfc3339(ends, 1, "seconds")
    if reported({"token": token, "link": link, "boards": opened, "likes": voted, "expires": expires}, as_json=as_json):
        return
    err.print(f"Valid until {expires}. The link opens the board in a browser:", soft_wrap=True)
    err.print(link, soft_wrap=True)
    if sys.stderr.isatty():
        segno.make(link, error="l", micro=False).terminal(out=sys.stderr, compact=True)
    typer.echo(token)


def _named(option: str, boards: list[str] | None) -> tuple[str, ...]:
    named = words_of(boards)
    if fault := next(board_faults(option, named), None):
        raise SetupError(fault)
    return named
