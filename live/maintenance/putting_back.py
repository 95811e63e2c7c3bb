"""Puts a journal from a backup in the place of one that was lost."""

import secrets
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from live.errors import SetupError
from live.journal.database import Database
from live.system.files import replacing, sync_folder

_PIECE: Final = 4 * 1024**2  # bytes in memory at once
_STORE: Final = ("appendonlydir", "*.rdb")  # the files of the embedded store


def held(database: Database, *, embedded: bool) -> list[Path]:
    """The files of a journal, and with `embedded` those of the store in the same data directory."""
    patterns = (database.path.name, f"{database.path.name}-*", *(_STORE if embedded else ()))
    return sorted(path for pattern in patterns for path in database.path.parent.glob(pattern))


def set_aside(found: list[Path]) -> Path:
    """Move files of a data directory to a new directory inside it. Returns the new directory."""
    folder = found[0].parent
    aside = folder / f"before-restore-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    aside.mkdir(mode=0o700)
    for path in found:
        path.rename(aside / path.name)
    sync_folder(folder)
    return aside


def put_back(folder: Path, database: Database) -> None:
    """Copy the journal of a backup to the place of the database, whose lock this process holds.

    The copy gets a new id. So the boards that are rebuilt from it get new epochs, even if the same backup is restored
    twice.

    Raises:
        SetupError: the file system refuses.
    """
    source = folder / database.path.name
    try:
        with source.open("rb") as given, replacing(database.path) as file:
            shutil.copyfileobj(given, file, _PIECE)
            file.flush()
            with closing(sqlite3.connect(file.name)) as copy:
                copy.execute("UPDATE about SET value = ? WHERE name = 'id'", (secrets.token_hex(16),))
                copy.commit()
        sync_folder(database.path.parent)
    except (OSError, sqlite3.Error) as error:
        raise SetupError(f"can't put the journal back at {database.path}: {error}") from None
