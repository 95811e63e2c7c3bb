"""`live token` and `live tickets`: sign viewer tokens, and print and list the tickets of a contest."""

import sys
from html import escape
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import segno
import typer

from live.auth.keys import board_faults
from live.auth.tickets import MOST_TICKETS, code_of, voter_of, whole_code_of
from live.auth.tokens import sign_token
from live.cli.context import Context, command, err, out, several, words_of
from live.client.target import parse_url
from live.domain.event import rfc3339
from live.domain.producer import ALL
from live.domain.text import unknown
from live.errors import NotFoundError, SetupError
from live.http.networks import is_loopback
from live.settings import Settings
from live.store.board.manage.erasure import has_voted, read_held
from live.store.board.write.slot_assignment import voter_digests
from live.store.registry.definitions import DefinitionStore
from live.system.files import replacing

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
    member: Annotated[str | None, typer.Option(help="The viewer's own member.")] = None,
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
        signed, ends = sign_token(context.settings, opened, length, member, voted, voter)
    except ValueError as error:
        name, _, fault = str(error).partition(" ")  # the name is that of the API
        raise SetupError(f"--{'member' if name == 'key' else name} {fault}") from None
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
    """Return the address of the server: what `--server` says, or else what the settings say."""
    try:
        return parse_url(server or f"http://{settings.host}:{settings.port}{settings.root_path}")
    except ValueError as error:
        raise SetupError(f"--server: {error}") from None


def _named(option: str, boards: list[str] | None) -> tuple[str, ...]:
    named = words_of(boards)
    if fault := next(board_faults(option, named), None):
        raise SetupError(fault)
    return named


_ON_A_SHEET: Final = 12
_STYLE: Final = """
@page { size: A4; margin: 10mm; }
body { margin: 0; font: 10pt/1.35 sans-serif; color: #000; background: #fff; }
section { display: grid; grid-template: repeat(4, 66mm) / repeat(3, 1fr); break-after: page; }
article { border: .2mm dashed #999; padding: 3mm; text-align: center; overflow: hidden; overflow-wrap: anywhere; }
svg { width: 34mm; height: 34mm; }
h2 { margin: 0; font-size: 10pt; }
p { margin: 1mm 0 0; }
b { font: bold 13pt monospace; letter-spacing: .5mm; }
"""


def write_sheet(path: Path, secret: str, board: str, count: int, server: str) -> None:
    """Write the first tickets of a board. `server` is the address that their QR codes open."""
    place = escape(f"{server.partition('://')[2]}/t")
    with replacing(path) as file:
        title = f"{escape(board)}: {count:,} tickets"
        head = f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n'
        file.write(f"{head}<style>{_STYLE}</style>\n".encode())
        for first in range(1, count + 1, _ON_A_SHEET):
            file.write(b"<section>\n")
            for number in range(first, min(first + _ON_A_SHEET, count + 1)):
                code = code_of(secret, board, number)
                picture = segno.make(f"{server}/t?code={whole_code_of(secret, board, number)}", error="m", micro=False)
                lines = (
                    f"<article><h2>{escape(board)} · {number}</h2>",
                    picture.svg_inline(dark="#000", light=None, border=2, omitsize=True),
                    f"<p><b>{code[:4]}-{code[4:]}</b></p><p>Scan it, or type the letters at {place}</p></article>\n",
                )
                file.write("".join(lines).encode())
            file.write(b"</section>\n")


_STEP: Final = 1000  # voters that the store looks up at once


@command("store", "data_dir")
async def tickets(
    context: Context,
    board: Annotated[str, typer.Argument(metavar="BOARD", help="The id of the board.")],
    *,
    count: Annotated[
        int | None, typer.Option("--count", min=1, max=MOST_TICKETS, help="Number of tickets. Needs --sheet.")
    ] = None,
    sheet: Annotated[
        Path | None, typer.Option("--sheet", metavar="FILE", help="Write tickets to this page (HTML), to print.")
    ] = None,
    server: ServerOption = None,
) -> None:
    """List the numbers of the tickets that have voted on a board, one per line. Nobody learns for whom.

    With --count and --sheet, write a page of numbered tickets instead. Each ticket is one voter on the board. The same
    LIVE_TOKEN_SECRET and board always give the same tickets.

    Example: live tickets songs --count 300 --sheet tickets.html --server https://board.example.org
    """
    if count is None and sheet is None and server is None:
        found = await _used(context, board)
        if not context.report({"board": board, "tickets": found}):
            for number in found:
                out.print(str(number))
        return
    if count is None or sheet is None:
        raise SetupError("--count and --sheet belong together: the number of tickets, and the page to print")
    if fault := next(board_faults("BOARD", (board,)), None):
        raise SetupError(fault)
    if board.endswith(ALL):
        raise SetupError("BOARD: name one board, whose tickets to print")
    if not context.settings.token_secret:
        raise SetupError("LIVE_TOKEN_SECRET is not set: give the server and this command the same secret")
    address = address_of(context.settings, server)
    try:
        write_sheet(sheet, context.settings.token_secret, board, count, address)
    except OSError as error:
        raise SetupError(f"--sheet: can't write {sheet}: {error.strerror}") from None
    if context.report({"board": board, "tickets": count, "sheet": str(sheet)}):
        return
    err.print(f"Wrote {count:,} tickets to {sheet}. Anyone who sees a ticket can vote with it.", soft_wrap=True)
    if is_loopback(urlsplit(address).hostname or ""):
        err.print(f"Phones can't open {address}: name the address of the server with --server.", soft_wrap=True)


async def _used(context: Context, board: str) -> list[int]:
    async with context.store(start=False) as client:
        keys = client.keys_of(board)
        held = await read_held(client, keys)
        if held is None:
            known = (await DefinitionStore(client).load()).boards
            raise NotFoundError(f"in the store, {unknown('board', board, known)}")
        found: list[int] = []
        for first in range(1, MOST_TICKETS + 1, _STEP):
            numbers = range(first, first + _STEP)
            digests = [voter_digests(held.secret, voter_of(number), "")[0] for number in numbers]
            voted = await has_voted(client, keys, held, digests)
            found += [number for number, has in zip(numbers, voted, strict=True) if has]
        return found
