"""The page of events: the latest accepted and refused events, and a test event."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from starlette.responses import Response

from live.domain.event import Answer, IncomingEvent, event_fault
from live.domain.validation_messages import in_words
from live.errors import REFUSALS, ProblemError
from live.journal.past.contributors import LatestEvents, latest_events
from live.web.admin.admin_page import AdminPage, ApiCall, Desk, Form

_FILTERS: Final = ("board", "type", "producer", "code")
_LONGEST: Final = 128  # characters of a filter
_SHOWN: Final = 50
_MOST_BOARDS: Final = 20  # boards whose accepted events are read


async def _show(desk: Desk, answer: Answer | None = None) -> Response:
    """Show the newest events that the API key includes and the filter takes, and the `answer` to a test event."""
    query = desk.visit.query
    wanted = {name: query[name][:_LONGEST].strip() for name in _FILTERS if query.get(name, "").strip()}
    accepted, why = await _accepted(desk, wanted)
    types = {ledger.state.board.id: sorted(ledger.state.board.source) for ledger in desk.ledgers()}
    return await desk.show(
        "events",
        boards=sorted(types),
        types=types,
        filters=_FILTERS,
        wanted=wanted,
        longest=_LONGEST,
        codes=sorted(REFUSALS),
        accepted=accepted,
        why=why,
        refused=[
            event
            for event in await desk.live.intake.refusals.look()
            if (not desk.producer.is_limited or (event.board and desk.may(event.board)))
            and all(getattr(event, name) == text for name, text in wanted.items())
        ][:_SHOWN],
        meanings=REFUSALS,
        form=desk.form,
        answer=answer,
        trial=ApiCall("POST", "/v1/events", _body(desk.form) or {"key": "MEMBER"}),
    )


async def _accepted(desk: Desk, wanted: Form) -> tuple[Sequence[LatestEvents], str]:
    """Return the accepted events, or why they are not known. A filter by code leaves out all of them.

    The journal has no types, so a type selects the boards that take it.
    """
    if desk.live.past is None or "code" in wanted:
        return [], ""
    boards = (ledger.state.board for ledger in desk.ledgers())
    some = sorted(
        board.id
        for board in boards
        if wanted.get("board") in {None, board.id} and ("type" not in wanted or wanted["type"] in board.source)
    )[:_MOST_BOARDS]
    found, why = await desk.from_journal(desk.live.past.run(desk.visit.requester.network, latest_events, some))
    producer = wanted.get("producer")
    return [event for event in found or () if producer is None or producer in event.producers][:_SHOWN], why


async def _send(desk: Desk) -> Response:
    desk.producer.require("post")
    try:
        event = msgspec.convert(_body(desk.form), IncomingEvent)
    except msgspec.ValidationError as error:
        raise ProblemError("malformed_body", in_words(error)) from None
    fault = event_fault(event)
    if fault is not None:
        raise ProblemError("record_invalid", fault[1])
    return await _show(desk, await desk.live.intake.count(desk.producer, event))


def _body(form: Form) -> dict[str, Any]:
    body: dict[str, Any] = {name: form[name].strip() for name in ("board", "type", "key", "actor") if form.get(name)}
    if form.get("amount", "").strip():
        try:
            body["amount"] = int(form["amount"])
        except ValueError:
            raise ProblemError("record_invalid", "the amount must be a whole number") from None
    return body


PAGE: Final = AdminPage(path="events", name="events", show=_show, acts={"send": _send})
