"""The check after a failover: each board is checked before a process changes or reads it again.

A replica that was promoted may lack what the old primary had acknowledged. Its replication id is new, so scripts refuse
every board until a process has checked it under the new reign. The process that moves journals to SQL checks the boards
that have a journal, because SQL shows what is missing. Any process checks the other boards: it
compares their offsets with those in its data directory.
"""

import time
from typing import Final, NamedTuple

from redis.exceptions import ResponseError

from live.errors import EpochLostError, StoreUnavailableError
from live.settings import Settings
from live.store.board.keys import Keys
from live.store.board.requests import ConfirmRequest
from live.store.connection.client import Store
from live.store.connection.high_water import COMPARED
from live.store.connection.scripts import Script
from live.store.registry.journals import is_sql_away

BEHIND: Final = b"behind"
"""The reign of a fenced board, which is that of no server (see `lua/fence.lua`)."""
CONFIRM: Final = Script("confirm", ConfirmRequest)

# How often a board is checked in a row if it is refused again: connections may have different reigns for a moment.
MOST_CHECKS: Final = 20
_PATIENCE: Final = 2.0  # seconds after which a board may be checked without SQL, unless producers wait for SQL
_ASKING: Final = 0.5  # seconds between two requests to check a board


class Unchecked(NamedTuple):
    """An unchecked board."""

    offset: int
    link: str  # of the last entry in its journal; empty without a journal
    behind: bool  # whether a process has begun to write what a failover lost


def unchecked(board: str, *, behind: bool = False) -> StoreUnavailableError:
    """Return the error for a board that was not checked yet. By its cause, `may_have_run` sees that nothing changed."""
    until = "the store has again what a failover lost" if behind else "it was checked after a failover"
    error = StoreUnavailableError(f"board {board} waits until {until}")
    error.__cause__ = ResponseError("the board was not checked")
    return error


async def confirm(client: Store, keys: Keys, epoch: str, offset: str) -> Unchecked | None:
    """Record that a board was checked at an offset, unless somebody writes what a failover lost.

    Return None if the board is checked now or has another epoch, and otherwise the board that is still unchecked.
    """
    reply = await CONFIRM(client, [keys.meta], ConfirmRequest(epoch=epoch, offset=offset))
    if reply[0] != b"reign":
        return None
    return Unchecked(int(reply[1]), reply[2].decode().rpartition(" ")[0], bool(reply[4]))


def require_acknowledged(client: Store, board: str, epoch: str, offset: int) -> None:
    """Raise an error if a board lacks something that was acknowledged, as far as the data directory knows."""
    high_water = client.high_water
    high_water.offsets.refresh()
    known = high_water.offset_of(board, epoch)
    if offset < known:
        reason = f"board {board} (epoch {epoch}) is at offset {offset} after a failover, and {known} was acknowledged"
        high_water.lose_boards({board: reason})
        raise EpochLostError(reason, board)


async def compare_earlier(client: Store, keys: Keys) -> None:
    """Compare a board with what this process had acknowledged when it met the reign of its server.

    Another machine may have checked the board, and counted beyond that since. If the store does not answer, do nothing.
    """
    high_water, board = client.high_water, keys.board
    earlier, known = high_water.earlier.get(board), high_water.offsets.known.get(board, ("", -1))
    try:
        state = await client.call(keys.meta, "HMGET", keys.meta, *COMPARED)
    except StoreUnavailableError:
        return
    if lost := high_water.compare_board(board, state, client.servers.reign_of(keys.meta), known, earlier):
        high_water.lose_boards({board: lost})


class Fence:
    """Check one board when a script refuses it.

    `shown_epoch` is the epoch that clients see, as last read: that of the board, digits of the reign, and the edition.
    """

    def __init__(self, client: Store, keys: Keys, settings: Settings) -> None:
        self.shown_epoch = ""
        self._client = client
        self._keys = keys
        self._waits_for_sql = settings.journal_ack
        self._refused_since = 0.0  # since when scripts refuse the board, in seconds of the monotonic clock
        self._refused_at = float("-inf")
        self._asked_at = float("-inf")

    async def check(self, epoch: str, offset: int, journal: bytes, *, behind: bool) -> None:
        """Check the board. After this returns, a script may run again. `journal` is empty if the board has no journal.

        While the store lacks a part of what a failover lost, no process goes on without SQL.
        """
        client, keys = self._client, self._keys
        client.high_water.require_no_loss(keys.board)
        if journal and (not await self._may_go_on(epoch, offset) or behind):
            raise unchecked(keys.board, behind=behind)
        require_acknowledged(client, keys.board, epoch, offset)
        await confirm(client, keys, epoch, str(offset))

    async def _may_go_on(self, epoch: str, offset: int) -> bool:
        """Ask the process that moves journals. Return whether to go on without SQL."""
        now = time.monotonic()
        if now > self._refused_at + _PATIENCE:
            self._refused_since = now
        self._refused_at = now
        if now >= self._asked_at + _ASKING:
            self._asked_at = now
            await self._client.call(self._keys.meta, "SPUBLISH", self._keys.channel, f"{epoch}:{offset}")
        if self._waits_for_sql or now < self._refused_since + _PATIENCE:
            return False
        return await is_sql_away(self._client)
