"""Compares the journal with the store, and finds what the store has lost (I8)."""

import time
from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection

from live.errors import StoreUnavailableError
from live.journal.database import Database
from live.journal.log.entries import parse_head
from live.journal.log.timelines import Gap, Timeline, end_lives, open_lives, went_back
from live.store.board.keys import Keys
from live.store.connection.client import Store, store_errors
from live.store.connection.pipelined import Word


class Loss(msgspec.Struct, frozen=True):
    """A life of which SQL has more than the store: what the store has instead, for people.

    `gone` means that the store has nothing of it. Otherwise it has the life to an earlier entry.
    """

    life: Timeline
    what: str
    gone: bool

    def __str__(self) -> str:
        """One sentence."""
        life = self.life
        return f"the journal has board {life.board} (epoch {life.epoch}) up to offset {life.offset}, and it {self.what}"


async def find_lost(client: Store, prefix: str, database: Database) -> list[Loss]:
    """The lives that the store lacks or in which it went back.

    Raises:
        StoreUnavailableError: the store or the database is unavailable.
    """
    lives = database.work(lambda connection: open_lives(connection, prefix))
    commands: list[tuple[str, tuple[Word, ...]]] = []
    for life in lives:
        keys, stream = Keys(prefix, life.board), Keys(prefix, life.board).journal(life.epoch)
        commands.append((keys.meta, ("HMGET", keys.meta, "epoch", "offset", "journal")))
        commands.append((keys.gone, ("HGET", keys.gone, "epoch")))
        commands.append((keys.journals, ("SISMEMBER", keys.journals, f"{life.board} {life.epoch}")))
        commands.append((stream, ("XRANGE", stream, f"({life.drained}", "+", "COUNT", 1)))
    async with store_errors():
        replies = await client.calls(commands)
    for reply in replies:
        if isinstance(reply, Exception):
            raise StoreUnavailableError(str(reply)) from reply
    found = []
    for life, (epoch, offset, journal), deleted, listed, waiting in zip(
        lives, replies[::4], replies[1::4], replies[2::4], replies[3::4], strict=True
    ):
        name = life.epoch.encode()
        if epoch == name:
            what = _what_is_missing(life, int(offset or 0), journal, waiting[0][1][1] if waiting else None)
            if what:
                found.append(Loss(life, what, gone=False))
        elif name != deleted and not listed:
            what = f"has epoch {epoch.decode()}" if epoch else "is not in the store"
            found.append(Loss(life, what, gone=True))
    return found


def _what_is_missing(life: Timeline, offset: int, journal: bytes | None, waiting: bytes | None) -> str:
    """What the store has instead of the last entry of a life; empty if it has that, or more.

    `journal` is the link of its last entry, with a size, and `waiting` the head of the first one that SQL lacks.
    """
    if journal is None:  # the journal has ended
        return f"is at offset {offset}" if offset < life.offset else ""
    link = journal.decode().rpartition(" ")[0]
    if went_back(life, link):
        return f"is at offset {offset}, with {link.partition(' ')[0]} as the last entry"
    head = None if waiting is None else parse_head(waiting.decode())
    if head is not None and head.kind != "adopt" and went_back(life, head.before):
        return f"has other events up to offset {offset}: the store went back, and counted again"
    return ""


def end_lost(connection: Connection, lost: Sequence[Loss]) -> None:
    """End the lives that were lost, after an operator has accepted the loss.

    What a board holds that continues an earlier entry is the beginning of a life, which records what is missing. Of the
    others, nothing continues, and it is recorded here.
    """
    for loss in lost:
        end_lives(connection, [loss.life], [Gap(loss.life.link, "", time.time_ns() // 1000)] if loss.gone else [])
