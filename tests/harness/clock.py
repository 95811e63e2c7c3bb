"""The store's clock as scripts see it, set by a test."""

from typing import Any

import pytest

from live.settings import Settings
from live.store.board.state import Scripts


def with_clock(scripts: Scripts, settings: Settings) -> Scripts:
    """Scripts that read the time from a clock that the test sets."""
    if settings.store.startswith("redis+cluster"):
        pytest.skip("the clock of the test may be on another server of the Cluster than the board")
    key = f"{settings.key_prefix}:time"
    parts = {name: getattr(scripts, name) for name in scripts.__struct_fields__}
    clock = f"redis.call('LRANGE', '{key}', 0, -1)"
    changed = {name: part.changed(part.source.replace("redis.call('TIME')", clock)) for name, part in parts.items()}
    return Scripts(**changed)


async def set_clock(client: Any, settings: Settings, time: int) -> None:
    """Set the clock of the scripts, in milliseconds since 1970."""
    await client.delete(f"{settings.key_prefix}:time")
    await client.rpush(f"{settings.key_prefix}:time", str(time // 1000), str(time % 1000 * 1000))
