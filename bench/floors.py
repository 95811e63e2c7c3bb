"""The HTTP baseline: an ASGI endpoint that does nothing, in one uvicorn process configured like `live serve`.

Its answer is as long as ours to a POST of one event. `python -m bench.floors` serves it and prints its address.
"""

import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal

import uvicorn

ANSWER: Final = b'{"accepted":1,"duplicate":0,"rejected":[],"offsets":{"posts":12345}}'
_HEADERS: Final = [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())]


async def do_nothing(
    _scope: dict[str, Any], _receive: object, send: Callable[[dict[str, Any]], Awaitable[None]]
) -> None:
    """Answer immediately and ignore the request."""
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": ANSWER})


def serve(app: Callable[..., Awaitable[None]], lifespan: Literal["on", "off"] = "off") -> None:
    """Serve an application until stopped."""
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
        print(f"at http://127.0.0.1:{listener.getsockname()[1]}/", flush=True)
        config = uvicorn.Config(
            app,
            lifespan=lifespan,
            http="httptools",
            loop="uvloop",
            server_header=False,
            access_log=False,
            log_config=None,
            proxy_headers=False,
        )
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    serve(do_nothing)
