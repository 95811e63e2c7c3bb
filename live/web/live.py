"""GET /v1/boards/{board}/live under any ASGI server.

Our own protocol handles it in `live.protocols.websocket.viewer`.
"""

import asyncio

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from live.errors import BAD_REQUEST, CLOSE_CODES, ProblemError
from live.fanout.subscription import Subscription
from live.fanout.viewer import ChannelEndedError, PullViewer, count_frames
from live.metrics import SLOW_VIEWERS
from live.web.clients import client_of
from live.web.problems import problem_response, upgrade_required
from live.web.state import live_of

log = structlog.get_logger()


async def watch_board(websocket: WebSocket) -> None:
    """Send a sync and then updates, until the viewer disconnects or is too slow."""
    live, client = live_of(websocket), client_of(websocket)
    try:
        client.require_origin(live.settings.allowed_origins)
        board = live.board(websocket.path_params["board"])
        subscription = Subscription.parse(websocket.query_params, live.settings)
        with live.hub.watch(board.id, subscription, client.address) as viewer:
            await websocket.accept()
            sending = asyncio.create_task(_send(websocket, viewer, live.settings.slow_timeout))
            leaving = asyncio.create_task(_await_leaving(websocket))
            try:
                await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                sending.cancel()
                leaving.cancel()
                for fault in await asyncio.gather(sending, leaving, return_exceptions=True):
                    if isinstance(fault, Exception):
                        log.error("a viewer's task failed", board=board.id, exc_info=fault)
    except ProblemError as problem:
        await websocket.send_denial_response(problem_response(problem))


async def refuse_plain(request: Request) -> Response:
    """Refuse a request for the live route that is not a WebSocket handshake."""
    live_of(request).board(request.path_params["board"])
    return upgrade_required()


async def _send(websocket: WebSocket, viewer: PullViewer, slow_timeout: float) -> None:
    while True:
        try:
            frame = await viewer.next_frame()
        except ChannelEndedError as end:
            await websocket.close(end.code, CLOSE_CODES[end.code].reason)
            return
        try:
            async with asyncio.timeout(slow_timeout):
                await websocket.send_text(frame.text)
            count_frames(frame, 1, len(frame.payload))
        except TimeoutError:
            # No close frame would get through either. The kernel drops the connection (TCP_USER_TIMEOUT, see serve).
            SLOW_VIEWERS.inc()
            return
        except WebSocketDisconnect:
            return


async def _await_leaving(websocket: WebSocket) -> None:
    """Wait until the viewer disconnects. One that sends a message is disconnected."""
    message = await websocket.receive()
    if message["type"] == "websocket.receive":
        await websocket.close(BAD_REQUEST, CLOSE_CODES[BAD_REQUEST].reason)
