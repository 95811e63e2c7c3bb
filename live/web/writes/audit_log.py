"""GET /v1/trail: the audit log of board changes."""

from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from live.network.parameters import whole_number
from live.store.registry.definitions import AuditEntry
from live.web.http.responses import NOT_STORED
from live.web.services import live_of
from live.web.writes.admin import admin_of

_DEFAULT_LIMIT: Final = 100
_MAX_LIMIT: Final = 1000


class AuditLog(msgspec.Struct, frozen=True):
    """The audit log: who changed which boards, newest first."""

    trail: Sequence[AuditEntry]


async def get_audit_log(request: Request) -> Response:
    """Return the newest changes of the boards that the API key includes."""
    live, producer = live_of(request), await admin_of(request)
    limit = whole_number(request.query_params, "limit", _DEFAULT_LIMIT, 1, _MAX_LIMIT)
    entries = await live.board_admin.definitions.audit_log(limit)
    visible = [entry for entry in entries if producer.refusal(entry.board) is None]
    return Response(msgspec.json.encode(AuditLog(visible)), headers=NOT_STORED, media_type="application/json")
