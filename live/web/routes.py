"""The routes of a process, by its role."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import Scope

from live.domain.text import nearest
from live.errors import ProblemError
from live.http.parameters import Parameters
from live.settings import Settings
from live.web.admin.routes import admin_routes
from live.web.api.records import OF_MEMBERS
from live.web.contract.documents import DOCUMENTS
from live.web.contract.operation import Operation, Operations
from live.web.operations import ADMINISTRATION, ALWAYS, BOARDS, COUNTING, PAGES, by_query
from live.web.pages.rendering import static_version
from live.web.parts import assets, live_of, reader_of
from live.web.requests import unless_left
from live.web.responses import as_problem
from live.web.static import ClientFiles, PageFiles

_LONGEST_COMPARED: Final = 100  # characters of a path
_ONE_NAME: Final = 2  # parts of a path such as `/posts`
_INDEX: Final = "/boards"  # the path at which people look for the list of boards
_WRITING: Final = {"POST", "PUT"}  # methods that people mistake for each other


def routes_of(settings: Settings) -> list[BaseRoute]:
    """List the routes of a process with the role in `settings`."""
    routes = list(_of_boards(PAGES, settings))
    routes += [_route(path, operations) for path, operations in {**ALWAYS, **DOCUMENTS}.items()]
    routes += [
        Mount("/client", ClientFiles(directory=assets("static") / "client"), name="client"),
        Mount(f"/static/{static_version()}", PageFiles(directory=assets("static")), name="static"),
    ]
    if settings.role != "viewers":
        routes += [_route(path, operations) for path, operations in COUNTING.items()]
        routes += [_route(path, operations, ends_early=True) for path, operations in ADMINISTRATION.items()]
        routes += admin_routes(settings)
    return [*routes, *_of_boards(BOARDS, settings)]


def _of_boards(every: Operations, settings: Settings) -> Iterator[BaseRoute]:
    for path, operations in every.items():
        served = {
            method: operation
            for method, operation in operations.items()
            if (settings.role != "ingest" if method == "GET" else settings.role != "viewers")
        }
        if served:
            yield _route(path, served, ends_early=True)
            if (other := by_query(path)) != path:
                yield _route(other, served, ends_early=True, by_query=True)


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
    """Write a path with the parameters that a request has: `/v1/boards/posts/records/{key}`."""
    named = path.replace(":path", "").split("/")
    given = [*parts, *named[len(parts) :]]
    return "/".join(part if name.startswith("{") else name for name, part in zip(named, given, strict=False))


def _route(
    path: str, operations: Mapping[str, Operation], *, ends_early: bool = False, by_query: bool = False
) -> Route:
    """Return the route of the operations of a path.

    With `ends_early`, a GET ends early if its client leaves. With `by_query`, the member is in the query, for proxies
    that refuse `%2F` in a path.
    """

    async def handle(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        work = _begin(operations[method], request, by_query=by_query)
        if method != "GET" or not ends_early:
            return await work
        return await unless_left(request.receive, work) or Response()

    of_member = path.endswith(tuple(f"}}{ending.decode()}" for ending in OF_MEMBERS))
    return (_OfMemberRoute if of_member else Route)(path, handle, methods=list(operations))


async def _begin(operation: Operation, request: Request, *, by_query: bool) -> Response:
    if operation.is_lenient:
        return await operation.handler(request)
    query, kind = request.query_params, operation.query or Parameters
    given = kind.read(query, ("key",) if by_query else ())
    if by_query:
        members = query.getlist("key")
        if len(members) != 1:
            raise ProblemError("parameter_invalid", "name one member: add `?key=` and the member, percent-encoded")
        request = Request({**request.scope, "path_params": {**request.path_params, "key": members[0]}}, request.receive)
    return await (operation.handler(request, given) if operation.query else operation.handler(request))


class _OfMemberRoute(Route):
    """A route of a member. `a%2Fslots` is a member, although its decoded path looks like the slots of `a`."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if not scope.get("raw_path", b"").endswith(f"/{self.path.rpartition('/')[2]}".encode()):
            return Match.NONE, {}
        return super().matches(scope)
