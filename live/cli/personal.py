"""`live void` and `live erase`: take back what somebody contributed, and erase a person."""

import asyncio
import hashlib
import secrets
from typing import Annotated

import msgspec
import typer

from live.auth.visitors import Visitors, is_cookie
from live.cli.terminal import (
    BoardsOption,
    DataDirOption,
    JsonOption,
    StoreOption,
    clear_errors,
    confirm,
    fail,
    milliseconds_of,
    out,
    progress_bar,
    reported,
)
from live.domain.board_file import load_boards
from live.domain.producer import LIKES
from live.domain.text import counted, unknown
from live.errors import NotFoundError, SetupError
from live.journal.database import existing_journal
from live.journal.log.drainer import Drainer
from live.maintenance.erase import Erased, Erasing
from live.maintenance.void import Criteria, Outcome, Voiding
from live.settings import Settings, load_settings
from live.store.connection.client import Store
from live.store.connection.embedded import opened_store
from live.store.registry.producers import ProducerStore
from live.store.registry.trail import note_command

BoardOption = Annotated[str | None, typer.Option("--board", help="The only board. Default: all boards.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would happen.")]


def void(  # noqa: PLR0913 - one parameter per flag
    *,
    since: Annotated[str, typer.Option("--since", help="A time such as 2026-11-22T12:00:00Z.")],
    until: Annotated[str | None, typer.Option("--until", help="The end, such as 2026-11-22T13:00:00Z.")] = None,
    producer: Annotated[str | None, typer.Option("--producer", help="The id of an API key.")] = None,
    actor: Annotated[
        str | None, typer.Option("--actor", help="The `actor` of votes, or the cookie of a visitor who liked.")
    ] = None,
    board: BoardOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    store: StoreOption = None,
    boards: BoardsOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take back what a producer or an actor contributed in a period, as if these events had never been sent.

    The boards keep running. Viewers see the change, and the journal records it. Nothing is taken back twice: run the
    command again after an interruption, or with another period. It exits with 1 if a board can't take something back,
    or if nothing was found of an actor or of a producer that does not exist.

    Example: live void --producer shop --since 2026-11-22T12:00:00Z
    """
    with clear_errors():
        if (producer is None) == (actor is None):
            raise SetupError("give either --producer or --actor")
        settings = load_settings(store=store, boards=boards, data_dir=data_dir)
        first, last = milliseconds_of(since, "--since"), None if until is None else milliseconds_of(until, "--until")
        if not dry_run:
            confirm(f"Take back what {producer or actor!r} contributed since {since}?", yes=yes)
        criteria = Criteria(producer=producer, actor=actor, since=first, until=last)
        with progress_bar("Taking back", quiet=as_json) as show:

            async def work() -> list[Outcome]:
                with existing_journal(settings, writes=False) as database:
                    async with opened_store(settings) as client:
                        if actor is not None:
                            criteria.actor = await _actor(client, settings, actor)
                        voiding = Voiding(
                            client, settings, load_boards(settings.boards), database,
                            lambda _, done, total: show(done, total),
                        )  # fmt: skip
                        found = await voiding.void(criteria, board, dry=dry_run)
                        if not any(outcome.batches or outcome.fault for outcome in found):
                            await _require_known(client, settings, criteria)
                        if not dry_run:
                            whom = _digest(criteria.actor) if criteria.actor is not None else {"producer": producer}
                            taken = [one for one in found if one.batches or one.fault]
                            await note_command(
                                client, settings.key_prefix, "voided", board=board or "",
                                before={**whom, "since": since, "until": until}, after={"boards": taken},
                            )  # fmt: skip
                        return found

            found = asyncio.run(work())
    if not reported({"boards": found, "dry_run": dry_run}, as_json=as_json):
        _print_outcomes(found, dry=dry_run)
    if any(outcome.fault for outcome in found):
        raise typer.Exit(1)


def erase(  # noqa: PLR0913 - one parameter per flag
    *,
    actor: Annotated[str, typer.Option("--actor", help="The `actor` of votes, or the cookie of a visitor who liked.")],
    board: Annotated[
        list[str] | None, typer.Option("--board", help="A board; repeatable. Default: all boards.")
    ] = None,
    take_back: Annotated[bool, typer.Option("--take-back", help="Take the votes and likes back as well.")] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    store: StoreOption = None,
    boards: BoardsOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Erase a person: every digest of an actor, in the store, in its files and in what the journal shows.

    Servers may run. Raw entries of the journal keep the digests until `journal_events` has passed, or until `live
    journal compact` drops them. Scores stay as they are unless --take-back is given. If the command is interrupted, run
    it again. It exits with 1 if no board knows the actor.

    Example: live erase --actor viewer-7 --take-back
    """
    with clear_errors():
        settings = load_settings(store=store, boards=boards, data_dir=data_dir)
        if not dry_run:
            confirm(f"Erase {actor!r}? This can't be undone.", yes=yes)

        async def work() -> tuple[list[Erased], str]:
            with existing_journal(settings) as own, existing_journal(settings, writes=False) as shared:
                async with opened_store(settings) as client:
                    name, in_file = await _actor(client, settings, actor), load_boards(settings.boards)
                    if dry_run:
                        erasing = Erasing(client, settings, in_file, shared)
                        return await erasing.preview(name, board or [], take_back=take_back), ""
                    # If no server runs, nobody else moves the entries to SQL.
                    is_own = await own.take()
                    drainer = Drainer(client, settings, own) if is_own else None
                    erasing = Erasing(client, settings, in_file, own if is_own else shared, drainer)
                    erased = await erasing.erase(name, board or [], take_back=take_back)
                    after = {"boards": [one.board for one in erased[0]], "take_back": take_back}
                    await note_command(client, settings.key_prefix, "erased", before=_digest(name), after=after)
                    return erased

        found, left = asyncio.run(work())
    is_done = reported({"boards": found, "left": left, "dry_run": dry_run}, as_json=as_json)
    if not any(msgspec.structs.replace(one, notes=[]) != Erased(board=one.board) for one in found):
        fail("nothing is erased: no board has anything of this actor", 1)
    if is_done:
        return
    _print_erased(found)
    out.print("This is what would be erased." if dry_run else "Erased. Delete older backups, which are not changed.")
    if any(one.entries or one.checkpoints for one in found):
        line = "The entries of the journal go when they are too old, or at once with `live journal compact`."
        out.print(line, soft_wrap=True)
    if left:
        out.print(f"What is left for you: {left}")


def _print_erased(found: list[Erased]) -> None:
    for one in found:
        if one.digests or one.entries or one.checkpoints or one.votes or one.amount:
            entries, checkpoints = counted(one.entries, "entry", "entries"), counted(one.checkpoints, "checkpoint")
            out.print(
                f"{one.board}: {counted(one.digests, 'digest')} in the store, {entries} and {checkpoints} of the "
                f"journal; {counted(one.amount, 'point')} taken back",
            )
        if one.waiting:
            entries = counted(one.waiting, "entry", "entries")
            out.print(f"{one.board}: {entries} in the store, to be searched too")
        for note in one.notes:
            out.print(f"{one.board}: {note}")


def _digest(name: str) -> dict[str, str]:
    """Return a digest of a person for the audit log, and its salt: who knows the name can find the entry."""
    salt = secrets.token_hex(16)
    return {"actor_sha256": hashlib.sha256(f"{salt}{name}".encode()).hexdigest(), "salt": salt}


async def _require_known(client: Store, settings: Settings, criteria: Criteria) -> None:
    """Nothing was found of a producer or an actor. Check that the producer exists, because the name may be a mistake.

    Raises:
        NotFoundError: the producer does not exist, or an actor is given. Nobody knows which actors exist.
    """
    if criteria.actor is not None:
        raise NotFoundError("nothing is taken back: no board has anything of this actor in that period")
    if criteria.producer in ("", LIKES):  # events without an API key, and likes of visitors
        return
    known = (await ProducerStore(client, settings.key_prefix).load()).records
    if criteria.producer not in known:
        raise NotFoundError(f"nothing is taken back: {unknown('producer', criteria.producer or '', known)}")


async def _actor(client: Store, settings: Settings, text: str) -> str:
    """Return the actor as events name it. For a visitor, this is a digest of the cookie.

    Raises:
        Exit: the text is a cookie that this server did not sign, so nothing could be found.
    """
    if not is_cookie(text):
        return text
    visitor = await Visitors(client, settings.key_prefix).read(text)
    if visitor is None:
        fail(
            "the signature of the cookie does not match: this server did not make it, or its secret has changed since. "
            "Nothing was looked for",
            1,
        )
    return visitor


def _print_outcomes(found: list[Outcome], *, dry: bool) -> None:
    verb = "would be taken back" if dry else "taken back"
    for outcome in found:
        if outcome.fault:
            out.print(f"{outcome.board}: NOT {verb}: {outcome.fault}")
        elif outcome.batches:
            votes = f" and {counted(outcome.votes, 'vote')}" if outcome.votes else ""
            points, batches = counted(outcome.amount, "point"), counted(outcome.batches, "batch", "batches")
            out.print(f"{outcome.board}: {points}{votes} of {batches} {verb}")
        for note in outcome.notes:
            out.print(f"{outcome.board}: {note}")
    if not any(outcome.batches or outcome.fault for outcome in found):
        out.print("There is nothing to take back.")
