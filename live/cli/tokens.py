"""`live tokens`: signs viewer tokens."""

import sys
import time
from typing import Annotated

import jwt
import segno
import typer
from msgspec import UNSET

from live.cli.keys import make_scope
from live.cli.terminal import JsonOption, clear_errors, err, reported
from live.client.target import parse_url
from live.domain.event import key_fault, rfc3339
from live.domain.window import parse_duration
from live.errors import SetupError
from live.settings import Settings, load_settings

tokens = typer.Typer(name="tokens", no_args_is_help=True, help="Sign viewer tokens, which open private boards.")


@tokens.callback()
def root() -> None:
    """Sign viewer tokens, which open private boards."""


@tokens.command()
def sign(
    *,
    boards: Annotated[str, typer.Option("--boards", help="Private boards that it opens, such as a,b or acme-*.")],
    length: Annotated[str, typer.Option("--for", metavar="TIME", help="How long it is valid, such as 8h.")] = "8h",
    key: Annotated[str | None, typer.Option("--key", help="The member that the viewer is.")] = None,
    server: Annotated[
        str | None, typer.Option("--server", metavar="URL", help="Address of the server, for the link. Default: here.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Sign a viewer token with LIVE_TOKEN_SECRET, and print it with a link and a QR code.

    Whoever has the token, or the link, may read the boards until it ends. The link goes to the first board.

    Example: live tokens sign --boards staff --for 8h
    """
    with clear_errors():
        settings = load_settings()
        scope = make_scope(boards, None, None, None).boards
        opened = ("*",) if scope is None or scope is UNSET else scope
        token, ends = sign_token(settings, opened, length, key)
        try:
            address = parse_url(server or f"http://{settings.host}:{settings.port}{settings.root_path}")
        except ValueError as error:
            raise SetupError(f"--server: {error}") from None
    first = next((f"boards/{board}" for board in opened if not board.endswith("*")), "")
    link = f"{address}/{first}?token={token}"
    if reported(
        {"token": token, "link": link, "boards": opened, "expires": rfc3339(ends, 1, "seconds")}, as_json=as_json
    ):
        return
    err.print(f"Valid until {rfc3339(ends, 1, 'seconds')}. The link opens the board in a browser:", soft_wrap=True)
    err.print(link, soft_wrap=True)
    if sys.stderr.isatty():
        segno.make(link, error="l", micro=False).terminal(out=sys.stderr, compact=True)
    typer.echo(token)


def sign_token(settings: Settings, boards: tuple[str, ...], length: str, key: str | None) -> tuple[str, int]:
    """Sign a token. Return it and when it ends, in seconds since 1970.

    Raises:
        SetupError: there is no secret, or the time or the member is not valid.
    """
    if not settings.token_secret:
        raise SetupError(
            "LIVE_TOKEN_SECRET is not set: give the server and this command the same secret of at least 32 bytes, such "
            "as `openssl rand -hex 32` makes. Tokens for LIVE_TOKEN_JWKS are signed by whoever has the private key"
        )
    try:
        seconds = parse_duration(length)
    except ValueError:
        seconds = 0
    if not 1 <= seconds <= settings.token_max_age:
        raise SetupError(
            f"--for must be a time from 1s to {settings.token_max_age:g}s (LIVE_TOKEN_MAX_AGE), such as 8h"
        )
    if key is not None and (fault := key_fault(key)) is not None:
        raise SetupError(f"--key can't be a member: {fault}")
    now = int(time.time())
    claims = {
        "aud": settings.token_audience,
        **({"iss": settings.token_issuer} if settings.token_issuer else {}),
        **({} if key is None else {"key": key}),
        "iat": now,
        "exp": now + int(seconds),
        "boards": boards,
    }
    return jwt.encode(claims, settings.token_secret, "HS256"), now + int(seconds)
