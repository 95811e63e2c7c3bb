"""Health and metrics for operators: whether a process runs, whether it can serve, and figures for Prometheus."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from http import HTTPStatus
from typing import Final

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from live import __version__
from live.domain.reader import ALL_BOARDS, BoardScope, Reader
from live.errors import ProblemError, StoreUnavailableError
from live.http.reply import Reply
from live.metrics import DISK_USED, QUEUE_LENGTH, STORE_MEMORY_USED, OfBoards
from live.store.registry.memory import memory_of
from live.system.data_directory import used_of
from live.system.version import commit
from live.web.activity import collectors
from live.web.middleware import READER, authorization_of, requester_of
from live.web.parts import Live, live_of, reader_of
from live.web.responses import NOT_KEPT, as_response, json_response, problem_response, public_reason

_RENEWED_EVERY: Final = 1.0  # seconds
_MEASURED_EVERY: Final = 10.0
_REASONS_ELSEWHERE: Final = (
    "the log of the server has the reasons, and `/readyz` tells them to an API key that may read all boards"
)


async def renew_metrics(live: Live) -> None:
    """Update the metrics whose values are counted elsewhere, until cancelled."""
    lengths: dict[str, Callable[[], int]] = {
        "events": lambda: live.registry.events_waiting,
        "bodies": lambda: live.limits.waiting,
        "boards": lambda: len(live.hub.schedule),
        "pages": lambda: live.drawings.turns.waiting,
    }
    counted = dict.fromkeys(lengths, 0)  # lengths that this task added; a successor in the process adds its own lengths
    try:
        while True:
            live.tally.fold()
            for queue, length in lengths.items():
                QUEUE_LENGTH.labels(queue).inc((now := length()) - counted[queue])
                counted[queue] = now
            await asyncio.sleep(_RENEWED_EVERY)
    finally:
        live.tally.fold()
        for queue, last in counted.items():
            QUEUE_LENGTH.labels(queue).dec(last)


async def measure_room(live: Live) -> None:
    """Update the metrics of the disk and of the store's memory, until cancelled."""
    while True:
        with suppress(OSError):  # the readiness check says what is wrong with the data directory
            DISK_USED.set(used_of(live.settings.data_dir))
        with suppress(StoreUnavailableError):
            memory = await memory_of(live.client)
            STORE_MEMORY_USED.set(max((used / most for used, most in memory.values() if most), default=0))
        await asyncio.sleep(_MEASURED_EVERY)


async def get_health(_request: Request) -> Response:
    """Check that the process runs.

    The status is 200 while the process runs.
    """
    state = {"status": "ok", "version": __version__, "commit": commit()}
    return json_response(state, NOT_KEPT)


async def get_readiness(request: Request) -> Response:
    """Check that the process can count.

    The check writes to the store.

    The response of a ready process also has the faults of single boards and of the journal. All servers share the
    journal, and its failure does not stop this process. If a clock is wrong or the disk is full, the process is
    `degraded`.
    """
    live = live_of(request)
    # The reasons can name boards, so private boards must not be revealed.
    may_know = not live.registry.ledgers.has_private or reader_of(request).opens is ALL_BOARDS
    try:
        live.hub.require_running()
        faults = await live.readiness.require()
    except Exception as error:  # noqa: BLE001 - whatever it is, a load balancer has to know
        response = problem_response(error)
        reasons = [public_reason(error) if may_know else _REASONS_ELSEWHERE]
        response.body = msgspec.json.encode({"status": "not_ready", "reasons": reasons})
        response.headers.update({"Content-Type": "application/json", "Content-Length": str(len(response.body))})
        return response
    state: dict[str, object] = {"status": "degraded" if faults.machine else "ready"}
    if live.settings.journal != "off":
        state |= {"journal": "degraded" if faults.journal else "ok"}
    if live.settings.journal != "off" or faults.boards or faults.machine:
        reasons = faults.machine + faults.boards + faults.journal
        state |= {"reasons": [_REASONS_ELSEWHERE] if reasons and not may_know else reasons}
    return json_response(state, NOT_KEPT)


async def get_metrics(request: Request) -> Response:
    """Read the metrics.

    On a server with a private board, this needs an API key with the verb `read` or `admin`, and the metrics name only
    the boards that the API key includes. `LIVE_METRICS` changes this rule.
    """
    live, who = live_of(request), live_of(request).settings.metrics
    if who == "off":
        raise ProblemError("not_found", "LIVE_METRICS is `off` on this server")
    opens = ALL_BOARDS
    if who == "key" or (who == "auto" and live.registry.ledgers.has_private):
        opens = _opened(request)
    boards = {ledger.state.board.id for ledger in live.registry.ledgers.all(Reader(opens))}

    async def draw() -> Reply:
        body = await asyncio.to_thread(_metrics_of, boards)
        return Reply(HTTPStatus.OK, CONTENT_TYPE_LATEST.encode(), body)

    return as_response(await live.metrics.of(requester_of(request).network, ("metrics", b"", opens), draw))


def _opened(request: Request) -> BoardScope:
    """Return the private boards that the API key opens.

    Operators need the metrics while the store is away. So the API key is one that was valid when the store last
    answered.
    """
    authorization = authorization_of(request.scope)
    producer = live_of(request).authenticator.identify(authorization, requester_of(request), "read", kept=True)
    if "admin" not in producer.verbs:
        producer.require("read")
    request.scope["extensions"][READER] = Reader(producer.opens)  # no cache keeps a response to it
    return producer.opens


def _metrics_of(boards: Collection[str]) -> bytes:
    collector, totals = collectors()
    registry = CollectorRegistry()
    registry.register(OfBoards(collector, boards))
    registry.register(totals)
    return generate_latest(registry)
