"""The composition root: it puts the parts of one process together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from multiprocessing import parent_process

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp

from live.auth.authenticator import Authenticator
from live.auth.client import ClientResolver
from live.auth.rate_limiter import RateLimiter
from live.auth.visitors import Visitors
from live.boards.admin import BoardAdmin
from live.boards.players import PlayerProcess
from live.boards.readiness import Readiness
from live.boards.registry import BoardRegistry
from live.demo import send_likes
from live.domain.board import Boards
from live.domain.board_file import load_boards
from live.errors import EpochLostError, ProblemError, StoreUnavailableError
from live.fanout.hub import Hub
from live.ingest.intake import Intake
from live.journal.database import open_journal
from live.journal.log.drainer import Drainer
from live.journal.past.pool import Past
from live.logs import configure_logs
from live.protocols.body_budget import BodyBudget
from live.protocols.connection_limits import ConnectionLimits
from live.protocols.http.shared import SharedParts
from live.protocols.viewer_reaper import ViewerReaper
from live.settings import Settings, load_settings
from live.store.board.keys import SystemKeys
from live.store.board.read.baseline import Baselines
from live.store.board.read.single_flight import SharedPages
from live.store.board.read.slots import TopSlots
from live.store.connection.client import connect
from live.store.connection.loss import LossWatch
from live.store.registry.idempotency import Answers
from live.store.registry.items import Items
from live.store.registry.presence import Presence
from live.store.registry.processes import ProcessLease
from live.system.processes import end_with_parent, relax_collector
from live.web.http.drawings import Drawings
from live.web.http.middleware import Clients, CrossOrigin, SecurityHeaders
from live.web.http.responses import Derived, answer_problem
from live.web.pages import board as pages
from live.web.pages.charts import RankCharts
from live.web.pages.rendering import make_templates
from live.web.reads.fast import FastReads
from live.web.routes import routes_of
from live.web.services import Live, live_of

log = structlog.get_logger()


def make_app(settings: Settings, all_boards: Boards) -> ASGIApp:
    """Make the application of one process. `settings.store` is the URL of the store."""
    clients = ClientResolver(settings)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, object]]:
        parts = app.state.live = make_parts(settings, all_boards, clients)
        with suppress(StoreUnavailableError, EpochLostError):
            await parts.authenticator.open()  # so that the first request of a producer is not refused
            await parts.registry.refresh()
        connection = SharedParts(
            settings=settings,
            authenticator=parts.authenticator,
            rate_limiter=parts.rate_limiter,
            clients=clients,
            intake=parts.intake,
            limits=parts.limits,
            bodies=parts.bodies,
            reaper=parts.reaper,
            reads=FastReads(parts, clients, app),
            ask_soon=parts.registry.ask_soon,
        )
        work = asyncio.create_task(_work(parts))
        work.add_done_callback(_report)
        try:
            yield {"parts": connection}
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work
            with suppress(StoreUnavailableError):
                await parts.presence.leave()
                await parts.registry.leave()
            await parts.rate_limiter.close()
            await parts.client.aclose()
            if parts.journal is not None:
                await parts.journal.aclose()
            if parts.past is not None:
                parts.past.close()
            if parts.players is not None:
                parts.players.close()

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
    app.router.redirect_slashes = False  # one URL for each resource; and a redirect would trust the Host header
    # The headers are outermost, so that error responses have them too.
    return SecurityHeaders(Clients(CrossOrigin(app, settings.allowed_origins), clients, settings.root_path))


def app_from_environment() -> ASGIApp:
    """Make the application of a worker process, with settings from the environment."""
    parent = parent_process()
    assert parent is not None and parent.pid is not None, "a worker is started by the supervisor"  # noqa: S101, PT018
    end_with_parent(parent.pid)
    settings = load_settings()
    configure_logs(settings.log_level)
    relax_collector()
    return make_app(settings, load_boards(settings.boards))


def make_parts(settings: Settings, all_boards: Boards, clients: ClientResolver) -> Live:
    """Make the parts of a process, not running yet."""
    client = connect(settings.store, settings)
    losses = LossWatch(client, settings.key_prefix)
    losses.guard_connections()
    answers, authenticator = Answers(client, settings), Authenticator(client, settings)
    rate_limiter, limits = RateLimiter(client, settings), ConnectionLimits(settings, clients.trusts)
    presence = Presence(client, settings.key_prefix)
    players = None if settings.journal == "off" else PlayerProcess(settings)
    hub, board_admin = Hub(client, (), settings, presence, players), BoardAdmin(client, settings, all_boards)
    registry = BoardRegistry(client, settings, hub, board_admin)
    intake = Intake(
        settings, registry.boards, registry.committers, authenticator, rate_limiter, answers, registry.ask_soon
    )
    registry.publish = intake.set_boards
    return Live(
        settings=settings,
        client=client,
        registry=registry,
        board_admin=board_admin,
        readiness=Readiness(client, settings, registry),
        authenticator=authenticator,
        rate_limiter=rate_limiter,
        visitors=Visitors(client, settings.key_prefix),
        intake=intake,
        limits=limits,
        bodies=BodyBudget(settings, limits, clients.trusts),
        hub=hub,
        reaper=ViewerReaper(hub, settings.slow_timeout),
        presence=presence,
        items=Items(client, settings.key_prefix, settings.max_items),
        losses=losses,
        reads=SharedPages(presence),
        top_slots=TopSlots(),
        baselines=Baselines(),
        encoded=Derived(),
        trend_lines=Derived(),
        drawings=Drawings(),
        metrics=Drawings(),
        templates=make_templates(settings.root_path),
        journal=open_journal(settings, writes=settings.role != "viewers"),
        past=None if settings.journal == "off" else Past(settings),
        players=players,
        rank_charts=RankCharts(),
    )


async def _work(parts: Live) -> None:
    """Run everything that is not a request."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(parts.registry.run())
        if parts.settings.role != "ingest":
            tasks.create_task(parts.hub.run())
            tasks.create_task(parts.reaper.run())
        if parts.settings.role != "viewers" and parts.journal is not None:
            drainer = Drainer(parts.client, parts.settings, parts.journal, lambda: parts.registry.boards)
            tasks.create_task(drainer.run())
        tasks.create_task(parts.authenticator.run())
        tasks.create_task(parts.limits.run())
        tasks.create_task(parts.bodies.run())
        tasks.create_task(parts.losses.run())
        if parts.settings.demo:
            lease = ProcessLease(parts.client, SystemKeys(parts.settings.key_prefix).demo)  # in one of all processes
            for name, committer in parts.registry.committers.items():
                if committer.state.board.clock == "server":
                    tasks.create_task(send_likes(parts.registry.ledgers[name].reader, committer, lease))
                    break
            else:
                log.warning("the demo needs a board with the server's clock, and there is none")


def _report(work: "asyncio.Task[None]") -> None:
    """Log a failure of the background work and exit, so that the supervisor restarts the process."""
    if not work.cancelled() and (error := work.exception()) is not None:
        log.critical("the background work failed", exc_info=error)
        raise SystemExit(1)


async def _forget(_request: Request, _error: Exception) -> Response:
    """End a request whose client left while its body was read: that is no failure, and nobody receives the response."""
    return Response(status_code=HTTPStatus.BAD_REQUEST)


async def _answer_error(request: Request, error: Exception) -> Response:
    if isinstance(error, EpochLostError) and "board" in request.path_params:
        error = await live_of(request).registry.explain(request.path_params["board"], error)
    if request.scope["path"].startswith("/v1/"):
        return await answer_problem(request, error)
    try:
        page = await pages.problem_page(request, error)
    except ProblemError as overload:  # then not even an error can be drawn
        return await answer_problem(request, overload)
    if isinstance(error, HTTPException) and error.headers:
        page.headers.update(error.headers)
    return page
