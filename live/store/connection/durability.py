"""The files of the store: warn of settings that can lose acknowledged events, and rewrite files with deleted data."""

import asyncio
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import NoPermissionError, ResponseError

from live.domain.text import counted
from live.errors import SetupError, StoreUnavailableError
from live.store.connection.client import Store, store_errors
from live.store.connection.pipelined import reason_of

_REPLICAS: Final = (
    "the store has {}. Replicas copy with a delay: if one takes over, acknowledged events that it does not have yet "
    "are lost, apart from those that are in the journal"
)
_POLL: Final = 0.1  # seconds
_BUSY: Final = ("aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress")


async def unsafe_settings(client: Redis) -> list[str]:
    """Return a warning for each setting of the store that can lose acknowledged events, and for its replicas.

    Raises:
        SetupError: the store may evict store keys, which would corrupt rankings silently (I7).
    """
    lines = []
    settings = await _shown(client.config_get("*"))
    if isinstance(settings, ResponseError):
        lines.append(
            f"the store does not show its settings ({reason_of(settings)}); "
            "check appendonly, appendfsync, maxmemory-policy"
        )
    else:
        held = {_text(name): _text(value) for name, value in settings.items()}
        policy = held.get("maxmemory-policy", "noeviction")
        if policy != "noeviction":
            raise SetupError(
                f"the store's maxmemory-policy is {policy}: it may evict slots, and rankings would stay wrong. "
                "Set it to noeviction."
            )
        if held.get("appendonly") != "yes":
            lines.append("the store has no append-only file (appendonly no): a crash loses acknowledged events")
        elif held.get("appendfsync") != "always":
            lines.append(
                f"the store's appendfsync is {held.get('appendfsync')}, not always: "
                "a power cut loses acknowledged events"
            )
        if held.get("no-appendfsync-on-rewrite") == "yes":
            lines.append(
                "the store does not fsync during a rewrite (no-appendfsync-on-rewrite yes): "
                "a power cut then loses acknowledged events. Set it to no"
            )
    replication = await _shown(client.info("replication"))
    if isinstance(replication, ResponseError):
        lines.append(f"the store does not show whether it has replicas ({reason_of(replication)})")
    elif replicas := int(replication.get("connected_slaves", 0)):
        lines.append(_REPLICAS.format(counted(replicas, "replica")))
    return lines


async def _shown(call: Any) -> Any:  # noqa: ANN401 - any reply
    """Return the reply of a command, or the error of a store that does not permit it."""
    async with store_errors():
        try:
            return await call
        except ResponseError as error:
            if not isinstance(error, NoPermissionError) and "unknown command" not in str(error):
                raise
            return error


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


async def rewrite_log(client: Store) -> str:
    """Make the store rewrite its append-only file, and wait until it has.

    Returns:
        What an operator still has to do; empty if there is nothing to do.

    Raises:
        StoreUnavailableError: the store can't write the file.
    """
    async with store_errors():
        try:
            state = await _settled(client)
            if not state.get("aof_enabled"):
                return "the store has no append-only file: delete its older snapshots, and make a new one with BGSAVE"
            await client.bgrewriteaof()
        except ResponseError as error:
            return f"the store does not rewrite its files for this user ({reason_of(error)}): run BGREWRITEAOF yourself"
        state = await _settled(client)
    if state.get("aof_last_bgrewrite_status") != "ok":
        raise StoreUnavailableError("it could not rewrite its append-only file; its log says why")
    return ""


async def _settled(client: Store) -> dict[str, object]:
    """Wait until the store writes no file: an unfinished file may hold deleted data. Return the state of its files."""
    while True:
        state: dict[str, object] = await client.info("persistence")
        if not any(state.get(name) for name in _BUSY):
            return state
        await asyncio.sleep(_POLL)
