"""The driver, in its own process that is not measured: sends prepared requests and does little with the answers.

It reads a `Plan` as a line of JSON, prints `ready` once it is connected and warm, starts at the next line, and prints
`done` when every request is answered. A wrong answer ends it with status 1.
"""

import asyncio
import gc
import sys
from typing import Final

import msgspec
import uvloop

from bench.connections import Connection, Sending, WrongAnswerError, make_connection
from bench.plans import Plan
from bench.requests import make_requests

_DEADLINE: Final = 90.0


async def drive(plan: Plan) -> None:
    """Carry out a plan."""
    requests = make_requests(plan)
    warmup = plan.load.warmup
    async with asyncio.timeout(_DEADLINE):
        connections = [await _connect(plan) for _ in range(plan.load.connections)]
        if warmup:
            await _send_all(connections, requests[:warmup])
        gc.collect()
        gc.freeze()  # otherwise the garbage collector would scan the requests again and again
        print("ready", flush=True)
        sys.stdin.readline()  # this blocks the loop, which has nothing else to do
        await _send_all(connections, requests[warmup:])
    print("done", flush=True)


async def _connect(plan: Plan) -> Connection:
    loop = asyncio.get_running_loop()
    connection = make_connection(plan)
    if plan.address.startswith("/"):
        await loop.create_unix_connection(lambda: connection, plan.address)
    else:
        host, _, port = plan.address.rpartition(":")
        await loop.create_connection(lambda: connection, host, int(port))
    await connection.opened
    return connection


async def _send_all(connections: list[Connection], requests: list[bytes]) -> None:
    sending = Sending(requests)
    for connection in connections:
        connection.send(sending)
    await sending.done


if __name__ == "__main__":
    try:
        uvloop.run(drive(msgspec.json.decode(sys.stdin.readline(), type=Plan)))
    except (WrongAnswerError, TimeoutError, OSError) as failure:
        sys.exit(f"driver: {failure!r}")
