"""The routes of a process, by its role."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import Scope

from live.network.parameters import require_known
from live.settings import Settings
from live.web import operations
from live.web.contract import reference
from live.web.contract.asyncapi import asyncapi
from live.web.contract.openapi import openapi, query_names
from live.web.http.static import ClientFiles, PageFiles
from live.web.http.watching import refuse_plain, unless_left
from live.web.pages import board as pages
from live.web.pages import record as record_page
from live.web.pages import sharing
from live.web.pages.rendering import static_version
from live.web.reads import baseline, boards, history, items, records, slots, stream
from live.web.services import assets
from live.web.writes import admin, events, likes

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]

_CHANGING: Final = frozenset({"PUT", "PATCH", "DELETE"})


def routes_of(settings: Settings) -> list[BaseRoute]:
    """Everything that a process with the role in `settings` serves."""
    reads, changes = settings.role != "ingest", settings.role in settings.admin_roles
    served = (frozenset({"GET"}) if reads else frozenset()) | (_CHANGING if changes else frozenset())
    return [
        *_operations(),
        *(_events() if settings.role != "viewers" else ()),
        *([_contract("/v1/trail", GET=admin.get_audit_log)] if changes else ()),
        *((*_boards_and_records(served), *_items(served)) if served else ()),
        *(_reads() if reads else ()),
    ]


def _operations() -> list[BaseRoute]:
    """What every process serves."""
    return [
        Route("/healthz", operations.healthz),
        Route("/readyz", operations.readyz),
        Route("/metrics", operations.metrics),
        Route("/openapi.json", openapi),
        Route("/asyncapi.json", asyncapi),
        Route("/docs", reference.show),
        Mount("/client", ClientFiles(directory=assets("static") / "client"), name="client"),
        Mount(f"/static/{static_version()}", PageFiles(directory=assets("static")), name="static"),
    ]


def _events() -> list[BaseRoute]:
    return [
        _contract("/v1/events", POST=events.take_events, OPTIONS=events.options_events),
        Route("/boards/{board}/likes", likes.like, methods=["POST"]),
    ]


def _boards_and_records(served: frozenset[str]) -> list[BaseRoute]:
    """One board and one record; `served` are the methods that the process takes."""
    board = {
        "GET": boards.get_board,
        "PUT": boards.put_board,
        "PATCH": boards.patch_board,
        "DELETE": boards.delete_board,
    }
    record = {
        "GET": records.get_record,
        "PUT": records.put_record,
        "PATCH": records.patch_record,
        "DELETE": records.delete_record,
    }
    return [
        *(_of_members() if "GET" in served else ()),
        _contract("/v1/boards/{board}", **{method: board[method] for method in served}),
        _contract("/v1/boards/{board}/records/{key:path}", **{method: record[method] for method in served}),
    ]


def _items(served: frozenset[str]) -> list[BaseRoute]:
    """The titles of members; `served` are the methods that the process takes."""
    one = {"GET": items.get_item, "PUT": items.put_item, "DELETE": items.delete_item}
    several = {"GET": items.list_items, "PUT": items.put_items}
    return [
        _contract("/v1/items", **{method: several[method] for method in served & several.keys()}),
        _contract("/v1/items/{key:path}", **{method: one[method] for method in served & one.keys()}),
    ]


def _of_members() -> list[BaseRoute]:
    return [
        _contract("/v1/boards/{board}/records/{key:path}/slots", GET=slots.get_slots),
        _contract("/v1/boards/{board}/records/{key:path}/history", GET=history.get_history),
    ]


def _reads() -> list[BaseRoute]:
    return [
        _contract("/v1/boards", GET=boards.list_boards),
        _contract("/v1/boards/{board}/records", GET=records.list_records),
        _contract("/v1/boards/{board}/slots", GET=slots.list_slots),
        _contract("/v1/boards/{board}/history", GET=history.list_history),
        _contract("/v1/boards/{board}/baseline", GET=baseline.get_baseline),
        _contract("/v1/records/{key:path}", GET=records.get_member_records),
        _contract("/v1/boards/{board}/stream", GET=stream.stream_board),
        _contract("/v1/boards/{board}/live", GET=refuse_plain),
        _contract("/", GET=pages.index),
        _contract("/boards/{board}", GET=pages.board_page),
        _contract("/boards/{board}/qr.svg", GET=sharing.qr_code),
        _contract("/boards/{board}/records.csv", GET=sharing.records_csv),
        _contract("/boards/{board}/records/{key:path}", GET=record_page.record_page),
        _contract("/embed/{board}", GET=pages.embedded_board),
        _contract("/overlay/{board}", GET=pages.overlay),
    ]


def _contract(path: str, **handlers: Endpoint) -> Route:
    """Return a documented route with the handler of each method.

    It refuses parameters that `/openapi.json` does not name, and stops to read for a client that has left.
    """
    documented = path.replace(":path", "")

    async def handle(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        if request.scope["query_string"]:
            require_known(request.query_params, query_names(documented, method))
        if method != "GET":
            return await handlers[method](request)
        return await unless_left(request.receive, handlers[method](request)) or Response()

    of_member = path.endswith(("}/slots", "}/history"))
    return (_OfMemberRoute if of_member else Route)(path, handle, methods=list(handlers))


class _OfMemberRoute(Route):
    """Something of a member. `a%2Fslots` is a member, although its decoded path looks like the slots of `a`."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if not scope.get("raw_path", b"").endswith(f"/{self.path.rpartition('/')[2]}".encode()):
            return Match.NONE, {}
        return super().matches(scope)
