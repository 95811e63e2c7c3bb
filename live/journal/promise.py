"""What a server can promise about acknowledged events. It follows from the settings of the store and the database."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from sqlalchemy import Connection, text

from live.errors import StoreUnavailableError
from live.journal.database import Database
from live.settings import Settings
from live.store.connection.client import Store
from live.store.connection.durability import StoreDurability, durability_of

Loss = Literal["nothing", "lag", "unsynced", "everything", "unknown"]

MEANINGS: Final[Mapping[Loss, str]] = {
    "nothing": "nothing",
    "lag": "what is not in SQL yet, usually less than a second",
    "unsynced": "what the database has not synced to disk",
    "everything": "everything",
    "unknown": "unknown, because the settings can't be read",
}
"""What each word means, for people."""

_ORDER: Final[tuple[Loss, ...]] = ("nothing", "lag", "unsynced", "unknown", "everything")


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """What can be lost of acknowledged events at most; see the table in docs/journal.md.

    Attributes:
        crash: when a process or the store crashes.
        power_cut: when the machine of the store loses power.
        store_lost: when the data of the store is gone.
        doubts: the settings of the database because of which more can be lost.
    """

    crash: Loss
    power_cut: Loss
    store_lost: Loss
    doubts: list[str] = []


def promise(settings: Settings, store: StoreDurability, doubts: list[str] | None) -> Promise:
    """What the settings give. `doubts` are those of the database (`doubts_of`); None if it can't be read."""
    return Promise(
        crash=_unless(store.survives_crash, settings, doubts),
        power_cut=_unless(store.survives_power_cut, settings, doubts),
        store_lost=_of_journal(settings, doubts),
        doubts=doubts or [],
    )


async def read_promise(client: Store, settings: Settings, database: Database | None) -> Promise:
    """Read the settings of the store and of the database."""
    doubts: list[str] | None = None
    if database is not None:
        try:
            doubts = await database.run(doubts_of)
        except StoreUnavailableError:
            doubts = None
    return promise(settings, await durability_of(client), doubts)


def doubts_of(connection: Connection) -> list[str]:
    """The settings of a database with which a commit may not be on disk, or may damage it: one sentence each."""
    if connection.dialect.name == "sqlite":
        wanted = {"journal_mode": ("wal",), "synchronous": ("2", "3")}
        found = {name: str(connection.scalar(text(f"PRAGMA {name}"))) for name in wanted}
        return [
            f"SQLite has {name} = {value}: a power cut loses what was committed"
            for name, value in found.items()
            if value not in wanted[name]
        ]
    doubts = []
    if connection.scalar(text("SHOW fsync")) != "on":
        doubts.append("PostgreSQL has fsync = off: a crash of its machine can damage the journal")
    if connection.scalar(text("SHOW synchronous_commit")) == "off":
        doubts.append("PostgreSQL has synchronous_commit = off: a crash loses what was committed just before")
    if connection.scalar(text("SHOW full_page_writes")) != "on":
        doubts.append("PostgreSQL has full_page_writes = off: a power cut can damage the journal")
    return doubts


def _of_journal(settings: Settings, doubts: list[str] | None) -> Loss:
    """What is lost when only the journal is left."""
    if settings.journal == "off":
        return "everything"
    if doubts is None:
        return "unknown"
    if doubts:
        return "unsynced"
    return "nothing" if settings.journal_ack else "lag"


def _unless(survives: bool | None, settings: Settings, doubts: list[str] | None) -> Loss:  # noqa: FBT001 - three values
    """What is lost when the store may not keep everything: then `live rebuild` restores what the journal has."""
    if survives:
        return "nothing"
    of_journal = _of_journal(settings, doubts)
    return of_journal if survives is False else max("unknown", of_journal, key=_ORDER.index)
