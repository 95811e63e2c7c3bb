"""GET /v1/events/live under any ASGI server. Our own protocol handles it in `live.protocols.websocket.producer`."""

import asyncio
from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from live.domain.event import Entry
from live.errors import CLOSE_CODES, KEY_REVOKED, ProblemError, StoreUnavailableError
from live.ingest.committer import Committed
from live.ingest.intake import Intake
from live.ingest.replies import Reply, problem_reply
from live.ingest.session import Session
from live.web.clients import client_of
from live.web.problems import problem_response, upgrade_required
from live.web.state import live_of

_MOST_AHEAD: Final = 256


class _Message:
    """One message and its response. It also receives the result for a message with a single event."""

    def __init__(self, intake: Intake, session: Session, body: bytes) -> None:
        self.body = body
        self.entries: Sequence[Entry] = ()
        self.producer = ""
        self.answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._intake = intake
        self._session = session

    def resolve(self, committed: Committed) -> None:
        self.reply(self._intake.reply_to_plain(self._session.head, self.body, committed))

    def reject(self, error: Exception) -> None:
        self.reply(self._intake.reply_to_plain(self._session.head, self.body, error))

    def reply(self, reply: Reply) -> None:
        if not self.answer.done():
            self.answer.set_result(reply)


async def take_messages(websocket: WebSocket) -> None:
    """Respond to each message with the result of its events, in the order of the messages."""
    live, client = live_of(websocket), client_of(websocket)
    try:
        client.require_origin(live.settings.allowed_origins)
        session = Session(live.intake, live.authenticator, live.rate_limiter, websocket.scope["headers"], client)
    except (ProblemError, StoreUnavailableError) as error:
        await websocket.send_denial_response(problem_response(error))
        return
    await websocket.accept()
    messages: asyncio.Queue[_Message] = asyncio.Queue(_MOST_AHEAD)
    answering = asyncio.create_task(_answer(websocket, messages))
    try:
        await _take(websocket, live.intake, session, messages)
        await messages.join()
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)


async def _take(websocket: WebSocket, intake: Intake, session: Session, messages: "asyncio.Queue[_Message]") -> None:
    """Read messages until the producer disconnects or its API key is revoked."""
    while True:
        received = await websocket.receive()
        if received["type"] == "websocket.disconnect":
            return
        text = received.get("text")
        body = received["bytes"] if text is None else text.encode()
        message = _Message(intake, session, body)
        try:
            if not session.admit_now():
                await session.admit()
            await session.submit_when_room(body, message, message.reply)
        except ProblemError:
            await messages.join()
            await websocket.close(KEY_REVOKED, CLOSE_CODES[KEY_REVOKED].reason)
            return
        except StoreUnavailableError as error:
            message.reply(problem_reply(error))
        await messages.put(message)


async def _answer(websocket: WebSocket, messages: "asyncio.Queue[_Message]") -> None:
    while True:
        message = await messages.get()
        reply = await message.answer
        try:
            await websocket.send_text(reply.body.decode())
        except (WebSocketDisconnect, RuntimeError):
            pass  # it disconnected; what it sent is counted
        finally:
            messages.task_done()


async def refuse_plain(_request: Request) -> Response:
    """Refuse a request for the socket that is not a WebSocket handshake."""
    return upgrade_required()
