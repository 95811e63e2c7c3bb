"""The page of the audit log: every action, with the values before and after, and as a request."""

from typing import Any, Final

import msgspec
from starlette.responses import Response

from live.store.registry.audit_trail import OF_MEMBERS, AuditEntry
from live.web.admin.admin_page import AdminPage, ApiCall, Desk, board_path, item_path
from live.web.api.admin import MAX_ENTRIES, AuditLog, visible_entries

_ON_PAGE: Final = 50
_LONGEST: Final = 256  # characters of a filter
_FILTERS: Final = ("what", "who", "board", "key")


async def _show(desk: Desk) -> Response:
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
        acts=[(entry, call_of(entry)) for entry in shown],
        wanted=wanted,
        whats=sorted({entry.what for entry in entries}),
        filters=_FILTERS,
        longest=_LONGEST,
        number=number,
        page_count=page_count,
        listing=ApiCall("GET", f"/v1/trail?limit={MAX_ENTRIES}"),
    )


def call_of(entry: AuditEntry) -> ApiCall | None:
    """Find the request that repeats the action of an entry, if the API has one and the entry says enough."""
    call: ApiCall | None = None
    board, record, item = board_path(entry.board), board_path(entry.board, entry.key), item_path(entry.key)
    match entry.what:
        case what if what in OF_MEMBERS and not entry.key:
            pass  # the member was erased, or the entry is about several titles
        case "created" | "changed" if entry.after is not None and not _is_cut(entry):
            call = ApiCall("PUT", board, entry.after)
        case "deleted":
            call = ApiCall("DELETE", board)
        case "frozen" | "thawed":
            call = ApiCall("PATCH", board, {"frozen": entry.what == "frozen"})
        case "hidden" | "shown":
            reason = {"reason": entry.reason} if entry.reason else {}
            call = ApiCall("PATCH", record, {"hidden": entry.what == "hidden", **reason})
        case "corrected":
            call = ApiCall("PATCH", record, {**_table(entry.after), "reason": entry.reason})
        case "registered" if entry.after is not None:
            call = ApiCall("PUT", record, entry.after)
        case "withdrawn":
            call = ApiCall("DELETE", record)
        case "titled" | "untitled":
            held = {name: value for name, value in _table(entry.after).items() if name != "key" and value is not None}
            call = ApiCall("PUT", item, held) if held else ApiCall("DELETE", item)
    return call


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_cut(entry: AuditEntry) -> bool:
    return entry.before is None and set(_table(entry.after)) == {"bytes"}


PAGE: Final = AdminPage(path="log", name="log", show=_show)
