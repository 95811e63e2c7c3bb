"""What the settings of a store give: which of them can lose acknowledged events."""

from collections.abc import Mapping
from typing import cast

import msgspec
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError, ResponseError

from live.errors import SetupError, StoreUnavailableError
from live.store.connection.client import store_errors


class StoreDurability(msgspec.Struct, frozen=True):
    """Whether acknowledged events survive a crash of the store, and a power cut; None if nobody knows."""

    survives_crash: bool | None = None
    survives_power_cut: bool | None = None


async def unsafe_settings(client: Redis) -> list[str]:
    """A warning for each setting of the store that can lose acknowledged events.

    Raises:
        SetupError: the store may evict store keys, which would corrupt rankings silently (I7).
        StoreUnavailableError: the store does not answer.
    """
    try:
        settings = await _settings_of(client)
    except ResponseError as error:
        return [f"the store does not show its settings ({error}); check appendonly, appendfsync, maxmemory-policy"]
    policy = settings.get("maxmemory-policy", "noeviction")
    if policy != "noeviction":
        raise SetupError(
            f"the store's maxmemory-policy is {policy}: it may evict slots, and rankings would stay wrong. "
            "Set it to noeviction."
        )
    lines = []
    if settings.get("appendonly") != "yes":
        lines.append("the store has no append-only file (appendonly no): a crash loses acknowledged events")
    elif settings.get("appendfsync") != "always":
        lines.append(
            f"the store's appendfsync is {settings.get('appendfsync')}, not always: "
            "a power cut loses acknowledged events"
        )
    if settings.get("no-appendfsync-on-rewrite") == "yes":
        lines.append("the store does not fsync during a rewrite (no-appendfsync-on-rewrite yes): set it to no")
    return lines


async def durability_of(client: Redis) -> StoreDurability:
    """What the settings of a store give; nothing is known of a store that does not show them, or does not answer."""
    try:
        settings = await _settings_of(client)
    except (ResponseError, StoreUnavailableError):
        return StoreDurability()
    is_logged = settings.get("appendonly") == "yes"
    is_synced = settings.get("appendfsync") == "always" and settings.get("no-appendfsync-on-rewrite") != "yes"
    return StoreDurability(is_logged, is_logged and is_synced)


async def _settings_of(client: Redis) -> dict[str, str]:
    """The settings of a store.

    Raises:
        ResponseError: the store does not show them.
        StoreUnavailableError: the store does not answer.
    """
    refused: ResponseError | None = None
    async with store_errors():
        try:
            found = cast("Mapping[str | bytes, str | bytes]", await client.config_get("*"))
        except ResponseError as error:
            if not isinstance(error, NoPermissionError) and "unknown command" not in str(error):
                raise
            refused = error
    if refused is not None:
        raise refused
    return {_text(name): _text(value) for name, value in found.items()}


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
