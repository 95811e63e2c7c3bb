"""The page that takes events of a producer or an actor back: first as a dry run, which changes nothing."""

import shlex
import time
from collections.abc import Sequence
from typing import Final

from starlette.responses import Response

from live.auth.visitors import is_cookie
from live.domain.event import rfc3339
from live.errors import ProblemError
from live.http.parameters import VALID_TIME, time_of
from live.maintenance.void import Criteria, Outcome, whom_of
from live.store.registry.audit_trail import acting, without_members
from live.web.admin.admin_page import AdminPage, Desk, Form
from live.web.elsewhere import void

_FIELDS: Final = ("producer", "actor", "since", "until", "board")
_LONGEST: Final = 1024  # characters of a field
_HOUR: Final = 3600


async def _show(desk: Desk, found: Sequence[Outcome] = (), *, is_dry: bool = True) -> Response:
    """Show the form and what was found. The fields have their earlier values, or the values in the query of a link."""
    form = desk.form or {name: desk.visit.query[name][:_LONGEST] for name in _FIELDS if desk.visit.query.get(name)}
    filled = {name: form.get(name, "") for name in _FIELDS}
    filled["since"] = filled["since"] or rfc3339(round(time.time() - _HOUR), 1, "seconds")
    shown = [one for one in found if one.batches or one.fault or one.notes]
    if desk.producer.is_limited:
        shown = [one for one in shown if desk.may(one.board)]
    return await desk.show(
        "void",
        filled=filled,
        boards=desk.board_ids(),
        found=shown,
        members=sum(one.members for one in found),
        batches=sum(one.batches for one in found),
        is_tried=bool(form.get("act")) and desk.error is None,
        is_dry=is_dry,
        command=_command(filled, is_dry=is_dry),
        longest=_LONGEST,
    )


def _time_of(form: Form, name: str) -> int:
    try:
        return time_of(form.get(name, "").strip())
    except ValueError:
        raise ProblemError("parameter_invalid", f"`{name}` must be {VALID_TIME}") from None


async def _attempt(desk: Desk) -> Response:
    form = desk.form
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
    if board or desk.producer.is_limited:
        await desk.ledger(board)
    if criteria.actor is not None and is_cookie(criteria.actor):
        criteria.actor = await desk.live.visitors.read(criteria.actor)
        if criteria.actor is None:
            raise ProblemError("parameter_invalid", "this server did not sign that cookie")
    work = desk.live.settings, criteria, board or None
    if is_dry:
        found = await void(*work, dry=is_dry)
    else:
        before = {**whom_of(criteria), "since": form.get("since"), "until": form.get("until")}
        async with acting(desk.live.trail, desk.producer.id, "voided", before, board=board) as entry:
            found = await void(*work, dry=is_dry)
            entry["after"] = without_members(one for one in found if one.batches or one.fault)
    return await _show(desk, found, is_dry=is_dry)


def _command(filled: Form, *, is_dry: bool) -> str:
    words = ["live", "void"]
    for name in _FIELDS:
        if filled[name]:
            words += [f"--{name}", filled[name]]
    return shlex.join([*words, *(["--dry-run"] if is_dry else ["--yes"])])


PAGE: Final = AdminPage(path="void", show=_show, acts={"try": _attempt, "void": _attempt})
