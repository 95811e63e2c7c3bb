"""A viewer that only applies messages."""

import asyncio
from contextlib import suppress

import msgspec
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from live.domain.ranking import Ranks, Record, apply
from live.domain.views import Around, Sync, Update


class ModelViewer:
    """A viewer that only applies messages, as the page does."""

    def __init__(self) -> None:
        self.epoch = ""
        self.offset = -1
        self.rank_count = 0
        self.total_score: int | None = 0
        self.period: str | None = None
        self.ranks: Ranks = "ordinal"
        self.records: list[Record] = []
        self.stale = False
        self.viewers: int | None = None
        self.around: Around | None = None
        self.recovered = False
        self.syncs = self.updates = 0

    def receive(self, text: str | bytes) -> None:
        """Apply one message."""
        message = msgspec.json.decode(text)
        if message["type"] == "status":
            self.stale = message["stale"]
            return
        if message["type"] == "alive":
            return
        if message["type"] == "viewers":
            self.viewers = message["count"]
            return
        if message["type"] == "around":
            assert self.syncs, "a rank came before the records"
            self.around = msgspec.json.decode(text, type=Around)
            return
        if message["type"] == "sync":
            sync = msgspec.json.decode(text, type=Sync)
            self.syncs += 1
            self.records = list(sync.records)
            self.ranks = message.get("ranks", "ordinal")
        else:
            update = msgspec.json.decode(text, type=Update)
            assert (update.epoch, update.since) == (self.epoch, self.offset), "an update leaves out a message"
            self.updates += 1
            self.records = apply(self.records, update.changed, update.removed, self.ranks)
        self.recovered = message.get("recovered", False)
        self.period = message.get("period")
        self.epoch, self.offset = message["epoch"], message["offset"]
        self.rank_count, self.total_score = message["rank_count"], message["total_score"]


async def keep_watching(url: str, model: ModelViewer) -> None:
    """Pass the messages of a board on to a viewer. Connect again after each end."""
    while True:
        with suppress(WebSocketException, OSError):
            async with connect(url) as connection:
                async for message in connection:
                    model.receive(message)
        await asyncio.sleep(0.05)
