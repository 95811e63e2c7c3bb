"""A peer: the simplest handler that a developer would write, on the same uvicorn as the baseline.

It decodes JSON, and makes two calls to the store one after the other. It checks nothing. Requests share only the
connection pool. `python -m bench.naive SOCKET` serves the handler on the store behind that socket.
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
    """Make an application with one route, which makes two store calls."""

    async def post_event(request: Request) -> JSONResponse:
        event = await request.json()
        member, amount = event["key"], event.get("amount", 1)
        await store.hincrby(BARE_SLOT, member, amount)
        score = await store.zincrby(BARE_RANKING, amount, member)
        return JSONResponse({"accepted": 1, "duplicate": 0, "rejected": [], "offsets": {"posts": score}})

    return Starlette(routes=[Route("/v1/events", post_event, methods=["POST"])])


if __name__ == "__main__":
    serve(make_app(Redis(unix_socket_path=sys.argv[1])))
