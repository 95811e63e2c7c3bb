"""`live void`, `live erase`, `live merge` and `live rename`: take back, erase, merge and rename."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated

import msgspec
import typer

from live.auth.visitors import Visitors, is_cookie
from live.cli.context import Context, command, confirm, fail, milliseconds_of, out, several, words_of
from live.domain.event import member_fault
from live.domain.producer import LIKES
from live.domain.text import counted, unknown
from live.errors import NotFoundError, SetupError
from live.maintenance.draining import acknowledging, draining
from live.maintenance.erase import Erased, ErasedMember, Erasing
from live.maintenance.merge import Merged, Merging
from live.maintenance.void import Criteria, Outcome, Voiding, whom_of
from live.store.connection.client import Store
from live.store.registry.audit_trail import command_acting, digest_of_person, without_members
from live.store.registry.producers import ProducerStore

ActorOption = Annotated[
    str | None, typer.Option("--actor", help="The `actor` of votes, or the cookie of a visitor who liked.")
]
BoardOption = Annotated[str | None, typer.Option("--board", help="The only board. Default: all boards.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would happen.")]


@command("store", "data_dir")
async def void(  # noqa: PLR0913 - one parameter per flag
    context: Context,
    *,
    since: Annotated[str, typer.Option("--since", help="The start, such as 2026-11-22T12:00:00Z.")],
    until: Annotated[str | None, typer.Option("--until", help="The end, such as 2026-11-22T13:00:00Z.")] = None,
    producer: Annotated[str | None, typer.Option("--producer", help="The id of an API key.")] = None,
    actor: ActorOption = None,
    board: BoardOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Take back what a producer or an actor contributed in a period, as if these events had never been sent.

    The boards keep running. Viewers see the change, and the journal records it. Nothing is taken back twice: run the
    command again after an interruption, or with another period. It exits with 1 if a board can't take something back,
    or if it finds nothing of an actor or of an unknown producer.

    Example: live void --producer shop --since 2026-11-22T12:00:00Z
    """
    if (producer is None) == (actor is None):
        raise SetupError("give either --producer or --actor")
    first, last = milliseconds_of(since, "--since"), None if until is None else milliseconds_of(until, "--until")
    confirm(f"Take back what {producer or actor!r} contributed since {since}?", yes=yes or dry_run)
    criteria = Criteria(producer=producer, actor=actor, since=first, until=last)
    with context.progress("Taking back") as show, context.journal(writes=False) as database:
        async with context.store() as client:
            if actor is not None:
                criteria.actor = await _actor(client, actor)
            voiding = Voiding(client, context.settings, database, show)
            before = {**whom_of(criteria), "since": since, "until": until}
            async with command_acting(client, "voided", before, dry=dry_run, board=board or "") as entry:
                found = await voiding.void(criteria, board, dry=dry_run)
                entry["after"] = without_members(one for one in found if one.batches or one.fault)
            if not any(outcome.batches or outcome.fault for outcome in found):
                await _require_known(client, criteria)
    if not context.report({"boards": found, "dry_run": dry_run}):
        _print_outcomes(found, dry=dry_run)
    if any(outcome.fault for outcome in found):
        raise typer.Exit(1)


@command("store", "data_dir")
async def erase(
    context: Context,
    *,
    actor: ActorOption = None,
    member: Annotated[str | None, typer.Option("--member", help="A member that is a person.")] = None,
    board: Annotated[list[str] | None, several("--board", "With --actor: a board. Default: all boards.")] = None,
    take_back: Annotated[
        bool, typer.Option("--take-back", help="With --actor: take the votes and likes back as well.")
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Erase a person, who voted or liked (--actor), or who is a member (--member). Servers may run.

    Every digest of an actor is removed from the store and its files, and from the past in SQL. Scores stay as they are
    unless --take-back is given. A member is removed from all boards, titles, the audit log, and the past in SQL.

    If the command is interrupted, run it again. It exits with 1 if nothing was found of the person.

    Example: live erase --actor viewer-7 --take-back
    """
    if (actor is None) == (member is None):
        raise SetupError("give either --actor or --member")
    if member is not None and (board or take_back):
        raise SetupError("--board and --take-back go with --actor: a member is erased from all boards")
    confirm(f"Erase {actor or member!r}? This can't be undone.", yes=yes or dry_run)
    if member is not None:
        await _erase_member(context, member, dry_run=dry_run)
    else:
        await _erase_actor(context, actor or "", words_of(board), take_back=take_back, dry_run=dry_run)


@command("store", "data_dir")
async def merge(
    context: Context,
    *,
    old: Annotated[str, typer.Argument(help="The member whose events go to the other one.")],
    new: Annotated[str, typer.Argument(help="The member that gets them.")],
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Give the events of one member to another member on all boards.

    Use it when two members are spellings of one name. The boards keep running, viewers see an ordinary change, and the
    past stays as it was. Later events for OLD count for OLD. It exits with 1 if a board refuses, or if nothing was
    found. After an interruption, run it again: it continues. A merge can't be undone: look at --dry-run first.

    Example: live merge 'Jon Smith' 'John Smith'
    """
    question = f"Give what {old!r} has to {new!r}? This can't be undone."
    await _move(context, (old, new), question, renames=False, dry_run=dry_run, yes=yes)


@command("store", "data_dir")
async def rename(
    context: Context,
    *,
    old: Annotated[str, typer.Argument(help="The member.")],
    new: Annotated[str, typer.Argument(help="Its new name, which no board knows yet.")],
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Give a member another name on all boards. It keeps its scores, its places among ties, and its title.

    The boards keep running, viewers see an ordinary change, and the past stays as it was. Later events for OLD count
    for OLD, so change the producers at the same time. It exits with 1 if a board refuses, or if nothing was found.
    After an interruption, run it again: it continues. If NEW is a member already, use `live merge`.

    Example: live rename 'Jon Smith' 'John Smith'
    """
    await _move(context, (old, new), f"Rename {old!r} to {new!r}?", renames=True, dry_run=dry_run, yes=yes)


async def _move(
    context: Context, members: tuple[str, str], question: str, *, renames: bool, dry_run: bool, yes: bool
) -> None:
    """Merge or rename the first of two members."""
    old, new = members
    if old == new or (fault := member_fault(new)):
        raise SetupError("OLD and NEW are the same" if old == new else f"NEW: {fault}")
    confirm(question, yes=yes or dry_run)
    async with context.store() as client, acknowledging(client, context.settings):
        found, title = await Merging(client, context.settings, members, renames=renames).run(dry=dry_run)
    if not context.report({"boards": found, **({"title": title} if renames else {}), "dry_run": dry_run}):
        _print_moved(found, title=title, dry=dry_run)
    if not (found or title):
        fail("nothing has changed: no board has this member", 1)
    if any(one.fault for one in found):
        raise typer.Exit(1)


def _score(score: int | None) -> str:
    return "none" if score is None else f"{score:,}"


def _print_moved(found: list[Merged], *, title: bool, dry: bool) -> None:
    for one in found:
        if one.fault:
            out.print(f"{one.board}: NOT changed: {one.fault}", soft_wrap=True)
        else:
            changes = [(member, one.before[member], one.after[member]) for member in one.before]
            parts = [f"{member} {_score(before)} → {_score(after)}" for member, before, after in changes]
            out.print(f"{one.board}: {', '.join(parts + one.besides)}", soft_wrap=True)
    if title:
        out.print("The title.")
    if dry and (found or title):
        out.print("This is what would change.")


@asynccontextmanager
async def _erasing(context: Context, *, dry_run: bool) -> AsyncIterator[tuple[Store, Erasing]]:
    settings = context.settings
    with context.journal(writes=False) as journal:
        async with context.store() as client:
            if dry_run:
                yield client, Erasing(client, settings, journal)
                return
            async with draining(client, settings) as (shared, drainer):
                yield client, Erasing(client, settings, shared, drainer)


async def _erase_actor(
    context: Context, actor: str, boards: tuple[str, ...], *, take_back: bool, dry_run: bool
) -> None:
    async with _erasing(context, dry_run=dry_run) as (client, erasing):
        name = await _actor(client, actor)
        async with command_acting(client, "erased", digest_of_person(name, "actor"), dry=dry_run) as entry:
            found, left = await erasing.erase(name, boards, take_back=take_back, dry=dry_run)
            entry["after"] = {"boards": [one.board for one in found], "take_back": take_back}
    is_done = context.report({"boards": found, "left": left, "dry_run": dry_run})
    if not any(one.is_known or one.waiting for one in found):
        fail("nothing is erased: no board has anything of this actor", 1)
    if not is_done:
        _print_erased(found, left, dry_run=dry_run)


async def _erase_member(context: Context, member: str, *, dry_run: bool) -> None:
    async with (
        _erasing(context, dry_run=dry_run) as (client, erasing),
        command_acting(client, "erased", digest_of_person(member, "member"), dry=dry_run) as entry,
    ):
        found, left = await erasing.erase_member(member, dry=dry_run)
        entry["after"] = {"boards": [one.board for one in found.boards if one.is_known]}
    is_done = context.report({**msgspec.to_builtins(found), "left": left, "dry_run": dry_run})
    if not found.is_known:
        fail("nothing is erased: no board has this member, and it has no title", 1)
    if not is_done:
        _print_erased(found.boards, left, title=found.title, dry_run=dry_run)


def _print_erased(found: Sequence[Erased | ErasedMember], left: str, *, title: bool = False, dry_run: bool) -> None:
    for one in found:
        if one.is_known:
            out.print(f"{one.board}: {_erased(one)}")
        if one.waiting:
            entries = counted(one.waiting, "entry", "entries")
            out.print(f"{one.board}: the command would also search {entries} in the store")
        for note in one.notes if isinstance(one, Erased) else ():
            out.print(f"{one.board}: {note}")
    if title:
        out.print("The title.")
    out.print("This is what would be erased." if dry_run else "Erased. Delete older backups, which are not changed.")
    if left:
        out.print(f"You still have to do this: {left}")


def _erased(one: Erased | ErasedMember) -> str:
    entries, checkpoints = counted(one.entries, "entry", "entries"), counted(one.checkpoints, "checkpoint")
    if isinstance(one, ErasedMember):
        here = "in the store, " if one.in_store else ""
        return f"{here}{entries}, {checkpoints} and {counted(one.periods, 'period')} of the journal"
    held, back = counted(one.digests, "digest"), counted(one.events, "event")
    return f"{held} in the store, {entries} and {checkpoints} of the journal; {back} taken back"


async def _require_known(client: Store, criteria: Criteria) -> None:
    """Check that a producer exists if nothing was found of it, because its name may be a mistake."""
    if criteria.actor is not None:
        raise NotFoundError("nothing is taken back: no board has anything of this actor in that period")
    if criteria.producer in ("", LIKES):  # neither anonymous producers nor visitors have an API key
        return
    known = (await ProducerStore(client).load()).records
    if criteria.producer not in known:
        raise NotFoundError(f"nothing is taken back: {unknown('producer', criteria.producer or '', known)}")


async def _actor(client: Store, text: str) -> str:
    """Return the `actor` that events have. For the cookie of a visitor, this is a digest."""
    if not is_cookie(text):
        return text
    visitor = await Visitors(client).read(text)
    if visitor is None:
        fail(
            "the signature of the cookie does not match: this server did not make it, or its secret has changed since. "
            "The command has searched nothing",
            1,
        )
    return visitor


def _print_outcomes(found: list[Outcome], *, dry: bool) -> None:
    verb = "would be taken back" if dry else "taken back"
    for outcome in found:
        if outcome.fault:
            out.print(f"{outcome.board}: NOT {verb}: {outcome.fault}")
        elif outcome.batches:
            events, members = counted(outcome.events, "event"), counted(outcome.members, "member")
            votes = f", {counted(outcome.votes, 'vote')} among them," if outcome.votes else ""
            out.print(f"{outcome.board}: {events}{votes} {verb}. The scores of {members} change")
            for one in outcome.examples:
                out.print(f"  {one.member}: {_score(one.before)} → {_score(one.after)}")
        for note in outcome.notes:
            out.print(f"{outcome.board}: {note}")
    if not any(outcome.batches or outcome.fault for outcome in found):
        out.print("There is nothing to take back.")
