"""Routes that change boards, contestants, hidden records and items, and the route of the audit log."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from live.domain.event import MAX_DETAIL, MAX_SCORE, IncomingEvent, event_fault, key_fault, milliseconds
from live.domain.item import Item, Title, Url, item_faults
from live.domain.packing import Packing
from live.domain.producer import ANONYMOUS, Principal
from live.domain.reader import SERVER, BoardScope, Reader
from live.domain.text import IMAGE, ITEMS, TITLE, URL, text_fault
from live.domain.validation_messages import in_words
from live.errors import REFUSALS, ProblemError, StoreUnavailableError
from live.network.parameters import Parameters
from live.store.board.ledger import Ledger
from live.store.board.write.correction import Corrected, Correction, changes_of_union, correct
from live.store.registry.audit_trail import ORIGIN, ActOrigin, AuditEntry, entry_of
from live.web.http.middleware import client_of
from live.web.http.responses import NOT_STORED
from live.web.reads.boards import summary_of
from live.web.services import Live, live_of

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


async def _admin_of(request: Request) -> Principal:
    """Return the administrator who sends a request. If the path names a board, the API key must include this board.

    Raises:
        ProblemError: `credentials_required`, `credentials_invalid`, `scope_forbidden`, `origin_forbidden` or
            `rate_exceeded`.
    """
    authorization = request.headers.get("authorization")
    live = live_of(request)
    producer: Principal | None = request.scope["extensions"].get(ACTING)
    if producer is None:
        producer = live.authenticator.authorize(
            None if authorization is None else authorization.encode("latin-1"), client_of(request), "admin"
        )
        await live.rate_limiter.admit(producer)
    note_origin(request)
    if "board" in request.path_params:
        producer.require_board(request.path_params["board"])
    return producer


def note_origin(request: Request) -> None:
    """Remember the origin of a request, for the entries that this task adds to the audit log."""
    request_id = request.headers.get("x-request-id", "")
    ORIGIN.set(ActOrigin(client_of(request).address, request_id if _REQUEST_ID.fullmatch(request_id) else ""))


async def unlimited_admin_of(request: Request, why: str = "titles appear on all of them") -> Principal:
    """Return the administrator who sends a request, with an API key for all boards. `why` is the reason in a refusal.

    Raises:
        ProblemError: as `_admin_of`; `scope_forbidden` also if the API key is limited to some boards.
    """
    producer = await _admin_of(request)
    if producer.is_limited:
        raise ProblemError("scope_forbidden", f"the API key is limited to some boards, and {why}")
    return producer


async def _read_body(request: Request) -> bytes:
    """Read the whole body of a request.

    Raises:
        ProblemError: `body_too_large`.
    """
    return await live_of(request).intake.collect(request.stream())


async def read_object(request: Request, code: str, expected: str) -> dict[str, Any]:
    """Read the JSON object in the body of a request. Raises the errors of `_read_body` and `_read_object`."""
    return _read_object(await _read_body(request), code, expected)


def _read_object(body: bytes, code: str, expected: str) -> dict[str, Any]:
    """Decode the JSON object of a body.

    Args:
        body: the body of a request.
        code: the code of the problem to raise if the body is no JSON object.
        expected: what the body must be, in words.

    Raises:
        ProblemError: `code`, or `malformed_body` if the JSON is nested deeper than 32 levels, or names a field twice.
    """
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
    """Refuse a JSON object that names a field twice, because nobody knows which value was meant.

    Raises:
        ProblemError: `malformed_body`.
    """
    names = Counter(name for name, _ in pairs)
    if len(names) < len(pairs):
        raise ProblemError("malformed_body", f"the field `{names.most_common(1)[0][0][:MAX_DETAIL]}` is there twice")


class AuditLog(msgspec.Struct, frozen=True):
    """The audit log: who did what as an administrator, newest first."""

    trail: Annotated[Sequence[AuditEntry], Meta(description="Actions of administrators, newest first.")]


class AuditParameters(Parameters, frozen=True, kw_only=True):
    """How much of the audit log is read."""

    limit: Annotated[int, Meta(ge=1, le=MAX_ENTRIES, description="Maximum number of entries.")] = 100


async def get_trail(request: Request, query: AuditParameters) -> Response:
    """Read the audit log.

    Returns the actions of administrators, newest first. An API key that is limited to some boards gets only the entries
    of these boards.
    """
    live, producer = live_of(request), await _admin_of(request)
    body = msgspec.json.encode(AuditLog(await visible_entries(live, producer, query.limit)))
    return Response(body, headers=NOT_STORED, media_type="application/json")


async def visible_entries(live: Live, producer: Principal, limit: int) -> list[AuditEntry]:
    """Return the newest entries that an administrator may see, newest first."""
    entries = [entry for entry in await live.trail.last(limit) if producer.refusal(entry.board) is None]
    return entries if producer.boards is None else [_without_parts(entry, producer.boards) for entry in entries]


def _without_parts(entry: AuditEntry, boards: BoardScope) -> AuditEntry:
    """Return an entry without the parts of a union that an API key does not include."""

    def visible(choices: object) -> object:
        if not isinstance(choices, dict) or not isinstance(choices.get("union"), list):
            return choices
        parts = [part for part in choices["union"] if part in boards]
        if len(parts) == len(choices["union"]):
            return choices
        return {name: value for name, value in choices.items() if name != "weights"} | {"union": parts}

    return msgspec.structs.replace(entry, before=visible(entry.before), after=visible(entry.after))


async def _note(request: Request, producer: Principal, what: str, **fields: Any) -> None:  # noqa: ANN401 - of an entry
    """Add the action of an administrator to the audit log."""
    await live_of(request).trail.add(entry_of(producer.id or ANONYMOUS, what, **fields))


async def put_board(request: Request) -> Response:
    """Create a board, or replace its choices.

    Omitted choices get their defaults.
    """
    live, producer = live_of(request), await _admin_of(request)
    board = request.path_params["board"]
    choices = await _choices(request)
    created = await live.board_admin.put(board, choices, producer.id or ANONYMOUS, producer)
    return await _definition(live, board, producer, HTTPStatus.CREATED if created else HTTPStatus.OK)


async def patch_board(request: Request) -> Response:
    """Change some choices of a board.

    Omitted choices stay unchanged.
    """
    live, producer = live_of(request), await _admin_of(request)
    board = request.path_params["board"]
    await live.board_admin.patch(board, await _choices(request), producer.id or ANONYMOUS, producer)
    return await _definition(live, board, producer, HTTPStatus.OK)


async def delete_board(request: Request) -> Response:
    """Delete a board.

    This deletes everything that the board owns.
    """
    live, producer = live_of(request), await _admin_of(request)
    await live.board_admin.delete(request.path_params["board"], producer.id or ANONYMOUS)
    await live.registry.refresh(has_changed=True)
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=NOT_STORED)


async def _choices(request: Request) -> dict[str, Any]:
    """Read the choices in the body of a request."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() not in _JSON:
        raise ProblemError("unsupported_media_type", "send application/json")
    return _read_object(
        await _read_body(request), "malformed_body", "the body must be one JSON object with the choices"
    )


async def _definition(live: Live, board: str, producer: Principal, status: HTTPStatus) -> Response:
    """Respond to a change with the board, once this process and the other processes run it."""
    await live.registry.refresh(has_changed=True)
    reader = Reader(producer.opens)
    ledger = live.registry.ledgers.find(board, reader)
    if ledger is None:
        raise StoreUnavailableError(f"board {board} can't be run here", unknown=True)
    await live.registry.until_known()
    shown = summary_of(ledger.state.board, live.registry.ledgers, reader)
    headers = dict(NOT_STORED)
    if status == HTTPStatus.CREATED:
        headers["Location"] = f"{live.settings.root_path}/v1/boards/{board}"
    return Response(msgspec.json.encode(shown), status, headers, "application/json")


class RecordChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change of a record: whether it is `hidden`, or its score.

    The events of a hidden record still count, but it has no rank. To correct a score, `add` to it or set it to `score`,
    and give a `reason`. Where a score has fields, both can be fields. `time` chooses the slot or the period of the
    correction.
    """

    hidden: Annotated[
        bool | UnsetType, Meta(description="Whether the record is removed from the ranking. Its events still count.")
    ] = UNSET
    add: Annotated[
        Annotated[int, Meta(ge=-MAX_SCORE, le=MAX_SCORE)] | dict[str, int] | UnsetType,
        Meta(description="What to add to the score."),
    ] = UNSET
    score: Annotated[
        Annotated[int, Meta(ge=-MAX_SCORE, le=MAX_SCORE)] | dict[str, int] | UnsetType,
        Meta(description="The new score."),
    ] = UNSET
    reason: Annotated[
        Annotated[str, Meta(min_length=1, max_length=_MOST_REASON)] | UnsetType,
        Meta(description="Why the score is corrected. The journal keeps it."),
    ] = UNSET
    time: Annotated[
        Annotated[datetime, Meta(tz=True)] | UnsetType,
        Meta(description="A time in the slot or period to correct. Default: now."),
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
    fault = event_fault(IncomingEvent(key=member, metadata=msgspec.Raw(metadata)))
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
    body = _read_object(await _read_body(request), "record_invalid", expected)
    try:
        wanted = msgspec.convert(body, RecordChange)
    except msgspec.ValidationError as error:
        raise ProblemError("record_invalid", f"{expected}: {in_words(error)}") from None
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
        return Response(msgspec.json.encode(corrected), headers=NOT_STORED, media_type="application/json")
    was_hidden = await ledger.moderation.is_hidden(member)
    await ledger.moderation.hide(member, hidden=wanted.hidden)
    if was_hidden is not wanted.hidden:
        await _note(
            request, producer, "hidden" if wanted.hidden else "shown", board=board, key=member,
            reason=wanted.reason or "",
        )  # fmt: skip
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=NOT_STORED)


async def _correct(live: Live, ledger: Ledger, member: str, wanted: RecordChange) -> Corrected:
    """Correct a score on a board, and add the difference to the unions of the board."""
    board = ledger.state.board
    if board.union:
        parts = ", ".join(board.union) if not board.is_private else "its parts"
        raise ProblemError("correction_refused", f"the board is a union; correct the boards that it adds up: {parts}")
    correction = Correction(
        member=member,
        reason="" if wanted.reason is UNSET else wanted.reason,
        add=None if wanted.add is UNSET else _number_of(wanted.add, board.sums),
        score=None if wanted.score is UNSET else _number_of(wanted.score, board.score),
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
    """Return the number that scores are corrected by, or set to."""
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
    """Find the administrator, the board and the member that the request changes."""
    producer = await _admin_of(request)
    ledger = await live_of(request).use(request.path_params["board"], Reader(producer.opens))
    member: str = request.path_params["key"]
    fault = key_fault(member)
    if fault is not None:
        raise ProblemError("record_invalid", fault)
    return producer, ledger, member


def _require_contest(ledger: Ledger) -> None:
    if ledger.state.board.votes is None:
        raise ProblemError("board_open_to_all", "only a board with `votes` registers members")


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
    choice = _converted(_read_object(await _read_body(request), "malformed_body", expected), ItemChoice)
    return await _put(request, producer, [Item(request.path_params["key"], choice.title, choice.url, choice.image)])


async def put_items(request: Request) -> Response:
    """Give several members titles.

    Stores all titles, or none if one is invalid.
    """
    producer = await unlimited_admin_of(request)
    expected = 'the body must be like {"items": [{"key": "a", "title": "A post"}]}'
    items = _converted(_read_object(await _read_body(request), "malformed_body", expected), ItemChanges).items
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
        key = items[0].member
        await _note(request, producer, "titled", key=key, before=known.get(key), after=items[0])
    else:
        after = {"count": len(items), "items": shown}
        await _note(request, producer, "titled", before={"items": list(known.values())}, after=after)
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=NOT_STORED)


def _converted(body: dict[str, Any], kind: type[Any]) -> Any:  # noqa: ANN401 - of that type
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise ProblemError("item_invalid", in_words(error, kind.__struct_fields__)) from None
