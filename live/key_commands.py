"""`live keys`: makes, shows and revokes the keys with which producers send events."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from datetime import UTC, datetime
from typing import Annotated, Any, Final, cast, get_args

import typer
from msgspec import UNSET
from rich.table import Table

from live.board import BOARD_ID
from live.board_file import load_boards
from live.errors import SetupError
from live.producer import Record, Scope, Verb
from live.settings import Settings, load_settings
from live.store.client import connect
from live.store.embedded import running_or_started
from live.store.producers import ProducerStore
from live.terminal import DataDirOption, JsonOption, StoreOption, clear_errors, err, out, print_json

keys = typer.Typer(
    name="keys",
    no_args_is_help=True,
    help="Make, show and revoke the keys with which producers send events.",
)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The producer: a-z, 0-9, _ and -, at most 64.")]

_ALL: Final = "*"
_VERBS: Final = get_args(Verb)


@keys.command()
def add(  # noqa: PLR0913 - a flag each
    producer: IdArgument,
    *,
    boards: Annotated[str | None, typer.Option("--boards", help="Only these boards, such as a,b; * for all.")] = None,
    verbs: Annotated[str | None, typer.Option("--verbs", help=f"Of {', '.join(_VERBS)}; default post.")] = None,
    rate: Annotated[float | None, typer.Option("--rate", help="Events a second; 0 for no limit.")] = None,
    burst: Annotated[int | None, typer.Option("--burst", min=1, help="Events that may come at once.")] = None,
    store: StoreOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key and print it, this once: nobody can show it again.

    On a producer that has one it makes a second, so that the producer can change over; then revoke the first.
    What is said of boards, verbs and rate replaces what was said before. Running servers know within two seconds.

    Example: live keys add shop --boards posts --rate 500
    """
    with clear_errors():
        settings = load_settings(store=store, data_dir=data_dir)
        scope = make_scope(settings, boards, verbs, rate, burst)
        record, secret = asyncio.run(_add(settings, producer, scope))
    key, fingerprint = f"{producer}.{secret}", record.secrets[-1].fingerprint
    if as_json:
        print_json({"key": key, "fingerprint": fingerprint, **view(record)})
        return
    err.print(f"Send it as `Authorization: Bearer …`; its fingerprint is {fingerprint}.", markup=False, soft_wrap=True)
    typer.echo(key)


@keys.command(name="list")
def show(*, store: StoreOption = None, data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Show every producer there ever was, with the fingerprints of its live secrets.

    Example: live keys list --json
    """
    with clear_errors():
        settings = load_settings(store=store, data_dir=data_dir)
        records = asyncio.run(_load(settings))
    if as_json:
        print_json({"producers": [view(record) for record in records]})
    else:
        out.print(make_table(records, settings) if records else "No producer has a key.")


@keys.command()
def revoke(
    producer: IdArgument,
    *,
    secret: Annotated[
        str | None, typer.Option("--secret", metavar="FINGERPRINT", help="Only the secret with this fingerprint.")
    ] = None,
    store: StoreOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Revoke one secret of a producer, or all; within five seconds no server takes it any more.

    Example: live keys revoke shop --secret 1f9a4c3e
    """
    with clear_errors():
        record = asyncio.run(_revoke(load_settings(store=store, data_dir=data_dir), producer, secret))
    if as_json:
        print_json(view(record))
    else:
        left = ", ".join(kept.fingerprint for kept in record.secrets) or "none, so it is out"
        out.print(f"Revoked. Live secrets of {producer}: {left}.", markup=False)


def make_scope(
    settings: Settings, boards: str | None, verbs: str | None, rate: float | None, burst: int | None
) -> Scope:
    """What was said on the command line; a board that the boards file does not have is pointed out.

    Raises:
        SetupError: a board's id or a verb is none, or the rate is out of range.
    """
    named = _words(boards)
    if wrong := [board for board in named if board != _ALL and not BOARD_ID.fullmatch(board)]:
        raise SetupError(f"--boards: {wrong[0]!r} is no id of a board")
    if wrong := [verb for verb in _words(verbs) if verb not in _VERBS]:
        raise SetupError(f"--verbs: {wrong[0]!r} is none of {', '.join(_VERBS)}")
    if rate is not None and rate != 0 and not 0.001 <= rate <= 1e9:  # noqa: PLR2004 - also keeps out what is no number
        raise SetupError("--rate is a number from 0.001 to 1000000000, or 0 for no limit")
    if settings.boards is not None and (unknown := set(named) - {_ALL, *load_boards(settings.boards).by_id}):
        err.print(f"live: not in {settings.boards}: {', '.join(sorted(unknown))}", markup=False, soft_wrap=True)
    return Scope(
        boards=UNSET if not named else None if _ALL in named else named,
        verbs=cast("tuple[Verb, ...]", _words(verbs)) or UNSET,
        rate=UNSET if rate is None else rate,
        burst=UNSET if burst is None else burst,
    )


def view(record: Record) -> dict[str, Any]:
    """What may be shown of a producer: neither a secret nor what is kept of one."""
    return {
        "id": record.id,
        "boards": record.boards,
        "verbs": record.verbs,
        "rate": record.rate,
        "burst": record.burst,
        "secrets": [{"fingerprint": secret.fingerprint, "created": _time(secret.created)} for secret in record.secrets],
        "created": _time(record.created),
        "revoked": _time(record.revoked),
    }


def make_table(records: list[Record], settings: Settings) -> Table:
    """The producers, for people."""
    table = Table("id", "boards", "verbs", "rate", "fingerprints", "created", "revoked", box=None, pad_edge=False)
    for record in records:
        producer = record.producer(settings.rate, settings.burst)
        table.add_row(
            record.id,
            "all" if record.boards is None else ", ".join(record.boards),
            ", ".join(record.verbs),
            f"{producer.rate:,g}/s" if producer.rate else "no limit",
            "\n".join(secret.fingerprint for secret in record.secrets),
            _time(record.created),
            _time(record.revoked),
        )
    return table


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in (text or "").split(",") if word.strip()))


def _time(seconds: int | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def _add(settings: Settings, producer: str, scope: Scope) -> tuple[Record, str]:
    async with _producers(settings, create=True) as producers:
        return await producers.add(producer, scope)


async def _load(settings: Settings) -> list[Record]:
    async with _producers(settings) as producers:
        return list((await producers.load()).records.values())


async def _revoke(settings: Settings, producer: str, fingerprint: str | None) -> Record:
    async with _producers(settings) as producers:
        return await producers.revoke(producer, fingerprint)


@asynccontextmanager
async def _producers(settings: Settings, *, create: bool = False) -> AsyncIterator[ProducerStore]:
    """The producers in the store that the settings name; only to make a key is a data directory made."""
    if not settings.store and not create and not settings.data_dir.exists():
        raise SetupError(f"there is no data directory {settings.data_dir.resolve()}: give --data-dir or --store")
    with nullcontext(settings.store) if settings.store else running_or_started(settings.data_dir) as url:
        client = connect(url, settings)
        try:
            yield ProducerStore(client, settings.key_prefix)
        finally:
            await client.aclose()
