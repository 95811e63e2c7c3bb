"""`live keys`: creates, lists and revokes API keys."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Final, cast

import msgspec
import typer
from msgspec import UNSET
from rich.table import Table
from rich.text import Text

from live.auth.keys import VERBS, add_key, end_of, key_view, revoke_key, scope_faults, time_words
from live.cli.context import Context, command, err, make_table, out, several, words_of
from live.domain.event import MAX_SCORE
from live.domain.producer import ALL, Scope, StoredProducer, Verb
from live.domain.text import unknown
from live.errors import SetupError
from live.settings import Settings
from live.store.connection.client import Store
from live.store.registry.audit_trail import command_user
from live.store.registry.definitions import DefinitionStore
from live.store.registry.producers import ProducerStore

keys = typer.Typer(
    name="keys",
    no_args_is_help=True,
    help="Create, list and revoke API keys.",
)

IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The id of the producer: at most 64 of a-z, 0-9, _ and -.")
]

_NO_USES: Final[Mapping[str, int]] = {}


@keys.command()
@command("store", "data_dir")
async def add(  # noqa: PLR0913 - one parameter per flag
    context: Context,
    producer: IdArgument,
    *,
    named: Annotated[
        list[str] | None, several("--board", "A board of the API key, or boards such as acme-*; * for all.")
    ] = None,
    verbs: Annotated[
        list[str] | None, several("--verbs", f"What the API key may do: {', '.join(VERBS)}. Default: post.")
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", help="Events per second; 0 for no limit.")] = None,
    burst: Annotated[int | None, typer.Option("--burst", min=1, help="Most events in one burst.")] = None,
    max_amount: Annotated[
        int | None,
        typer.Option(
            "--max-amount", min=0, max=MAX_SCORE, help="Largest amount of an event; 0 for the limit of the board."
        ),
    ] = None,
    types: Annotated[
        list[str] | None, several("--types", "Event types that boards of this administrator may take; * for all.")
    ] = None,
    length: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="Time until the API key expires, such as 30d, or never.")
    ] = None,
    any_board: Annotated[
        bool, typer.Option("--any-board", help="Accept ids in --board that no board has yet.")
    ] = False,
) -> None:
    """Create an API key and print it. It is shown only once.

    If the producer has an API key already, this adds a second secret. Let the producer use it, then revoke the first.
    If you give boards, verbs or a rate, they replace the earlier values. Running servers accept the API key within two
    seconds.

    An API key with the verb read may read private boards. An API key with the verb admin may also change boards and
    records. Once an API key has the verb post, nobody may post without an API key, unless LIVE_OPEN is set.

    Example: live keys add shop --board posts --rate 500
    """
    scope = make_scope(named, verbs, rate, burst, max_amount, types)
    try:
        expires = UNSET if length is None else end_of(length)
    except ValueError as error:
        raise SetupError(f"--{error}") from None
    scope = msgspec.structs.replace(scope, expires=expires)
    async with _store(context, create=True) as client:
        if scope.boards and not any_board:
            known = (await DefinitionStore(client).load()).boards
            exact = [board for board in scope.boards if not board.endswith(ALL)]
            if wrong := [unknown("board", board, known) for board in exact if board not in known]:
                raise SetupError(f"--board: {'; '.join(wrong)}. For a board that you create later, add --any-board")
        record, secret = await add_key(client, command_user(), producer, scope)
    key, fingerprint = f"{producer}.{secret}", record.secrets[-1].fingerprint
    if context.report({"key": key, "fingerprint": fingerprint, **key_view(record)}):
        return
    err.print(f"Send the API key as `Authorization: Bearer …`. Its fingerprint is {fingerprint}.", soft_wrap=True)
    typer.echo(key)


@keys.command(name="list")
@command("store", "data_dir")
async def show(context: Context) -> None:
    """List all producers, including revoked producers, with the fingerprints of their valid secrets.

    Example: live keys list --json
    """
    async with _store(context) as client:
        producers = ProducerStore(client)
        records, uses = list((await producers.load()).records.values()), await producers.last_uses()
    if not context.report({"producers": [key_view(record, uses) for record in records]}):
        out.print(table_of(records, context.settings, uses) if records else "No producer has an API key.")


@keys.command()
@command("store", "data_dir")
async def revoke(
    context: Context,
    producer: IdArgument,
    *,
    secret: Annotated[
        str | None,
        typer.Option("--secret", metavar="FINGERPRINT", help="Revoke only the secret with this fingerprint."),
    ] = None,
) -> None:
    """Revoke one secret of a producer, or all its secrets. Servers refuse a revoked secret after at most five seconds.

    Example: live keys revoke shop --secret 1f9a4c3e
    """
    async with _store(context) as client:
        record = await revoke_key(client, command_user(), producer, secret)
    if not context.report(key_view(record)):
        left = ", ".join(kept.fingerprint for kept in record.secrets) or "none"
        out.print(f"Revoked. Valid secrets of {producer}: {left}.")


def make_scope(
    boards: Sequence[str] | None,
    verbs: Sequence[str] | None,
    rate: float | None,
    burst: int | None,
    max_amount: int | None,
    types: Sequence[str] | None,
) -> Scope:
    """Make the scope that the flags describe."""
    named, allowed = words_of(boards), words_of(types)
    scope = Scope(
        boards=UNSET if not named else None if ALL in named else named,
        verbs=cast("tuple[Verb, ...]", words_of(verbs)) or UNSET,
        rate=UNSET if rate is None else rate,
        burst=UNSET if burst is None else burst,
        max_amount=UNSET if max_amount is None else max_amount or None,
        sources=allowed if types else UNSET,
    )
    fault = next(scope_faults(scope), None)
    if fault is not None:
        # The API calls the field `boards`, and the option is `--board`.
        raise SetupError(f"--{fault}".replace("--boards:", "--board:", 1))
    return scope


def table_of(records: list[StoredProducer], settings: Settings, uses: Mapping[str, int] = _NO_USES) -> Table:
    """Show producers as a table, without columns that would be empty. `uses` has the last uses by fingerprint."""
    has_uses, has_ends = bool(uses), any(record.expires is not None for record in records)
    headings = ["id", "boards", "verbs", "rate", "fingerprints", "created", "revoked"]
    table = make_table(*headings, *["expires"] * has_ends, *["last used"] * has_uses, wraps=["id", "boards", "verbs"])
    for record in records:
        used = "\n".join(_day(uses.get(secret.fingerprint)) or "never" for secret in record.secrets)
        producer = record.producer(settings.rate)
        table.add_row(
            record.id,
            "all" if record.boards is None else ", ".join(record.boards),
            ", ".join(record.verbs),
            f"{producer.rate:,g}/s" if producer.rate else "no limit",
            Text("\n".join(secret.fingerprint for secret in record.secrets)),
            _day(record.created),
            _day(record.revoked),
            *[_day(record.expires)] * has_ends,
            *[Text(used)] * has_uses,
        )
    return table


def _day(seconds: int | None) -> str:
    return (time_words(seconds) or "").partition("T")[0]


@asynccontextmanager
async def _store(context: Context, *, create: bool = False) -> AsyncIterator[Store]:
    folder = context.settings.data_dir
    if not context.settings.store and not create and not folder.exists():
        raise SetupError(f"there is no data directory {folder.resolve()}; use --data-dir or --store")
    async with context.store() as client:
        yield client
