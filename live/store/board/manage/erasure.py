"""Finds and deletes data of a person in a board of the store: digests of an actor, or a member with all its data."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

import msgspec

from live.domain.board import Board, Shape
from live.domain.window import Sliding
from live.store.board.journal_stream import begin_journal
from live.store.board.keys import Keys
from live.store.board.reign import unchecked
from live.store.board.requests import EraseRequest, ForgetRequest
from live.store.board.write.merging import read_events
from live.store.connection.client import Store
from live.store.connection.pipelined import Word
from live.store.connection.scripts import Script, text

FORGET: Final = Script("forget", ForgetRequest)

ERASE: Final = Script("erase", EraseRequest)


class Held(msgspec.Struct, frozen=True):
    """The facts about a board that an erasure needs."""

    epoch: str
    secret: bytes  # the key of the digests of voters
    starts: list[int]  # of the slots
    shape: Shape
    journaled: bool  # whether the board has a journal


async def read_held(client: Store, keys: Keys) -> Held | None:
    """Return the facts about a board that an erasure needs, or None if the store does not have the board."""
    fields = await client.call(keys.meta, "HMGET", keys.meta, "epoch", "secret", "shape", "journal")
    starts = await client.call(keys.slots, "ZRANGE", keys.slots, 0, -1)
    epoch, secret, shape, journal = fields
    if epoch is None or shape is None:
        return None
    decoded = msgspec.json.decode(shape, type=Shape)
    return Held(epoch.decode(), secret or b"", [int(start) for start in starts], decoded, journal is not None)


async def members_of(client: Store, keys: Keys, start: int) -> list[str]:
    """Return the members that a slot holds."""
    found = dict[str, None]()
    async for fields in client.elements("HSCAN", keys.slot(start)):
        found |= dict.fromkeys(member.decode() for member in fields[::2])
    return list(found)


async def find_digests(
    client: Store, keys: Keys, held: Held, among: Callable[[Iterable[bytes]], set[bytes]]
) -> set[bytes]:
    """Walk over the votes and the identities of a board. Return the digests that `among` chooses."""
    found = set[bytes]()
    walks = [(name, "HSCAN", 2) for name in _votes_of(keys, held.starts, held.shape)]
    walks += [(name, "SSCAN", 1) for name in await _buckets_of(client, keys)]
    for name, walk, words in walks:
        async for fields in client.elements(walk, name):
            found |= among(fields[::words])
    return found


async def has_voted(client: Store, keys: Keys, held: Held, digests: Sequence[bytes]) -> list[bool]:
    """Tell for each digest of a voter whether the voter has a vote on a board, in any period that the store keeps."""
    found = [False] * len(digests)
    for name in _votes_of(keys, held.starts, held.shape):
        votes = await client.call(name, "HMGET", name, *digests)
        found = [known or vote is not None for known, vote in zip(found, votes, strict=True)]
    return found


async def erase_digests(client: Store, keys: Keys, held: Held, digests: Collection[bytes], entry: bytes) -> bool:
    """Delete digests from all votes and identities of a board, and append the entry to its journal, in one step.

    Return False if the board has another epoch by now.
    """
    reply = [b"slots"]
    while reply[0] == b"slots":
        buckets = await _buckets_of(client, keys)
        starts = [start.decode() for start in await client.call(keys.slots, "ZRANGE", keys.slots, 0, -1)]
        votes = _votes_of(keys, starts, held.shape)
        request = EraseRequest(
            epoch=held.epoch,
            starts=starts,
            rankings=len(votes),
            digests=[text(digest) for digest in digests],
            entry=text(entry),
        )
        reply = await ERASE(client, [keys.meta, keys.slots, keys.journal(held.epoch), *votes, *buckets], request)
    if reply[0] == b"reign":
        raise unchecked(keys.board)
    return bool(reply[0] == b"ok")


def _votes_of(keys: Keys, starts: Iterable[int | str], shape: Shape) -> list[str]:
    return [table.votes for table in keys.rankings(starts, tables=shape.tables)]


async def _buckets_of(client: Store, keys: Keys) -> list[str]:
    return [name async for name in client.names(keys.seen_pattern)]


async def knows_member(client: Store, keys: Keys, board: Board, member: str, *, given_up: bool = True) -> bool:
    """Return whether a board holds a member: in a slot, in the log, registered, hidden, or with metadata or a tag.

    Without `given_up`, events in the log do not count if a merge or a rename has moved them to another member.
    """
    starts = [int(start) for start in await client.call(keys.slots, "ZRANGE", keys.slots, 0, -1)]
    hashes = [keys.entrants, keys.hidden, *map(keys.slot, starts)]
    if given_up:
        hashes.append(keys.taken)
    for table in keys.rankings(starts, tables=board.window.tables):
        hashes += [table.metadata, table.reached]
    asking: list[tuple[str, tuple[Word, ...]]] = [(name, ("HEXISTS", name, member)) for name in hashes]
    if any(await client.calls(asking)):
        return True
    if not isinstance(board.window, Sliding):
        return False
    sums = (await read_events(client, keys, [member]))[member]  # also of a member whose amounts add up to zero
    return bool(sums if given_up else any(sums.values()))


async def forget_member(
    client: Store, board: Board, keys: Keys, member: str, votes: Collection[bytes], entry: bytes, last: str = ""
) -> bool:
    """Delete a member from a board, and append the entry to its journal, in one step.

    On a board with a `cap`, the journal can't say which records would be there without the member. So a new journal
    begins with the present contents. Return False if there is no such board, or if the last entry of its journal is not
    `last`.
    """
    reply: list[Any] = [b"epoch", b""]
    while reply[0] != b"ok":
        if reply[0] == b"reign":
            raise unchecked(keys.board)
        epoch = (await client.call(keys.meta, "HGET", keys.meta, "epoch") or b"").decode()
        if not epoch:
            return False
        names = [keys.meta, keys.slots, keys.journal(epoch), keys.log, keys.taken, keys.entrants, keys.hidden]
        starts = [start.decode() for start in await client.call(keys.slots, "ZRANGE", keys.slots, 0, -1)]
        names += [keys.baseline, *keys.of_slots(starts, tables=board.window.tables)]
        request = ForgetRequest(
            epoch=epoch,
            member=member,
            rules=board.rules,
            starts=starts,
            tables=board.window.tables,
            votes=[text(digest) for digest in votes],
            last=last,
            entry=text(entry),
        )
        reply = await FORGET(client, names, request)
        if reply[0] == b"last":
            return False
    if board.cap is not None and await client.call(keys.meta, "HEXISTS", keys.meta, "journal"):
        await begin_journal(client, keys, epoch, again=True)
        notice = f"{epoch}:{reply[1].decode()}"  # this notice makes the drainer read the journal
        await client.call(keys.channel, "SPUBLISH", keys.channel, notice)
    return True
