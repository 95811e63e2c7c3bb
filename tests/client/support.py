"""Helpers for tests of the client: the board as the API shows it."""

from collections.abc import Sequence

import httpx
import msgspec

from live.client import Event, Top
from live.domain.ranking import Record


class Shown(msgspec.Struct):
    """The fields that the API's page and a `Top` share."""

    epoch: str
    offset: int
    rank_count: int
    total_score: int | None
    records: tuple[Record, ...]


async def shown(url: str, limit: int = 50, board: str = "posts") -> Shown:
    """Return the top of a board as the API shows it."""
    async with httpx.AsyncClient() as client:
        response = await client.get(f"{url}/v1/boards/{board}?limit={limit}")
    assert response.status_code == 200, response.text
    return msgspec.json.decode(response.content, type=Shown)


def same(top: Top, page: Shown) -> bool:
    """Whether a top is live and equal to the page of the API."""
    held = Shown(top.epoch, top.offset, top.rank_count, top.total_score, top.records)
    return held == page and top.stale is None


def sums(events: Sequence[Event]) -> dict[str, int]:
    """The scores of a board that has counted each event once."""
    totals: dict[str, int] = {}
    for event in events:
        totals[event.member] = totals.get(event.member, 0) + (1 if event.amount is None else event.amount)
    return totals


async def scores(url: str) -> dict[str, int]:
    """The scores of a whole board of up to 1,000 members."""
    return {record.member: record.score for record in (await shown(url, 1000)).records}
