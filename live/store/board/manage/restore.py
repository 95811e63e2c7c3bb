"""Write a whole board into the store. Nobody sees it before it is complete."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final, TypeVar

import msgspec

from live.store.board.journal_stream import announced
from live.store.board.keys import Keys
from live.store.board.requests import RestoreRequest
from live.store.connection.client import Store
from live.store.connection.pipelined import Word
from live.store.connection.scripts import Script

RESTORE: Final = Script("restore", RestoreRequest)

_ELEMENTS: Final = 1000  # elements in one command
_COMMANDS: Final = 8  # commands in one packet
_T = TypeVar("_T")
_Command = tuple[str, tuple[Word, ...]]
_Pairs = Iterable[tuple[str | bytes, int | str | bytes]]


class RankingImage(msgspec.Struct, frozen=True):
    """One ranking: the suffix of its store keys, its records by name, and its tags, metadata and votes."""

    suffix: str
    records: list[tuple[bytes, int]]
    reached: Mapping[str, bytes]
    metadata: Mapping[str, bytes]
    votes: Mapping[bytes, int]
    dense: bool


class BoardImage(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the store keys of a board hold. The headers of the scripts describe the store keys."""

    slots: Mapping[int, Mapping[str, int]]
    rankings: list[RankingImage]
    log: list[tuple[bytes, int]]
    taken: Mapping[str, int]
    entrants: Mapping[str, bytes]
    hidden: Iterable[str]
    seen: Mapping[int, Iterable[bytes]]
    kept: int

    @property
    def size(self) -> int:
        """About how many elements there are."""
        slots = sum(map(len, self.slots.values()))
        return slots + sum(len(ranking.records) for ranking in self.rankings) + len(self.log)


async def restore(
    client: Store, keys: Keys, image: BoardImage, request: RestoreRequest, progress: Callable[[int], None]
) -> bool:
    """Write a board. Return False if the store has the board already.

    First, delete the data that an interrupted call has left. Keep entries of earlier journals: SQL may lack them. Call
    `progress` with the number of elements written so far.
    """
    if await client.call(keys.meta, "EXISTS", keys.meta):
        return False
    journals, own = keys.journal(""), keys.journal(request.epoch)
    found = [name async for name in client.names(keys.pattern) if name == own or not name.startswith(journals)]
    done = 0
    commands = chain(((name, ("UNLINK", name)) for name in found), _commands(keys, image))
    async for count in _sent(client, _pieces(commands, _COMMANDS)):
        done += count
        progress(min(done, image.size))
    async with announced(client, keys, request.epoch):
        reply = await RESTORE(client, [keys.meta, keys.journal(request.epoch)], request)
    return bool(reply[0] == b"ok")


async def _sent(client: Store, packets: Iterable[list[_Command]]) -> AsyncIterator[int]:
    """Send packets in order.

    While the store works on one packet, make the next one. Yield the number of elements of each packet.
    """
    sending: deque[tuple[asyncio.Task[list[Any]], int]] = deque()
    try:
        for commands in packets:
            sending.append((asyncio.create_task(client.calls(commands)), sum(len(words) // 2 for _, words in commands)))
            if len(sending) > 1:
                await sending[0][0]
                yield sending.popleft()[1]
        while sending:
            await sending[0][0]
            yield sending.popleft()[1]
    finally:
        for task, _ in sending:
            task.cancel()
        await asyncio.gather(*(task for task, _ in sending), return_exceptions=True)


def _commands(keys: Keys, image: BoardImage) -> Iterator[_Command]:
    for start, slot in image.slots.items():
        yield from _hash(keys.slot(start), slot.items())
    yield from _sorted_set(keys.slots, ((str(start), start) for start in image.slots))
    for ranking in image.rankings:
        table = keys.table(ranking.suffix.removeprefix(":") or None)
        yield from _sorted_set(table.ranking, ranking.records)
        if ranking.dense:
            scores = {score for _, score in ranking.records}
            yield from _sorted_set(table.levels, ((str(score), score) for score in scores))
        yield from _hash(table.reached, ranking.reached.items())
        yield from _hash(table.metadata, ranking.metadata.items())
        yield from _hash(table.votes, ranking.votes.items())
    yield from _sorted_set(keys.log, image.log)
    yield from _hash(keys.taken, image.taken.items())
    yield from _hash(keys.entrants, image.entrants.items())
    yield from _hash(keys.hidden, ((member, 1) for member in image.hidden))
    for start, identities in image.seen.items():
        name = keys.seen(start)
        for piece in _pieces(identities, _ELEMENTS):
            yield name, ("SADD", name, *piece)
        yield name, ("EXPIREAT", name, start + image.kept)


def _hash(name: str, fields: _Pairs) -> Iterator[_Command]:
    for piece in _pieces(fields, _ELEMENTS):
        yield name, ("HSET", name, *chain.from_iterable(piece))


def _sorted_set(name: str, members: Iterable[tuple[str | bytes, int]]) -> Iterator[_Command]:
    for piece in _pieces(members, _ELEMENTS):
        yield name, ("ZADD", name, *(word for member, score in piece for word in (score, member)))


def _pieces(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    left = iter(items)
    while piece := list(islice(left, size)):
        yield piece
