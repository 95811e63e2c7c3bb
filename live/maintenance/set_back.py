"""Set a board back to a time while servers use it: a swap leaves out everything that has changed it since.

The journal keeps the entries, so the past stays as it was. Events that were taken back before stay so.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from sqlalchemy import Connection

from live.domain.board import Board
from live.errors import SetupError
from live.journal.database import Database
from live.journal.log.entries import Head, contents
from live.journal.log.reader import Follower, oldest_checkpoint
from live.journal.state.fold import taken_by
from live.journal.state.snapshot import IDENTITY
from live.journal.state.taken import NOTHING, SentBetween, Taken
from live.maintenance.recover import Recovered, recovered, size_of
from live.maintenance.swap import swap
from live.maintenance.trail import Trail, find_trail
from live.maintenance.void import instant
from live.settings import Settings
from live.store.board.batch import decode_batch
from live.store.board.manage.swap import ELEMENTS
from live.store.board.state import BoardState
from live.store.connection.client import Store

_SECOND: Final = 999_999  # microseconds
_OTHERWISE: Final = "give a later --at, or recover the board under another id with --as"
_BEGINNINGS: Final = ("begin", "renew", "adopt")  # kinds of entries


class _Since(msgspec.Struct):
    """What has changed a board since a time."""

    last: str = ""  # the link of the last entry
    earlier: SentBetween | None = None  # what an earlier call with the same time has undone
    counted: list[tuple[Head, int, list[bytes]]] = []  # by entry, the bucket and the identities of its events

    def forgotten(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yield the identities of undone events by bucket, without those that were sent again and count."""
        undone = self.earlier
        kept = {one for head, _, all_ in self.counted if undone and not undone.has(head) for one in all_}
        for head, bucket, all_ in self.counted:
            if undone is None or undone.has(head):
                yield bucket, [one for one in all_ if one not in kept]


async def set_back(  # noqa: PLR0913 - of what, to when, and how
    client: Store,
    settings: Settings,
    database: Database,
    board: Board,
    epoch: str,
    at: int,
    show: Callable[[int, int], None],
    *,
    dry: bool,
) -> Recovered:
    """Give a board the contents that it had at a time (ms since 1970), or only tell its size then.

    Producers may send its later events again, because their identities are forgotten. After an interruption, the same
    call finishes this, and undoes nothing that came after it.

    Raises:
        SetupError: the journal does not have all entries since then, or the board was set back beyond this time.
    """
    state = BoardState(client, board, settings, born=epoch)
    await state.open()
    trail = await find_trail(client, database, board.id, epoch, at * 1000)
    found = await database.run(_read, board, trail)
    is_new = found.last and found.earlier is None
    taken = Taken((SentBetween(None, trail.since, found.last),)) if is_new else NOTHING
    follower = Follower(client, database, board.id, epoch, taken)
    try:
        await follower.begin(show)
    except SetupError as error:
        raise SetupError(f"{error}: {_OTHERWISE}") from None
    if dry:
        offset, journal = await state.call("HMGET", state.keys.meta, "offset", "journal")
        data = await follower.advance(journal.decode().rpartition(" ")[0])
        return Recovered(board.id, epoch, int(offset), size_of(board, state.keys, data))
    if taken:
        await swap(client, settings, board, epoch, follower, taken)
    # Until now, an event that is sent again is a duplicate of one that was sent before this call.
    for bucket, identities in found.forgotten():
        await _forget(state, bucket, identities)
    return await recovered(client, state.keys, board, epoch)


def _read(connection: Connection, board: Board, trail: Trail) -> _Since:
    """Read what has changed a board since a time."""
    found = _Since()
    if trail.reach > trail.since:
        held = oldest_checkpoint(connection, trail.parts[0][0])
        if held is None or held[0].time >= trail.since:
            raise _too_early(board, trail.reach if held is None else held[0].time)
    for head, body in trail.read(connection):
        if head.kind in _BEGINNINGS:
            raise _too_early(board, head.time)
        if head.kind == "swap":
            for one in taken_by(body).senders:
                if one.producer is None and one.since < trail.since:
                    raise SetupError(
                        f"board {board.id!r} was set back to {instant(one.since)}, and what it held between then and "
                        f"{instant(head.time)} stays undone: recover it under another id with --as"
                    )
                if one.producer is None and one.since == trail.since:
                    found.earlier = one
        if head.kind == "add" and (told := decode_batch(body).identities) is not None:
            found.counted.append((head, told.bucket, contents(told.all, IDENTITY)))
        found.last = head.link
    return found


def _too_early(board: Board, time: int) -> SetupError:
    begins = instant(time + _SECOND)  # a text has no parts of a second
    return SetupError(f"the journal of board {board.id!r} begins at {begins}: {_OTHERWISE}")


async def _forget(state: BoardState, bucket: int, identities: list[bytes]) -> None:
    key = state.keys.seen(bucket)
    for first in range(0, len(identities), ELEMENTS):
        await state.client.write(key, "SREM", key, *identities[first : first + ELEMENTS])
