"""The application of a process: its start and end, its background work, and its answers to errors."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp

from live import __version__
from live.demo import Demo
from live.errors import EpochLostError, ProblemError, StoreUnavailableError
from live.http.reply import documentation
from live.journal.log.drainer import Drainer
from live.metrics import BUILD_INFO
from live.settings import Settings
from live.store.registry.processes import ProcessLease
from live.system.version import commit
from live.web.api.fast import FastReads
from live.web.api.health import measure_room, renew_metrics
from live.web.contract.operation import FOR_PROGRAMS
from live.web.middleware import Middleware
from live.web.pages import board as pages
from live.web.pages.rendering import make_templates, visit_of
from live.web.parts import Live, live_of, make_parts, reader_of
from live.web.responses import problem_response
from live.web.routes import explain_route, routes_of

log = structlog.get_logger()


def make_app(settings: Settings) -> ASGIApp:
    """Make the application of one process. `settings.store` is the URL of the store."""

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[dict[str, object]]:
        parts = make_parts(settings, make_templates(settings.root_path))
        parts.find_read = FastReads(parts).find
        with suppress(StoreUnavailableError, EpochLostError):
            await parts.authenticator.open()  # otherwise the first request of a producer would be refused
            await parts.registry.refresh()
        work = asyncio.create_task(_work(parts))
        work.add_done_callback(_report)
        try:
            yield {"parts": parts}
        finally:
            work.cancel()
            await asyncio.wait([work])
            await parts.board_admin.aclose()
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
        exception_handlers=dict.fromkeys(
            (ClientDisconnect, ProblemError, StoreUnavailableError, EpochLostError, HTTPException, Exception),
            _answer_error,
        ),
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # each resource has one URL, and a redirect would trust the Host header
    return Middleware(app, settings)


async def _work(parts: Live) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(parts.registry.run())
        tasks.create_task(parts.board_admin.run())
        tasks.create_task(renew_metrics(parts))
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
        tasks.create_task(parts.limits.run())
        tasks.create_task(parts.losses.run())
        if parts.settings.demo:
            # Only one of all processes holds this lease.
            lease = ProcessLease(parts.client, parts.client.system.demo)
            demo = Demo(parts.intake, parts.registry, parts.board_admin, lease)
            tasks.create_task(demo.run(is_alone=parts.settings.boards is None))


def _report(work: "asyncio.Task[None]") -> None:
    """Exit after a failure, so that the supervisor restarts the process."""
    if not work.cancelled() and (error := work.exception()) is not None:
        log.critical("the background work failed", exc_info=error)
        raise SystemExit(1)


async def _answer_error(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):  # while the body was read: this is no failure
        return Response(status_code=HTTPStatus.BAD_REQUEST)
    # A page of several boards has all their ids in its path.
    if isinstance(error, EpochLostError):
        named = request.path_params.get("board", "").split(",")
        if error.board and error.board in named:  # a loss of the whole store names no board
            error = await live_of(request).registry.explain(error.board, error, reader_of(request))
    if isinstance(error, HTTPException):
        error = explain_route(request, error)
    if request.scope["path"].startswith(FOR_PROGRAMS):
        return problem_response(error)
    try:
        page = await pages.problem_page(visit_of(request), error)
    except ProblemError as overload:  # the process has too much to do even for an error page
        return problem_response(overload)
    if isinstance(error, ProblemError):
        page.headers.update(error.headers)
    return page
