"""Compares the journal with the store, and finds what the store has lost (I8)."""

from collections.abc import Sequence

from live.errors import StoreUnavailableError
from live.journal.database import Database
from live.journal.lives import Life, end_lives, open_lives
from live.store.board.keys import Keys
from live.store.connection.client import Store, store_errors
from live.store.connection.pipelined import Word


async def find_lost(client: Store, prefix: str, database: Database) -> list[tuple[Life, str]]:
    """The lives that the store lacks or in which it went back. The value says what the store holds, for people.

    Raises:
        StoreUnavailableError: the store or the database is unavailable.
    """
    lives = database.work(lambda connection: open_lives(connection, prefix))
    commands: list[tuple[str, tuple[Word, ...]]] = []
    for life in lives:
        keys = Keys(prefix, life.board)
        commands.append((keys.meta, ("HMGET", keys.meta, "epoch", "offset")))
        commands.append((keys.gone, ("HGET", keys.gone, "epoch")))
        commands.append((keys.journals, ("SISMEMBER", keys.journals, f"{life.board} {life.epoch}")))
    async with store_errors():
        replies = await client.calls(commands)
    for reply in replies:
        if isinstance(reply, Exception):
            raise StoreUnavailableError(str(reply)) from reply
    found = []
    for life, (epoch, offset), deleted, listed in zip(lives, replies[::3], replies[1::3], replies[2::3], strict=True):
        name = life.epoch.encode()
        if epoch == name and int(offset or 0) < life.offset:
            found.append((life, f"is at offset {int(offset or 0)}"))
        elif name not in (epoch, deleted) and not listed:
            found.append((life, f"has epoch {epoch.decode()}" if epoch else "is not in the store"))
    return found


def describe(lost: Sequence[tuple[Life, str]]) -> list[str]:
    """One sentence for each life that was lost."""
    return [
        f"the journal has board {life.board} (epoch {life.epoch}) up to offset {life.offset}, and it {what}"
        for life, what in lost
    ]


async def end_lost(client: Store, prefix: str, database: Database) -> None:
    """End the lives that were lost, after an operator has accepted the loss. Raises as `find_lost`."""
    lost = [life for life, _ in await find_lost(client, prefix, database)]
    database.work(lambda connection: end_lives(connection, lost))
