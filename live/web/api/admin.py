"""Routes that change boards, contestants, records and items, or take an event back, and the audit log."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from live.domain.event import MAX_DETAIL, MAX_SCORE, Identities, IncomingEvent, event_fault, member_fault, milliseconds
from live.domain.item import Item, Title, Url, item_faults
from live.domain.meaning import IMAGE, ITEMS, TITLE, URL, says
from live.domain.packing import Packing
from live.domain.producer import ANONYMOUS, LIKES, Principal
from live.domain.reader import SERVER, BoardScope, Reader
from live.domain.text import text_fault
from live.domain.validation_messages import in_words
from live.errors import REFUSALS, ProblemError, StoreUnavailableError
from live.http.parameters import Parameters
from live.maintenance.rules import RuleChange
from live.maintenance.void import Criteria, Outcome
from live.store.board.ledger import Ledger
from live.store.board.write.correction import Corrected, Correction, changes_of_union, correct
from live.store.registry.audit_trail import (
    ORIGIN,
    ActOrigin,
    AuditEntry,
    acting,
    digest_of_person,
    entry_of,
    without_members,
)
from live.web.api.boards import summary_of
from live.web.elsewhere import count_again, look, void
from live.web.middleware import authorization_of, requester_of
from live.web.parts import Live, live_of
from live.web.responses import NOT_KEPT, NOT_STORED, json_response

_S = TypeVar("_S", bound=msgspec.Struct)

_MOST_LEVELS: Final = 32  # levels of JSON; no board or contestant needs more, and every JSON parser accepts so many
_TOO_DEEP: Final = f"the JSON is nested deeper than {_MOST_LEVELS} levels"
MAX_ENTRIES: Final = 1000
_JSON: Final = ("application/json", "application/merge-patch+json", "")
_REQUEST_ID: Final = re.compile(r"[!-~]{1,64}")
_SHOWN_FAULTS: Final = 20
_SHOWN_ITEMS: Final = 20  # titles in one entry of the audit log when many are set at once
MOST_WRITTEN: Final = 1000  # items
_MOST_REASON: Final = 500  # characters


ACTING: Final = "live.acting"
"""The ASGI extension with the administrator for whom a page of this server sends the request."""


async def admin_of(request: Request) -> Principal:
    """Return the administrator. If the path names a board, the API key must include this board."""
    live = live_of(request)
    producer: Principal | None = request.scope["extensions"].get(ACTING)
    if producer is None:
        producer = live.authenticator.authorize(authorization_of(request.scope), requester_of(request), "admin")
        await live.rate_limiter.admit(producer)
    note_origin(request)
    if "board" in request.path_params:
        producer.require_board(request.path_params["board"])
    return producer


def note_origin(request: Request) -> None:
    """Remember the origin of a request, for the entries that this task adds to the audit log."""
    request_id = request.headers.get("x-request-id", "")
    ORIGIN.set(ActOrigin(requester_of(request).address, request_id if _REQUEST_ID.fullmatch(request_id) else ""))


async def unlimited_admin_of(request: Request, why: str = "titles appear on all of them") -> Principal:
    """Return the administrator, whose API key is for all boards. `why` is the reason in a refusal."""
    producer = await admin_of(request)
    if producer.is_limited:
        raise ProblemError("scope_forbidden", f"the API key is limited to some boards, and {why}")
    return producer


async def _read_body(request: Request) -> bytes:
    return await live_of(request).intake.collect(request.stream())


async def read_struct(
    request: Request, kind: type[_S], expected: str, code: str, *, unread: str = "malformed_body"
) -> _S:
    """Read a struct from the JSON object in the body of a request, or refuse it with `code`.

    `expected` tells clients what to send. A body that is no JSON object is refused with `unread`.
    """
    value = _read_object(await _read_body(request), unread, expected)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ProblemError(code, f"{expected}: {in_words(error, kind.__struct_encode_fields__)}") from None


def _read_object(body: bytes, code: str, expected: str) -> dict[str, Any]:
    """Decode the JSON object of a body, nested at most 32 levels, or refuse it with `code` and `expected`."""
    try:
        value = msgspec.json.decode(body, type=dict[str, Any])
    except RecursionError:
        raise ProblemError("malformed_body", _TOO_DEEP) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProblemError(code, f"{expected}: {error}") from None
    level: list[Any] = [value]
    for _ in range(_MOST_LEVELS):  # one level after the other, because recursion could exceed Python's limit
        inner = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [each for several in inner for each in several]
        if not level:
            json.loads(body, object_pairs_hook=_require_unique)
            return value
    raise ProblemError("malformed_body", _TOO_DEEP)


def _require_unique(pairs: Sequence[tuple[str, object]]) -> None:
    """Refuse a field that is named twice, because nobody knows which value was meant."""
    names = Counter(name for name, _ in pairs)
    if len(names) < len(pairs):
        raise ProblemError("malformed_body", f"the field `{names.most_common(1)[0][0][:MAX_DETAIL]}` is there twice")


class AuditLog(msgspec.Struct, frozen=True):
    """The audit log: who did what as an administrator, newest first."""

    trail: Annotated[Sequence[AuditEntry], says("Actions of administrators, newest first.")]


class AuditParameters(Parameters, frozen=True, kw_only=True):
    """How much of the audit log is read."""

    limit: Annotated[int, says("Maximum number of entries.", ge=1, le=MAX_ENTRIES)] = 100


async def get_trail(request: Request, query: AuditParameters) -> Response:
    """Read the audit log.

    Returns the actions of administrators, newest first. An API key that is limited to some boards gets only the entries
    of these boards.
    """
    live, producer = live_of(request), await admin_of(request)
    return json_response(AuditLog(await visible_entries(live, producer, query.limit)), NOT_KEPT)


async def visible_entries(live: Live, producer: Principal, limit: int) -> list[AuditEntry]:
    """Return the newest entries that an administrator may see, newest first."""
    entries = [entry for entry in await live.trail.last(limit) if producer.refusal(entry.board) is None]
    return entries if producer.boards is None else [_without_parts(entry, producer.boards) for entry in entries]


def _without_parts(entry: AuditEntry, boards: BoardScope) -> AuditEntry:
    """Leave out the parts of a union that an API key does not include."""

    def visible(choices: object) -> object:
        if not isinstance(choices, dict) or not isinstance(choices.get("union"), list):
            return choices
        parts = [part for part in choices["union"] if part in boards]
        if len(parts) == len(choices["union"]):
            return choices
        return {name: value for name, value in choices.items() if name != "weights"} | {"union": parts}

    return msgspec.structs.replace(entry, before=visible(entry.before), after=visible(entry.after))


async def _note(request: Request, producer: Principal, what: str, **fields: Any) -> None:  # noqa: ANN401 - of an entry
    await live_of(request).trail.add(entry_of(producer.id or ANONYMOUS, what, **fields))


async def put_board(request: Request) -> Response:
    """Create a board, or replace its choices.

    Omitted choices get their defaults.
    """
    live, producer = live_of(request), await admin_of(request)
    board = request.path_params["board"]
    choices = await _choices(request)
    created = await live.board_admin.put(board, choices, producer.id or ANONYMOUS, producer)
    return await _definition(live, board, producer, HTTPStatus.CREATED if created else HTTPStatus.OK)


class PatchParameters(Parameters, frozen=True, kw_only=True):
    """Whether the board is changed."""

    dry: Annotated[bool, says("Change nothing, and return what the change would do.")] = False


async def patch_board(request: Request, query: PatchParameters) -> Response:
    """Change some choices of a board.

    Omitted choices stay unchanged. If the data has another meaning by the new choices, the server counts the events of
    the board again, from its journal: until then, the board stays as it is.
    """
    live, producer = live_of(request), await admin_of(request)
    board, choices, who = request.path_params["board"], await _choices(request), producer.id or ANONYMOUS
    ruling = await live.board_admin.ruling(board, choices, producer)
    if query.dry:
        done = RuleChange(board=board, counts_again=False)
        return json_response(
            await count_again(live.settings, ruling, dry=True) if ruling.counts_again else done, NOT_KEPT
        )
    if ruling.counts_again:
        await live.board_admin.rule(board, choices, who, producer, partial(count_again, live.settings, dry=False))
    else:
        await live.board_admin.patch(board, choices, who, producer)
    return await _definition(live, board, producer, HTTPStatus.OK)


async def delete_board(request: Request) -> Response:
    """Delete a board.

    This deletes everything that the board owns.
    """
    live, producer = live_of(request), await admin_of(request)
    await live.board_admin.delete(request.path_params["board"], producer.id or ANONYMOUS)
    await live.registry.refresh(has_changed=True)
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=NOT_STORED)


async def _choices(request: Request) -> dict[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() not in _JSON:
        raise ProblemError("unsupported_media_type", "send application/json")
    return _read_object(
        await _read_body(request), "malformed_body", "the body must be one JSON object with the choices"
    )


async def _definition(live: Live, board: str, producer: Principal, status: HTTPStatus) -> Response:
    """Respond with the board, once this process and the other processes run it."""
    await live.registry.refresh(has_changed=True)
    reader = Reader(producer.opens)
    ledger = live.registry.ledgers.find(board, reader)
    if ledger is None:
        raise StoreUnavailableError(f"board {board} can't be run here", unknown=True)
    await live.registry.until_known()
    shown = summary_of(ledger.state.board, live.registry.ledgers, reader)
    location = ((b"location", f"{live.settings.root_path}/v1/boards/{board}".encode()),)
    return json_response(shown, NOT_KEPT, location if status == HTTPStatus.CREATED else (), status)


class RecordChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change of a record: whether it is `hidden`, or its score.

    To correct a score, `add` to it or set it to `score`, and give a `reason`. Where a score has fields, both can be
    fields.
    """

    hidden: Annotated[
        bool | UnsetType, says("Whether the record is removed from the ranking. Its events still count.")
    ] = UNSET
    add: Annotated[
        Annotated[int, Meta(ge=-MAX_SCORE, le=MAX_SCORE)] | dict[str, int] | UnsetType,
        says("What to add to the score."),
    ] = UNSET
    score: Annotated[
        Annotated[int, Meta(ge=-MAX_SCORE, le=MAX_SCORE)] | dict[str, int] | UnsetType, says("The new score.")
    ] = UNSET
    reason: Annotated[
        Annotated[str, Meta(min_length=1, max_length=_MOST_REASON)] | UnsetType,
        says("Why the score is corrected. The journal keeps it."),
    ] = UNSET
    time: Annotated[
        Annotated[datetime, Meta(tz=True)] | UnsetType, says("A time in the slot or period to correct. Default: now.")
    ] = UNSET

    @property
    def fault(self) -> str | None:
        """The reason why these fields do not go together, or None."""
        if sum(each is not UNSET for each in (self.hidden, self.add, self.score)) != 1:
            return "give one of `hidden`, `add` and `score`"
        if self.hidden is not UNSET:
            return None if self.time is UNSET else "`time` goes with `add` or `score`"
        if self.add == 0:
            return "`add` must not be 0"
        if self.reason is UNSET:
            return "a correction needs a `reason`"
        fault = text_fault(self.reason)
        return fault and f"`reason` {fault}"


async def put_record(request: Request) -> Response:
    """Register a contestant.

    A second request replaces the metadata.
    """
    producer, ledger, member = await _administered(request)
    _require_contest(ledger)
    metadata = await _read_body(request)
    _read_object(metadata, "record_invalid", "the body must be one JSON object, the metadata of the member")
    fault = event_fault(IncomingEvent(member=member, metadata=msgspec.Raw(metadata)))
    if fault is not None:
        raise ProblemError("record_invalid", fault[1])
    before = await ledger.moderation.metadata(member)
    created = await ledger.moderation.enter(member, metadata)
    board, after = ledger.state.board.id, msgspec.Raw(metadata)
    await _note(request, producer, "registered", board=board, key=member, before=before, after=after)
    return Response(status_code=HTTPStatus.CREATED if created else HTTPStatus.NO_CONTENT, headers=NOT_STORED)


async def patch_record(request: Request) -> Response:
    """Hide a record, show it again, or correct its score.

    The events of a hidden record still count. A correction has a reason, which the journal keeps. It changes no
    metadata.
    """
    producer, ledger, member = await _administered(request)
    board = ledger.state.board.id
    expected = 'the body must be like {"hidden": true} or {"add": -5, "reason": "counted twice"}'
    wanted = await read_struct(request, RecordChange, expected, "record_invalid", unread="record_invalid")
    if wanted.fault:
        raise ProblemError("record_invalid", wanted.fault)
    if wanted.hidden is UNSET:
        corrected = await _correct(live_of(request), ledger, member, wanted)
        at = {} if wanted.time is UNSET else {"time": wanted.time.isoformat()}
        before = None if corrected.before is None else {"score": corrected.before, **at}
        if corrected.before != corrected.score:
            await _note(
                request, producer, "corrected", board=board, key=member, reason=wanted.reason or "",
                before=before, after={"score": corrected.score, **at},
            )  # fmt: skip
        return json_response(corrected, NOT_KEPT)
    was_hidden = await ledger.moderation.is_hidden(member)
    await ledger.moderation.hide(member, hidden=wanted.hidden)
    if was_hidden is not wanted.hidden:
        await _note(
            request, producer, "hidden" if wanted.hidden else "shown", board=board, key=member,
            reason=wanted.reason or "",
        )  # fmt: skip
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=NOT_STORED)


async def _correct(live: Live, ledger: Ledger, member: str, wanted: RecordChange) -> Corrected:
    """Add the difference to the unions of the board."""
    board = ledger.state.board
    if board.union:
        parts = ", ".join(board.union) if not board.is_private else "its parts"
        raise ProblemError("correction_refused", f"the board is a union; correct the boards that it adds up: {parts}")
    correction = Correction(
        member=member,
        reason="" if wanted.reason is UNSET else wanted.reason,
        add=None if wanted.add is UNSET else _number_of(wanted.add, board.sums),
        score=None if wanted.score is UNSET else _number_of(wanted.score, board.packing),
        time=None if wanted.time is UNSET else milliseconds(wanted.time),
    )
    outcomes = await correct(ledger.writer, [correction])
    for union, weight in live.registry.boards.with_unions([board])[1:]:
        added = changes_of_union([correction], outcomes, weight, zeros=board.zeros)
        found = live.registry.ledgers.find(union.id, SERVER)
        if added and found is not None:
            _corrected(await correct(found.writer, added))
    return _corrected(outcomes)


def _number_of(value: int | dict[str, int], packing: Packing | None) -> int:
    if isinstance(value, int):
        return value
    if packing is None:
        raise ProblemError("record_invalid", "`add` or `score` must be a whole number on this board")
    try:
        return packing.pack(value)
    except ValueError as error:
        raise ProblemError("record_invalid", str(error)[:MAX_DETAIL]) from None


def _corrected(outcomes: Sequence[Corrected | str]) -> Corrected:
    (outcome,) = outcomes
    if isinstance(outcome, str):
        raise ProblemError("correction_refused", REFUSALS[outcome])
    return outcome


async def delete_record(request: Request) -> Response:
    """Withdraw a contestant.

    A contestant with votes can't be withdrawn.
    """
    producer, ledger, member = await _administered(request)
    _require_contest(ledger)
    before = await ledger.moderation.metadata(member)
    await ledger.moderation.withdraw(member)
    await _note(request, producer, "withdrawn", board=ledger.state.board.id, key=member, before=before)
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=NOT_STORED)


async def _administered(request: Request) -> tuple[Principal, Ledger, str]:
    producer = await admin_of(request)
    ledger = await live_of(request).use(request.path_params["board"], Reader(producer.opens))
    member: str = request.path_params["key"]
    fault = member_fault(member)
    if fault is not None:
        raise ProblemError("record_invalid", fault)
    return producer, ledger, member


def _require_contest(ledger: Ledger) -> None:
    if ledger.state.board.votes is None:
        raise ProblemError("board_open_to_all", "only a board with `votes` registers members")


class EventParameters(Parameters, frozen=True, kw_only=True):
    """Which event with the id is meant. Ids of different producers and sources never collide."""

    producer: Annotated[str, says("Id of the API key that sent the event. Default: sent without an API key.")] = ""
    source: Annotated[str, says("The `source` of the event, if it has one.")] = ""


async def delete_event(request: Request, query: EventParameters) -> Response:
    """Take one event back.

    From then on, the board holds what it would hold if the event had never been sent. On a board that keeps the best
    amount of each member, the second best returns. The event stays in the journal, so `as_of` shows the past as it was.
    If the event is sent again, it is a duplicate. A board that counts the same event keeps it: take it back there too.
    """
    producer, live = await admin_of(request), live_of(request)
    board, event = request.path_params["board"], request.path_params["id"]
    ledger = await live.use(board, Reader(producer.opens))
    identity = Identities(query.producer).of(IncomingEvent(member="", id=event, source=query.source))
    criteria = Criteria(identity=identity)
    _require_events(await look(live.settings, criteria, ledger.state.board.id))
    before = _named(event, query)
    async with acting(live.trail, producer.id or ANONYMOUS, "voided", before, board=board) as entry:
        (found,) = await void(live.settings, criteria, ledger.state.board.id, dry=False)
        _require_events(found)
        entry["after"] = without_members([found])
    return json_response(found, NOT_KEPT)


def _named(event: str, query: EventParameters) -> dict[str, str]:
    """Return the name of an event for the audit log. A like names a visitor and a member, so it has only a digest."""
    producer = {"producer": query.producer}
    if query.producer == LIKES:
        return {**producer, **digest_of_person(f"{query.source}\n{event}", "event")}
    source = digest_of_person(query.source, "source") if query.source else {}
    return {**producer, "id": event, **source}


def _require_events(found: Outcome) -> None:
    if found.fault or (found.notes and not found.events):
        raise ProblemError("event_kept", found.fault or ". ".join(found.notes))
    if not found.events:
        raise ProblemError(
            "event_not_found",
            "the board has counted no such event, or it was taken back. Look at `producer` and `source`",
        )


class ItemChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The title of a member, with an optional link (`url`) and picture (`image`)."""

    title: Annotated[Title, TITLE]
    url: Annotated[Url | None, URL] = None
    image: Annotated[Url | None, IMAGE] = None


class ItemChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The titles of several members."""

    items: Annotated[Sequence[Item], Meta(min_length=1, max_length=MOST_WRITTEN), ITEMS]


async def put_item(request: Request) -> Response:
    """Give a member a title.

    Pages show the title instead of the member, on all boards. This needs an API key for all boards.
    """
    producer = await unlimited_admin_of(request)
    expected = 'the body must be like {"title": "A post"}'
    choice = await read_struct(request, ItemChoice, expected, "item_invalid")
    return await _put(request, producer, [Item(request.path_params["key"], choice.title, choice.url, choice.image)])


async def put_items(request: Request) -> Response:
    """Give several members titles.

    Stores all titles, or none if one is invalid.
    """
    producer = await unlimited_admin_of(request)
    expected = 'the body must be like {"items": [{"key": "a", "title": "A post"}]}'
    items = (await read_struct(request, ItemChanges, expected, "item_invalid")).items
    if len({item.member for item in items}) < len(items):
        raise ProblemError("item_invalid", "`items` names a member twice")
    return await _put(request, producer, items)


async def delete_item(request: Request) -> Response:
    """Delete the title of a member.

    This succeeds even if the member has no title.
    """
    producer = await unlimited_admin_of(request)
    live, member = live_of(request), request.path_params["key"]
    before = (await live.items.of([member])).get(member)
    await live.items.delete(member)
    await _note(request, producer, "untitled", key=member, before=before)
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=NOT_STORED)


async def _put(request: Request, producer: Principal, items: Sequence[Item]) -> Response:
    live = live_of(request)
    faults = [f"{item.member!r}: {fault}" for item in items for fault in item_faults(item, live.settings.image_hosts)]
    if faults:
        raise ProblemError("item_invalid", "\n".join(faults[:_SHOWN_FAULTS]))
    shown = items[:_SHOWN_ITEMS]  # the audit log shows some titles; the journal has the earlier titles of all members
    known = await live.items.of([item.member for item in shown])
    await live.items.put(items)
    if len(items) == 1:
        member = items[0].member
        await _note(request, producer, "titled", key=member, before=known.get(member), after=items[0])
    else:
        after = {"count": len(items), "items": shown}
        await _note(request, producer, "titled", before={"items": list(known.values())}, after=after)
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=NOT_STORED)
