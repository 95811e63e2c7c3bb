"""`live trail`: prints the audit log."""

import asyncio
from functools import partial
from typing import Annotated

import msgspec
import typer

from live.cli.terminal import (
    DataDirOption,
    JsonOption,
    StoreOption,
    clear_errors,
    milliseconds_of,
    out,
    reported,
)
from live.domain.event import rfc3339
from live.journal.database import existing_journal
from live.journal.log.audit_trail import read_trail
from live.settings import load_settings
from live.store.connection.embedded import opened_store
from live.store.registry.audit_trail import AuditEntry, AuditTrail


def trail(
    *,
    since: Annotated[str | None, typer.Option("--since", help="The start, such as 2026-11-22T12:00:00Z.")] = None,
    board: Annotated[str | None, typer.Option("--board", help="The only board. Default: everything.")] = None,
    store: StoreOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the audit log: who did what as an administrator, oldest first.

    The journal has all entries. Without a journal, the store has about the last 10,000.

    Example: live trail --since 2026-11-22T12:00:00Z --board posts
    """
    with clear_errors():
        settings = load_settings(store=store, data_dir=data_dir)
        first = 0 if since is None else milliseconds_of(since, "--since")
        kept: dict[str, AuditEntry] = {}
        if settings.journal != "off":
            with existing_journal(settings, writes=False) as database:
                kept = database.work(partial(read_trail, prefix=settings.key_prefix))

        async def work() -> list[AuditEntry]:
            async with opened_store(settings) as client:
                return await AuditTrail(client, settings.key_prefix).after(next(reversed(kept), "0"))

        entries = [*kept.values(), *asyncio.run(work())]
    shown = [entry for entry in entries if entry.at >= first and board in (None, entry.board)]
    if reported({"trail": shown}, as_json=as_json):
        return
    for entry in shown:
        what = " ".join(filter(None, (entry.what, entry.board, entry.key)))
        where = f" from {entry.address}" if entry.address else ""
        out.print(f"{rfc3339(entry.at, timespec='seconds')} {entry.who}{where}: {what}", soft_wrap=True)
        if entry.reason:
            out.print(f"  reason: {entry.reason}", soft_wrap=True)
        for name, value in (("before", entry.before), ("after", entry.after)):
            if value is not None:
                out.print(f"  {name}: {msgspec.json.encode(value).decode()}", soft_wrap=True)
