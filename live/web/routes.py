"""The routes of a process, by its role."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import Scope

from live.domain.text import nearest
from live.errors import ProblemError
from live.network.parameters import require_known
from live.settings import Settings
from live.web import health, metrics
from live.web.admin.routes import admin_routes
from live.web.contract import reference
from live.web.contract.asyncapi import asyncapi
from live.web.contract.boards_file import boards_schema
from live.web.contract.openapi import by_query, openapi, query_names
from live.web.http.disconnects import unless_left
from live.web.http.responses import as_problem
from live.web.http.static import ClientFiles, PageFiles
from live.web.pages import board as pages
from live.web.pages import preferences, sharing, ticket
from live.web.pages import record as record_page
from live.web.pages.admission import admitting
from live.web.pages.rendering import static_version
from live.web.reads import boards, entrants, history, items, records, slots, stream, votes
from live.web.reads.records import OF_MEMBERS
from live.web.services import assets, live_of, reader_of
from live.web.writes import admin, keys, likes

_LONGEST_COMPARED: Final = 100  # characters of a path
_ONE_NAME: Final = 2  # parts of a path such as `/posts`
_INDEX: Final = "/boards"  # the path at which people look for the list of boards
_WRITING: Final = {"POST", "PUT"}  # methods that people mistake for each other

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]

# The pages that people open most, which are tried first because each attempt takes time.
_PAGES: Final[Mapping[str, Mapping[str, Endpoint]]] = {
    "/boards/{board}": {"GET": admitting(pages.board_page)},
    "/boards/{board}/records/{key:path}": {"GET": admitting(record_page.record_page)},
    "/": {"GET": admitting(pages.index)},
}
# The other documented routes of boards, in the order in which they are tried. Processes that serve viewers take GET;
# processes that serve administrators take the other methods.
_ROUTES: Final[Mapping[str, Mapping[str, Endpoint]]] = {
    "/v1/boards/{board}/records/{key:path}/slots": {"GET": slots.get_slots},
    "/v1/boards/{board}/records/{key:path}/history": {"GET": history.get_history},
    "/v1/boards/{board}/records/{key:path}/explanation": {"GET": history.get_explanation},
    "/v1/boards/{board}": {
        "GET": boards.get_board,
        "PUT": admin.put_board,
        "PATCH": admin.patch_board,
        "DELETE": admin.delete_board,
    },
    "/v1/boards/{board}/records/{key:path}": {
        "GET": records.get_record,
        "PUT": admin.put_record,
        "PATCH": admin.patch_record,
        "DELETE": admin.delete_record,
    },
    "/v1/items": {"GET": items.list_items, "PUT": admin.put_items},
    "/v1/items/{key:path}": {"GET": items.get_item, "PUT": admin.put_item, "DELETE": admin.delete_item},
    "/v1/boards": {"GET": boards.list_boards},
    "/v1/boards/{board}/records": {"GET": records.list_records},
    "/v1/boards/{board}/slots": {"GET": slots.list_slots},
    "/v1/boards/{board}/history": {"GET": history.list_history},
    "/v1/boards/{board}/definition": {"GET": boards.get_definition},
    "/v1/boards/{board}/entrants": {"GET": entrants.list_entrants},
    "/v1/boards/{board}/baseline": {"GET": boards.get_baseline},
    "/v1/records/{key:path}": {"GET": records.get_member_records},
    "/v1/boards/{board}/stream": {"GET": stream.stream_board},
    "/v1/boards/{board}/live": {"GET": stream.refuse_plain},
    "/boards/{board}/qr.svg": {"GET": sharing.qr_code},
    "/boards/{board}/records.csv": {"GET": sharing.records_csv},
    "/embed/{board}": {"GET": admitting(pages.embedded_board)},
    "/boards/{board}/votes": {"GET": votes.get_votes},
    "/overlay/{board}": {"GET": admitting(pages.overlay)},
}

# The routes for administrators only.
_ADMINISTRATION: Final[Mapping[str, Mapping[str, Endpoint]]] = {
    "/v1/trail": {"GET": admin.get_audit_log},
    "/v1/keys": {"GET": keys.list_keys},
    "/v1/keys/{key}": {"PUT": keys.put_key, "DELETE": keys.delete_key},
    "/v1/tokens": {"POST": keys.sign},
}


def routes_of(settings: Settings) -> list[BaseRoute]:
    """List the routes of a process with the role in `settings`."""
    routes = list(_contracts(_PAGES, settings))
    routes += [
        Route("/healthz", health.healthz),
        Route("/readyz", health.readyz),
        Route("/metrics", metrics.metrics),
        Route("/openapi.json", openapi),
        Route("/asyncapi.json", asyncapi),
        Route("/boards.schema.json", boards_schema),
        Route("/docs", reference.show),
        Route("/preferences", preferences.choose, methods=["POST"]),
        Mount("/client", ClientFiles(directory=assets("static") / "client"), name="client"),
        Mount(f"/static/{static_version()}", PageFiles(directory=assets("static")), name="static"),
    ]
    if settings.role != "viewers":
        routes += [
            Route("/v1/events", _take_no_events, methods=["POST"]),
            Route("/boards/{board}/likes", likes.like, methods=["GET", "POST"]),
            Route("/t", ticket.take, methods=["GET", "POST"]),
        ]
    if settings.role in settings.admin_roles:
        routes += [_contract(path, handlers) for path, handlers in _ADMINISTRATION.items()]
        routes += admin_routes(settings)
    return [*routes, *_contracts(_ROUTES, settings)]


def _contracts(documented: Mapping[str, Mapping[str, Endpoint]], settings: Settings) -> Iterator[BaseRoute]:
    """Make the routes that a process with the role in `settings` serves."""
    for path, handlers in documented.items():
        served = {
            method: handler
            for method, handler in handlers.items()
            if (settings.role != "ingest" if method == "GET" else settings.role in settings.admin_roles)
        }
        if served:
            yield _contract(path, served)
            if (other := by_query(path)) != path:
                yield _contract(other, {method: _keyed(handler) for method, handler in served.items()})


async def _take_no_events(_request: Request) -> Response:
    """Refuse events. The HTTP connections of this server take them before; this route answers other methods."""
    raise ProblemError("not_found", "this ASGI server takes no events")


def _keyed(handler: Endpoint) -> Endpoint:
    """Return a handler that takes the member from the query, for proxies that refuse `%2F` in a path."""

    async def handle(request: Request) -> Response:
        members = request.query_params.getlist("key")
        if len(members) != 1:
            raise ProblemError("parameter_invalid", "name one member: add `?key=` and the member, percent-encoded")
        params = {**request.path_params, "key": members[0]}
        return await handler(Request({**request.scope, "path_params": params}, request.receive))

    return handle


def explain_route(request: Request, error: HTTPException) -> ProblemError:
    """Suggest a path or a method for a request that no route takes."""
    path, problem, live = request.scope["path"], as_problem(error), live_of(request)
    root, parts, methods = live.settings.root_path, path.rstrip("/").split("/"), problem.headers.get("Allow", "")
    # A path with `//` could look like a host.
    is_compared = len(path) <= _LONGEST_COMPARED and "//" not in path
    routes = [route for route in request.app.routes if isinstance(route, Route)] if is_compared else []
    known = [(_filled(route.path, parts), route.methods or ()) for route in routes]
    if methods:
        taken = sorted(methods.split(", "))
        detail = f"{request.method} is not for this path, which takes {', '.join(taken)}"
        wanted = _WRITING if request.method in _WRITING else {request.method}
        below = [
            (len(other), f"{method} {root}{other}")
            for other, takes in known
            if other.startswith(f"{path}/") and wanted.isdisjoint(taken)
            for method in wanted.intersection(takes)
        ]
        detail += f"; did you mean {min(below)[1]}?" if below else ""
        return ProblemError(problem.code, detail, headers=problem.headers)
    if problem.code != "not_found" or not is_compared:
        return problem
    served = {other for other, _ in known}
    names = [other for other in sorted(served) if other.count("/") == len(parts) - 1]
    near = nearest(path, [_INDEX, *names] if "/" in served else names)
    if near is None and len(parts) == _ONE_NAME and "/" in served:
        reader = reader_of(request)
        refusal = reader.refusal(parts[1], [ledger.state.board.id for ledger in live.registry.ledgers.all(reader)])
        near = refusal.near if isinstance(refusal, ProblemError) else None
    near = "/" if near == _INDEX else near
    detail = f"did you mean {root}{near}?" if near else f"{root}/openapi.json lists the paths"
    return ProblemError("not_found", detail, near=near and quote(near))


def _filled(path: str, parts: Sequence[str]) -> str:
    """Write the path of a route with the parameters that a request has: `/v1/boards/posts/records/{key}`."""
    named = path.replace(":path", "").split("/")
    given = [*parts, *named[len(parts) :]]
    return "/".join(part if name.startswith("{") else name for name, part in zip(named, given, strict=False))


def _contract(path: str, handlers: Mapping[str, Endpoint]) -> Route:
    """Return a documented route with the handler of each method.

    The route refuses parameters that `/openapi.json` does not name. A GET ends early if its client leaves.
    """
    documented = path.replace(":path", "")

    async def handle(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        if request.scope["query_string"]:
            require_known(request.query_params, query_names(documented, method))
        if method != "GET":
            return await handlers[method](request)
        return await unless_left(request.receive, handlers[method](request)) or Response()

    of_member = path.endswith(tuple(f"}}{ending.decode()}" for ending in OF_MEMBERS))
    return (_OfMemberRoute if of_member else Route)(path, handle, methods=list(handlers))


class _OfMemberRoute(Route):
    """A route of a member. `a%2Fslots` is a member, although its decoded path looks like the slots of `a`."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if not scope.get("raw_path", b"").endswith(f"/{self.path.rpartition('/')[2]}".encode()):
            return Match.NONE, {}
        return super().matches(scope)
