"""A walk over a whole ranking while it changes."""

import asyncio
import random
from typing import get_args

import httpx
import msgspec
import pytest

from live.domain.choices import Ties
from live.domain.views import BoardPage
from tests.harness.stage import Stage, stage, until


@pytest.mark.slow
@pytest.mark.parametrize("ties", get_args(Ties))
async def test_a_walk_covers_a_changing_ranking(valkey_url: str, ties: Ties) -> None:
    """In both directions, the walk over 20,000 records meets each record that does not change exactly once."""
    await walk_over(valkey_url, 20_000, ties)


@pytest.mark.slow
async def test_a_walk_covers_a_large_ranking(valkey_url: str) -> None:
    """The walk also works with four times as many records."""
    await walk_over(valkey_url, 80_000, "key")


async def walk_over(store: str, count: int, ties: Ties) -> None:
    """Walk over a board with `count` records, a tenth of which change all the time."""
    chance = random.Random(10)
    done = asyncio.Event()
    text = f'[[board]]\nid = "posts"\nwindow = "forever"\nties = "{ties}"\n'
    async with stage(store, text, rate=0) as boards:
        for first in range(0, count, 1000):
            numbers = range(first, min(count, first + 1000))
            await accept_raw(boards.http, [{"key": f"k{n}", "amount": 1 + n * 7919 % (count // 5)} for n in numbers])

        async def move() -> int:
            moves = 0
            while not done.is_set():
                movers = [chance.randrange(0, count, 10) for _ in range(100)]
                await accept_raw(boards.http, [{"key": f"k{n}", "amount": chance.randint(-50, 50)} for n in movers])
                moves += 1
            return moves

        size = max(500, count // 500)
        walks, moves = await asyncio.gather(until(there_and_back(boards, size), done), move())
        still = {f"k{n}" for n in range(count) if n % 10}
        for walk in walks:
            found = [record.member for page in walk for record in page.records if record.member in still]
            assert len(found) == len(set(found)) == len(still)
            placed = [
                (-record.score, record.member) for page in walk for record in page.records if record.member in still
            ]
            assert [score for score, _ in placed] == sorted(score for score, _ in placed)
        assert moves > 5
        if count <= 20_000:
            await boards.shown("posts")


async def there_and_back(boards: Stage, size: int) -> tuple[list[BoardPage], list[BoardPage]]:
    """Read all pages forward and then backward. Both lists are in the order of the ranking, with the last page."""
    forth = await boards.walk("posts", size)
    back = await boards.walk_back("posts", size, forth[-1])
    return forth, back[::-1]


async def accept_raw(http: httpx.AsyncClient, events: list[dict[str, object]]) -> None:
    """Post many events."""
    body = msgspec.json.encode(events)
    response = await http.post("/v1/events", content=body, headers={"Content-Type": "application/json"})
    assert response.json()["accepted"] == len(events), response.text
