"""`live tokens`: signs viewer tokens, prints tickets, and lists the tickets that have voted."""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import segno
import typer

from live.auth.api_keys import board_faults
from live.auth.signing import sign_token
from live.auth.tickets import MOST_TICKETS, voter_of
from live.cli.sheet import write_sheet
from live.cli.terminal import (
    DataDirOption,
    JsonOption,
    StoreOption,
    clear_errors,
    err,
    out,
    reported,
    several,
    words_of,
)
from live.client.target import parse_url
from live.domain.event import rfc3339
from live.domain.producer import ALL
from live.domain.text import unknown
from live.errors import NotFoundError, SetupError
from live.network.hosts import is_loopback
from live.settings import Settings, load_settings
from live.store.board.keys import Keys
from live.store.board.manage.erasure import has_voted, read_held
from live.store.board.usage import opened_boards
from live.store.board.write.slot_assignment import voter_digests
from live.store.connection.embedded import opened_store

tokens = typer.Typer(name="tokens", no_args_is_help=True, help="Sign viewer tokens and tickets of contests.")

_DEFAULT_TIME: Final = "8h"
_STEP: Final = 1000  # voters that the store looks up at once


@tokens.callback()
def root() -> None:
    """Sign viewer tokens and tickets of contests."""


@tokens.command()
def sign(  # noqa: PLR0913 - one parameter per flag
    *,
    boards: Annotated[
        list[str] | None, several("--board", "A private board that the token opens, or boards such as acme-*.")
    ] = None,
    length: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="Time until the token expires. Default: 8h.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="The viewer's own member.")] = None,
    likes: Annotated[list[str] | None, several("--likes", "A board on which --sub may vote.", "BOARD")] = None,
    voter: Annotated[str | None, typer.Option("--sub", help="Who votes: the actor of the votes.")] = None,
    server: Annotated[
        str | None, typer.Option("--server", metavar="URL", help="Address of the server, for the link.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", min=1, max=MOST_TICKETS, help="Number of tickets. Needs --likes, --sheet.")
    ] = None,
    sheet: Annotated[
        Path | None, typer.Option("--sheet", metavar="FILE", help="Write tickets to this page (HTML), to print.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Sign a viewer token with LIVE_TOKEN_SECRET, and print it with a link and a QR code.

    Until the token expires, everybody who has the token or the link may read the boards. The link opens the first
    board. With --likes, these people may also vote on the boards that --likes names, on pages of the server and of
    allowed origins. These votes count for the actor --sub.

    With --count and --sheet, write a page of numbered tickets instead. Each ticket is one voter on the board of
    --likes, and the same secret and board always give the same tickets.

    Example: live tokens sign --board staff --for 8h
    """
    with clear_errors():
        settings = load_settings()
        opened, voted = _named("--board", boards), _named("--likes", likes)
        if count is not None or sheet is not None:
            others = {"--board": opened, "--for": length, "--key": key, "--sub": voter}
            _print_tickets(settings, voted, count, sheet, server, others, as_json=as_json)
            return
        try:
            token, ends = sign_token(settings, opened, length or _DEFAULT_TIME, key, voted, voter)
        except ValueError as error:
            raise SetupError(f"--{error}") from None
        address = _address(settings, server)
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


@tokens.command()
def used(
    board: Annotated[str, typer.Argument(metavar="BOARD", help="The id of the board.")],
    *,
    store: StoreOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the numbers of the tickets that have voted on a board, one per line. Nobody learns for whom.

    Example: live tokens used songs
    """
    with clear_errors():
        settings = load_settings(store=store, data_dir=data_dir)

        async def work() -> list[int]:
            async with opened_store(settings, start=False) as client:
                keys = Keys(settings.key_prefix, board)
                held = await read_held(client, keys)
                if held is None:
                    known = await opened_boards(client, settings.key_prefix)
                    raise NotFoundError(f"in the store, {unknown('board', board, known)}")
                found: list[int] = []
                for first in range(1, MOST_TICKETS + 1, _STEP):
                    numbers = range(first, first + _STEP)
                    digests = [voter_digests(held.secret, voter_of(number), "")[0] for number in numbers]
                    voted = await has_voted(client, keys, held, digests)
                    found += [number for number, has in zip(numbers, voted, strict=True) if has]
                return found

        numbers = asyncio.run(work())
    if not reported({"board": board, "tickets": numbers}, as_json=as_json):
        for number in numbers:
            out.print(str(number))


def _print_tickets(
    settings: Settings,
    boards: tuple[str, ...],
    count: int | None,
    sheet: Path | None,
    server: str | None,
    others: Mapping[str, object],
    *,
    as_json: bool,
) -> None:
    """Write a page of tickets. `others` are the options that tickets do not take.

    Raises:
        SetupError: an option is missing, or does not apply; or the page can't be written.
    """
    if count is None or sheet is None:
        raise SetupError("--count and --sheet belong together: the number of tickets, and the page to print")
    if wrong := [name for name, value in others.items() if value]:
        raise SetupError(f"{', '.join(wrong)}: tickets take no such option; they are for the board of --likes")
    if len(boards) != 1 or boards[0].endswith(ALL):
        raise SetupError("--likes: name the one board whose tickets to print")
    if not settings.token_secret:
        raise SetupError("LIVE_TOKEN_SECRET is not set: give the server and this command the same secret")
    address, (board,) = _address(settings, server), boards
    try:
        write_sheet(sheet, settings.token_secret, board, count, address)
    except OSError as error:
        raise SetupError(f"--sheet: can't write {sheet}: {error.strerror}") from None
    if reported({"board": board, "tickets": count, "sheet": str(sheet)}, as_json=as_json):
        return
    err.print(f"Wrote {count:,} tickets to {sheet}. Whoever sees a ticket can vote with it.", soft_wrap=True)
    if is_loopback(urlsplit(address).hostname or ""):
        err.print(f"Phones can't open {address}: name the address of the server with --server.", soft_wrap=True)


def _address(settings: Settings, server: str | None) -> str:
    try:
        return parse_url(server or f"http://{settings.host}:{settings.port}{settings.root_path}")
    except ValueError as error:
        raise SetupError(f"--server: {error}") from None


def _named(option: str, boards: list[str] | None) -> tuple[str, ...]:
    named = words_of(boards)
    if fault := next(board_faults(option, named), None):
        raise SetupError(fault)
    return named
