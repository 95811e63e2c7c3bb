"""A producer on a WebSocket."""

from typing import Any

import httpx
import msgspec
import pytest
from websockets.asyncio.client import ClientConnection

from tests.harness.raw_socket import PATH

ONE = b'{"key":"a"}'


MAX_BODY = 4096


WAYS = pytest.mark.parametrize("plain", [False, True], ids=["ours", "plain"])


def at(url: str) -> str:
    """The address of the WebSocket."""
    return url.replace("http", "ws", 1) + PATH


async def next_answer(client: ClientConnection) -> dict[str, Any]:
    """The next answer."""
    answer: dict[str, Any] = msgspec.json.decode(await client.recv())
    return answer


async def total(url: str) -> int:
    """The total score of the board."""
    async with httpx.AsyncClient(base_url=url) as http:
        score: int = (await http.get("/v1/boards/posts")).json()["total_score"]
        return score
