"""GET /metrics: the metrics of all worker processes together, for Prometheus."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from live.domain.reader import ALL_BOARDS, BoardScope, Reader
from live.errors import ProblemError, StoreUnavailableError
from live.ingest.replies import Reply
from live.metrics import DISK_USED, QUEUE_LENGTH, STORE_MEMORY_USED, OfBoards
from live.protocols.http.request_counts import RequestTally
from live.store.registry.memory import memory_of
from live.system.disk import used_of
from live.web.activity import collectors
from live.web.http.middleware import client_of
from live.web.http.responses import as_response
from live.web.services import Live, live_of, reader_of

_RENEWED_EVERY: Final = 1.0  # seconds
_MEASURED_EVERY: Final = 10.0


async def renew_metrics(live: Live, tally: RequestTally) -> None:
    """Update the metrics whose values are counted elsewhere, until cancelled."""
    lengths: dict[str, Callable[[], int]] = {
        "events": lambda: live.registry.events_waiting,
        "bodies": lambda: live.bodies.waiting,
        "boards": lambda: len(live.hub.schedule),
        "pages": lambda: live.drawings.turns.waiting,
    }
    counted = dict.fromkeys(lengths, 0)  # lengths that this task added; a successor in the process adds its own lengths
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


async def measure_room(live: Live) -> None:
    """Update the metrics of the disk and of the store's memory, until cancelled."""
    while True:
        with suppress(OSError):  # the readiness check says what is wrong with the data directory
            DISK_USED.set(used_of(live.settings.data_dir))
        with suppress(StoreUnavailableError):
            memory = await memory_of(live.client)
            STORE_MEMORY_USED.set(max((used / most for used, most in memory.values() if most), default=0))
        await asyncio.sleep(_MEASURED_EVERY)


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
    collector, totals = collectors()
    registry = CollectorRegistry()
    registry.register(OfBoards(collector, boards))
    registry.register(totals)
    return generate_latest(registry)
