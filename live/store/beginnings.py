"""The beginning and the end of a board made at run time, in the store."""

from typing import Final

from live.board import Board
from live.store.client import Store, store_errors
from live.store.keys import Keys
from live.store.scripts import Script

BEAR: Final = Script("bear")
AMEND: Final = Script("amend")
WIPE: Final = Script("wipe")
LEAVE: Final = Script("leave")

_STEP: Final = 500  # keys looked at in one step


async def bear(client: Store, keys: Keys, board: Board, epoch: str) -> tuple[str, bool] | None:
    """Give a board its life; otherwise gives the epoch of what lives there, and whether that was made at run time.

    Raises:
        StoreUnavailableError: the store is away.
    """
    async with store_errors():
        reply = await BEAR(client, [keys.meta], [epoch, board.shape.encode()])
    return None if reply[0] == b"ok" or reply[1].decode() == epoch else (reply[1].decode(), reply[2] == b"1")


async def amend(client: Store, keys: Keys, epoch: str, revision: int, *, frozen: bool) -> None:
    """Bring a board in line with its definition; nothing happens to one that knows a later revision, or is no more.

    Raises:
        StoreUnavailableError: the store is away.
    """
    async with store_errors():
        await AMEND(client, [keys.meta], [epoch, revision, "1" if frozen else "", keys.channel])


async def leave(client: Store, keys: Keys, epoch: str, idle: float) -> float | None:
    """End the life of a board that nobody has used for so many seconds; None when it is over, else seconds to wait.

    Raises:
        StoreUnavailableError: the store is away.
    """
    async with store_errors():
        reply = await LEAVE(client, [keys.meta], [epoch, round(idle * 1000)])
    match reply:
        case [b"left"]:
            return None
        case [b"used", wait]:
            return int(wait) / 1000
    return float("inf")  # another life, of which others take care


async def wipe(client: Store, keys: Keys, epoch: str) -> None:
    """Drop everything that a board owned, in steps; a board of another epoch is left alone.

    Its state goes first: without that no script works on the board, so that nothing comes after the steps. Any number
    of processes may do this at once, and any of them may die on the way.

    Raises:
        StoreUnavailableError: the store is away.
    """
    found = [keys.meta]
    cursor = b"0"
    while True:
        async with store_errors():
            if found and (await WIPE(client, [keys.meta, *found], [epoch]))[0] != b"ok":
                return
            cursor, names = await client.line.call("SCAN", cursor, "MATCH", keys.every_pattern, "COUNT", _STEP)
            found = [name.decode() for name in names]
            if cursor == b"0":
                if found:
                    await WIPE(client, [keys.meta, *found], [epoch])
                return
