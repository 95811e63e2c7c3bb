"""The store's clock as scripts see it, set by a test, and times."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from live.settings import Settings
from live.store.board.requests import SCRIPTS, Scripts
from live.store.connection.scripts import Script


def with_clock(scripts: Scripts, settings: Settings) -> Scripts:
    """Scripts that read the time from a clock that the test sets."""
    if settings.store.startswith("redis+cluster"):
        pytest.skip("the clock of the test may be on another server of the Cluster than the board")
    key = f"{settings.key_prefix}:time"
    parts = {name: getattr(scripts, name) for name in scripts.__struct_fields__}
    clock = f"redis.call('LRANGE', '{key}', 0, -1)"
    changed = {name: part.changed(part.source.replace("redis.call('TIME')", clock)) for name, part in parts.items()}
    return Scripts(**changed)


@contextmanager
def with_time_of(key: str) -> Iterator[None]:
    """Let every script, also those of commands, read the time from a list in the store that the test writes."""
    modules = [module for name, module in sys.modules.items() if name.startswith("live.")]
    found = [one for module in modules for one in vars(module).values() if isinstance(one, Script)]
    with ExitStack() as patches:
        for script in {id(one): one for one in [*found, *msgspec.structs.astuple(SCRIPTS)]}.values():
            other = script.changed(script.source.replace("redis.call('TIME')", f"redis.call('LRANGE', '{key}', 0, -1)"))
            patches.enter_context(patch.multiple(script, source=other.source, _hash=other._hash))
        yield


async def set_clock(client: Any, settings: Settings, time: int) -> None:
    """Set the clock of the scripts, in milliseconds since 1970."""
    await client.delete(f"{settings.key_prefix}:time")
    await client.rpush(f"{settings.key_prefix}:time", str(time // 1000), str(time % 1000 * 1000))


def datetime_of(time: int) -> datetime:
    """Convert milliseconds since 1970 to a time."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time)
