"""A peer for `fan-out`: the usual Starlette pattern, with a queue per client and a task that sends from it.

`python -m bench.queues PAYLOAD_BYTES TICK_SECONDS` serves the program and prints its address. With a tick of 0, it
sends nothing. The ticks begin when no client has connected for a second, because a program that sends to many clients
is overloaded, and hardly accepts more.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from bench.floors import serve

_QUIET: Final = 1.0  # seconds


def _make_app(size: int, tick: float) -> Starlette:
    queues: set[asyncio.Queue[str]] = set()

    async def stay(websocket: WebSocket) -> None:
        queue: asyncio.Queue[str] = asyncio.Queue()
        await websocket.accept()
        queues.add(queue)
        try:
            while True:
                await websocket.send_text(await queue.get())
        except WebSocketDisconnect:
            pass
        finally:
            queues.discard(queue)

    async def broadcast() -> None:
        payload = "x" * size
        there = 0
        while not queues or len(queues) > there:
            there = len(queues)
            await asyncio.sleep(_QUIET)
        due = asyncio.get_running_loop().time()
        while True:
            due += tick
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            for queue in queues:
                queue.put_nowait(payload)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        broadcasting = asyncio.create_task(broadcast()) if tick else None
        yield
        if broadcasting is not None:
            broadcasting.cancel()

    return Starlette(routes=[WebSocketRoute("/", stay)], lifespan=lifespan)


if __name__ == "__main__":
    serve(_make_app(int(sys.argv[1]), float(sys.argv[2])), lifespan="on")
