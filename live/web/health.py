"""GET /healthz and GET /readyz: whether the process runs, and whether it can serve."""

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from live import __version__
from live.domain.reader import ALL_BOARDS
from live.system.version import commit
from live.web.http.responses import problem_response, public_reason
from live.web.services import live_of, reader_of

_REASONS_ELSEWHERE: Final = (
    "the log of the server has the reasons, and `/readyz` tells them to an API key that may read all boards"
)


async def get_health(_request: Request) -> Response:
    """Check that the process runs.

    The status is 200 while the process runs.
    """
    state = {"status": "ok", "version": __version__, "commit": commit()}
    return Response(msgspec.json.encode(state), headers={"Cache-Control": "no-store"}, media_type="application/json")


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
        if not live.intake.is_retiring:  # after a reload, another application serves in its place
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
    return Response(msgspec.json.encode(state), headers={"Cache-Control": "no-store"}, media_type="application/json")
