"""Producers that send events with ids until each event has a final answer, and record what was acknowledged."""

import asyncio
import itertools
import random
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import httpx

_KINDS: Final = (
    "posts", "hits", "names", "sliding", "hours", "week", "coins", "best", "lowest", "newest", "votes", "log",
)  # fmt: skip
_UNDECIDED: Final = "board_unavailable"  # this answer does not say which boards have counted the event
Event = dict[str, Any]


class Acknowledged:
    """The scores of the acknowledged events, by board and member."""

    def __init__(self) -> None:
        self.events = 0
        self.refused: Counter[str] = Counter()
        self._sums: dict[str, Counter[str]] = {kind: Counter() for kind in _KINDS}

    def count(self, event: Event) -> None:
        """Record a counted event."""
        self.events += 1
        kind, member, amount = event["type"], event["key"], event["amount"]
        scores = self._sums[kind]
        match kind:
            case "best":
                scores[member] = max(scores.get(member, amount), amount)
            case "lowest":
                scores[member] = min(scores.get(member, amount), amount)
            case "newest":
                scores[member] = amount
            case _:
                scores[member] += amount

    def scores(self, board: str) -> dict[str, int]:
        """Return the expected scores of a board, also of members that its cap would drop."""
        sums = self._sums.get(board)
        if sums is None:
            sums = Counter({member: 2 * score for member, score in self._sums["posts"].items()})
            sums.update(self._sums["hits"])
        return {member: score for member, score in sums.items() if score or board in ("best", "lowest", "newest")}


class Producer:
    """Sends one body after another, and repeats each body until it has a final answer."""

    def __init__(self, number: int, url: str, chance: random.Random, known: Acknowledged) -> None:
        self._name = f"p{number}"
        self._url = url
        self._chance = chance
        self._known = known
        self._ids = itertools.count()
        self.repeated = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Send until stopped; the last body is still completed."""
        async with httpx.AsyncClient(base_url=self._url, timeout=10) as client:
            while not stop.is_set():
                await self._send(client, [self._event() for _ in range(self._chance.choice([1, 1, 10, 100, 300]))])
                await asyncio.sleep(self._chance.uniform(0, 0.1))

    def _event(self) -> Event:
        chance = self._chance
        kind = chance.choice(_KINDS)
        event: Event = {
            "type": kind, "id": f"{next(self._ids)}", "source": self._name, "key": f"m{chance.randrange(500)}",
            "amount": chance.randint(1, 5),
        }  # fmt: skip
        match kind:
            case "coins":
                event["amount"] = chance.choice([-1, 1, 2])
            case "best" | "lowest":
                event["amount"] = chance.randrange(10**6)
            case "newest":  # no other producer sets this member, so the last answer decides its score
                event |= {"key": f"{self._name}-{chance.randrange(50)}", "amount": chance.randint(1, 100)}
            case "votes":
                event |= {"actor": f"a{chance.randrange(2000)}", "amount": 1}
            case "log":
                time = datetime.now(UTC) - timedelta(seconds=chance.randrange(3600))
                event["time"] = time.isoformat()
        return event

    async def _send(self, client: httpx.AsyncClient, events: list[Event]) -> None:
        while events:
            answer = None
            with suppress(httpx.TransportError):
                response = await client.post("/v1/events", json=events)
                if response.status_code == 200:
                    answer = response.json()
                else:
                    assert response.status_code == 503, response.text
                    self._known.refused[response.json()["code"]] += 1
            if answer is None:
                self.repeated += 1
                await asyncio.sleep(0.05)
                continue
            refused = {one["index"]: one["code"] for one in answer["rejected"]}
            self._known.refused.update(refused.values())
            for index, event in enumerate(events):
                if index not in refused:
                    self._known.count(event)
            events = [events[index] for index, code in refused.items() if code == _UNDECIDED]
