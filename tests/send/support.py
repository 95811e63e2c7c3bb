"""Helpers for tests of `live send`: files of events and the scores of a board."""

import csv
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec

from live.send.run import ProgressFile, SendOptions, SendOutcome, progress_path, send_file

Event = dict[str, Any]
TOO_LARGE = b'{"key":"%s"}\n' % (b"x" * 300_000)  # a line that the server refuses with its whole batch


async def send(path: Path, url: str, **options: Any) -> SendOutcome:
    """Send a file."""
    return await send_file(SendOptions(path=path, url=url, **options), lambda *_: None)


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
    """Make this many likes."""
    return [{"key": f"k{i % keys}"} for i in range(count)]


def sums(events: Sequence[Event]) -> dict[str, int]:
    """The scores of a board that has counted each event once."""
    totals: dict[str, int] = {}
    for event in events:
        totals[event["key"]] = totals.get(event["key"], 0) + event.get("amount", 1)
    return totals


def noted(options: SendOptions) -> ProgressFile | None:
    """The saved progress of a run."""
    path = progress_path(options)
    return msgspec.json.decode(path.read_bytes(), type=ProgressFile) if path.exists() else None
