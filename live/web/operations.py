"""Health and metrics, for operators."""

import asyncio
from collections.abc import Callable, Collection
from http import HTTPStatus
from typing import Final

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from live import __version__
from live.domain.reader import ALL_BOARDS, BoardScope, Reader
from live.errors import ProblemError
from live.ingest.replies import Reply
from live.metrics import QUEUE_LENGTH, OfBoards
from live.protocols.http.request_counts import RequestTally
from live.system.version import commit
from live.web.activity import collecting
from live.web.http.middleware import client_of
from live.web.http.responses import as_response, problem_response, public_reason
from live.web.services import Live, live_of, reader_of

_RENEWED_EVERY: Final = 1.0  # seconds
_REASONS_ELSEWHERE: Final = (
    "the log of the server has the reasons, and `/readyz` tells them to an API key that may read all boards"
)


async def healthz(_request: Request) -> Response:
    """Respond with 200 while the process runs, and name its version."""
    state = {"status": "ok", "version": __version__, "commit": commit()}
    return Response(msgspec.json.encode(state), headers={"Cache-Control": "no-store"}, media_type="application/json")


async def readyz(request: Request) -> Response:
    """Respond with 200 if the store accepts a write and holds the boards of this process, otherwise with the reasons.

    The response of a ready process also has the faults of the journal. All servers share the journal, and its failure
    does not stop this process.
    """
    live = live_of(request)
    # The reasons can name boards, so private boards must not be revealed.
    may_know = not live.registry.ledgers.has_private or reader_of(request).opens is ALL_BOARDS
    try:
        if not live.intake.is_retiring:  # else another application serves in its place
            live.hub.require_running()
        faults = await live.readiness.require()
    except Exception as error:  # noqa: BLE001 - whatever it is, a load balancer has to know
        response = problem_response(error)
        reasons = [public_reason(error) if may_know else _REASONS_ELSEWHERE]
        response.body = msgspec.json.encode({"status": "not_ready", "reasons": reasons})
        response.headers.update({"Content-Type": "application/json", "Content-Length": str(len(response.body))})
        return response
    state: dict[str, object] = {"status": "ready"}
    if live.settings.journal != "off":
        state |= {"journal": "degraded" if faults.journal else "ok"}
    if live.settings.journal != "off" or faults.boards:
        reasons = faults.boards + faults.journal
        state |= {"reasons": [_REASONS_ELSEWHERE] if reasons and not may_know else reasons}
    return Response(msgspec.json.encode(state), headers={"Cache-Control": "no-store"}, media_type="application/json")


async def renew_metrics(live: Live, tally: RequestTally) -> None:
    """Update the metrics whose values are counted elsewhere, until cancelled."""
    lengths: dict[str, Callable[[], int]] = {
        "events": lambda: live.registry.events_waiting,
        "bodies": lambda: live.bodies.waiting,
        "boards": lambda: len(live.hub.schedule),
        "pages": lambda: live.drawings.queue.waiting,
    }
    counted = dict.fromkeys(lengths, 0)  # in the metric, to which a successor in the same process adds its own
    try:
        while True:
            tally.fold()
            for queue, length in lengths.items():
                QUEUE_LENGTH.labels(queue).inc((now := length()) - counted[queue])
                counted[queue] = now
            await asyncio.sleep(_RENEWED_EVERY)
    finally:
        tally.fold()
        for queue, last in counted.items():
            QUEUE_LENGTH.labels(queue).dec(last)


async def metrics(request: Request) -> Response:
    """Return the metrics of this process, or of all worker processes together. They do not wait for pages.

    Raises:
        ProblemError: `not_found`, `credentials_required`, `credentials_invalid` or `scope_forbidden`.
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

    return as_response(await live.metrics.of(client_of(request).network, ("metrics", b"", opens), draw))


def _opened(request: Request) -> BoardScope:
    """Return the private boards that the API key of a request opens.

    Raises:
        ProblemError: `credentials_required`, `credentials_invalid` or `scope_forbidden`.
        StoreUnavailableError: the API keys can't be checked now.
    """
    authorization = request.headers.get("authorization")
    raw = None if authorization is None else authorization.encode("latin-1")
    producer = live_of(request).authenticator.identify(raw, client_of(request), "read")
    if "admin" not in producer.verbs:
        producer.require("read")
    reader_of(request)  # this marks the response as private, so that no cache keeps it
    return producer.opens


def _metrics_of(boards: Collection[str]) -> bytes:
    with collecting() as (collector, totals):
        registry = CollectorRegistry()
        registry.register(OfBoards(collector, boards))
        registry.register(totals)
        return generate_latest(registry)
