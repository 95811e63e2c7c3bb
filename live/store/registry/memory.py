"""The memory that the servers of the store take, now and at earlier times."""

import time
from typing import Final

import msgspec

from live.store.connection.client import Store
from live.store.connection.handshake import info_fields

HOUR: Final = 3600  # seconds between two measurements that are kept
_MOST: Final = 24 * 14  # measurements that are kept


class MemoryLook(msgspec.Struct, frozen=True):
    """The memory of each server at a time in seconds since 1970: the bytes in use, and the maximum."""

    at: int
    servers: dict[str, tuple[int, int]]


async def memory_of(client: Store) -> dict[str, tuple[int, int]]:
    """Measure the memory of the servers of the store: the bytes in use, and the maximum (0: no limit)."""
    servers = dict[str, tuple[int, int]]()
    for server, reply in await client.each("INFO", "memory"):
        if not isinstance(reply, Exception):
            fields = info_fields(reply)
            servers[server] = int(fields.get("used_memory", 0)), int(fields.get("maxmemory", 0))
    return servers


async def look_at_memory(client: Store) -> list[MemoryLook]:
    """Measure the memory of the servers. Return the kept measurements, the oldest first, and then the new one.

    Keep the new one if it is the first, or if the last kept one is at least an hour old.
    """
    key, present = client.system.memory, MemoryLook(int(time.time()), await memory_of(client))
    looks = [msgspec.json.decode(look, type=MemoryLook) for look in await client.call(key, "LRANGE", key, 0, -1)]
    if not looks or present.at - looks[0].at >= HOUR:
        await client.call(key, "LPUSH", key, msgspec.json.encode(present))
        await client.call(key, "LTRIM", key, 0, _MOST - 1)
    return [*reversed(looks), present]
