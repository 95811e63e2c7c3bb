"""Delete digests of an actor from a board in the store."""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from live.domain.board import Shape
from live.store.board.keys import Keys
from live.store.connection.client import Store

_STEP: Final = 1000  # elements in one call
_VOTES: Final = ("HSCAN", "HDEL", 2)  # how to walk, how to delete, and how many words an element has
_SEEN: Final = ("SSCAN", "SREM", 1)


class Held(msgspec.Struct, frozen=True):
    """What the store holds of a board: its epoch, the secret of its voters, the starts of its slots, and its shape."""

    epoch: str
    secret: bytes
    starts: list[int]
    shape: Shape


async def read_held(client: Store, keys: Keys) -> Held | None:
    """Return what the store holds of a board; None for nothing."""
    epoch, secret, shape = await client.call(keys.meta, "HMGET", keys.meta, "epoch", "secret", "shape")
    starts = await client.call(keys.slots, "ZRANGE", keys.slots, 0, -1)
    if epoch is None or shape is None:
        return None
    return Held(epoch.decode(), secret or b"", [int(start) for start in starts], msgspec.json.decode(shape, type=Shape))


async def members_of(client: Store, keys: Keys, start: int) -> list[str]:
    """Return the members that a slot holds."""
    slot, found, cursor = keys.slot(start), dict[str, None](), b"0"
    while True:
        cursor, fields = await client.call(slot, "HSCAN", slot, cursor, "COUNT", _STEP)
        found |= dict.fromkeys(member.decode() for member in fields[::2])
        if cursor == b"0":
            return list(found)


async def delete_digests(
    client: Store, keys: Keys, held: Held, among: Callable[[Iterable[bytes]], set[bytes]], *, dry: bool
) -> int:
    """Delete digests from all votes and identities of a board; `among` chooses them. Return how many there were."""
    tables = [keys.table(start) for start in held.starts] if held.shape.tables else [keys.table()]
    found = 0
    for table in tables:
        found += await _delete(client, table.votes, _VOTES, among, dry=dry)
    buckets = [name async for name in client.names(keys.seen_pattern)]
    for name in buckets:
        found += await _delete(client, name, _SEEN, among, dry=dry)
    return found


async def _delete(
    client: Store, name: str, kind: tuple[str, str, int], among: Callable[[Iterable[bytes]], set[bytes]], *, dry: bool
) -> int:
    walk, delete, words = kind
    deleted, cursor = set[bytes](), b"0"
    while True:
        cursor, fields = await client.call(name, walk, name, cursor, "COUNT", _STEP)
        deleted |= among(fields[::words])
        if cursor == b"0":
            break
    if deleted and not dry:
        await client.call(name, delete, name, *deleted)
    return len(deleted)
