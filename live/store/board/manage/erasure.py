"""Finds and deletes data of a person in a board of the store: digests of an actor, or a member with all its data."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

import msgspec

from live.domain.board import Board, Shape
from live.domain.window import Sliding
from live.store.board.journal_stream import begin_journal
from live.store.board.keys import Keys
from live.store.board.reign import unchecked
from live.store.board.requests import EraseRequest, ForgetRequest, SlotRef, rules_of
from live.store.connection.client import Store
from live.store.connection.pipelined import Word
from live.store.connection.scripts import Script, text

FORGET: Final = Script("forget", ForgetRequest)

ERASE: Final = Script("erase", EraseRequest)


class Held(msgspec.Struct, frozen=True):
    """The facts about a board that an erasure needs.

    `secret` is the key of the digests of voters, `starts` are the starts of the slots, and `journaled` says whether the
    board has a journal.
    """

    epoch: str
    secret: bytes
    starts: list[int]
    shape: Shape
    journaled: bool


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

    If the board has another epoch by now, delete nothing and return False.
    """
    reply = [b"slots"]
    while reply[0] == b"slots":
        buckets = await _buckets_of(client, keys)
        starts = await client.call(keys.slots, "ZRANGE", keys.slots, 0, -1)
        votes = _votes_of(keys, [int(start) for start in starts], held.shape)
        request = EraseRequest(
            epoch=held.epoch,
            channel=keys.channel,
            slots=[start.decode() for start in starts],
            rankings=len(votes),
            digests=[text(digest) for digest in digests],
            entry=text(entry),
        )
        reply = await ERASE(client, [keys.meta, keys.slots, keys.journal(held.epoch), *votes, *buckets], request)
    if reply[0] == b"reign":
        raise unchecked(keys.board)
    return bool(reply[0] == b"ok")


def _votes_of(keys: Keys, starts: Iterable[int], shape: Shape) -> list[str]:
    return [keys.table(start).votes for start in starts] if shape.tables else [keys.table().votes]


async def _buckets_of(client: Store, keys: Keys) -> list[str]:
    return [name async for name in client.names(keys.seen_pattern)]


async def knows_member(client: Store, keys: Keys, board: Board, member: str) -> bool:
    """Return whether a board holds a member: in a slot, in the log, registered, hidden, or with metadata or a tag."""
    starts = [int(start) for start in await client.call(keys.slots, "ZRANGE", keys.slots, 0, -1)]
    tables = [keys.table(start) for start in starts] if board.window.tables else [keys.table()]
    hashes = [keys.entrants, keys.hidden, keys.taken, *map(keys.slot, starts)]
    hashes += [name for table in tables for name in (table.metadata, table.reached)]
    asking: list[tuple[str, tuple[Word, ...]]] = [(name, ("HEXISTS", name, member)) for name in hashes]
    if any(await client.calls(asking)):
        return True
    if isinstance(board.window, Sliding):  # the log also has members whose amounts add up to zero
        async for events in client.elements("ZSCAN", keys.log):
            if any(event[8:].partition(b" ")[2] == member.encode() for event in events[::2]):
                return True
    return False


async def forget_member(
    client: Store, board: Board, keys: Keys, member: str, votes: Collection[bytes], entry: bytes
) -> bool:
    """Delete a member from a board, and append the entry to its journal, in one step.

    On a board with a `cap`, the journal can't say which records would be there without the member. So a new journal
    begins with the present contents. If there is no such board, return False.
    """
    reply: list[Any] = [b"epoch", b""]
    while reply[0] != b"ok":
        if reply[0] == b"reign":
            raise unchecked(keys.board)
        epoch = (await client.call(keys.meta, "HGET", keys.meta, "epoch") or b"").decode()
        if not epoch:
            return False
        names = [keys.meta, keys.slots, keys.journal(epoch), keys.log, keys.taken, keys.entrants, keys.hidden]
        names.append(keys.baseline)
        parts = []
        for start in await client.call(keys.slots, "ZRANGE", keys.slots, 0, -1):
            table = keys.table(int(start) if board.window.tables else None)
            parts.append(SlotRef(start.decode(), table.suffix, len(names) + 1))
            names += [keys.slot(int(start)), *table.all]
        request = ForgetRequest(
            epoch=epoch,
            channel=keys.channel,
            member=member,
            rules=rules_of(board),
            slots=parts,
            votes=[text(digest) for digest in votes],
            entry=text(entry),
        )
        reply = await FORGET(client, names, request)
    if board.cap is not None and await client.call(keys.meta, "HEXISTS", keys.meta, "journal"):
        await begin_journal(client, keys, epoch, again=True)
        notice = f"{epoch}:{reply[1].decode()}"  # this notice makes the drainer read the journal
        await client.call(keys.channel, "SPUBLISH", keys.channel, notice)
    return True
