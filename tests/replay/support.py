"""Helpers for tests of a replay: files of events, the scores of a board, and a proxy that loses data."""

import asyncio
import csv
import gzip
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from live.replay.memory import Note, note_path
from live.replay.options import Options
from live.replay.run import Outcome, replay

Event = dict[str, Any]


async def send(path: Path, url: str, **options: Any) -> Outcome:
    """Replay a file."""
    return await replay(Options(path=path, url=url, **options), lambda *_: None)


async def scores(url: str, board: str = "posts") -> dict[str, int]:
    """The scores of a whole board."""
    async with httpx.AsyncClient() as client:
        page = (await client.get(f"{url}/v1/boards/{board}?limit=1000")).json()
    return {record["key"]: record["score"] for record in page["records"]}


def write(path: Path, events: Sequence[Event]) -> Path:
    """Write events in the format that the file's name says."""
    packed = path.suffix == ".gz"
    with gzip.open(path, "wt", encoding="utf-8") if packed else path.open("w", encoding="utf-8", newline="") as file:
        if ".csv" in path.name.lower():
            writer = csv.DictWriter(file, ["key", "amount", "type"])
            writer.writeheader()
            writer.writerows(events)
        else:
            file.writelines(json.dumps(event) + "\n" for event in events)
    return path


def many(count: int, keys: int = 7) -> list[Event]:
    """This many likes."""
    return [{"key": f"k{i % keys}"} for i in range(count)]


def sums(events: Sequence[Event]) -> dict[str, int]:
    """The scores of a board that has counted each event once."""
    totals: dict[str, int] = {}
    for event in events:
        totals[event["key"]] = totals.get(event["key"], 0) + event.get("amount", 1)
    return totals


def noted(options: Options) -> Note | None:
    """What the command remembers of a replay."""
    path = note_path(options)
    return msgspec.json.decode(path.read_bytes(), type=Note) if path.exists() else None


class Proxy:
    """A proxy in front of a server. It loses requests and answers at random, or holds all answers back."""

    def __init__(self, server: str, share: float, seed: int) -> None:
        self.url = ""
        self.lost_requests = self.lost_answers = self.answers = 0
        self.share = share  # of all chunks that are lost, in each direction
        self.silent = False  # answers are held back, and the connection stays open
        self.went_silent = asyncio.Event()
        self._server = urlsplit(server)
        self._chance = random.Random(seed)
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Accept a connection."""
        task = asyncio.create_task(self._forth(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        """Close all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _forth(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection(self._server.hostname, self._server.port)
        returning = asyncio.create_task(self._back(upstream_reader, writer))
        try:
            with suppress(ConnectionError):
                while piece := await reader.read(1 << 20):
                    if self._chance.random() < self.share:
                        self.lost_requests += 1
                        break
                    upstream_writer.write(piece)
            upstream_writer.close()
            await returning
        finally:
            returning.cancel()
            upstream_writer.close()
            writer.close()

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held = False
        with suppress(ConnectionError):
            while piece := await reader.read(1 << 20):
                if self.silent:
                    held = True
                    self.went_silent.set()
                    continue
                if self._chance.random() < self.share:
                    self.lost_answers += 1
                    break
                self.answers += 1
                writer.write(piece)
        if not held:
            writer.close()


@asynccontextmanager
async def lossy(server: str, share: float = 0.0, seed: int = 5) -> AsyncIterator[Proxy]:
    """A proxy while in the context."""
    proxy = Proxy(server, share, seed)
    listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        listening.close()
        await proxy.end()
