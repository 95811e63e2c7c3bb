"""Helpers of tests/ingest: boards, API keys, summaries of answers, and scores."""

from collections.abc import Mapping
from typing import Any

import httpx

from live.domain.producer import Scope
from live.settings import Settings
from live.store.connection.client import connect
from live.store.registry.producers import ProducerStore
from tests.harness.boards import rolling_board

POSTS, NEWS = rolling_board(), rolling_board(board="news")


async def make_key(settings: Settings, producer: str, **scope: Any) -> str:
    """Create an API key for a producer."""
    client = connect(settings.store, settings)
    _, secret = await ProducerStore(client).add(producer, Scope(**scope))
    await client.aclose()
    return f"{producer}.{secret}"


def summary(answer: Mapping[str, Any]) -> tuple[int, int, list[tuple[Any, ...]]]:
    """A summary of an answer: how many events were accepted, how many were duplicates, and the refusals."""
    left_out = {"detail", "retryable"}
    rejected = [tuple(value for name, value in entry.items() if name not in left_out) for entry in answer["rejected"]]
    return answer["accepted"], answer["duplicate"], rejected


async def scores(client: httpx.AsyncClient, board: str = "posts") -> dict[str, int]:
    """The scores of the members in the top of a board."""
    records = (await client.get(f"/v1/boards/{board}")).json()["records"]
    return {record["key"]: record["score"] for record in records}
