"""Posting events."""

from typing import Any

import httpx


async def post(client: httpx.AsyncClient, *events: dict[str, Any]) -> dict[str, Any]:
    """Post events as one array; returns the answer."""
    response = await client.post("/v1/events", json=list(events))
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer
