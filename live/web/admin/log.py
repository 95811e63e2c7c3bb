"""The page of the audit log: every action, with the values before and after, as a request, and with its undo."""

from typing import Any, Final
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from live.errors import ProblemError
from live.store.registry.audit_trail import OF_MEMBERS, AuditEntry
from live.web.admin.admin_page import NO_FORM, AdminPage, Desk, Form
from live.web.admin.calls import ApiCall
from live.web.writes.admin import MAX_ENTRIES, MOST_REASON, AuditLog, visible_entries

_ON_PAGE: Final = 50
_LONGEST: Final = 256  # characters of a filter
_FILTERS: Final = ("what", "who", "board", "key")
_UNDONE: Final = "undone on the admin page"


class LogRow(msgspec.Struct, frozen=True):
    """An entry of the audit log, the request that repeats its action, and the request that undoes the action.

    A request is None if the API has no such request, or if the entry does not say enough.
    """

    entry: AuditEntry
    call: ApiCall | None
    undo: ApiCall | None

    @property
    def number(self) -> str:
        """The name of the entry in a form."""
        return f"{self.entry.at}:{self.entry.what}:{self.entry.board}:{self.entry.key}"


async def show(desk: Desk, error: Exception | None = None, _form: Form = NO_FORM) -> Response:
    """Show a page of the newest entries, or of the entries whose fields equal the fields of the filter."""
    query = desk.visit.query
    wanted = {name: query[name][:_LONGEST].strip() for name in _FILTERS if query.get(name, "").strip()}
    entries = await visible_entries(desk.live, desk.producer, MAX_ENTRIES)
    found = [entry for entry in entries if all(getattr(entry, name) == text for name, text in wanted.items())]
    if query.get("format") == "json":
        return Response(
            msgspec.json.encode(AuditLog(found)),
            headers={"Content-Disposition": 'attachment; filename="audit-log.json"'},
            media_type="application/json",
        )
    shown, number, page_count = desk.page_of(found, _ON_PAGE)
    return await desk.show(
        "log",
        error,
        acts=[row_of(entry) for entry in shown],
        wanted=wanted,
        whats=sorted({entry.what for entry in entries}),
        filters=_FILTERS,
        longest=_LONGEST,
        number=number,
        page_count=page_count,
        listing=ApiCall("GET", f"/v1/trail?limit={MAX_ENTRIES}"),
    )


async def undo(desk: Desk, form: Form) -> Response:
    """Undo the action of an entry."""
    entries = await visible_entries(desk.live, desk.producer, MAX_ENTRIES)
    row = next((row for row in map(row_of, entries) if row.number == form.get("entry")), None)
    if row is None or row.undo is None:
        raise ProblemError(
            "not_found", "the audit log does not have this entry any more, or the action can't be undone"
        )
    await desk.send(row.undo)
    return desk.done("undone")


def row_of(entry: AuditEntry) -> LogRow:
    """Find the requests that do and undo the action of an entry."""
    make = _CALLS.get(entry.what)
    is_erased = not entry.key and entry.what in OF_MEMBERS  # also true for an entry about several titles
    call, undo = (None, None) if make is None or is_erased else make(entry)
    return LogRow(entry, call, undo)


_Calls = tuple[ApiCall | None, ApiCall | None]


def _of_board(entry: AuditEntry) -> _Calls:
    path = f"/v1/boards/{entry.board}"
    after = None if entry.after is None else ApiCall("PUT", path, entry.after)
    match entry.what:
        case "created":
            return after, None  # undoing this would delete the board and its data
        case "deleted":
            return ApiCall("DELETE", path), None
    before = None if entry.before is None or _is_cut(entry) else ApiCall("PUT", path, entry.before)
    return None if _is_cut(entry) else after, before


def _of_frozen(entry: AuditEntry) -> _Calls:
    path, is_frozen = f"/v1/boards/{entry.board}", entry.what == "frozen"
    return ApiCall("PATCH", path, {"frozen": is_frozen}), ApiCall("PATCH", path, {"frozen": not is_frozen})


def _of_hidden(entry: AuditEntry) -> _Calls:
    path, is_hidden = _record(entry), entry.what == "hidden"
    reason = {"reason": entry.reason} if entry.reason else {}
    return (
        ApiCall("PATCH", path, {"hidden": is_hidden, **reason}),
        ApiCall("PATCH", path, {"hidden": not is_hidden, "reason": _UNDONE}),
    )


def _of_corrected(entry: AuditEntry) -> _Calls:
    path, after, before = _record(entry), _table(entry.after), _table(entry.before)
    call = ApiCall("PATCH", path, {**after, "reason": entry.reason})
    if "score" not in after or "score" not in before:
        return call, None
    at = {name: after[name] for name in ("time",) if name in after}
    reason = f"{_UNDONE}: {entry.reason}"[:MOST_REASON]
    return call, ApiCall("PATCH", path, {"add": before["score"] - after["score"], "reason": reason, **at})


def _of_registered(entry: AuditEntry) -> _Calls:
    path = _record(entry)
    put = None if entry.after is None else ApiCall("PUT", path, entry.after)
    return put, ApiCall("DELETE", path) if entry.before is None else ApiCall("PUT", path, entry.before)


def _of_withdrawn(entry: AuditEntry) -> _Calls:
    path = _record(entry)
    return ApiCall("DELETE", path), None if entry.before is None else ApiCall("PUT", path, entry.before)


def _of_titled(entry: AuditEntry) -> _Calls:
    path = f"/v1/items/{quote(entry.key, safe='')}"
    return _item(path, entry.after), _item(path, entry.before)


def _item(path: str, item: object) -> ApiCall:
    held = {name: value for name, value in _table(item).items() if name != "key" and value is not None}
    return ApiCall("PUT", path, held) if held else ApiCall("DELETE", path)


def _record(entry: AuditEntry) -> str:
    return f"/v1/boards/{entry.board}/records/{quote(entry.key, safe='')}"


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_cut(entry: AuditEntry) -> bool:
    """Tell whether an entry was too large for the values before and after."""
    return entry.before is None and set(_table(entry.after)) == {"bytes"}


_CALLS: Final = {
    **dict.fromkeys(("created", "changed", "deleted"), _of_board),
    **dict.fromkeys(("frozen", "thawed"), _of_frozen),
    **dict.fromkeys(("hidden", "shown"), _of_hidden),
    "corrected": _of_corrected,
    "registered": _of_registered,
    "withdrawn": _of_withdrawn,
    **dict.fromkeys(("titled", "untitled"), _of_titled),
}
PAGE: Final = AdminPage(path="log", name="log", show=show, acts={"undo": undo})
