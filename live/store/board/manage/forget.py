"""Find a member in a board of the store, and delete all data of the member."""

from collections.abc import Collection
from typing import Any, Final

from live.domain.board import Board
from live.domain.window import Sliding
from live.store.board.journal_stream import begin_journal
from live.store.board.keys import Keys
from live.store.board.reign import unchecked
from live.store.board.requests import ForgetRequest, SlotRef, rules_of
from live.store.connection.client import Store
from live.store.connection.pipelined import Word
from live.store.connection.scripts import Script, text

FORGET: Final = Script("forget", ForgetRequest)


async def knows_member(client: Store, keys: Keys, board: Board, member: str) -> bool:
    """Return whether a member is under any store key of a board."""
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
        notice = f"{epoch}:{reply[1].decode()}"  # this change makes the drainer read the board
        await client.call(keys.channel, "SPUBLISH", keys.channel, notice)
    return True
