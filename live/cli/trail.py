"""`live trail`: prints the audit log."""

from functools import partial
from typing import Annotated

import msgspec
import typer

from live.cli.context import Context, command
from live.cli.terminal import milliseconds_of, out
from live.domain.event import rfc3339
from live.journal.log.audit_trail import read_trail
from live.store.registry.audit_trail import AuditEntry, AuditTrail


@command("store", "data_dir")
async def trail(
    context: Context,
    *,
    since: Annotated[str | None, typer.Option("--since", help="The start, such as 2026-11-22T12:00:00Z.")] = None,
    board: Annotated[str | None, typer.Option("--board", help="The only board. Default: everything.")] = None,
) -> None:
    """Print the audit log: who did what as an administrator, oldest first.

    The journal has all entries. Without a journal, the store has about the last 10,000.

    Example: live trail --since 2026-11-22T12:00:00Z --board posts
    """
    first = 0 if since is None else milliseconds_of(since, "--since")
    kept: dict[str, AuditEntry] = {}
    if context.settings.journal != "off":
        with context.journal(writes=False) as database:
            kept = database.work(partial(read_trail, prefix=context.prefix))
    async with context.store() as client:
        entries = [*kept.values(), *await AuditTrail(client, context.prefix).after(next(reversed(kept), "0"))]
    shown = [entry for entry in entries if entry.at >= first and board in (None, entry.board)]
    if context.report({"trail": shown}):
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
