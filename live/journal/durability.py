"""Warnings about the settings of a journal's database with which acknowledged events can be lost."""

from sqlalchemy import Connection, text

from live.errors import StoreUnavailableError
from live.journal.database import Database


async def unsafe_in_sql(database: Database) -> list[str]:
    """Warn of each setting with which a commit may not be on disk, or may damage the database: one sentence each."""
    try:
        return await database.run(_read)
    except StoreUnavailableError as error:
        return [f"can't read the settings of the journal's database: {error}"]


def _read(connection: Connection) -> list[str]:
    if connection.dialect.name == "sqlite":
        wanted = {"journal_mode": ("wal",), "synchronous": ("2", "3")}
        found = {name: str(connection.scalar(text(f"PRAGMA {name}"))) for name in wanted}
        return [
            f"SQLite has {name} = {value}: a power cut loses what was committed"
            for name, value in found.items()
            if value not in wanted[name]
        ]
    lines = []
    if connection.scalar(text("SHOW fsync")) != "on":
        lines.append("PostgreSQL has fsync = off: a crash of its machine can damage the journal")
    if connection.scalar(text("SHOW synchronous_commit")) == "off":
        lines.append("PostgreSQL has synchronous_commit = off: a crash loses what was committed just before")
    if connection.scalar(text("SHOW full_page_writes")) != "on":
        lines.append("PostgreSQL has full_page_writes = off: a power cut can damage the journal")
    return lines
