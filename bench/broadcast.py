"""A peer for `fan-out`: `websockets.broadcast` on uvloop sends one payload to every client per tick.

`python -m bench.broadcast PAYLOAD_BYTES TICK_SECONDS` serves the broadcast and prints its address.
"""

import asyncio
import sys

import uvloop
from websockets.asyncio.server import ServerConnection, broadcast, serve


async def _serve(size: int, tick: float) -> None:
    clients: set[ServerConnection] = set()

    async def stay(client: ServerConnection) -> None:
        clients.add(client)
        try:
            await client.wait_closed()
        finally:
            clients.discard(client)

    payload = "x" * size
    async with serve(stay, "127.0.0.1", 0, backlog=4096, compression=None) as server:
        print(f"at http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/", flush=True)
        due = asyncio.get_running_loop().time()
        while True:
            due += tick
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            broadcast(clients, payload)


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]), float(sys.argv[2])))
