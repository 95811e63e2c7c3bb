"""The page that takes contributions of a producer or an actor back: first as a dry run, which changes nothing.

The work is done in a separate process, so that viewers and producers do not wait for it.
"""

import asyncio
import shlex
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Final

import msgspec
from starlette.responses import Response

from live.auth.visitors import is_cookie
from live.domain.board import Board, Boards
from live.domain.event import rfc3339
from live.errors import EpochLostError, ProblemError, SetupError, StoreUnavailableError
from live.journal.database import existing_journal
from live.maintenance.void import Criteria, Outcome, Voiding, whom_of
from live.network.parameters import VALID_TIME, time_of
from live.settings import Settings
from live.store.connection.embedded import opened_store
from live.store.registry.audit_trail import acting
from live.system.processes import CHILDREN, follow_parent
from live.web.admin.admin_page import NO_FORM, AdminPage, Desk, Form

_FIELDS: Final = ("producer", "actor", "since", "until", "board")
_LONGEST: Final = 1024  # characters of a field
_HOUR: Final = 3600
_PATIENCE: Final = 60.0  # seconds
_FREE: Final = threading.Lock()  # held during the work: a process of the server starts one other process at a time


class _Work(msgspec.Struct, frozen=True):
    """What to take back."""

    settings: Settings
    in_file: Sequence[Board]
    criteria: Criteria
    board: str | None
    is_dry: bool


class _Failed(msgspec.Struct, frozen=True):
    """The reason why the work failed, and whether the store was unavailable."""

    why: str
    is_store: bool


async def show(
    desk: Desk,
    error: Exception | None = None,
    form: Form = NO_FORM,
    found: Sequence[Outcome] = (),
    *,
    is_dry: bool = True,
) -> Response:
    """Show the form and what was found. The fields have their earlier values, or the values in the query of a link."""
    form = form or {name: desk.visit.query[name][:_LONGEST] for name in _FIELDS if desk.visit.query.get(name)}
    filled = {name: form.get(name, "") for name in _FIELDS}
    filled["since"] = filled["since"] or rfc3339(round(time.time() - _HOUR), 1, "seconds")
    shown = [one for one in found if one.batches or one.fault or one.notes]
    if desk.is_limited:
        shown = [one for one in shown if desk.may(one.board)]
    return await desk.show(
        "void",
        error,
        filled=filled,
        boards=sorted(ledger.state.board.id for ledger in desk.ledgers()),
        found=shown,
        members=sum(one.members for one in found),
        batches=sum(one.batches for one in found),
        is_tried=bool(form.get("act")) and error is None,
        is_dry=is_dry,
        command=_command(filled, is_dry=is_dry),
        longest=_LONGEST,
    )


def _time_of(form: Form, name: str) -> int:
    try:
        return time_of(form.get(name, "").strip())
    except ValueError:
        raise ProblemError("parameter_invalid", f"`{name}` must be {VALID_TIME}") from None


async def attempt(desk: Desk, form: Form) -> Response:
    """Show what would be taken back, or take it back, as the form says."""
    is_dry = form["act"] == "try"
    producer, actor = form.get("producer", "").strip(), form.get("actor", "").strip()
    if bool(producer) == bool(actor):
        raise ProblemError("parameter_invalid", "name either a producer or an actor")
    until = form.get("until", "").strip()
    criteria = Criteria(
        producer=producer or None,
        actor=actor or None,
        since=_time_of(form, "since"),
        until=_time_of(form, "until") if until else None,
    )
    board = form.get("board", "").strip()
    if board or desk.is_limited:
        await desk.ledger(board)
    if criteria.actor is not None and is_cookie(criteria.actor):
        criteria.actor = await desk.live.visitors.read(criteria.actor)
        if criteria.actor is None:
            raise ProblemError("parameter_invalid", "this server did not sign that cookie")
    in_file = list(desk.live.board_admin.in_file.by_id.values())
    work = _Work(desk.live.settings, in_file, criteria, board or None, is_dry)
    if is_dry:
        found = await _void(work)
    else:
        before = {**whom_of(criteria), "since": form.get("since"), "until": form.get("until")}
        async with acting(desk.live.trail, desk.who, "voided", before, board=board) as entry:
            found = await _void(work)
            entry["after"] = {"boards": [one for one in found if one.batches or one.fault]}
    return await show(desk, form=form, found=found, is_dry=is_dry)


def _command(filled: Form, *, is_dry: bool) -> str:
    words = ["live", "void"]
    for name in _FIELDS:
        if filled[name]:
            words += [f"--{name}", filled[name]]
    return shlex.join([*words, *(["--dry-run"] if is_dry else ["--yes"])])


async def _void(work: _Work) -> list[Outcome]:
    """Take contributions back in another process, which ends with the request. Changes until then stay.

    Raises:
        ProblemError: other work is under way, the work takes too long, or it failed.
        StoreUnavailableError: the store is unavailable.
    """
    if not _FREE.acquire(blocking=False):
        raise ProblemError("overloaded", "the server already does such work for another administrator", retry_after=10)
    try:
        ours, theirs = CHILDREN.Pipe(duplex=False)
        process = CHILDREN.Process(target=_begin, args=(theirs, work), daemon=True)
        await asyncio.to_thread(process.start)
        theirs.close()
        answer = asyncio.create_task(asyncio.to_thread(_receive, ours))
        try:
            found = await asyncio.shield(answer)
        finally:
            process.kill()
            with suppress(EOFError, OSError):
                await answer
            ours.close()
            await asyncio.to_thread(process.join)
    except EOFError:
        raise ProblemError("internal_error", "the process that did the work has ended") from None
    finally:
        _FREE.release()
    if isinstance(found, _Failed):
        raise StoreUnavailableError(found.why) if found.is_store else ProblemError("board_invalid", found.why)
    result: list[Outcome] = found
    return result


def _receive(pipe: Connection) -> Any:  # noqa: ANN401 - what the work returns
    if pipe.poll(_PATIENCE):
        return pipe.recv()
    return _Failed(f"this takes longer than {_PATIENCE:.0f} s: use the command", is_store=False)


def _begin(pipe: Connection, work: _Work) -> None:
    follow_parent()
    try:
        result: list[Outcome] | _Failed = asyncio.run(_do(work))
    except SetupError as error:
        result = _Failed(str(error), is_store=False)
    except (StoreUnavailableError, EpochLostError) as error:
        result = _Failed(str(error), is_store=True)
    pipe.send(result)


async def _do(work: _Work) -> list[Outcome]:
    with existing_journal(work.settings, writes=False) as database:
        async with opened_store(work.settings, start=False) as client:
            voiding = Voiding(client, work.settings, Boards(work.in_file), database, lambda *_: None)
            return await voiding.void(work.criteria, work.board, dry=work.is_dry)


PAGE: Final = AdminPage(path="void", show=show, acts={"try": attempt, "void": attempt})
