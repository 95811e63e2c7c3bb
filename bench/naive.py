"""A peer: the handler that anybody would write, on the same uvicorn as the floor.

It decodes the JSON and makes its own calls of the store, one after another; nothing is checked, and nothing is shared
between requests but the pool of connections. `python -m bench.naive SOCKET` serves it on the store behind that socket.
"""

import sys

from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from bench.floors import serve
from bench.plans import BARE_RANKING, BARE_SLOT


def make_app(store: Redis) -> Starlette:
    """One route, two calls."""

    async def post_event(request: Request) -> JSONResponse:
        event = await request.json()
        key, amount = event["key"], event.get("amount", 1)
        await store.hincrby(BARE_SLOT, key, amount)
        score = await store.zincrby(BARE_RANKING, amount, key)
        return JSONResponse({"accepted": 1, "duplicate": 0, "rejected": [], "offsets": {"posts": score}})

    return Starlette(routes=[Route("/v1/events", post_event, methods=["POST"])])


if __name__ == "__main__":
    serve(make_app(Redis(unix_socket_path=sys.argv[1])))
