"""Readings of the past that take long. They are in their own module, because each reader process imports it."""

import time
from pathlib import Path
from typing import Final

from sqlalchemy import Connection

from live.journal.database import Database
from live.settings import Settings

SLOW: Final = 5.0  # seconds that a long query takes


def make_journal(folder: Path) -> None:
    """Make a journal without any entry."""
    with Database("sqlite", folder, Settings().key_prefix, writes=True) as database:
        assert database.take_now()


def sleep_on(connection: Connection, *_: object) -> None:
    """Work that never ends. It notes in the data directory that it has begun."""
    _note(connection)
    while True:
        time.sleep(0.01)


def sleep_a_while(connection: Connection) -> None:
    """Work that takes long. It notes in the data directory that it has begun."""
    _note(connection)
    time.sleep(SLOW)


def _note(connection: Connection) -> None:
    folder = Path(connection.exec_driver_sql("PRAGMA database_list").one()[2]).parent
    with (folder / "begun").open("a") as file:
        file.write(".")
