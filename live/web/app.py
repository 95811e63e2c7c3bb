"""The application of a process: its start and end, its background work, and its answers to errors."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from http import HTTPStatus

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp

from live import __version__
from live.auth.client import ClientResolver
from live.demo import Demo
from live.domain.board import Boards
from live.errors import EpochLostError, ProblemError, StoreUnavailableError
from live.ingest.intake import Intake
from live.ingest.replies import documentation
from live.journal.log.drainer import Drainer
from live.metrics import BUILD_INFO
from live.protocols.http.request_counts import RequestTally
from live.protocols.http.shared import SharedParts
from live.settings import Settings
from live.store.board.keys import SystemKeys
from live.store.registry.processes import ProcessLease
from live.system.version import commit
from live.web.contract.operations import FOR_PROGRAMS
from live.web.http.middleware import Clients, CrossOrigin, ReadRate, SecurityHeaders
from live.web.http.responses import answer_problem
from live.web.metrics import measure_room, renew_metrics
from live.web.pages import board as pages
from live.web.pages.rendering import make_templates, visit_of
from live.web.reads.fast import FastReads
from live.web.routes import explain_route, routes_of
from live.web.services import Live, live_of, make_parts, reader_of

log = structlog.get_logger()


def make_app(settings: Settings, in_file: Boards) -> ASGIApp:
    """Make the application of one process. `settings.store` is the URL of the store."""
    clients = ClientResolver(settings)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, object]]:
        parts = app.state.live = make_parts(settings, in_file, clients, make_templates(settings.root_path))
        with suppress(StoreUnavailableError, EpochLostError):
            await parts.authenticator.open()  # otherwise the first request of a producer would be refused
            await parts.registry.refresh()
        tally = RequestTally()
        connection = SharedParts(
            settings=settings,
            authenticator=parts.authenticator,
            rate_limiter=parts.rate_limiter,
            clients=clients,
            intake=parts.intake,
            limits=parts.limits,
            bodies=parts.bodies,
            reaper=parts.reaper,
            reads=FastReads(parts, clients),
            ask_soon=parts.registry.ask_soon,
            hide=parts.registry.hide,
            tally=tally,
        )
        work = asyncio.create_task(_work(parts, tally))
        work.add_done_callback(partial(_report, parts.intake))
        try:
            yield {"parts": connection}
        finally:
            work.cancel()
            await asyncio.wait([work])
            with suppress(StoreUnavailableError):
                await parts.presence.leave()
                await parts.registry.leave()
            await parts.rate_limiter.close()
            await parts.intake.refusals.close()
            await parts.client.aclose()
            for part in (parts.journal, parts.past):
                if part is not None:
                    await part.aclose()

    BUILD_INFO.labels(__version__, commit()).set(1)
    documentation.path = f"{settings.root_path}/docs"
    app = Starlette(
        routes=routes_of(settings),
        exception_handlers={
            ClientDisconnect: _forget,
            **dict.fromkeys(
                (ProblemError, StoreUnavailableError, EpochLostError, HTTPException, Exception), _answer_error
            ),
        },
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # each resource has one URL, and a redirect would trust the Host header
    # `CrossOrigin` encloses `ReadRate` and the application, so that their error responses also have the header fields
    # of `CrossOrigin`.
    limited = CrossOrigin(ReadRate(app), settings.allowed_origins)
    return SecurityHeaders(Clients(limited, clients, settings.root_path))


async def _work(parts: Live, tally: RequestTally) -> None:
    """Run the background work."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(parts.registry.run())
        tasks.create_task(parts.board_admin.run())
        tasks.create_task(renew_metrics(parts, tally))
        tasks.create_task(measure_room(parts))
        if parts.settings.role != "ingest":
            tasks.create_task(parts.hub.run())
            tasks.create_task(parts.reaper.run())
        if parts.settings.role != "viewers" and parts.journal is not None:
            drainer = Drainer(parts.client, parts.settings, parts.journal, lambda: parts.registry.boards)
            tasks.create_task(drainer.run())
        tasks.create_task(parts.authenticator.run())
        tasks.create_task(parts.authenticator.signed_in.run())
        tasks.create_task(parts.activity.run())
        if parts.authenticator.tokens is not None:
            tasks.create_task(parts.authenticator.tokens.run())
        tasks.create_task(parts.bodies.run())
        tasks.create_task(parts.losses.run())
        if parts.settings.demo:
            # Only one of all processes holds this lease.
            lease = ProcessLease(parts.client, SystemKeys(parts.settings.key_prefix).demo)
            demo = Demo(parts.intake, parts.registry, parts.board_admin, lease)
            for board in parts.board_admin.in_file.by_id.values():
                if board.clock == "server":
                    tasks.create_task(demo.run(board.id, is_alone=parts.settings.boards is None))
                    break
            else:
                log.warning("the demo needs a board with the server's clock, and there is none")


def _report(intake: Intake, work: "asyncio.Task[None]") -> None:
    """Log a failure of the background work and exit, so that the supervisor restarts the process.

    If the application retires, only log the failure: it ends soon, and its successor may serve in the same process.
    """
    if not work.cancelled() and (error := work.exception()) is not None:
        log.critical("the background work failed", exc_info=error)
        if not intake.is_retiring:
            raise SystemExit(1)


async def _forget(_request: Request, _error: Exception) -> Response:
    """End a request whose client disconnected while its body was read. This is no failure, and needs no response."""
    return Response(status_code=HTTPStatus.BAD_REQUEST)


async def _answer_error(request: Request, error: Exception) -> Response:
    # A page of several boards has all their ids in its path.
    if isinstance(error, EpochLostError):
        named = request.path_params.get("board", "").split(",")
        if error.board and error.board in named:  # a loss of the whole store names no board
            error = await live_of(request).registry.explain(error.board, error, reader_of(request))
    if isinstance(error, HTTPException):
        error = explain_route(request, error)
    if request.scope["path"].startswith(FOR_PROGRAMS):
        return await answer_problem(request, error)
    try:
        page = await pages.problem_page(visit_of(request), error)
    except ProblemError as overload:  # the process has too much to do even for an error page
        return await answer_problem(request, overload)
    if isinstance(error, ProblemError):
        page.headers.update(error.headers)
    return page
