"""The composition root: puts the parts of one process together and gives each route its handler."""

import asyncio
import gc
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from multiprocessing import parent_process
from typing import Final, TypeAlias

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from live.auth.authenticator import Authenticator
from live.auth.client import ClientResolver
from live.auth.rate_limiter import RateLimiter
from live.boards.admin import BoardAdmin
from live.boards.readiness import Readiness
from live.boards.registry import BoardRegistry
from live.demo import like_for_ever
from live.domain.board import Boards
from live.domain.board_file import load_boards
from live.errors import EpochLostError, ProblemError, StoreUnavailableError
from live.fanout.hub import Hub
from live.ingest.intake import Intake
from live.logs import configure_logs
from live.network.parameters import require_known
from live.protocols.connection_limits import ConnectionLimits
from live.protocols.http.parts import Parts
from live.protocols.viewer_reaper import ViewerReaper
from live.settings import Settings, load_settings
from live.store.board.keys import SystemKeys
from live.store.connection.client import connect
from live.store.connection.loss import LossWatch
from live.store.registry.idempotency import Answers
from live.store.registry.presence import Presence
from live.store.registry.turn import Turn
from live.system.processes import end_with_parent
from live.web import (
    board_changes,
    boards,
    documents,
    events,
    live,
    operations,
    pages,
    producers,
    record_changes,
    records,
    reference,
    stream,
)
from live.web.clients import Clients
from live.web.cross_origin import CrossOrigin
from live.web.openapi import query_names
from live.web.problems import answer_problem
from live.web.security import SecurityHeaders
from live.web.state import Live, assets, live_of

log = structlog.get_logger()

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]

_READ: Final = ("GET",)
_CHANGED: Final = ("PUT", "PATCH", "DELETE")


def make_app(settings: Settings, all_boards: Boards) -> ASGIApp:
    """The application of one process; `settings.store` names the store."""
    clients = ClientResolver(settings)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, object]]:
        parts = app.state.live = make_parts(settings, all_boards, clients)
        with suppress(StoreUnavailableError, EpochLostError):
            await parts.authenticator.open()  # so that the first request of a producer does not meet a closed gate
            await parts.registry.look()
        work = asyncio.create_task(_work(parts))
        work.add_done_callback(_report)
        try:
            yield {"parts": _connection_parts(parts, clients)}
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work
            with suppress(StoreUnavailableError):
                await parts.presence.leave()
            await parts.rate_limiter.close()
            await parts.client.aclose()

    app = Starlette(
        routes=_routes(settings),
        exception_handlers=dict.fromkeys(
            (ProblemError, StoreUnavailableError, EpochLostError, HTTPException, Exception), _answer_error
        ),
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # one address for each thing; a redirect would go to whatever Host says
    # Headers outside of everything, so that a fault's answer has them too.
    return SecurityHeaders(Clients(CrossOrigin(app, settings.allowed_origins), clients, settings.root_path))


def _routes(settings: Settings) -> list[BaseRoute]:
    """What a process of this role serves."""
    routes: list[BaseRoute] = [
        Route("/healthz", operations.healthz),
        Route("/readyz", operations.readyz),
        Route("/metrics", operations.metrics),
        Route("/openapi.json", documents.openapi),
        Route("/asyncapi.json", documents.asyncapi),
        Route("/docs", reference.show),
        Mount("/client", _Shared(directory=assets("static") / "client"), name="client"),
        Mount(f"/static/{pages.static_version()}", _Immutable(directory=assets("static")), name="static"),
    ]
    if settings.role != "viewers":
        routes += [
            _contract("/v1/events", events.take_events, "POST", "OPTIONS"),
            WebSocketRoute("/v1/events/live", producers.take_messages),
            _contract("/v1/events/live", producers.refuse_plain),
        ]
    changed = _CHANGED if settings.role in settings.admin_roles else ()
    read = _READ if settings.role != "ingest" else ()
    if changed:
        routes.append(_contract("/v1/trail", board_changes.get_trail))
    if changed or read:
        routes += [
            _contract("/v1/boards/{board}", board_changes.serve_board, *read, *changed),
            _contract("/v1/boards/{board}/records/{key:path}", record_changes.serve_record, *read, *changed),
        ]
    if read:
        routes += [
            _contract("/v1/boards", boards.list_boards),
            _contract("/v1/boards/{board}/records", records.list_records),
            _contract("/v1/records/{key:path}", records.get_standing),
            WebSocketRoute("/v1/boards/{board}/live", live.watch_board),
            _contract("/v1/boards/{board}/stream", stream.stream_board),
            _contract("/v1/boards/{board}/live", live.refuse_plain),
            Route("/", pages.index),
            Route("/boards/{board}", pages.board_page),
            Route("/embed/{board}", pages.embedded_board),
        ]
    return routes


def _contract(path: str, endpoint: Endpoint, *methods: str) -> Route:
    """A route of the contract: it takes the query parameters that `/openapi.json` names, and refuses all others."""
    documented = path.replace(":path", "")

    async def checked(request: Request) -> Response:
        if request.scope["query_string"]:
            require_known(request.query_params, query_names(documented, request.method))
        return await endpoint(request)

    return Route(path, checked, methods=methods or None)


def app_from_environment() -> ASGIApp:
    """The application of a worker process, which gets its settings through the environment."""
    parent = parent_process()
    assert parent is not None and parent.pid is not None, "a worker is started by the supervisor"  # noqa: S101, PT018
    end_with_parent(parent.pid)
    settings = load_settings()
    configure_logs(settings.log_level)
    relax_collector()
    return make_app(settings, load_boards(settings.boards))


def relax_collector() -> None:
    """Exclude what lives as long as the process from garbage collection, and collect less often.

    A request creates hardly any reference cycles. With the defaults, collection takes an eighth of the time of a POST.
    Signals wait meanwhile: an exception that a signal handler raises inside a destructor would be dropped.
    """
    ending = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    try:
        gc.collect()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


def make_parts(settings: Settings, all_boards: Boards, clients: ClientResolver) -> Live:
    """The parts of a process, not yet running."""
    client = connect(settings.store, settings)
    losses = LossWatch(client, settings.key_prefix)
    losses.guard_connections()
    answers, authenticator, rate_limiter = (
        Answers(client, settings),
        Authenticator(client, settings),
        RateLimiter(client, settings),
    )
    presence = Presence(client, settings.key_prefix)
    hub, board_admin = Hub(client, (), settings, presence), BoardAdmin(client, settings, all_boards)
    registry = BoardRegistry(client, settings, all_boards, hub, board_admin)
    intake = Intake(settings, registry.boards, registry.committers, authenticator, rate_limiter, answers)
    registry.tell = intake.take_over
    return Live(
        settings=settings,
        client=client,
        registry=registry,
        board_admin=board_admin,
        readiness=Readiness(client, settings.key_prefix, registry),
        authenticator=authenticator,
        rate_limiter=rate_limiter,
        intake=intake,
        limits=ConnectionLimits(settings, clients.trusts),
        hub=hub,
        reaper=ViewerReaper(hub, settings.slow_timeout),
        presence=presence,
        losses=losses,
        templates=pages.make_templates(settings.root_path),
    )


def _connection_parts(parts: Live, clients: ClientResolver) -> Parts:
    """What our own protocols need."""
    return Parts(
        settings=parts.settings,
        authenticator=parts.authenticator,
        rate_limiter=parts.rate_limiter,
        clients=clients,
        intake=parts.intake,
        limits=parts.limits,
        reaper=parts.reaper,
    )


async def _work(parts: Live) -> None:
    """Everything that runs beside the requests."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(parts.registry.run())
        if parts.settings.role != "ingest":
            tasks.create_task(parts.hub.run())
            tasks.create_task(parts.reaper.run())
        tasks.create_task(parts.authenticator.run())
        tasks.create_task(parts.limits.run())
        tasks.create_task(parts.losses.run())
        if parts.settings.demo:
            _start_demo(parts, tasks)


def _start_demo(parts: Live, tasks: asyncio.TaskGroup) -> None:
    """Like on the first board that runs on the server's clock, in one of all processes."""
    turn = Turn(parts.client, SystemKeys(parts.settings.key_prefix).demo)
    for committer in parts.registry.committers.values():
        if committer.ledger.board.clock == "server":
            tasks.create_task(like_for_ever(committer, turn))
            return
    log.warning("no demo: every board runs on the time in its events")


def _report(work: "asyncio.Task[None]") -> None:
    """A fault in the background must not pass unseen: say so and end, so that the supervisor starts us again."""
    if not work.cancelled() and (error := work.exception()) is not None:
        log.critical("the background work failed", exc_info=error)
        raise SystemExit(1)


async def _answer_error(request: Request, error: Exception) -> Response:
    if isinstance(error, EpochLostError) and "board" in request.path_params:
        error = await live_of(request).registry.explain(request.path_params["board"], error)
    if request.url.path.startswith("/v1/"):
        return await answer_problem(request, error)
    page = pages.problem_page(request, error)
    if isinstance(error, HTTPException) and error.headers:
        page.headers.update(error.headers)
    return page


class _Shared(StaticFiles):
    """The client, for pages of any origin, at an address that stays: a browser asks whether it changed."""

    def file_response(self, *arguments: object, **named: object) -> Response:
        response = super().file_response(*arguments, **named)  # type: ignore[arg-type]
        response.headers["Cache-Control"] = "no-cache"
        response.headers["Access-Control-Allow-Origin"] = "*"
        return response


class _Immutable(StaticFiles):
    """Static files under a path that names their version: a browser never has to ask again."""

    def file_response(self, *arguments: object, **named: object) -> Response:
        response = super().file_response(*arguments, **named)  # type: ignore[arg-type]
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response
