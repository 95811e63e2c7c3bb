"""Health and metrics, for operators."""

import os
from pathlib import Path

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from live.metrics import REGISTRY, OfBoards
from live.web.state import live_of


async def healthz(_request: Request) -> Response:
    """Respond with 200 while the process runs."""
    return Response('{"status":"ok"}', headers={"Cache-Control": "no-store"}, media_type="application/json")


async def readyz(request: Request) -> Response:
    """Respond with 200 if the store accepts a write and holds the boards of this process.

    The response says what is wrong with the journal, which all servers share and which does not stop this one.

    Raises:
        StoreUnavailableError: the store does not answer, or refuses the write.
        EpochLostError: the store lost data.
    """
    live_of(request).client.witness.require_no_loss()
    faults = await live_of(request).readiness.require()
    state: dict[str, object] = {"status": "ready"}
    if live_of(request).settings.journal != "off":
        state |= {"journal": "degraded" if faults else "ok", "reasons": faults}
    return Response(msgspec.json.encode(state), headers={"Cache-Control": "no-store"}, media_type="application/json")


async def metrics(request: Request) -> Response:
    """Return the metrics of this process, or of all worker processes together."""
    collector: Collector = REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        _forget_the_dead(Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]))
        collector = MultiProcessCollector(None)  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    registry.register(OfBoards(collector, live_of(request).boards.by_id.keys()))
    return Response(generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _forget_the_dead(folder: Path) -> None:
    """Drop the gauges of worker processes that have ended."""
    for path in folder.glob("gauge_live*.db"):
        pid = path.stem.rpartition("_")[2]
        if not Path(f"/proc/{pid}").exists():
            mark_process_dead(int(pid))  # type: ignore[no-untyped-call]
