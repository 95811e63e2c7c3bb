"""Baselines of boards, put into the store by a test."""

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from live.settings import Settings
from live.store.board.keys import Keys
from live.store.connection.client import connect

_STEP = 300_000  # milliseconds


async def put_baseline(
    settings: Settings, board: str, scores: Mapping[str, int], age: int, *, per_minute: int = 0, unranked: int = 0
) -> None:
    """Replace the baseline of a board: these scores, `age` milliseconds ago.

    Since then, the board seems to have counted `per_minute` in each minute. It seems to have had `unranked` fewer
    members than there are scores.
    """
    store: Any = connect(settings.store, settings)
    keys = Keys(settings.key_prefix, board)
    epoch, gained = await store.call(keys.meta, "HMGET", keys.meta, "epoch", "gained")
    before = str(float(gained or 0) - per_minute * age / 60_000)
    at = int(time.time() * 1000) - age
    mark = {"id": "1", "at": at, "till": at, "step": at - at % _STEP, "offset": "", "gained": before}
    mark |= {"ranked": len(scores) - unranked, "known": len(scores)}
    rows = [part for member, score in scores.items() for part in (member, str(score))]
    fields = {"epoch": epoch, "suffix": "", "marks": msgspec.msgpack.encode([mark]), "since": at, "at": at}
    fields |= {"gained": before, "rows:1": msgspec.msgpack.encode(rows)}
    await store.call(keys.meta, "DEL", keys.baseline)
    await store.call(keys.meta, "HSET", keys.baseline, *(word for field in fields.items() for word in field))
    await store.aclose()
