"""Create, change, expire and delete boards in the store."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Final

from live.domain.board import MOST_BUCKETS, MOST_REMEMBERED, Board
from live.errors import SetupError
from live.settings import LONGEST
from live.store.board.journal_stream import announced, begin_journal
from live.store.board.keys import Keys
from live.store.board.reign import unchecked
from live.store.board.requests import (
    SCRIPTS,
    Continued,
    CreateRequest,
    DeleteKeysRequest,
    ExpireBoardRequest,
    RenewRequest,
    UpdateRequest,
)
from live.store.board.rotation import ELEMENTS_A_STEP
from live.store.connection.client import Store
from live.store.connection.scripts import Script, text

UPDATE: Final = Script("update", UpdateRequest)
DELETE_KEYS: Final = Script("delete_keys", DeleteKeysRequest)
DELETE_MORE: Final = Script("delete_keys", DeleteKeysRequest, waits=False)
EXPIRE_BOARD: Final = Script("expire_board", ExpireBoardRequest)
RENEW: Final = Script("renew", RenewRequest)

_SLOTS_A_STEP: Final = 100
_KEYS_A_STEP: Final = 500


async def create(
    client: Store,
    keys: Keys,
    board: Board,
    epoch: str,
    *,
    journal: bool = False,
    secret: bytes = b"",
    past: Continued | None = None,
) -> str | None:
    """Create a board. If the store already has another board with this id, return its epoch.

    `secret` is the key of the digests of voters: by default random bytes.
    """
    key = text(secret or secrets.token_bytes(16))
    request = CreateRequest(epoch, board.shape.encode(), key, journal=journal, past=past)
    async with announced(client, keys, epoch) if journal else nullcontext():
        reply = await SCRIPTS.create(client, [keys.meta, keys.journal(epoch)], request)
    return None if reply[0] == b"ok" or reply[1].decode() == epoch else reply[1].decode()


async def update(client: Store, keys: Keys, epoch: str, revision: int, *, frozen: bool) -> None:
    """Apply a revision of a board's definition, unless the board has it or a newer one, or does not exist."""
    request = UpdateRequest(epoch=epoch, revision=revision, frozen=frozen)
    if (await UPDATE(client, [keys.meta], request))[0] == b"reign":
        raise unchecked(keys.board)


async def renew(client: Store, keys: Keys, epoch: str) -> bool:
    """Give a board a new epoch and keep its data. Return False if there is no such board.

    A journal of the new epoch begins with everything that the board holds.
    """
    reply = await RENEW(client, [keys.meta], RenewRequest(epoch))
    if reply[0] == b"behind":
        raise SetupError(
            f"the store holds a part of what a failover lost of board {keys.board!r}: "
            f"run `live recover --from journal --board {keys.board}`"
        )
    if reply[0] != b"ok":
        return False
    if reply[2]:
        await begin_journal(client, keys, epoch)
    return True


async def expire(client: Store, keys: Keys, epoch: str, idle: float) -> float | None:
    """Delete a board that nobody has used for `idle` seconds, and return None, or the seconds until it can expire."""
    reply = await EXPIRE_BOARD(client, [keys.meta, keys.gone], ExpireBoardRequest(epoch, round(idle * 1000)))
    match reply:
        case [b"left"]:
            return None
        case [b"used", wait]:
            return int(wait) / 1000
        case [b"reign", *_]:
            raise unchecked(keys.board)
    return float("inf")  # meanwhile, another board has this id


async def delete_keys(client: Store, keys: Keys, epoch: str) -> None:
    """Delete everything that a board owned, in steps. A board with another epoch is left alone.

    The names of the store keys follow from the board's state and its list of slots. The first step renames the state,
    so that no script adds anything while the steps run. Several processes may delete a board at once, and each may stop
    at any point, because the list of slots and the renamed state are deleted last. Only the first and the last step
    wait until the store has written to disk and to replicas: the last step waits for all steps before it.
    """
    starts: list[str] = []
    left = await _delete_step(client, keys, epoch, waits=True)
    while left is not None:
        span, bucket, now, *found = left
        starts = list(dict.fromkeys(found))[:_SLOTS_A_STEP]
        if not starts:
            loose = await client.call(keys.dropped, "SUNION", keys.dropped, keys.next)
            more = [name.decode() for name in loose]
            more += [keys.seen(start) for start in _buckets(int(span), int(bucket or 0), int(now))] if span else []
            for first in range(0, len(more), _KEYS_A_STEP):
                if await _delete_step(client, keys, epoch, [], more[first : first + _KEYS_A_STEP]) is None:
                    return
            if await _delete_step(client, keys, epoch, [], keys.fixed) is not None:
                await _delete_step(client, keys, epoch, [], [keys.slots, keys.gone], waits=True)
            return
        left = await _delete_step(client, keys, epoch, starts)


async def _delete_step(
    client: Store,
    keys: Keys,
    epoch: str,
    starts: Sequence[str] = (),
    more: Sequence[str] = (),
    *,
    waits: bool = False,
) -> list[str] | None:
    """Return the script's reply, or None when there is another board."""
    old = [key for start in starts for key in keys.of_slot(start)]
    request = DeleteKeysRequest(epoch, _SLOTS_A_STEP, ELEMENTS_A_STEP, list(starts))
    script = DELETE_KEYS if waits else DELETE_MORE
    while (reply := await script(client, [keys.meta, keys.gone, keys.slots, *old, *more], request))[0] == b"left":
        request.cursor = reply[1].decode()
    return [word.decode() for word in reply[1:]] if reply[0] == b"ok" else None


def _buckets(span: int, newest: int, now: int) -> Iterator[int]:
    """Yield the starts of all buckets of identities, `span` seconds each, that the store may hold.

    A bucket stays for the longest time that a board remembers identities, plus a few spans. If the clock was set back,
    the newest bucket may be ahead of it.
    """
    kept = max(LONGEST, MOST_REMEMBERED, MOST_BUCKETS * span) + 5 * span
    first = (now - kept) // span * span
    last = now // span * span
    yield from range(first, last + span, span)
    if newest > last:
        yield from range(max(last + span, (newest - kept) // span * span), newest + span, span)
