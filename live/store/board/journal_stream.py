"""The journals in the store: streams of entries that wait to be moved to SQL."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import msgspec

from live.domain.board import Shape
from live.errors import StoreUnavailableError
from live.store.board.keys import Keys
from live.store.board.reign import unchecked
from live.store.board.requests import AdoptRequest, TrimRequest
from live.store.connection.client import Store, required
from live.store.connection.pipelined import Word, as_unavailable
from live.store.connection.scripts import Script

TRIM: Final = Script("trim", TrimRequest, waits=False)
ADOPT: Final = Script("adopt", AdoptRequest)

_NEW_BUCKETS: Final = 1000  # buckets of identities that may begin during a walk; if more begin, walk again
MOST_ENTRIES: Final = 64  # entries of one board in one call: up to a few megabytes


class Entry(NamedTuple):
    """An entry of a journal: its id, its head (what it is, and which entry comes before it) and its content."""

    id: str
    head: str
    content: bytes


class StreamState(NamedTuple):
    """The state of a journal in the store."""

    ended: bool  # whether the board has another epoch by now, or is deleted
    entries: int
    waiting: int  # the bytes that are not in SQL yet; 0 if the board has another epoch
    link: str  # the id, time, writer and sequence of the last entry; empty if the board has another epoch or no journal


@asynccontextmanager
async def announced(client: Store, keys: Keys, epoch: str) -> AsyncIterator[None]:
    """List a journal before the `with` block begins it, and tell the drainer after the block."""
    journals, name = client.system.journals, f"{keys.board} {epoch}"
    await client.write(journals, "SADD", journals, name)
    yield
    await client.call(journals, "SPUBLISH", journals, name)


async def begin_journal(
    client: Store, keys: Keys, epoch: str, *, again: bool = False, adopt: Script[AdoptRequest] = ADOPT
) -> str:
    """Begin the journal of a board that has data: its next entry has everything that the board holds.

    A journal that has begun begins again only with `again`, and only if its last entry does not have the whole contents
    already. Return the id of the entry, or an empty string if the journal need not begin or the board has another
    epoch.
    """
    async with announced(client, keys, epoch):
        buckets: list[int] = []
        walked: tuple[int, int] | None = None  # the newest bucket, and the span of buckets, before the last walk
        while True:  # repeat until the board has the same slots and buckets as the request
            # Read the state before the walk, so that the script refuses buckets that changed during the walk.
            newest, shape, span = await client.call(keys.meta, "HMGET", keys.meta, "bucket", "shape", "span")
            starts = [start.decode() for start in await client.call(keys.slots, "ZRANGE", keys.slots, 0, -1)]
            if newest is not None:
                now, step = int(newest), int(span or 0)
                if walked is not None and step and walked[1] == step and now <= walked[0] + _NEW_BUCKETS * step:
                    # The names of new buckets follow from their times. Another walk might take longer than a bucket.
                    buckets = sorted({*buckets, *range(walked[0] + step, now + 1, step)})
                else:
                    buckets = sorted([int(name.rpartition(":")[2]) async for name in client.names(keys.seen_pattern)])
                walked = now, step
            tables = shape is not None and msgspec.json.decode(shape, type=Shape).tables
            names = [keys.meta, keys.slots, keys.log, keys.entrants, keys.hidden, keys.journal(epoch)]
            names += [*keys.of_slots(starts, tables=tables), *map(keys.seen, buckets)]
            bucket = None if newest is None else int(newest)
            request = AdoptRequest(
                epoch=epoch, starts=starts, tables=tables, buckets=buckets, bucket=bucket, again=again
            )
            reply = await adopt(client, names, request)
            if reply[0] == b"reign":
                raise unchecked(keys.board)
            if reply[0] != b"slots":
                return reply[1].decode() if reply[0] == b"ok" else ""


async def journals(client: Store) -> list[tuple[str, str]]:
    """Return the board and the epoch of every listed journal."""
    key = client.system.journals
    found = await client.call(key, "SMEMBERS", key)
    return [(board, epoch) for board, _, epoch in (member.decode().partition(" ") for member in found)]


async def forget_journal(client: Store, keys: Keys, epoch: str) -> None:
    """Remove a journal from the list, and delete its stream."""
    stream, journals = keys.journal(epoch), client.system.journals
    await client.call(stream, "UNLINK", stream)
    await client.call(journals, "SREM", journals, f"{keys.board} {epoch}")


async def stop_journal(client: Store, keys: Keys, epoch: str) -> None:
    """End the journal of a board: later events are in no journal."""
    if await client.call(keys.meta, "HGET", keys.meta, "epoch") == epoch.encode():
        await client.call(keys.meta, "HDEL", keys.meta, "journal", "drained", "safe", "parent")
    await forget_journal(client, keys, epoch)


async def read_entries(
    client: Store, wanted: Sequence[tuple[Keys, str, str]], patience: float | None = None
) -> list[list[Entry] | StoreUnavailableError]:
    """Return the oldest entries of each journal after an id, with one round trip, or an error for a journal that fails.

    Replicas hold these entries, so that SQL never has entries that the store lacks after a failover. Each item of
    `wanted` is the store keys of a board, its epoch, and the id. If one of several servers takes longer than `patience`
    seconds, the journals of its boards fail.
    """
    groups: dict[object, list[int]] = {}
    for index, (keys, _, _) in enumerate(wanted):
        groups.setdefault(client.servers.primary(keys.meta), []).append(index)
    found: list[list[Entry] | StoreUnavailableError] = [[]] * len(wanted)

    async def read(indexes: list[int]) -> None:
        commands: list[tuple[str, tuple[Word, ...]]] = []
        for index in indexes:
            keys, epoch, after = wanted[index]
            stream = keys.journal(epoch)
            commands.append((stream, ("XRANGE", stream, f"({after}", "+", "COUNT", MOST_ENTRIES)))
        try:
            async with asyncio.timeout(patience if len(groups) > 1 else None):
                replies = await client.outcomes(commands, replicated=True)
        except TimeoutError:
            replies = [StoreUnavailableError("the server of this board is slow")] * len(indexes)
        for index, reply in zip(indexes, replies, strict=True):
            if isinstance(reply, Exception):
                found[index] = as_unavailable(reply)
            else:
                found[index] = [Entry(name.decode(), fields[1].decode(), fields[3]) for name, fields in reply]

    await asyncio.gather(*map(read, groups.values()))
    return found


async def trim(client: Store, keys: Keys, epoch: str, last: str, drained: int) -> None:
    """Delete the entries up to `last`, which SQL has, unless the board went back. `drained` is the bytes in SQL."""
    offset, _, sequence = last.partition("-")
    least = f"{offset}-{int(sequence) + 1}"
    request = TrimRequest(epoch=epoch, offset=int(offset), least=least, drained=drained)
    await TRIM(client, [keys.meta, keys.journal(epoch)], request)


async def read_streams(client: Store, names: Sequence[tuple[str, str]]) -> list[StreamState | StoreUnavailableError]:
    """Read the state of each journal, or its error, in one round trip. `names` has the board and the epoch of each."""
    commands: list[tuple[str, tuple[Word, ...]]] = []
    for board, epoch in names:
        keys = client.keys_of(board)
        stream = keys.journal(epoch)
        commands += [
            (keys.meta, ("HMGET", keys.meta, "epoch", "journal", "drained")),
            (keys.gone, ("HGET", keys.gone, "epoch")),
            (stream, ("XLEN", stream)),
        ]
    replies = await client.outcomes(commands)
    streams: list[StreamState | StoreUnavailableError] = []
    for (_, epoch), *found in zip(names, replies[::3], replies[1::3], replies[2::3], strict=True):
        try:
            (held, journal, drained), deleted, entries = required(found)
        except StoreUnavailableError as error:
            streams.append(error)
            continue
        link, _, size = (journal or b"0").decode().rpartition(" ")
        here = held == epoch.encode()
        waiting = int(size) - int(drained or 0)
        streams.append(
            StreamState(not here and deleted != epoch.encode(), entries, waiting if here else 0, link if here else "")
        )
    return streams


async def claim_sink(client: Store, database: str) -> str:
    """Record the database into which a store's journals go, unless one is recorded. Return the recorded id."""
    key = client.system.sink
    commands: list[tuple[str, tuple[Word, ...]]] = [(key, ("SETNX", key, database)), (key, ("GET", key))]
    _, holder = required(await client.outcomes(commands, replicated=True))
    return (holder or b"").decode()


async def sink_of(client: Store) -> str:
    """Return the id of the database into which the journals of a store go; empty if none is recorded."""
    key = client.system.sink
    held = await client.call(key, "GET", key)
    return (held or b"").decode()


async def release_sink(client: Store) -> None:
    """Let another database take the journals of a store, and make each journal begin again."""
    names = client.system
    await client.write(names.sink, "DEL", names.sink)
    for board, epoch in await journals(client):
        await begin_journal(client, client.keys_of(board), epoch, again=True)
